"""The end of a move: the copy is flushed, the replica is marked and replaced, and put away."""

from __future__ import annotations

import asyncio
import errno
import os
from functools import partial
from threading import current_thread

import pytest

from kafkad.errors import StorageError
from kafkad.log.checkpoint import CLEANED_OFFSETS
from kafkad.log.directories import CheckpointWrite
from kafkad.log.files import Files
from kafkad.log.log import Log
from kafkad.log.manager import LogManager
from kafkad.log.marks import MOVED
from kafkad.log.move import Moved, Moves
from kafkad.log.segment import Segment
from kafkad.log.truncation import truncate_to
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable, Hold
from kafkad.upkeep import moves as moves_module
from tests.fakes import before_disk, fails_once, hangs
from tests.full_disk import no_room, refusal
from tests.one_broker import NoSync
from tests.upkeep.moving import FIRST, SECOND, Broker, when_marked


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


def test_the_replaced_replica_is_put_away_later_if_a_disk_does_not_let_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, refused, is_full = Files.rename, [], True

    def renamed(source: str, target: str) -> None:
        if is_full and target.endswith("-delete"):
            refused.append(source)
            no_room(source)
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
            raise refusal(broker.second)
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


def test_a_move_waits_for_disks_in_threads(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.move(FIRST, broker.second)
    threads = set()
    monkeypatch.setattr(NoSync, "sync", lambda files, fd: threads.add(current_thread()))
    broker.work()
    assert broker.home(FIRST) == broker.second
    assert not os.path.exists(os.path.join(broker.first, "t-0"))
    assert threads
    assert current_thread() not in threads


@pytest.mark.parametrize("takes_ms", [4_000, 10_000])
def test_a_move_to_a_slow_disk_ends_although_each_record_is_waited_for_and_holds_up_few_of_them(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, takes_ms: int
) -> None:
    """On the disk of the replica, which is quick."""
    before_disk(monkeypatch, broker.second, partial(broker.sleep, takes_ms))
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


def test_a_move_that_is_asked_for_again_amid_an_exchange_rests_behind_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold, began = Durable.hold, []

    def ask_again(durable: Durable, log: Log) -> Hold:
        began.append(log)
        broker.ask_again(FIRST, broker.second)
        return hold(durable, log)

    monkeypatch.setattr(Durable, "hold", ask_again)
    monkeypatch.setattr(Durable, "holds", lambda durable, hold: False)
    monkeypatch.setattr(Moves, "finish", lambda moves, tp: None)
    broker.move(FIRST, broker.second)
    broker.work()
    broker.work(after_ms=29_999)
    assert len(began) == 1
    broker.work(after_ms=1)
    assert len(began) == 2


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
