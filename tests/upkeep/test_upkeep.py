"""Periodic jobs over two log directories of which one refuses something: the other's part is done."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafkad.config import load as load_config
from kafkad.errors import StorageError
from kafkad.log.checkpoint import (
    CLEANED_OFFSETS,
    DAMAGED_OFFSETS,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    START_OFFSETS,
)
from kafkad.log.deletion import delete_old_segments
from kafkad.log.directories import LogDirectory
from kafkad.log.log import Log
from kafkad.log.manager import LogManager
from kafkad.log.move import Moves
from kafkad.names import TopicPartition
from kafkad.replica.disk_threads import DiskThreads
from kafkad.replica.durable import Durable
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import ReplicaParts
from kafkad.replica.waits import Waits
from kafkad.timers import Timers
from kafkad.turns import Turns
from kafkad.upkeep.upkeep import Upkeep
from tests.fakes import FakeClock, turns
from tests.full_disk import FullDisk
from tests.log.managers import CONFIG, TOPIC_ID, append, config_for, started
from tests.work import calls

BAD, GOOD = (TopicPartition(name, 0) for name in ("bad", "good"))
"""Each in the log directory of its name."""
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
CHECKPOINTS = (
    "replica.high.watermark.checkpoint.interval.ms",
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
    "log.cleaner.backoff.ms",
)


class Jobs:
    """The upkeep of a broker with one log in each of two directories, by a clock that stands still."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self.clock = FakeClock()
        self.halts: list[str] = []
        self.bad, self.good = str(directory / "bad"), str(directory / "good")
        self.logs: LogManager = started(directory / "bad", directory / "good", clock=self.clock)
        for tp in (BAD, GOOD):
            append(self.logs.create(tp, TOPIC_ID, CONFIG, directory=str(directory / tp.topic)), 60)
        self._threads = ThreadPoolExecutor(1)
        self.timers = timers = Timers()
        durable = Durable(self.logs.files, DiskThreads({}, self._threads))
        waits = Waits(timers, self.clock, lambda call: None)

        async def load_configs(names: object) -> None:
            pass

        self.replicas = ReplicaManager(
            ReplicaParts(broker_id=1, clock=self.clock, waits=waits, durable=durable),
            self.logs,
            config_for,
            load_configs,
            halt=self.halts.append,
        )
        config = load_config(None, settings, {})
        self.upkeep = Upkeep(self.logs, self.replicas, durable, lambda: config, timers)

    def log(self, tp: TopicPartition) -> Log:
        log = self.logs.get(tp)
        assert log is not None
        return log

    def do(self, job: Callable[[], Awaitable[None]]) -> None:
        async def done() -> None:
            await job()

        asyncio.run(done())

    def do_for_each(self, job: Callable[[LogDirectory], Awaitable[None]]) -> None:
        for directory in self.logs.directories:
            self.do(partial(job, directory))

    def stop(self) -> None:
        self._threads.shutdown()
        self.logs.close()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    jobs = Jobs(tmp_path)
    yield jobs
    jobs.stop()


def test_nothing_is_called_for_each_log_while_checkpoints_are_collected(jobs: Jobs) -> None:
    """There may be tens of thousands, and all that is said of them is of one moment."""

    def create(number: int) -> None:
        tp = TopicPartition("good", number)
        append(jobs.logs.create(tp, TOPIC_ID, CONFIG, directory=jobs.good), 60)
        jobs.log(tp).increment_start_offset(5)
        jobs.replicas._open(tp, TOPIC_ID, is_new=False)

    def collect() -> None:
        jobs.logs.collect_high_watermarks(jobs.replicas.high_watermarks(jobs.logs.logs))
        for directory in jobs.logs.directories:
            list(directory.collect_recovery_points())
            directory.collect_start_offsets()

    create(1)
    with_few = calls(collect)
    for number in range(2, 12):
        create(number)
    assert calls(collect) == with_few


