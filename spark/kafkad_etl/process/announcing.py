"""Tells systemd how a run goes: when the query runs, one line about its progress, and that it does make progress.

The watchdog is fed while batches do: tasks end, batches are committed. A query that has nothing to do is fed by what
shows that: the ends of the partitions, asked for by the front, are where the query is. A query that hangs with rows to
read, in its JVM, in a task or in a sink, is not fed, and neither is one whose brokers no longer respond. With nothing
to do, a sign of that comes every 15 seconds, so that nothing is taken for hanging before 30 seconds have passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Protocol

from kafkad.systemd import Notifier
from kafkad_etl.cluster.ends import ASK_SECONDS
from kafkad_etl.messages import Ends, Event, Lost, Retrying, Tasks, Unsure, Warned
from kafkad_etl.model.loading import masked
from kafkad_etl.reporting.state import State
from kafkad_etl.reporting.text import status_line
from kctl.errors import KctlError

_STATUS_SECONDS = 1.0


class Notices(Protocol):
    """What a run tells systemd: see `Notifier`."""

    @property
    def watchdog_interval_s(self) -> float | None: ...
    def ready(self, status: str) -> None: ...
    def status(self, text: str) -> None: ...
    def watchdog(self) -> None: ...
    def close(self) -> None: ...


class JobNotices:
    """The notices of one of several jobs, which systemd takes for one service. It is ready when all jobs that have not
    ended are, and the watchdog is fed when each of them is. The status has a part for each."""

    def __init__(self, name: str, whole: Notifier, parts: list[JobNotices]) -> None:
        """`parts` are those of all jobs, this one among them."""
        self._name = name
        self._whole = whole
        self._parts = parts
        self._text = ""
        self._is_ready = self._is_fed = self._has_ended = False

    @property
    def watchdog_interval_s(self) -> float | None:
        return self._whole.watchdog_interval_s

    def ready(self, status: str) -> None:
        self._text, self._is_ready = status, True
        self._tell_ready()

    def status(self, text: str) -> None:
        self._text = text
        self._whole.status(self._status())

    def watchdog(self) -> None:
        self._is_fed = True
        self._feed()

    def close(self) -> None:
        self._has_ended = True
        if all(each._has_ended for each in self._parts):
            self._whole.close()
            return
        if not self._is_ready:
            self._tell_ready()
        self._feed()

    def _tell_ready(self) -> None:
        if all(each._is_ready or each._has_ended for each in self._parts) and any(
            each._is_ready for each in self._parts
        ):
            self._whole.ready(self._status())

    def _feed(self) -> None:
        if all(each._is_fed or each._has_ended for each in self._parts):
            for each in self._parts:
                each._is_fed = False
            self._whole.watchdog()

    def _status(self) -> str:
        return "; ".join(f"{each._name}: {each._text}" for each in self._parts if each._text)


def notices_of(notifier: Notifier, names: Sequence[str]) -> list[Notices]:
    """The notices of each job."""
    if len(names) == 1:
        return [notifier]
    parts: list[JobNotices] = []
    parts += [JobNotices(name, notifier, parts) for name in names]
    return [*parts]


@contextmanager
def announced(notifier: Notices, secrets: Iterable[str]) -> Iterator[Notices]:
    """Tells how a run ended. Even one that had nothing to do was ready: systemd takes a service that ends before as
    failed."""
    with closing(notifier):
        try:
            yield notifier
        except KctlError as error:
            notifier.status(f"failed: {masked(error.what, secrets)}")
            raise
        notifier.ready("ended")


class Announcer:
    """Gets every event once `state` has it, and a turn several times per second."""

    def __init__(
        self,
        notifier: Notices,
        state: Callable[[], State],
        *,
        is_endless: bool,
        pause_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_endless`: in mode continuous, whose lag is known from the ends that the front asks for; other runs only
        go to the ends they were planned with. `pause_seconds`: between two batches, `run.every`."""
        self._notifier = notifier
        self._state = state
        self._is_endless = is_endless
        self._clock = clock
        self._is_ready = False
        self._tasks: Tasks | None = None
        self._interval = notifier.watchdog_interval_s
        self._patience = pause_seconds + max(2 * (self._interval or 0.0), 2 * ASK_SECONDS)
        self._alive = clock()
        """The time of the last progress; in the future while a retry waits."""
        self._next_feed = self._next_status = 0.0
        self._status = ""

    def event(self, event: Event) -> None:
        now = self._clock()
        if isinstance(event, Retrying):
            self._alive = now + event.seconds
        elif isinstance(event, Ends):
            if is_idle(self._state(), is_endless=True):
                self._alive = now
        elif not isinstance(event, Warned | Lost | Unsure) and event != self._tasks:
            self._alive = max(now, self._alive)
        if isinstance(event, Tasks):
            self._tasks = event

    def turn(self, stopping: bool) -> None:
        """`stopping`: the run was asked to, for which systemd has a limit of its own."""
        now, state = self._clock(), self._state()
        if state.reading and not self._is_ready:
            self._is_ready = True
            self._notifier.ready(status_line(state))
        if now >= self._next_status:
            self._next_status = now + _STATUS_SECONDS
            self._tell_status(f"stopping: {status_line(state)}" if stopping else status_line(state))
        if stopping or (not self._is_endless and is_idle(state, is_endless=False)):
            self._alive = now
        if self._interval is not None and now >= self._next_feed and now - self._alive <= self._patience:
            self._next_feed = now + self._interval
            self._notifier.watchdog()

    def _tell_status(self, text: str) -> None:
        if text != self._status:
            self._status = text
            self._notifier.status(text)


def is_idle(state: State, *, is_endless: bool) -> bool:
    """True if the query has nothing to read and no task runs."""
    if state.tasks is not None:
        return False
    spans = [span for each in state.spans.values() for span in each.values()]
    return not state.lag if is_endless else all(span.done >= span.end for span in spans)
