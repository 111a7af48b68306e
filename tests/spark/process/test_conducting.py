from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkad_etl.messages import Ended, Event, Started
from kafkad_etl.process.conducting import Conducting, Conductor
from kafkad_etl.process.interruptions import Interruptions
from kafkad_etl.process.launching import Arrival
from kafkad_etl.process.logs import Log
from kafkad_etl.reporting.collecting import Collector

STARTED = Started(application="application_1", spark="4.0.0", pid=1)


class Played:
    """A launched Spark whose driver says this, one thing in each ten seconds."""

    def __init__(self, *events: Event | None) -> None:
        self._events = events
        self.now = 0.0
        self.stops: list[bool] = []
        """For each request to stop, whether at once; Spark is killed at the end in any case."""
        self.before_last: Callable[[], None] = lambda: None

    def clock(self) -> float:
        return self.now

    def events(self) -> Iterator[Arrival | None]:
        for event in self._events:
            self.now += 10
            if event is self._events[-1]:
                self.before_last()
            yield Arrival(0, event) if event else None

    def stop(self, job: int | None = None) -> None:
        self.stops.append(False)

    def wait(self, seconds: float) -> int:
        return 0

    def kill(self) -> None:
        self.stops.append(True)


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
    log, ends = Log(tmp_path / "log"), []
    with Conductor(shown, Interruptions(), cluster=cluster, clock=played.clock) as conductor:
        Conducting([conductor], played, Interruptions(), log, lambda *end: ends.append(end)).run_to_end()  # type: ignore[arg-type]
    assert ends == [(0, Ended("done"))]
    said = stream.getvalue().splitlines()
    assert len(said) == warnings
    assert all(f"{tmp_path}/log" in line for line in said)


def test_a_log_that_grows_makes_room_while_nothing_happens(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    played = Played(STARTED, None, Ended("done"))
    with Conductor(Collector(Ended, io.StringIO()), Interruptions()) as conductor:
        conducting = Conducting([conductor], played, Interruptions(), log, lambda *_: None)  # type: ignore[arg-type]
        log.add("x" * (10 << 20))
        conducting.run_to_end()
    assert (tmp_path / "log.1").exists()


@pytest.mark.parametrize(("events", "at_once"), [([None], True), ([STARTED], False)])
def test_who_waits_for_a_cluster_need_not_wait_for_a_batch(
    events: list[Event | None], at_once: bool, tmp_path: Path
) -> None:
    played, interruptions = Played(*events, Ended("stopped")), Interruptions()
    with Conductor(Collector(Ended, io.StringIO()), interruptions) as conductor:
        played.before_last = lambda: setattr(interruptions, "count", 1)
        log = Log(tmp_path / "log")
        Conducting([conductor], played, interruptions, log, lambda *_: None).run_to_end()  # type: ignore[arg-type]
    assert played.stops[0] == at_once
