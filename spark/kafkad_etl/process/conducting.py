"""Conducts a run from the start of Spark to its end: passes the driver's events on, and Ctrl-C to the driver."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Protocol, Self

from msgspec.structs import replace

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.messages import Batch, Committed, Ended, Ends, Event, Failed, Lost, Retrying, Unsure, Warned
from kafkad_etl.model.loading import masked
from kafkad_etl.process.interruptions import Interruptions
from kafkad_etl.process.launching import KILL_SECONDS, Launched
from kafkad_etl.process.logs import Log
from kafkad_etl.reporting import Reporter, RunOutcome

_LOG_LINES = 5
_LOG_SCANNED = 60
_END_SECONDS = 20.0
"""Time for Spark to exit by itself after the driver has finished."""
_START_SECONDS = 45.0
"""Time for Spark to start on a cluster that has resources."""
_DYING_SECONDS = 2.0
"""A job that fails is not alone to blame if Spark ends within this time."""
_STOPPING = "stopping after the current batch; press Ctrl-C again to stop at once"
_STOPPING_ALL = "stopping all jobs after their current batches; press Ctrl-C again to stop at once"

FrontEvent = Committed | Ends | Lost | Unsure | Warned | Failed
"""Events that the front adds to those of the driver."""
LastEvent = Ended | Failed | None
"""The driver's last event; None if it ended without one."""


class Observer(Protocol):
    """Somebody else who follows a run."""

    def event(self, event: Event) -> None:
        """The reporter's state has it already."""

    def turn(self, stopping: bool) -> None:
        """Called at least ten times per second."""


