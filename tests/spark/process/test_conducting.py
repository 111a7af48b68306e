from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkad_etl.messages import Ended, Event, Started
from kafkad_etl.process.conducting import Conductor
from kafkad_etl.process.interruptions import Interruptions
from kafkad_etl.process.logs import Log
from kafkad_etl.reporting.collecting import Collector

STARTED = Started(application="application_1", spark="4.0.0", pid=1)


class Played:
    """A launched Spark whose driver says this, one thing in each ten seconds."""

    def __init__(self, *events: Event | None) -> None:
        self._events = events
        self.now = 0.0
        self.stops: list[bool] = []
        self.before_last: Callable[[], None] = lambda: None

    def clock(self) -> float:
        return self.now

    def events(self) -> Iterator[Event | None]:
        for event in self._events:
            self.now += 10
            if event is self._events[-1]:
                self.before_last()
            yield event

    def stop(self, now: bool = False) -> None:
        self.stops.append(now)

    def wait(self, seconds: float) -> int:
        return 0

    def kill(self) -> None: ...


@pytest.mark.parametrize(
    ("cluster", "events", "warnings"),
    [
        ("yarn", [None] * 8, 1),
        ("yarn", [None] * 4, 0),
        ("", [None] * 8, 0),
        ("yarn", [STARTED, *[None] * 8], 0),
    ],
)
def test_who_waits_for_a_cluster_is_told_so_once(
    cluster: str, events: list[Event | None], warnings: int, tmp_path: Path
) -> None:
    played, stream = Played(*events, Ended("done")), io.StringIO()
    shown = Collector(Ended, stream)
    with Conductor(shown, Interruptions(), cluster=cluster, clock=played.clock) as conductor:
        last = conductor.run_to_end(played, Log(tmp_path / "log"))  # type: ignore[arg-type]
    assert last == Ended("done")
    said = stream.getvalue().splitlines()
    assert len(said) == warnings
    assert all(f"{tmp_path}/log" in line for line in said)


@pytest.mark.parametrize(("events", "at_once"), [([None], True), ([STARTED], False)])
def test_who_waits_for_a_cluster_need_not_wait_for_a_batch(
    events: list[Event | None], at_once: bool, tmp_path: Path
) -> None:
    played, interruptions = Played(*events, Ended("stopped")), Interruptions()
    with Conductor(Collector(Ended, io.StringIO()), interruptions) as conductor:
        played.before_last = lambda: setattr(interruptions, "count", 1)
        conductor.run_to_end(played, Log(tmp_path / "log"))  # type: ignore[arg-type]
    assert played.stops == [at_once]
