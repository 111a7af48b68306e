"""What systemd is told of a run, event by event."""

from __future__ import annotations

import pytest

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.messages import Batch, Ends, Event, Query, Retrying, Started, Tasks, Warned
from kafkad_etl.process.announcing import Announcer, announced
from kafkad_etl.reporting.state import advance, begin


class Systemd:
    """In place of a notifier with this WatchdogSec."""

    def __init__(self, watchdog_s: float) -> None:
        self.watchdog_interval_s = watchdog_s / 2
        self.told: list[str] = []

    def ready(self, status: str) -> None:
        self.told += ["READY", status]

    def status(self, text: str) -> None:
        self.told.append(text)

    def watchdog(self) -> None:
        self.told.append("WATCHDOG")

    def close(self) -> None:
        self.told.append("closed")


class Followed:
    """A run of a topic with 100 records that is watched by systemd."""

    def __init__(self, *, is_endless: bool = True, pause_seconds: float = 0, watchdog_s: float = 60) -> None:
        self.systemd = Systemd(watchdog_s)
        self.now = 0.0
        self.fed = 0.0
        self.state = begin(0, {"orders": {0: 0}}, {"orders": {0: 100}})
        self.announcer = Announcer(
            self.systemd,  # type: ignore[arg-type]
            lambda: self.state,
            is_endless=is_endless,
            pause_seconds=pause_seconds,
            clock=lambda: self.now,
        )

    def has(self, event: Event) -> None:
        self.state = advance(self.state, event, self.now)
        self.announcer.event(event)
        self.announcer.turn(stopping=False)

    def is_fed(self, seconds: float = 600, *, stopping: bool = False) -> bool:
        """To the end of that time, in which nothing happens."""
        for _ in range(int(seconds)):
            self.now += 1
            self.systemd.told.clear()
            self.announcer.turn(stopping)
            if "WATCHDOG" in self.systemd.told:
                self.fed = self.now
        return self.now - self.fed <= 30


def batch(number: int, end: int, latest: int = 100) -> Batch:
    ends = {"orders": {0: end}}
    return Batch(batch=number, end=ends, latest={"orders": {0: latest}}, rows_read=50, rows_written=50, seconds=1)


def tasks(done: int) -> Tasks:
    return Tasks(batch=0, done=done, total=9)


def test_it_is_ready_once_the_query_runs() -> None:
    run = Followed()
    run.has(Started(application="a", spark="4.0.0", pid=1))
    assert run.systemd.told == ["Spark is starting", "WATCHDOG"]
    run.now = 2
    run.has(Query([]))
    line = "waiting for the first batch  0 rows read  0 written  lag 100"
    assert run.systemd.told[2:] == ["READY", line, line]
    run.has(batch(0, 50))
    run.now = 4
    run.has(batch(1, 90))
    assert run.systemd.told[5:] == ["2 batches written  100 rows read  100 written  lag 10"]
    run.now = 5
    run.announcer.turn(stopping=True)
    assert run.systemd.told[6:] == ["stopping: 2 batches written  100 rows read  100 written  lag 10"]


def test_a_query_that_hangs_with_rows_to_read_is_not_fed() -> None:
    run = Followed()
    run.has(Query([]))
    assert run.is_fed(60) and not run.is_fed()
    run.has(batch(0, 50))
    assert run.is_fed(60)


def test_a_task_that_hangs_is_not_fed() -> None:
    run = Followed()
    run.has(Query([]))
    for done in range(5):
        run.has(tasks(done))
        assert run.is_fed(60)
    for _ in range(10):
        run.has(tasks(4))
        fed = run.is_fed(60)
    assert not fed


def test_a_query_that_has_read_everything_is_fed_by_ends_that_say_so() -> None:
    run = Followed()
    run.has(Query([]))
    run.has(batch(0, 100))
    for _ in range(20):
        run.has(Ends({"orders": {0: 100}}))
        assert run.is_fed(15)
    for _ in range(20):
        run.has(Ends({"orders": {0: 120}}))
        fed = run.is_fed(15)
    assert not fed
    run.has(batch(1, 120, 120))
    assert run.is_fed(60) and not run.is_fed()  # the brokers no longer respond


def test_nothing_to_do_is_no_hanging_however_short_the_watchdog_is() -> None:
    """The front asks for the ends four times a minute."""
    run = Followed(watchdog_s=4)
    run.has(Query([]))
    run.has(batch(0, 100))
    for _ in range(5):
        for _ in range(15):
            assert run.is_fed(1)
            assert run.now - run.fed <= 3
        run.has(Ends({"orders": {0: 100}}))
    assert run.is_fed(30) and not run.is_fed()


def test_a_run_that_ends_by_itself_may_merge_files_for_as_long_as_it_takes() -> None:
    run = Followed(is_endless=False)
    run.has(Query([]))
    assert not run.is_fed()
    run.has(batch(0, 100, 100))
    run.has(Ends({"orders": {0: 500}}))
    assert run.is_fed(3600)


def test_a_pause_between_batches_or_before_a_retry_is_no_hanging() -> None:
    run = Followed(pause_seconds=600)
    run.has(Query([]))
    assert run.is_fed(600) and not run.is_fed()
    run = Followed()
    run.has(Query([]))
    run.has(Retrying(text="no", seconds=900, attempt=1, most=3))
    assert run.is_fed(900) and not run.is_fed()


def test_warnings_are_no_progress_and_stopping_has_a_limit_of_its_own() -> None:
    run = Followed()
    run.has(Query([]))
    for _ in range(40):
        run.has(Warned("the group's offsets cannot be committed"))
        fed = run.is_fed(15)
    assert not fed
    assert run.is_fed(600, stopping=True)


def test_how_it_ended() -> None:
    systemd = Systemd(60)
    with announced(systemd, ()):  # type: ignore[arg-type]
        pass
    assert systemd.told == ["READY", "ended", "closed"]
    systemd = Systemd(60)
    with pytest.raises(EtlError), announced(systemd, {"geheim"}):  # type: ignore[arg-type]
        raise EtlError("no login with geheim", EtlExit.CLUSTER)
    assert systemd.told == ["failed: no login with ****", "closed"]
