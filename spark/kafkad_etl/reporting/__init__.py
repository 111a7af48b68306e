"""Shows a run's progress in one of three ways. Data goes to standard output, everything else to `stream`."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TextIO

from kafkad_etl.messages import Event, Rows
from kafkad_etl.planning.planned import PlannedRun
from kafkad_etl.reporting.state import State, advance, begin
from kafkad_etl.reporting.text import summary

if TYPE_CHECKING:
    from kafkad_etl.reporting.live import Screen

How = Literal["rich", "plain", "json"]
RunOutcome = Literal["done", "limit", "stopped", "interrupted", "failed", "not begun"]


class Reporter(ABC):
    """Receives every event, and a tick at regular intervals; `close` reports the outcome."""

    def __init__(
        self,
        state: State,
        stream: TextIO,
        *,
        guarantee: str = "",
        log: str = "",
        job: str = "",
        label: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`job` and `label`, before each line, tell jobs of one Spark apart; empty if there is only one."""
        self.state = state
        self.guarantee = guarantee
        self.log = log
        self.job = job
        self.label = label
        self._stream = stream
        self._clock = clock

    def event(self, event: Event) -> None:
        self.state = advance(self.state, event, self._clock())
        if isinstance(event, Rows):
            self.rows(event)
        self.show(event)

    @abstractmethod
    def show(self, event: Event) -> None:
        """It is in `state` already."""

    @abstractmethod
    def rows(self, rows: Rows) -> None: ...

    @abstractmethod
    def tick(self) -> None: ...

    def say(self, text: str) -> None:
        """Prints a line about the job that stays on the screen."""
        self.say_of_all(f"{self.label}{text}")

    def say_of_all(self, text: str) -> None:
        """Prints a line about all jobs in this Spark."""
        print(text, file=self._stream, flush=True)

    def close(self, outcome: RunOutcome) -> None:
        if outcome == "not begun" or (outcome == "failed" and not self.state.reading):
            return  # nothing was done: the error says it all
        for line in summary(
            self.state, outcome, self._clock() - self.state.began, guarantee=self.guarantee, log=self.log
        ):
            self.say(line)


def reporter(
    how: How,
    planned: PlannedRun,
    stream: TextIO,
    *,
    guarantee: str = "",
    log: str = "",
    job: str = "",
    label: str = "",
    screen: Screen | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Reporter:
    """`screen` is the terminal that jobs share if `how` is rich."""
    start = planned.plan.reading.start if planned.plan.reading else {}
    end: dict[str, dict[int, int]] = {}
    for one in planned.reach:
        end.setdefault(one.where.topic, {})[one.where.partition] = one.end
    state = begin(clock(), start, end, planned.record_bytes, planned.lost)
    about: dict[str, Any] = {"guarantee": guarantee, "log": log, "job": job, "label": label, "clock": clock}
    if how == "rich":
        from kafkad_etl.reporting.live import Live, Screen

        return Live(state, stream, screen=screen or Screen(stream), **about)
    return _kind(how)(state, stream, **about)


def _kind(how: How) -> type[Reporter]:
    if how == "json":
        from kafkad_etl.reporting.jsonlines import JsonLines

        return JsonLines
    from kafkad_etl.reporting.plain import Plain

    return Plain
