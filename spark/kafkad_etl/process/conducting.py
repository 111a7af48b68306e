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
from kafkad_etl.process.launching import Launched
from kafkad_etl.process.logs import Log
from kafkad_etl.reporting import Reporter, RunOutcome

_LOG_LINES = 5
_LOG_SCANNED = 60
_END_SECONDS = 20.0
"""Time for Spark to exit by itself after the driver has finished."""
_START_SECONDS = 45.0
"""Time for Spark to start on a cluster that has resources."""
_STOPPING = "stopping after the current batch; press Ctrl-C again to stop at once"

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
    """Passes events from the driver and the front to the reporter. A context manager, which reports the outcome at
    its end, however that came about."""

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
        self._heeded = 0
        self._last: LastEvent = None
        self._failure: Failed | None = None
        self._began = False
        self._stopped = False
        self._others: SimpleQueue[FrontEvent] = SimpleQueue()
        self.on_batch: list[Callable[[Batch], None]] = []
        self.observers: list[Observer] = []

    def tell(self, event: FrontEvent) -> None:
        """Queues an event; safe from any thread. `Failed` stops the run after the current batch."""
        self._others.put(event)

    @property
    def was_cut_off(self) -> bool:
        """True if the driver may have done more than it reported; valid at the end."""
        return not isinstance(self._last, Ended)

    def warn(self, text: str) -> None:
        self.tell(Warned(text))

    def run_to_end(self, launched: Launched, log: Log) -> LastEvent:
        """Runs until Spark has ended. Returns the driver's last event, None if interrupted; raises EtlError if Spark
        was killed."""
        self._began = True
        last = self._conduct(launched, log)
        status = settle(launched, self._interruptions)
        if not was_killed(last, status):
            return last
        if not self._interruptions.count:
            raise ended_early(status, log, self._secrets)
        return None

    def _tell_waiting(self, log: Log) -> None:
        """Warns once if the cluster has not started the application, for which it may have good reasons."""
        if self._cluster and not self._shown.state.application and self._clock() > self._patience:
            self.warn(
                f"{self._cluster} has not started the application for {_START_SECONDS:.0f} s: its queue may be full, "
                f"or it may lack resources; see {log.path}"
            )
            self._cluster = ""

    def _conduct(self, launched: Launched, log: Log) -> LastEvent:
        """Handles events until the driver has disconnected."""
        for event in launched.events():
            if event is None:
                self._shown.tick()
                self._tell_waiting(log)
            else:
                self._pass_on(without_secrets(event, self._secrets))
            self._heed_interruptions(launched)
            self._heed_others()
            if self._failure and not self._stopped:
                self._stopped = True
                launched.stop()
            for observer in self.observers:
                observer.turn(stopping=self._stopped or self._heeded > 0)
        self._heed_interruptions(launched)
        self._last = self._failure or self._last
        return self._last

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._heed_others()
        self._shown.close(outcome_of(self._last, self._interruptions.count) if self._began else "not begun")

    def _pass_on(self, event: Event) -> None:
        self._show(replace(event, trace="") if isinstance(event, Failed) else event)
        if isinstance(event, Batch):
            for call in self.on_batch:
                call(event)
        if isinstance(event, (Ended, Failed)):
            self._last = event

    def _show(self, event: Event) -> None:
        self._shown.event(event)
        for observer in self.observers:
            observer.event(event)

    def _heed_interruptions(self, launched: Launched) -> None:
        count = self._interruptions.count
        if count > self._heeded:
            self._heeded = count
            now = count > 1 or not self._shown.state.application  # while Spark starts there is no batch to wait for
            by = self._interruptions.by
            said = "stopping at once" if now else _STOPPING
            self._shown.say(said if by == signal.SIGINT else f"{by.name}: {said.replace('Ctrl-C', by.name)}")
            launched.stop(now=now)

    def _heed_others(self) -> None:
        while not self._others.empty():
            event = self._others.get()
            if isinstance(event, Failed):
                self._failure = event
                self._shown.say(f"{event.text}: stopping after the current batch")
            else:
                self._show(event)


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