class Conductor:
    """Passes events of one job, from the driver and the front, to its reporter. A context manager, which reports the
    outcome at its end, however that came about."""

    def __init__(
        self,
        shown: Reporter,
        interruptions: Interruptions,
        secrets: frozenset[str] = frozenset(),
        cluster: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`cluster` is the master that may keep the application waiting; empty for a local one."""
        self._shown = shown
        self._cluster = cluster
        self._clock = clock
        self._patience = clock() + _START_SECONDS
        self._interruptions = interruptions
        self._secrets = secrets
        self._last: LastEvent = None
        self._failure: Failed | None = None
        self._began = False
        self._others: SimpleQueue[FrontEvent] = SimpleQueue()
        self.on_batch: list[Callable[[Batch], None]] = []
        self.observers: list[Observer] = []

    def tell(self, event: FrontEvent) -> None:
        """Queues an event; safe from any thread. `Failed` stops the job after the current batch."""
        self._others.put(event)

    @property
    def was_cut_off(self) -> bool:
        """True if the driver may have done more than it reported; valid at the end."""
        return not isinstance(self.last, Ended)

    @property
    def has_started(self) -> bool:
        """True once Spark runs."""
        return bool(self._shown.state.application)

    @property
    def has_failed(self) -> bool:
        """True if the front has found a reason to stop the job."""
        return self._failure is not None

    @property
    def last(self) -> LastEvent:
        """The last event: of the front, if it had a reason to stop the job, otherwise of the driver."""
        return self._failure or self._last

    def warn(self, text: str) -> None:
        self.tell(Warned(text))

    def say_of_all(self, text: str) -> None:
        """Says what concerns all jobs in this Spark."""
        self._shown.say_of_all(text)

    def begin(self) -> None:
        """Spark has been started."""
        self._began = True

    def take(self, event: Event) -> None:
        """Handles an event of the driver."""
        event = without_secrets(event, self._secrets)
        self._show(replace(event, trace="") if isinstance(event, Failed) else event)
        if isinstance(event, Batch):
            for call in self.on_batch:
                call(event)
        if isinstance(event, (Ended, Failed)):
            self._last = event

    def tick(self, log: Log) -> None:
        """Nothing has arrived for a while."""
        self._shown.tick()
        if self._cluster and not self.has_started and self._clock() > self._patience:
            self.warn(
                f"{self._cluster} has not started the application for {_START_SECONDS:.0f} s: its queue may be full, "
                f"or it may lack resources; see {log.path}"
            )
            self._cluster = ""

    def turn(self) -> None:
        """Handles what the front has found meanwhile."""
        while not self._others.empty():
            event = self._others.get()
            if isinstance(event, Failed):
                self._failure = event
                self._shown.say(f"{event.text}: stopping after the current batch")
            else:
                self._show(event)

    def observe(self, stopping: bool) -> None:
        for observer in self.observers:
            observer.turn(stopping=stopping)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.turn()
        self._shown.close(outcome_of(self.last, self._interruptions.count) if self._began else "not begun")

    def _show(self, event: Event) -> None:
        self._shown.event(event)
        for observer in self.observers:
            observer.event(event)


JobEnd = LastEvent | EtlError
"""How a job ended: with its last event, interrupted (None), or killed with Spark (the error)."""


class Conducting:
    """Runs the jobs of one Spark to their ends. Each has its conductor; what concerns all of them, such as Ctrl-C and
    the end of Spark, is handled here."""

    def __init__(
        self,
        conductors: Sequence[Conductor],
        launched: Launched,
        interruptions: Interruptions,
        log: Log,
        on_end: Callable[[int, JobEnd], None],
        secrets: frozenset[str] = frozenset(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_end` gets the index of each job that has ended, as soon as that is certain."""
        self._conductors = conductors
        self._launched = launched
        self._interruptions = interruptions
        self._log = log
        self._on_end = on_end
        self._secrets = secrets
        self._clock = clock
        self._heeded = 0
        self._stopped: set[int] = set()
        self._going_on = dict(enumerate(conductors))
        """Those whose end has not been told."""
        self._silent: dict[int, float] = {}
        """Those without further events whose end is not certain: when that was."""

    def run_to_end(self) -> None:
        """Returns when Spark has ended."""
        for conductor in self._conductors:
            conductor.begin()
        for arrival in self._launched.events():
            if arrival is None:
                self._log.make_room()
                for conductor in self._going_on.values():
                    conductor.tick(self._log)
            elif arrival.event is None:
                self._silent[arrival.job] = self._clock()
            else:
                self._conductors[arrival.job].take(arrival.event)
            self._turn()
        self._heed_interruptions()
        status = settle(self._launched, self._interruptions)
        for job, conductor in list(self._going_on.items()):
            self._end(job, was_killed(conductor.last, status), status)

    def _turn(self) -> None:
        self._heed_interruptions()
        for job, conductor in self._going_on.items():
            conductor.turn()
            if conductor.has_failed and job not in self._stopped:
                self._stopped.add(job)
                self._launched.stop(job)
            conductor.observe(stopping=job in self._stopped or self._heeded > 0)
        if len(self._silent) < len(self._conductors):
            self._tell_ends()

    def _tell_ends(self) -> None:
        """Ends jobs while others go on. A failure may be that of a Spark that is dying, which takes them all."""
        for job in [job for job in self._going_on if job in self._silent]:
            has_outlived = self._launched.ended is None and self._clock() - self._silent[job] > _DYING_SECONDS
            if isinstance(self._going_on[job].last, Ended) or has_outlived:
                self._end(job, self._going_on[job].last is None, None)

    def _end(self, job: int, killed: bool, status: int | None) -> None:
        conductor = self._going_on.pop(job)
        last: JobEnd = conductor.last
        if killed:
            last = None if self._interruptions.count else ended_early(status, self._log, self._secrets)
        self._on_end(job, last)

    def _heed_interruptions(self) -> None:
        count = self._interruptions.count
        if count == self._heeded:
            return
        self._heeded = count
        # while Spark starts there is no batch to wait for
        now = count > 1 or not any(conductor.has_started for conductor in self._conductors)
        by = self._interruptions.by
        said = "stopping at once" if now else _STOPPING if len(self._going_on) < 2 else _STOPPING_ALL
        speaker = next(iter(self._going_on.values()), self._conductors[0])
        again = signal.SIGTERM if by == signal.SIGHUP else by
        speaker.say_of_all(said if by == signal.SIGINT else f"{by.name}: {said.replace('Ctrl-C', again.name)}")
        if now:
            self._launched.kill()
        else:
            self._launched.stop()


def without_secrets(event: Event, secrets: frozenset[str]) -> Event:
    if isinstance(event, Warned | Retrying):
        return replace(event, text=masked(event.text, secrets))
    if isinstance(event, Failed):
        hints = [masked(hint, secrets) for hint in event.hints]
        return replace(event, text=masked(event.text, secrets), trace=masked(event.trace, secrets), hints=hints)
    return event


def exit_of(last: LastEvent) -> EtlExit:
    """The exit code of a run that did not fail."""
    return EtlExit.DONE if isinstance(last, Ended) and last.reason != "stopped" else EtlExit.INTERRUPTED


def outcome_of(last: LastEvent, interruptions: int) -> RunOutcome:
    if isinstance(last, Failed):
        return "failed"
    if last is None:
        return "interrupted" if interruptions else "failed"
    return "interrupted" if last.reason == "stopped" else last.reason


def settle(launched: Launched, interruptions: Interruptions, clock: Callable[[], float] = time.monotonic) -> int | None:
    """Waits for Spark to exit by itself, unless Ctrl-C was pressed twice, then kills it.

    Returns spark-submit's own exit status; None if it had to be killed.
    """
    patience = clock() + _END_SECONDS
    while (status := launched.wait(0.1)) is None and clock() < patience and interruptions.count < 2:
        pass
    launched.kill()
    launched.wait(KILL_SECONDS)  # nothing may be committed any more
    return status


def was_killed(last: LastEvent, status: int | None) -> bool:
    """True if the JVM was killed or ended without a last event; all its driver reports then is the lost JVM."""
    return last is None or (isinstance(last, Failed) and signal_of(status) is not None)


_ENDED_BY = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)


def signal_of(status: int | None) -> signal.Signals | None:
    """The signal that ended it. A JVM ended by SIGTERM exits with 128 plus its number."""
    if status is None or status >= 0:
        return next((each for each in _ENDED_BY if status == 128 + each), None)
    return signal.Signals(-status)


_OF_A_TRACE = re.compile(r"\s+at .*|\s*\.\.\. \d+ more|Caused by: .*|Traceback .*|\s+File .*|\s{4,}.*|\s+\^+.*")


def without_traces(lines: Sequence[str]) -> list[str]:
    """The lines without stack traces, which are in the log."""
    return [line for line in lines if not _OF_A_TRACE.fullmatch(line)]


def ended_early(status: int | None, log: Log, secrets: frozenset[str]) -> EtlError:
    """The error for a driver that ended without a last event, with the last lines of its log."""
    how = "stopped responding" if status is None else f"exited with code {status}"
    hints = []
    by = signal_of(status)
    if by is not None:
        how = f"was killed ({by.name})" if by == signal.SIGKILL else f"was terminated ({by.name})"
    if by == signal.SIGKILL:
        hints.append("if nobody killed it, the machine ran out of memory: check dmesg, and lower spark.driver_memory")
    if lines := without_traces(log.last_lines(_LOG_SCANNED))[-_LOG_LINES:]:
        hints += ["the last lines of the log:", *(masked(line, secrets) for line in lines)]
    return EtlError(f"Spark {how} before the job finished", EtlExit.FAILED, hints=(*hints, f"log: {log.path}"))