def test_logs_that_need_no_flush_are_looked_at_in_turns(jobs: Jobs) -> None:
    looks: list[None] = []

    class Counted(Turns):
        async def give_way(self) -> None:
            looks.append(None)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("kafkad.upkeep.upkeep.Turns", Counted)
        jobs.do_for_each(jobs.upkeep.flush)
        assert not looks, "both were flushed"
        jobs.do_for_each(jobs.upkeep.flush)
    assert len(looks) == 2


def names_to_go(path: str) -> list[str]:
    return [name for _, _, names in os.walk(path) for name in names if name.endswith(".deleted")] + [
        name for name in os.listdir(path) if name.endswith("-delete")
    ]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_what_cannot_be_removed_keeps_nothing_else_and_is_tried_again(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    unlink, is_bad = os.unlink, True

    def unlinked(path: str) -> None:
        if is_bad and path.startswith(jobs.bad):
            raise OSError(code, os.strerror(code))
        unlink(path)

    monkeypatch.setattr(jobs.logs.files, "unlink", unlinked)
    jobs.log(GOOD).increment_start_offset(50)
    assert delete_old_segments(jobs.log(GOOD), jobs.clock.now_ms()) > 0
    jobs.logs.delete(BAD)
    jobs.clock.advance(60_000)
    jobs.do_for_each(jobs.upkeep.remove)
    assert not names_to_go(jobs.good)
    assert names_to_go(jobs.bad)
    is_bad = False
    jobs.clock.advance(60_000)
    jobs.do_for_each(jobs.upkeep.remove)
    is_lost = code == errno.EIO
    assert bool(names_to_go(jobs.bad)) is is_lost, "the next start removes what is in a directory that is lost"
    assert len(jobs.logs.removal) == 0


def test_what_a_copy_has_doomed_is_removed_though_it_gets_its_name_meanwhile(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its turn, or while a thread looks for it under the old one."""
    moves = Moves(jobs.logs)
    moves.start(BAD, jobs.good)
    while not moves.step(BAD).caught_up:
        pass
    copy = moves.future(BAD)
    assert copy is not None
    copy.increment_start_offset(50)
    assert delete_old_segments(copy, jobs.clock.now_ms()) > 0
    jobs.clock.advance(60_000)
    tried: list[str] = []

    async def remove(durable: Durable, directory: str, work: Callable[[], bool]) -> bool:
        if not tried:
            assert moves.finish(BAD) is not None
        tried.append(jobs.log(BAD).directory)
        return work()

    with monkeypatch.context() as patch:
        patch.setattr(Durable, "run", remove)
        jobs.do_for_each(jobs.upkeep.remove)
    assert len(tried) > 1
    assert len(names_to_go(copy.directory)) == 1
    jobs.do_for_each(jobs.upkeep.remove)
    assert not names_to_go(copy.directory)


def test_what_is_not_removed_for_an_internal_error_is_removed_later(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(durable: Durable, directory: str, work: Callable[[], bool]) -> bool:
        raise RuntimeError("can't start new thread")

    jobs.log(GOOD).increment_start_offset(50)
    assert delete_old_segments(jobs.log(GOOD), jobs.clock.now_ms()) > 0
    jobs.clock.advance(60_000)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(Durable, "run", broken)
        jobs.do_for_each(jobs.upkeep.remove)
    jobs.do_for_each(jobs.upkeep.remove)
    assert not names_to_go(jobs.good)


def test_a_log_that_cannot_be_flushed_keeps_no_other(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    start_flush = Log.start_flush

    def started_flush(log: Log) -> object:
        if log is jobs.log(BAD):
            raise StorageError(jobs.bad, "flushing") from FULL
        return start_flush(log)

    monkeypatch.setattr(Log, "start_flush", started_flush)
    assert [list(jobs.logs.flush_pass(each)) for each in jobs.logs.directories] == [[jobs.log(BAD)], [jobs.log(GOOD)]]
    jobs.do_for_each(jobs.upkeep.flush)
    assert (jobs.log(BAD).durability.recovery_point, jobs.log(GOOD).durability.recovery_point) == (0, 60)


def test_a_copy_under_way_is_flushed_as_its_replica(jobs: Jobs) -> None:
    moves = Moves(jobs.logs)
    moves.start(BAD, jobs.good)
    while not moves.step(BAD).caught_up:
        pass
    copy = moves.future(BAD)
    assert copy is not None
    jobs.do_for_each(jobs.upkeep.flush)
    assert copy.durability.recovery_point == 60


def test_a_disk_that_hangs_holds_up_nothing_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs(tmp_path, *(f"{name}=5000" for name in CHECKPOINTS))
    begun: list[tuple[str, str]] = []

    async def flush(durable: Durable, log: Log) -> None:
        await begin("flush", log.log_directory)

    async def run(durable: Durable, directory: str, work: Any) -> bool:
        await begin("removal" if isinstance(work, partial) else work.__self__.name, directory)
        return False

    async def begin(what: str, directory: str) -> None:
        begun.append((what, directory))
        if directory == jobs.bad:
            await asyncio.get_running_loop().create_future()

    async def scenario() -> None:
        jobs.upkeep.start()
        for _ in range(3):
            await asyncio.sleep(0)
            for directory in (jobs.bad, jobs.good):
                jobs.logs.removal.add(f"{directory}/t-0-delete", 0)
            jobs.clock.advance(5_000)
            jobs.timers.expire(jobs.clock.monotonic_ms())
            await turns(5)
        await jobs.upkeep.stop()

    monkeypatch.setattr(Durable, "flush", flush)
    monkeypatch.setattr(Durable, "run", run)
    asyncio.run(scenario())
    in_turn = {"flush", "removal", HIGH_WATERMARKS, DAMAGED_OFFSETS, START_OFFSETS, CLEANED_OFFSETS}
    assert Counter(begun) == Counter(
        [(what, jobs.bad) for what in in_turn]
        + [(what, jobs.good) for what in (*in_turn, RECOVERY_POINTS) for _ in range(3)]
    )
    jobs.stop()


def test_the_cleaners_checkpoint_forgets_a_log_that_was_deleted(jobs: Jobs) -> None:
    checkpoint = Path(jobs.good, CLEANED_OFFSETS)
    jobs.log(GOOD).cleaned_until = 7
    jobs.do_for_each(jobs.upkeep.write_cleaned_offsets)
    assert checkpoint.read_text() == "0\n1\ngood 0 7\n"
    jobs.logs.delete(GOOD)
    jobs.do_for_each(jobs.upkeep.write_cleaned_offsets)
    assert checkpoint.read_text() == "0\n0\n"


def test_a_checkpoint_that_cannot_be_written_keeps_no_other(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.log(GOOD).flush()
    jobs.log(BAD).segments.damaged_from = 0
    disk = FullDisk(jobs.bad, monkeypatch)
    bad, good = jobs.logs.directories
    with pytest.raises(StorageError):
        jobs.do(partial(jobs.upkeep.write_recovery_points, bad))
    assert disk.refused == 1, "which logs are checked from further back comes first"
    assert not bad.says_too_much_of(jobs.log(BAD)), "the other is not about to be written"
    jobs.do(partial(jobs.upkeep.write_recovery_points, good))
    assert Path(jobs.good, "recovery-point-offset-checkpoint").read_text() == "0\n1\ngood 0 60\n"


def test_retention_ends_the_broker_when_it_finds_the_last_log_directory_broken(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(log: Log, now_ms: int, high_watermark: int) -> int:
        raise StorageError(os.path.dirname(log.directory), "it is broken")

    monkeypatch.setattr("kafkad.log.manager.delete_old_segments", broken)
    jobs.do(jobs.upkeep.retain)
    assert not jobs.logs.live
    assert len(jobs.halts) == 1


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_there_is_a_rest_between_two_rounds_whatever_is_set(tmp_path: Path, name: str) -> None:
    jobs = Jobs(tmp_path, f"{name}=0")

    async def first_round_ms() -> float | None:
        jobs.upkeep.start()
        await asyncio.sleep(0)
        due_ms = jobs.timers.next_deadline_ms()
        await jobs.upkeep.stop()
        return due_ms

    assert asyncio.run(first_round_ms()) == jobs.clock.monotonic_ms() + 100
    jobs.stop()
