"""Moves between log directories of which one is full, slow or hangs: others go on, and nothing is lost."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import current_thread
from typing import Any

import pytest

from kafkad.config import LONG_MAX, LogConfig
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.checkpoint import CLEANED_OFFSETS
from kafkad.log.directories import CheckpointWrite, LogDirectory
from kafkad.log.files import Files
from kafkad.log.log import Log
from kafkad.log.manager import LogManager
from kafkad.log.move import Mark, Moved, Moves, Step
from kafkad.log.partition_files import MOVED
from kafkad.log.segment import Segment
from kafkad.log.truncation import truncate_to
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable, Hold
from kafkad.timers import Timer, Timers, sleep
from kafkad.turns import Pieces
from kafkad.upkeep import moves as moves_module
from kafkad.upkeep.moves import ReplicaMoves
from kafkad.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkad.wire.records import BATCH_HEADER, Record, build_batch
from tests.fakes import FakeClock, fails_once, hangs
from tests.full_disk import FullDisk
from tests.log.moving import BadDisk
from tests.one_broker import NoSync, OneBroker

FIRST, SECOND, THIRD = ALL = [TopicPartition("t", partition) for partition in range(3)]
"""Each in the log directory of its name."""


class Broker:
    """Has a replica in each of its log directories, and moves them by a clock that stands still."""

    def __init__(self, directory: Path, *directories: str) -> None:
        self._broker = OneBroker(directory, directories=directories)
        self.replicas = self._broker.replicas
        self.durable = self._broker.durable
        self.directories = self._broker.directories
        self.first, self.second = self.directories[:2]
        self.clock, self._timers = FakeClock(), Timers()
        self.replicas.logs.clock = self.clock
        self._broker.create("t", len(directories))
        for tp, path in zip(ALL, self.directories, strict=False):
            for _ in range(5):
                self._broker.append(*tp, Record(0, 100, None, b"value"))
            assert self.home(tp) == path
        self.bytes_per_second = LONG_MAX
        self._moves = ReplicaMoves(self.replicas, self._broker.durable, self._timers, lambda: self.bytes_per_second)

    def home(self, tp: TopicPartition) -> str:
        return os.path.dirname(self.log(tp).directory)

    def log(self, tp: TopicPartition) -> Log:
        return self.replicas.get(*tp).log

    def create_more(self, topic: str, partitions: int) -> None:
        self._broker.create(topic, partitions)

    def append(self, tp: TopicPartition) -> None:
        batch = build_batch([Record(0, 100, None, b"value")], base_offset=0)
        view = memoryview(batch)
        self.replicas.leader(*tp).append(view, 0, len(view), BATCH_HEADER.unpack_from(view))

    def copied(self) -> dict[TopicPartition, int]:
        """The sizes of copies."""
        futures = [(tp, self.replicas.logs.future(tp)) for tp in (FIRST, SECOND)]
        return {tp: future.size for tp, future in futures if future is not None}

    def write_recovery_points(self, tp: TopicPartition) -> None:
        """Once the replica is on the disk."""
        self.log(tp).flush()
        for write in self.replicas.logs.collect_recovery_points():
            write.write()

    def move(self, tp: TopicPartition, path: str) -> None:
        async def start() -> None:
            self._moves.start(tp, path)

        self._broker.run(start())

    def give_up(self, tp: TopicPartition) -> None:
        """Where the broker is at work."""
        self._moves.start(tp, self.home(tp))

    def resume(self) -> None:
        """Go on with what is under way."""

        async def resume() -> None:
            self._moves.resume()

        self._broker.run(resume())

    def configure(self, name: str, value: str) -> None:
        change = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
        self._broker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        self._broker.settle()

    def work(self, after_ms: int = 0) -> None:
        self._broker.work(self.clock, self._timers, after_ms)

    async def sleep(self, ms: float) -> None:
        await sleep(ms, self.clock, self._timers)

    def sync(self, tp: TopicPartition, told: list[StorageError | None]) -> None:
        """As one who waits for acks with `kafkad.acks.fsync`."""
        self.durable.sync(self.log(tp), told.append)

    def is_marked(self, tp: TopicPartition) -> bool:
        return os.path.exists(os.path.join(self.log(tp).directory, MOVED))

    def stop_moving(self) -> None:
        self._broker.run(self._moves.stop())

    def stop(self) -> None:
        self.stop_moving()
        self._broker.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path, "first", "second")
    yield broker
    broker.stop()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Broker]:
    """A broker with as many log directories."""
    broker = Broker(tmp_path, "first", "second", "third")
    yield broker
    broker.stop()


def test_a_move_to_a_full_disk_is_tried_once_a_second_and_holds_up_no_other(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, refused, is_full = Log.append_copied, [], True

    def append_copied(log: Log, batches: memoryview, epoch: int | None = None) -> None:
        if is_full and log.directory.startswith(broker.second):
            refused.append(log.directory)
            raise StorageError(broker.second, "writing failed") from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(log, batches, epoch)

    monkeypatch.setattr(Log, "append_copied", append_copied)
    broker.move(FIRST, broker.second)
    broker.move(SECOND, broker.first)
    broker.work()
    assert (broker.home(SECOND), len(refused)) == (broker.first, 1)
    broker.work(after_ms=999)
    assert len(refused) == 1
    broker.work(after_ms=1)
    assert len(refused) == 2
    is_full = False
    broker.work(after_ms=1_000)
    assert broker.home(FIRST) == broker.second


def test_what_moves_takes_no_more_than_the_rate_together(broker: Broker) -> None:
    """A step goes over it, and is paid off by a rest."""
    for tp in (FIRST, SECOND):
        broker.append(tp)
    size = broker.log(FIRST).size
    broker.bytes_per_second = size // 2
    broker.move(FIRST, broker.second)
    broker.move(SECOND, broker.first)
    broker.work()
    assert broker.copied() == {SECOND: 0}
    broker.work(after_ms=1_000)
    broker.work(after_ms=999)
    assert broker.copied() == {SECOND: 0}
    broker.work(after_ms=1)
    assert (broker.home(FIRST), broker.home(SECOND)) == (broker.second, broker.first)


def test_another_rate_holds_within_a_second(broker: Broker) -> None:
    broker.bytes_per_second = 0
    broker.move(FIRST, broker.second)
    broker.move(SECOND, broker.first)
    for _ in range(3):
        broker.work(after_ms=1_000)
    assert broker.copied() == {SECOND: 0}
    broker.bytes_per_second = LONG_MAX
    broker.work(after_ms=1_000)
    assert (broker.home(FIRST), broker.home(SECOND)) == (broker.second, broker.first)


def test_a_topic_that_is_deleted_while_a_move_keeps_to_its_rate_is_no_failure(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.bytes_per_second = 1
    broker.move(FIRST, broker.second)
    broker.move(SECOND, broker.first)
    broker.work()
    assert broker.copied()[SECOND] == 0
    for tp in (FIRST, SECOND):
        broker.replicas.logs.delete(tp)
    for _ in range(3):
        broker.work(after_ms=1_000)
    assert not broker.copied()
    assert not [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert all(directory.failure is None for directory in broker.replicas.logs.directories)


def test_a_topic_that_is_deleted_while_a_move_reads_costs_no_directory(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def read_ahead(moves: Moves, tp: TopicPartition) -> Pieces[None]:
        yield
        broker.replicas.logs.delete(tp)
        raise StorageError(broker.second, "no such file") from FileNotFoundError()

    monkeypatch.setattr(Moves, "read_ahead", read_ahead)
    broker.move(FIRST, broker.second)
    broker.work()
    assert not [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert all(directory.failure is None for directory in broker.replicas.logs.directories)


def test_a_replica_moves_away_from_a_full_disk_that_cannot_note_its_cut(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.write_recovery_points(FIRST)
    truncate_to(broker.log(FIRST), 2)
    disk = FullDisk(broker.first, monkeypatch)
    broker.move(FIRST, broker.second)
    broker.work()
    assert (broker.home(FIRST), broker.log(FIRST).end_offset) == (broker.second, 2)
    assert disk.refused == 1


def test_a_replica_moves_away_from_a_full_disk_that_cannot_note_where_a_log_begins(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.log(FIRST).increment_start_offset(2)
    disk = FullDisk(broker.first, monkeypatch)
    broker.move(FIRST, broker.second)
    broker.work()
    assert (broker.home(FIRST), broker.log(FIRST).start_offset) == (broker.second, 2)
    disk.is_full = False
    broker.work(after_ms=1_000)


def test_a_copy_that_cannot_note_a_cut_waits_for_that(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    moves = Moves(broker.replicas.logs)
    moves.start(FIRST, broker.second)
    assert moves.step(FIRST).caught_up
    copy = moves.future(FIRST)
    assert copy is not None
    copy.flush()
    broker.write_recovery_points(FIRST)
    truncate_to(broker.log(FIRST), 2)
    disk = FullDisk(broker.second, monkeypatch)
    broker.resume()
    broker.work()
    assert ([*broker.replicas.logs.cut], disk.refused) == ([copy], 1)
    broker.work(after_ms=1_000)
    assert (broker.home(FIRST), disk.refused) == (broker.first, 2)
    disk.is_full = False
    broker.work(after_ms=1_000)
    assert (broker.home(FIRST), broker.log(FIRST).end_offset) == (broker.second, 2)


def test_a_move_that_a_disk_does_not_let_be_given_up_is_given_up_later(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel, refused = Moves.cancel, []

    def damaged(moves: Moves, tp: TopicPartition, **how: object) -> None:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "it is damaged")

    def refuse(moves: Moves, tp: TopicPartition) -> bool:
        if moves.future(tp) is not None and not refused:
            refused.append(tp)
            raise StorageError(broker.second, "removing failed") from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return cancel(moves, tp)

    monkeypatch.setattr(Moves, "step", damaged)
    monkeypatch.setattr(Moves, "cancel", refuse)
    broker.move(FIRST, broker.second)
    broker.work()
    assert refused == [FIRST]
    assert broker.copied().keys() == {FIRST}
    broker.work(after_ms=1_000)
    assert not broker.copied()
    assert broker.home(FIRST) == broker.first


def test_what_is_committed_in_the_replica_is_committed_in_its_copy(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, told = Moves.step, set()

    def noted(moves: Moves, tp: TopicPartition, **options: Any) -> Step:
        told.add(options["high_watermark"])
        return step(moves, tp, **options)

    monkeypatch.setattr(Moves, "step", noted)
    broker.move(FIRST, broker.second)
    broker.work()
    assert (broker.home(FIRST), told) == (broker.second, {5})


def test_a_move_ends_although_records_come_whenever_its_copy_is_flushed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush, flushes = Durable.flush, []

    async def flushed(durable: Durable, log: Log) -> None:
        flushes.append(log)
        broker.append(FIRST)
        await flush(durable, log)
        broker.append(FIRST)

    monkeypatch.setattr(Durable, "flush", flushed)
    broker.move(FIRST, broker.second)
    broker.work()
    moved = broker.log(FIRST)
    assert (broker.home(FIRST), flushes) == (broker.second, [moved])
    assert moved.end_offset == moved.flushed_until == 7, "all of it is on the disk, as the replica's may have been"


def test_much_that_comes_while_a_copy_is_flushed_is_flushed_before_it_takes_its_place(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush, waiting = Durable.flush, [1, 2]
    unflushed: list[int] = []

    async def flushed(durable: Durable, log: Log) -> None:
        unflushed.append(log.durability.unflushed_bytes)
        if waiting:
            for _ in range(waiting.pop()):
                broker.append(FIRST)
        await flush(durable, log)

    monkeypatch.setattr(Durable, "flush", flushed)
    size = broker.log(FIRST).size // 5
    monkeypatch.setattr(moves_module, "_LITTLE", size)
    broker.move(FIRST, broker.second)
    broker.work()
    assert (broker.home(FIRST), unflushed) == (broker.second, [5 * size, 2 * size])


def test_a_move_ends_although_much_comes_while_the_disk_is_told_of_the_mark(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the time is limited for which others are held up."""
    monkeypatch.setattr(moves_module, "_LITTLE", broker.log(FIRST).size // 5)

    def produce() -> None:
        for _ in range(10):
            broker.append(FIRST)

    when_marked(monkeypatch, produce)
    broker.move(FIRST, broker.second)
    broker.work()
    assert (broker.home(FIRST), broker.log(FIRST).end_offset) == (broker.second, 15)


def test_settings_that_change_during_a_move_hold_for_the_copy_and_after_it(broker: Broker) -> None:
    moves = Moves(broker.replicas.logs)
    moves.start(FIRST, broker.second)
    copy = moves.future(FIRST)
    assert copy is not None
    broker.configure("retention.ms", "123456")
    assert copy.config.retention_ms == broker.log(FIRST).config.retention_ms == 123_456
    copy.update_config(LogConfig())  # as one that was found at the start, before the settings were known
    broker.resume()
    broker.work()
    assert broker.log(FIRST) is copy
    assert copy.config.retention_ms == 123_456


def test_the_replaced_replica_is_put_away_later_if_a_disk_does_not_let_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, refused, is_full = Files.rename, [], True

    def renamed(source: str, target: str) -> None:
        if is_full and target.endswith("-delete"):
            refused.append(source)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(source, target)

    monkeypatch.setattr(Files, "rename", staticmethod(renamed))
    broker.move(FIRST, broker.second)
    broker.work()
    assert (broker.home(FIRST), len(refused)) == (broker.second, 1)
    is_full = False
    broker.work(after_ms=1_000)
    assert not os.path.exists(os.path.join(broker.first, "t-0"))


def test_what_checkpoints_say_of_a_moved_replica_is_written_in_a_thread_and_again_if_a_disk_refuses(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, refused, threads = CheckpointWrite.write, [], set()

    def written(checkpoint: CheckpointWrite) -> None:
        threads.add(current_thread())
        if checkpoint.name == CLEANED_OFFSETS and not refused:
            refused.append(checkpoint.directory.path)
            raise StorageError(broker.second, "writing failed") from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(checkpoint)

    monkeypatch.setattr(CheckpointWrite, "write", written)
    broker.log(FIRST).cleaned_until = 3
    broker.log(SECOND).cleaned_until = 4
    broker.move(FIRST, broker.second)
    broker.work()
    broker.work(after_ms=1_000)
    assert len(refused) == 1
    first, second = broker.replicas.logs.directories
    assert first.checkpointed(CLEANED_OFFSETS, FIRST) is None
    assert [second.checkpointed(CLEANED_OFFSETS, tp) for tp in (FIRST, SECOND)] == [3, 4]
    assert current_thread() not in threads


def test_an_internal_error_in_one_move_ends_neither_it_nor_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_once(monkeypatch, Durable, "flush", ZeroDivisionError("ours"))
    broker.move(FIRST, broker.second)
    broker.move(SECOND, broker.first)
    broker.work()
    assert (broker.home(FIRST), broker.home(SECOND)) == (broker.first, broker.first)
    broker.work(after_ms=1_000)
    assert broker.home(FIRST) == broker.second


def test_a_disk_that_hangs_holds_up_no_moves_but_its_own(three: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those to it, and those from there, which it is to know of."""
    third = three.directories[2]
    goes_on = hangs(monkeypatch, three.second)
    three.move(FIRST, three.second)
    three.move(SECOND, three.first)
    three.work()
    three.move(THIRD, three.first)
    three.work()
    assert [three.home(tp) for tp in ALL] == [three.first, three.second, three.first]
    goes_on.set()
    three.work()
    three.move(THIRD, third)
    three.work()
    assert [three.home(tp) for tp in ALL] == [three.second, three.first, third]


def test_a_move_waits_for_disks_in_threads(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.move(FIRST, broker.second)
    threads = set()
    monkeypatch.setattr(NoSync, "sync", lambda files, fd: threads.add(current_thread()))
    broker.work()
    assert broker.home(FIRST) == broker.second
    assert not os.path.exists(os.path.join(broker.first, "t-0"))
    assert threads
    assert current_thread() not in threads


def when_marked(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Do this, on the loop, when the disk knows of a mark."""
    run = Durable.run

    async def marked(durable: Durable, directory: str, work: Callable[[], object]) -> object:
        result = await run(durable, directory, work)
        if getattr(work, "__func__", None) is Mark.sync:
            then()
        return result

    monkeypatch.setattr(Durable, "run", marked)


def slow(patch: pytest.MonkeyPatch, broker: Broker, directory: str, ms: float) -> None:
    """The disk of this log directory takes so long for whatever it is waited for."""
    begin = Durable._begin

    def begin_later(durable: Durable, of: str, work: Callable[[], object]) -> asyncio.Future[object]:
        async def later() -> object:
            if of == directory:
                await broker.sleep(ms)
            return await begin(durable, of, work)

        return asyncio.ensure_future(later())

    patch.setattr(Durable, "_begin", begin_later)


@pytest.mark.parametrize("takes_ms", [4_000, 10_000])
def test_a_move_to_a_slow_disk_ends_although_each_record_is_waited_for_and_holds_up_few_of_them(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, takes_ms: int
) -> None:
    """On the disk of the replica, which is quick."""
    slow(monkeypatch, broker, broker.second, takes_ms)
    broker.move(FIRST, broker.second)
    broker.work()
    seconds, waited = 0, 0
    told: list[StorageError | None] = [None]
    while broker.home(FIRST) == broker.first and seconds < 300:
        seconds += 1
        waited += not told
        if told:
            told.clear()
            broker.append(FIRST)
            broker.sync(FIRST, told)
        broker.work(after_ms=1_000)
    assert broker.home(FIRST) == broker.second
    assert waited < seconds // 5


def test_a_move_that_is_asked_for_again_does_not_rest(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would behind an exchange that was not in time."""
    with monkeypatch.context() as patched:
        patched.setattr(Durable, "holds", lambda durable, hold: False)
        patched.setattr(Moves, "finish", lambda moves, tp: None)
        broker.move(FIRST, broker.second)
        broker.work()
        broker.work(after_ms=29_999)
    assert broker.home(FIRST) == broker.first
    broker.move(FIRST, broker.first)
    broker.move(FIRST, broker.second)
    broker.work()
    assert broker.home(FIRST) == broker.second


def test_a_replica_serves_while_the_disk_of_its_copy_hangs_at_the_end_of_a_move(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for its disk waits a while for that of the copy, and then no more."""
    told: list[StorageError | None] = []
    disks: list[asyncio.Event] = []
    hold = Durable.hold

    def hang(durable: Durable, log: Log) -> Hold:
        broker.append(FIRST)
        broker.log(FIRST).flush()
        broker.append(FIRST)
        disks.append(hangs(monkeypatch, broker.second))
        return hold(durable, log)

    monkeypatch.setattr(Durable, "hold", hang)
    broker.move(FIRST, broker.second)
    broker.work()
    broker.sync(FIRST, told)
    broker.work(after_ms=2_999)
    assert (broker.home(FIRST), told) == (broker.first, [])
    broker.work(after_ms=1)
    assert (broker.home(FIRST), told) == (broker.first, [None])
    broker.append(FIRST)
    broker.move(FIRST, broker.first)
    disks[0].set()
    broker.work()
    assert (broker.home(FIRST), broker.copied(), broker.is_marked(FIRST)) == (broker.first, {}, False)


def test_a_move_that_was_given_up_takes_no_mark_from_the_next(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of the replica hung at the end of both."""
    finish, marked = Moves.finish, []

    def finish_if_marked(moves: Moves, tp: TopicPartition) -> Moved | None:
        marked.append(broker.is_marked(tp))
        return finish(moves, tp)

    monkeypatch.setattr(Moves, "finish", finish_if_marked)
    goes_on = hangs(monkeypatch, broker.first)
    for path in (broker.second, broker.first, broker.second):
        broker.move(FIRST, path)
        broker.work()
        broker.append(FIRST)
    assert broker.home(FIRST) == broker.first
    goes_on.set()
    broker.work()
    broker.work(after_ms=1_000)
    assert (broker.home(FIRST), marked) == (broker.second, [True])
    assert broker.log(FIRST).end_offset == 8


def test_a_move_that_was_given_up_takes_no_hold_from_the_next(three: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    hold, held, disks = Durable.hold, [], []

    def holding(durable: Durable, log: Log) -> Hold:
        held.append(log)
        return hold(durable, log)

    monkeypatch.setattr(Durable, "hold", holding)

    def hang() -> None:
        three.append(FIRST)
        disks.append(hangs(monkeypatch, three.second))

    with monkeypatch.context() as patched:
        when_marked(patched, hang)
        three.move(FIRST, three.second)
        three.work()
    three.move(FIRST, three.first)
    disks[0].set()
    three.work()
    assert held == []
    three.move(FIRST, three.directories[2])
    three.work()
    assert (three.home(FIRST), len(held)) == (three.directories[2], 1)


def test_who_waits_for_the_disk_at_the_end_of_a_move_waits_for_that_of_the_copy(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[StorageError | None, str, int, bool]] = []

    def on_done(error: StorageError | None) -> None:
        moved = broker.log(FIRST)
        told.append((error, broker.home(FIRST), moved.flushed_until, moved.durability.placed))

    def produce() -> None:
        broker.append(FIRST)
        broker.log(FIRST).flush()
        broker.append(FIRST)
        broker.durable.hold(broker.log(FIRST))
        broker.durable.sync(broker.log(FIRST), on_done)

    when_marked(monkeypatch, produce)
    broker.move(FIRST, broker.second)
    broker.work()
    assert told == [(None, broker.second, 7, True)]


def test_a_stop_at_the_end_of_a_move_leaves_no_mark(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start may take the log as it was left, and not look for one."""
    marked, told = [], []
    hold = Durable.hold

    def hang(durable: Durable, log: Log) -> Hold:
        marked.append(broker.is_marked(FIRST))
        broker.append(FIRST)
        broker.log(FIRST).flush()
        monkeypatch.setattr(Durable, "synced", lambda durable, log: asyncio.Event().wait())
        return hold(durable, log)

    monkeypatch.setattr(Durable, "hold", hang)
    broker.move(FIRST, broker.second)
    broker.work()
    broker.append(FIRST)
    broker.sync(FIRST, told)
    broker.stop_moving()
    broker.work()
    assert (broker.home(FIRST), marked, told) == (broker.first, [True], [None])
    assert not broker.is_marked(FIRST)


def test_a_topic_that_is_deleted_at_the_end_of_a_move_is_no_failure(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    when_marked(monkeypatch, lambda: broker.replicas.logs.delete(FIRST))
    broker.move(FIRST, broker.second)
    broker.work()
    assert not broker.copied()
    assert not [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert all(directory.failure is None for directory in broker.replicas.logs.directories)


def test_a_replica_that_is_cut_back_at_the_end_of_its_move_moves_without_what_was_cut_off(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts = [2]

    def cut() -> None:
        if cuts:
            truncate_to(broker.log(FIRST), cuts.pop())

    when_marked(monkeypatch, cut)
    broker.move(FIRST, broker.second)
    broker.work()
    broker.work(after_ms=1_000)
    assert (broker.home(FIRST), broker.log(FIRST).end_offset) == (broker.second, 2)


@pytest.mark.parametrize(("owner", "step"), [(Log, "rename"), (Segment, "move_to"), (LogManager, "adopt")])
def test_a_replica_whose_place_its_copy_cannot_take_for_want_of_memory_is_not_marked(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, owner: type, step: str
) -> None:
    """Also behind the renaming of the copy: what came to the replica would be gone with a kill."""
    fails_once(monkeypatch, owner, step, MemoryError())
    broker.move(FIRST, broker.second)
    broker.work()
    assert (broker.home(FIRST), broker.is_marked(FIRST)) == (broker.first, False)
    broker.append(FIRST)
    broker.work(after_ms=1_000)
    assert (broker.home(FIRST), broker.log(FIRST).end_offset) == (broker.second, 6)
    assert not os.path.exists(os.path.join(broker.first, "t-0"))


def test_a_replica_whose_mark_cannot_be_taken_away_is_lost_with_its_directory(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that found another would take that."""
    unlink = Files.unlink

    def refuse(path: str) -> None:
        if path.endswith(MOVED):
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        unlink(path)

    monkeypatch.setattr(Files, "unlink", staticmethod(refuse))
    fails_once(monkeypatch, Log, "rename", MemoryError())
    broker.move(FIRST, broker.second)
    broker.work()
    assert [directory.failure is None for directory in broker.replicas.logs.directories] == [False, True]


def test_an_internal_error_does_not_keep_the_replaced_replica(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_once(monkeypatch, LogManager, "put_away_replaced", MemoryError())
    broker.move(FIRST, broker.second)
    broker.work()
    assert (broker.home(FIRST), os.path.exists(os.path.join(broker.first, "t-0"))) == (broker.second, True)
    broker.work(after_ms=1_000)
    assert not os.path.exists(os.path.join(broker.first, "t-0"))


def test_a_disk_that_a_replica_was_on_before_keeps_it_from_no_other(
    three: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one on which a copy was given up. After a power cut the number in its mark says which replica is older."""
    third = three.directories[2]
    three.move(FIRST, three.second)
    three.work()
    goes_on = hangs(monkeypatch, three.first)
    three.move(FIRST, three.first)
    three.work()
    three.move(FIRST, third)
    three.work()
    assert three.home(FIRST) == third
    goes_on.set()
    three.work()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_replica_moves_on_although_the_one_that_it_has_replaced_is_still_there(
    three: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    """Marked, on a disk that has failed, or that does not let it be put away. The next start takes the later one."""
    rename, found = Files.rename, []

    def refuse(source: str, target: str) -> None:
        if source.startswith(three.first) and target.endswith("-delete"):
            raise OSError(code, os.strerror(code))
        rename(source, target)

    monkeypatch.setattr(Files, "rename", staticmethod(refuse))
    three.move(FIRST, three.second)
    three.work()
    three.append(FIRST)
    with monkeypatch.context() as patched:
        when_marked(patched, lambda: found.append(shutil.copytree(tmp_path, tmp_path / "killed")))
        three.move(FIRST, three.directories[2])
        three.work()
    assert three.home(FIRST) == three.directories[2]
    monkeypatch.undo()
    [killed] = found
    logs = LogManager([str(killed / name) for name in ("first", "second", "third")], NoSync(), three.clock)
    logs.lock()
    logs.load(lambda topic: LogConfig())
    assert (logs.logs[FIRST].directory, logs.logs[FIRST].end_offset) == (str(killed / "second" / "t-0"), 6)
    logs.close()


def move_onto_a_hung_disk(broker: Broker, patch: pytest.MonkeyPatch) -> asyncio.Event:
    """A copy has taken its replica's place; its disk does not have it until the event is set."""
    disks: list[asyncio.Event] = []
    adopt = LogManager.adopt

    def adopted(logs: LogManager, tp: TopicPartition, log: Log, directory: LogDirectory) -> None:
        adopt(logs, tp, log, directory)
        disks.append(hangs(patch, directory.path))

    with patch.context() as patched:
        patched.setattr(LogManager, "adopt", adopted)
        broker.move(FIRST, broker.second)
        broker.work()
    assert (broker.home(FIRST), len(disks)) == (broker.second, 1)
    return disks[0]


def test_a_replica_moves_back_once_what_it_has_replaced_there_is_put_away(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.log(FIRST).increment_start_offset(2)
    for write in broker.replicas.logs.collect_start_offsets():
        write.write()
    goes_on = move_onto_a_hung_disk(broker, monkeypatch)
    broker.move(FIRST, broker.first)
    broker.work(after_ms=1_000)
    assert broker.home(FIRST) == broker.second
    goes_on.set()
    broker.work()
    broker.work(after_ms=1_000)
    assert (broker.home(FIRST), broker.log(FIRST).start_offset) == (broker.first, 2)


@pytest.mark.parametrize("otherwise", ["stay", "third", "deleted", "offline"])
def test_a_replica_does_not_move_back_when_something_else_has_become_of_it(
    three: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, otherwise: str
) -> None:
    goes_on = move_onto_a_hung_disk(three, monkeypatch)
    three.move(FIRST, three.first)
    logs = three.replicas.logs
    if otherwise == "deleted":
        logs.delete(FIRST)
    elif otherwise == "offline":
        logs.fail(StorageError(three.first, "it is gone"))
    else:
        three.move(FIRST, {"stay": three.second, "third": three.directories[2]}[otherwise])
    goes_on.set()
    for _ in range(3):
        three.work(after_ms=1_000)
    home = logs.directory_of(FIRST)
    at = {"stay": three.second, "third": three.directories[2], "offline": three.second}.get(otherwise)
    assert (None if home is None else home.path) == at
    assert any("moving t-0 back" in message for message in caplog.messages) is (otherwise == "offline")


def test_a_move_back_that_a_disk_refuses_is_tried_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = move_onto_a_hung_disk(broker, monkeypatch)
    broker.move(FIRST, broker.first)
    short = StorageError(broker.first, "creating failed")
    short.__cause__ = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    fails_once(monkeypatch, Moves, "start", short)
    goes_on.set()
    broker.work()
    broker.work(after_ms=1_000)
    assert broker.home(FIRST) == broker.second
    broker.work(after_ms=1_000)
    assert broker.home(FIRST) == broker.first


def test_what_was_replaced_goes_once_a_later_copy_is_on_the_disk_if_that_of_the_first_has_failed(
    three: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nothing could move there again."""
    third = three.directories[2]
    with monkeypatch.context() as patched:
        BadDisk(Path(three.first), "rename", errno.ENOSPC, patched)
        three.move(FIRST, three.second)
        three.work()
        three.move(FIRST, third)
        three.work()
        assert three.home(FIRST) == third
        three.replicas.logs.fail(StorageError(three.second, "it is gone"))
    assert os.path.exists(os.path.join(three.first, "t-0"))
    three.work(after_ms=1_000)
    assert not os.path.exists(os.path.join(three.first, "t-0"))
    three.move(FIRST, three.first)
    three.work()
    assert three.home(FIRST) == three.first


def test_of_a_directory_one_replica_is_marked_at_a_time_of_which_its_disk_does_not_know(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_more("u", 6)
    moving = [TopicPartition("u", partition) for partition in range(0, 6, 2)]
    assert {broker.home(tp) for tp in moving} == {broker.first}
    goes_on = hangs(monkeypatch, broker.first)
    for tp in moving:
        broker.move(tp, broker.second)
    broker.work()
    assert [broker.is_marked(tp) for tp in moving].count(True) == 1
    goes_on.set()
    broker.work()
    assert {broker.home(tp) for tp in moving} == {broker.second}


def test_of_moves_to_several_directories_one_copies_in_a_turn_of_the_loop(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, in_turn, most = Moves.step, 0, 0

    def end_turn() -> None:
        nonlocal in_turn
        in_turn = 0

    def counted(moves: Moves, tp: TopicPartition, **how: Any) -> Step:
        nonlocal in_turn, most
        in_turn += 1
        most = max(most, in_turn)
        asyncio.get_running_loop().call_soon(end_turn)
        return step(moves, tp, **how)

    monkeypatch.setattr(Moves, "step", counted)
    moves = Moves(broker.replicas.logs)
    for tp, path in ((FIRST, broker.second), (SECOND, broker.first)):
        moves.start(tp, path)
    broker.resume()
    broker.work()
    assert (broker.home(FIRST), broker.home(SECOND)) == (broker.second, broker.first)
    assert most == 1


def test_nothing_keeps_a_copy_that_was_given_up_when_nothing_moves_any_more(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Durable.run

    async def given_up(durable: Durable, directory: str, work: Callable[[], object]) -> object:
        done = await run(durable, directory, work)
        broker.give_up(FIRST)
        return done

    monkeypatch.setattr(Durable, "run", given_up)
    broker.move(FIRST, broker.second)
    broker.work()
    assert not broker.copied()
    gc.collect()
    assert not [log for log in gc.get_objects() if isinstance(log, Log) and log.retired]


@pytest.mark.parametrize("error", [ZeroDivisionError, MemoryError])
def test_a_move_that_an_error_of_ours_is_in_the_way_of_is_tried_less_and_less_often_and_told_of_now_and_then(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    tried: list[float] = []
    begun_ms = broker.clock.monotonic_ms()

    async def fail(durable: Durable, log: Log) -> None:
        tried.append(broker.clock.monotonic_ms() - begun_ms)
        raise error

    monkeypatch.setattr(Durable, "flush", fail)
    broker.move(FIRST, broker.second)
    broker.work()
    for _ in range(30):
        broker.work(after_ms=1_000)
    assert tried == [0, 1_000, 3_000, 7_000, 15_000, 25_000]
    is_bug = error is not MemoryError
    why = "internal error in" if is_bug else "not enough memory for"
    said = (f"{why} moving t-0 to another log directory; trying again", is_bug)
    assert [(record.message, bool(record.exc_info)) for record in caplog.records] == [said] * 3


def test_the_pauses_of_a_move_begin_over_once_it_has_gone_on(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[float] = []
    begun_ms = broker.clock.monotonic_ms()
    step = Moves.step
    goes_on = [False, False, True, False, *[True] * 100]

    def fail_at_times(moves: Moves, tp: TopicPartition, *arguments: Any, **options: Any) -> Step:
        tried.append(broker.clock.monotonic_ms() - begun_ms)
        if not goes_on.pop(0):
            raise ZeroDivisionError("ours")
        return step(moves, tp, 1, **options)

    monkeypatch.setattr(Moves, "step", fail_at_times)
    broker.move(FIRST, broker.second)
    broker.work()
    for _ in range(10):
        broker.work(after_ms=1_000)
    assert tried[:5] == [0, 1_000, 3_000, 3_000, 4_000]
    assert broker.home(FIRST) == broker.second


def test_a_move_goes_on_although_memory_was_too_short_for_its_rest(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(durable: Durable, log: Log) -> None:
        raise MemoryError

    at, short = Timers.at, [True, True]

    def no_timer(timers: Timers, deadline_ms: float, action: Callable[[], None]) -> Timer:
        if getattr(getattr(action, "func", None), "__name__", "") == "_has_rested" and short:
            short.pop()
            raise MemoryError
        return at(timers, deadline_ms, action)

    with monkeypatch.context() as patched:
        patched.setattr(Durable, "flush", fail)
        patched.setattr(Timers, "at", no_timer)
        broker.move(FIRST, broker.second)
        broker.work()
        broker.work(after_ms=1_000)
    broker.work(after_ms=10_000)
    broker.work(after_ms=10_000)
    assert (short, broker.home(FIRST)) == ([], broker.second)


def test_a_disk_that_fails_while_a_move_is_given_up_is_not_passed_over(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(durable: Durable, directory: str, work: Callable[[], None]) -> None:
        broker.give_up(FIRST)
        raise StorageError(broker.second, "Input/output error")

    monkeypatch.setattr(Durable, "run", fail)
    broker.move(FIRST, broker.second)
    broker.work()
    assert [directory.failure is None for directory in broker.replicas.logs.directories] == [True, False]


def test_an_error_of_ours_before_all_moves_ends_none(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails_once(monkeypatch, Moves, "under_way", ZeroDivisionError("ours"))
    broker.move(FIRST, broker.second)
    broker.work()
    assert caplog.messages == ["internal error in looking for replicas to move; trying again"]
    broker.work(after_ms=1_000)
    assert broker.home(FIRST) == broker.second
