"""Moves between log directories, at their rate, of which one is full or hangs: others go on, and nothing is lost."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from kafkad.config import LONG_MAX, LogConfig
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.log import Log
from kafkad.log.move import Moves, Step
from kafkad.log.truncation import truncate_to
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from kafkad.turns import Pieces
from tests.fakes import hangs
from tests.full_disk import FullDisk, refusal
from tests.upkeep.moving import ALL, FIRST, SECOND, THIRD, Broker


def test_a_move_to_a_full_disk_is_tried_once_a_second_and_holds_up_no_other(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, refused, is_full = Log.append_copied, [], True

    def append_copied(log: Log, batches: memoryview, epoch: int | None = None) -> None:
        if is_full and log.directory.startswith(broker.second):
            refused.append(log.directory)
            raise refusal(broker.second)
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

    def refuse(moves: Moves, tp: TopicPartition) -> None:
        if moves.future(tp) is not None and not refused:
            refused.append(tp)
            raise refusal(broker.second)
        cancel(moves, tp)

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


def test_a_disk_that_hangs_holds_up_no_request_for_moves(three: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own begin once it has answered, and has no checkpoint of a replica that was there before."""
    three.move(FIRST, three.second)
    three.work()
    three.write_recovery_points(FIRST)
    three.move(FIRST, three.first)
    three.work()
    three.work(after_ms=2_000)
    goes_on = hangs(monkeypatch, three.second)
    assert three.ask_for_moves({FIRST: three.second, THIRD: three.first}) == [FIRST]
    assert three.ask_for_moves({FIRST: three.second, THIRD: three.first}, after_ms=0) == [FIRST]
    three.work()
    assert (three.home(FIRST), three.home(THIRD)) == (three.first, three.first)
    goes_on.set()
    three.work()
    assert three.ask_for_moves({FIRST: three.second}, after_ms=0) == []
    three.work()
    assert three.home(FIRST) == three.second
