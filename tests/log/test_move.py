"""Moving a replica to another log directory while it is written to, cut back, given up."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.checkpoint import RECOVERY_POINTS
from kafkad.log.describe import describe
from kafkad.log.files import may_pass
from kafkad.log.log import Log
from kafkad.log.manager import LogManager
from kafkad.log.mending import verify_batch
from kafkad.log.move import Moves
from kafkad.log.truncation import truncate_to
from kafkad.names import TopicPartition
from kafkad.turns import at_once
from kafkad.wire.control import ControlRecord, build_marker
from tests.log.conftest import append, batch, pieces_of, records
from tests.log.consistency import check
from tests.log.managers import CONFIG, T0, TOPIC_ID
from tests.log.moving import (
    BadDisk,
    copied,
    copy_all,
    exchanged,
    filled,
    finished,
    future_of,
    opened,
    partition_names,
    ready,
)


def test_what_a_replica_loses_of_its_beginning_goes_from_the_copy_in_pieces(tmp_path: Path) -> None:
    manager, log, moves = ready(tmp_path, 400)
    future = future_of(moves)
    assert len(future.segments) > 16
    log.increment_start_offset(log.end_offset)
    count, _ = pieces_of(moves.drop_beginning(T0))
    assert count > 1
    assert (future.start_offset, len(future.segments)) == (400, 1)
    manager.close()


def test_a_replica_moves_while_it_is_written_to(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    log = filled(manager, tmp_path)
    log.increment_start_offset(2)
    before = records(log)
    moves = Moves(manager)
    log.cleaned_until = 7
    moves.start(T0, str(tmp_path / "b"))
    begun = moves.future(T0)
    moves.start(T0, str(tmp_path / "b"))
    assert moves.future(T0) is begun is not None
    assert moves.step(T0, 1000).copied > 0
    assert moves.under_way(manager.directories[1]) == [T0]
    current, future = (d.replicas[0] for d in at_once(describe(manager, lambda tp: log.end_offset)))
    assert (current.is_future, future.is_future) == (False, True)
    assert future.offset_lag > 0 == current.offset_lag
    copy_all(moves)
    append(log, batch(b"late"), epoch=2)
    assert finished(moves) is None
    copy_all(moves)
    moved = finished(moves)
    assert manager.get(T0) is moved is not None
    assert moved.directory == str(tmp_path / "b" / "t-0")
    assert records(moved)[:-1] == before
    assert moved.epochs.entries == log.epochs.entries
    assert moved.topic_id == TOPIC_ID
    assert [name.endswith("-delete") for name in partition_names(tmp_path / "a")] == [True]
    append(moved, batch(b"after"), epoch=2)
    manager.close()
    assert check(moved.directory) == []
    again = opened(tmp_path)
    assert (again.logs[T0].start_offset, again.logs[T0].cleaned_until) == (2, 7)
    assert records(again.logs[T0]) == records(moved)
    again.close()


def test_a_replica_does_not_move_to_where_another_of_its_name_is_in_the_way(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    log = filled(manager, tmp_path)
    (tmp_path / "b" / "t-0").mkdir()
    with pytest.raises(KafkaError, match="in the way") as refused:
        Moves(manager).start(T0, str(tmp_path / "b"))
    assert not isinstance(refused.value, StorageError)
    assert manager.get(T0) is log
    manager.close()


def test_a_move_goes_on_after_a_restart(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    filled(manager, tmp_path)
    moves = Moves(manager)
    moves.start(T0, str(tmp_path / "b"))
    moves.step(T0, 3000)
    manager.close()
    again = opened(tmp_path)
    moves = Moves(again)
    assert moves.under_way(again.directories[1]) == [T0]
    future = future_of(moves)
    assert 0 < future.end_offset < 30
    copy_all(moves)
    moved = finished(moves)
    assert moved is not None
    assert [record.value for record in records(moved)] == [b"%d" % n + bytes(200) for n in range(30)]
    again.close()


def test_a_copy_follows_when_its_replica_is_cut_back_or_emptied(tmp_path: Path) -> None:
    manager, log, moves = ready(tmp_path)
    truncate_to(log, 15)
    for n in range(20):
        append(log, batch(b"new %d" % n), epoch=7)
    copy_all(moves)
    future = future_of(moves)
    assert records(future) == records(log)
    log.truncate_fully_at(100)
    append(log, batch(b"anew"), epoch=8)
    copy_all(moves)
    assert records(future) == records(log)
    assert future.start_offset == 100
    assert finished(moves) is future
    manager.close()


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("later", [[], [6], [6, 7]])
def test_a_copy_gives_up_an_epoch_that_its_replica_has_lost_to_an_earlier_one(
    tmp_path: Path, later: list[int], restarted: bool
) -> None:
    """It led for a moment, and follows one whose records of the epoch before go on further."""
    manager = opened(tmp_path)
    log = manager.create(T0, TOPIC_ID, CONFIG, directory=str(tmp_path / "a"))
    for epoch in (3, 4, 5):
        for n in range(10):
            append(log, batch(b"%d in %d" % (n, epoch)), epoch=epoch)
    moves = copied(manager, tmp_path)
    truncate_to(log, 20)
    for epoch in (4, *later):
        for n in range(20):
            append(log, batch(b"%d more in %d" % (n, epoch)), epoch=epoch)
    if restarted:
        manager.close()
        manager = opened(tmp_path)
        log, moves = manager.logs[T0], Moves(manager)
    before = records(log)
    copy_all(moves)
    moved = finished(moves)
    assert moved is not None
    assert records(moved) == before
    assert moved.epochs.entries == log.epochs.entries
    manager.close()


def test_a_producer_that_outlives_its_topic_goes_on_in_a_copy_of_the_next_one(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    filled(manager, tmp_path)
    manager.delete(T0)
    filled(manager, tmp_path)
    moved = finished(copied(manager, tmp_path))
    assert moved is not None
    assert append(moved, batch(b"x", producer_id=7, producer_epoch=0, base_sequence=12), epoch=2) == 30
    manager.close()


def test_a_copy_remembers_no_transactions_that_readers_of_its_replica_have_passed(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    log = manager.create(T0, TOPIC_ID, CONFIG, directory=str(tmp_path / "a"))
    for sequence in range(3):
        of_producer: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0}
        append(log, batch(b"x", base_sequence=sequence, transactional=True, **of_producer))
        append(log, build_marker(ControlRecord(True, 0), timestamp=1000, **of_producer))
    moves = Moves(manager)
    moves.start(T0, str(tmp_path / "b"))
    while not moves.step(T0, high_watermark=4).caught_up:
        pass
    future = future_of(moves)
    assert future.first_unstable_offset(0) == 4
    manager.close()


def half_copied(manager: LogManager, tmp_path: Path) -> Log:
    """A copy that has the first half of its replica, in several segments."""
    log = filled(manager, tmp_path, 100)
    moves = Moves(manager)
    moves.start(T0, str(tmp_path / "b"))
    future = future_of(moves)
    while future.end_offset < log.end_offset // 2:
        moves.step(T0, 1000)
    assert len(future.segments) > 2
    return future


def test_a_copy_under_way_loses_what_its_replica_loses_and_no_more(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    future = half_copied(manager, tmp_path)
    end, path = future.end_offset, Path(future.directory)
    manager.logs[T0].update_config(replace(CONFIG, retention_ms=-1))
    manager.logs[T0].increment_start_offset(30)
    assert sum(manager.retention_pass(lambda tp: 100, manager.fail)) > 0
    first, second = future.segments[:2]
    assert first.base <= future.start_offset == 30 < second.base
    assert list(path.glob("*.log.deleted"))
    manager.clock.advance(60_000)  # type: ignore[attr-defined]
    for due in manager.due_removals(manager.directories[1]):
        manager.removal.remove(due.path)
    assert not list(path.glob("*.deleted"))
    manager.logs[T0].increment_start_offset(100)
    list(manager.retention_pass(lambda tp: 100, manager.fail))
    assert (future.start_offset, future.end_offset) == (end, end)
    copy_all(Moves(manager))
    assert (future.start_offset, future.end_offset) == (100, 100)
    manager.close()


def test_what_a_copy_has_of_full_segments_is_flushed_while_it_grows(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    future = half_copied(manager, tmp_path)
    [to_flush] = filter(None, manager.flush_pass(manager.directories[1]))
    assert to_flush is future
    future.flush()
    assert not any(manager.flush_pass(manager.directories[1]))
    manager.close()


def test_producers_of_a_copy_expire_as_those_of_its_replica(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    manager.expire_producers_after(1_000)
    log = filled(manager, tmp_path)
    sent = {"producer_epoch": 0, "base_sequence": 0, "timestamp": manager.clock.now_ms()}
    append(log, batch(b"x", producer_id=7, **sent), epoch=2)
    future = future_of(copied(manager, tmp_path))
    manager.clock.advance(1_000)  # type: ignore[attr-defined]
    assert list(manager.producer_expiry_pass()) == [1, 1]
    manager.expire_producers_after(5_000)
    assert future.producers.expiration_ms == 5_000
    manager.close()


def test_of_many_small_batches_a_step_copies_some(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    log = manager.create(T0, TOPIC_ID, CONFIG, directory=str(tmp_path / "a"))
    for _ in range(1_500):
        append(log, batch(b"."))
    log.update_config(LogConfig())
    for _ in range(1_500):
        append(log, batch(b"."))
    moves = Moves(manager)
    moves.start(T0, str(tmp_path / "b"))
    future = future_of(moves)
    ends = [0]
    while not moves.step(T0).caught_up:
        ends.append(future.end_offset)
    assert all(end - before <= 1_000 for before, end in pairwise([*ends, future.end_offset]))
    assert records(future) == records(log)
    manager.close()


def test_a_replica_that_begins_in_the_middle_of_a_batch_moves(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    log = manager.create(T0, TOPIC_ID, CONFIG, directory=str(tmp_path / "a"))
    for _ in range(3):
        append(log, batch(*(b"%d" % n for n in range(10))))
    log.increment_start_offset(13)
    before = records(log)
    moves = copied(manager, tmp_path)
    moved = finished(moves)
    assert moved is not None
    assert records(moved) == before
    manager.close()
    again = opened(tmp_path)
    assert (again.logs[T0].start_offset, again.logs[T0].end_offset) == (13, 30)
    again.close()


@pytest.mark.parametrize("count", [10, 12])
def test_a_log_of_which_the_end_was_compacted_away_moves_whole(tmp_path: Path, count: int) -> None:
    """Kafka's cleaner, before it kept the last batch of each round, left such a gap before an empty segment: also in
    place of all records of an epoch."""
    manager = opened(tmp_path)
    log = filled(manager, tmp_path, count)
    log.roll()
    manager.close()
    closed = Path(log.segments[-2].path(".log"))
    os.truncate(closed, closed.stat().st_size // count * 5)
    for suffix in (".index", ".timeindex"):
        closed.with_suffix(suffix).unlink()
    manager = opened(tmp_path)
    log = manager.logs[T0]
    assert (len(records(log)), log.end_offset) == (5, count)
    moves = copied(manager, tmp_path)
    assert moves.step(T0).caught_up
    append(log, batch(b"late"), epoch=2)
    before = records(log)
    copy_all(moves)
    moved = finished(moves)
    assert moved is not None
    manager.close()
    found = opened(tmp_path).logs[T0]
    assert (found.start_offset, found.end_offset) == (0, count + 1)
    assert records(found) == before


def test_an_epoch_in_which_nobody_has_produced_yet_moves_along(tmp_path: Path) -> None:
    manager, log, moves = ready(tmp_path)
    log.assign_epoch(7, log.end_offset)
    assert moves.step(T0).caught_up
    moved = finished(moves)
    assert moved is not None
    assert (moved.epochs.entries, moved.last_epoch) == ([(0, 0), (1, 10), (2, 20), (7, 30)], 7)
    manager.close()
    assert opened(tmp_path).logs[T0].epochs.latest == 7


def test_an_epoch_that_the_replica_forgot_before_the_move_could_end_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch before it kept its name and lost its beginning: a leader would not have seen where others part."""
    _, log, moves = ready(tmp_path)
    before = log.epochs.entries
    log.assign_epoch(7, log.end_offset)
    disk = BadDisk(tmp_path / "b", "rename", errno.ENOSPC, monkeypatch)
    with pytest.raises(StorageError):
        finished(moves)
    disk.is_bad = False
    log.forget_unused_epochs()
    moved = finished(moves)
    assert moved is not None
    assert moved.epochs.entries == before


def test_what_is_damaged_of_a_copy_is_copied_again(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    before = records(filled(manager, tmp_path))
    moves = copied(manager, tmp_path)
    future = future_of(moves)
    with open(future.segments[0].path(".log"), "r+b") as file:
        file.seek(1_000)
        file.write(b"!")
    for offset in range(10):
        verify_batch(future, offset)
    assert future.is_damaged
    assert not moves.step(T0).caught_up
    copy_all(moves)
    moved = finished(moves)
    assert moved is not None
    assert not moved.is_damaged
    assert records(moved) == before
    manager.close()


def test_a_move_back_or_elsewhere_gives_up_the_one_under_way(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    log = filled(manager, tmp_path)
    moves = Moves(manager)
    moves.start(T0, str(tmp_path / "b"))
    moves.start(T0, str(tmp_path / "a"))
    assert moves.under_way(manager.directories[1]) == []
    moves.cancel(T0)
    assert manager.get(T0) is log
    with pytest.raises(KafkaError):
        moves.step(T0)
    moves.start(T0, str(tmp_path / "b"))
    manager.delete(T0)
    assert [name.endswith("-delete") for name in partition_names(tmp_path / "b")] == [True, True]
    manager.close()


def test_a_move_that_is_given_up_while_its_copy_is_flushed_costs_no_directory(tmp_path: Path) -> None:
    manager, log, moves = ready(tmp_path)
    future = future_of(moves)
    flush = future.start_flush()
    moves.start(T0, str(tmp_path / "a"))
    flush.sync()
    future.end_flush(flush)
    assert manager.get(T0) is log
    manager.close()


def test_a_topic_whose_name_is_too_long_for_a_copy_stays_and_costs_no_directory(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    long = TopicPartition("n" * 249, 0)
    log = manager.create(long, TOPIC_ID, CONFIG, directory=str(tmp_path / "a"))
    with pytest.raises(KafkaError) as refused:
        Moves(manager).start(long, str(tmp_path / "b"))
    assert not isinstance(refused.value, StorageError)
    assert manager.get(long) is log
    manager.delete(long)
    manager.close()


def test_what_kafka_answers_when_there_is_nothing_to_move(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    moves = Moves(manager)
    with pytest.raises(KafkaError) as nowhere:
        moves.start(T0, "/nowhere")
    assert nowhere.value.code == ErrorCode.LOG_DIR_NOT_FOUND
    with pytest.raises(KafkaError) as absent:
        moves.start(T0, str(tmp_path / "b"))
    assert absent.value.code == ErrorCode.REPLICA_NOT_AVAILABLE
    manager.close()


def test_a_replica_does_not_move_to_where_checkpoints_still_have_an_earlier_one(tmp_path: Path) -> None:
    """What they say of that would be taken for the copy's."""
    manager = opened(tmp_path)
    filled(manager, tmp_path)
    moves = copied(manager, tmp_path)
    future_of(moves).flush()
    for write in manager.collect_recovery_points():
        write.write()
    assert moves.forget_predecessors({T0: str(tmp_path / "b")}) == [], "it is on its way there"
    moves.cancel(T0)
    with pytest.raises(StorageError) as refused:
        moves.start(T0, str(tmp_path / "b"))
    assert may_pass(refused.value)
    assert moves.under_way(manager.directories[1]) == []
    [(directory, forget)] = moves.forget_predecessors({T0: str(tmp_path / "b")})
    forget()
    assert directory.checkpointed(RECOVERY_POINTS, T0) is None
    moves.start(T0, str(tmp_path / "b"))
    assert moves.under_way(directory) == [T0]
    manager.close()


@pytest.mark.parametrize("in_the_way", ["predecessor", "directory"])
def test_a_move_goes_on_where_another_one_that_is_asked_for_cannot_begin(tmp_path: Path, in_the_way: str) -> None:
    if in_the_way == "predecessor":
        (tmp_path / "c").mkdir()
        (tmp_path / "c" / RECOVERY_POINTS).write_text("0\n1\nt 0 1\n")
    manager = opened(tmp_path, "abc")
    filled(manager, tmp_path)
    moves = copied(manager, tmp_path)
    if in_the_way == "directory":
        (tmp_path / "c" / "t-0").mkdir()
    with pytest.raises(KafkaError):
        moves.start(T0, str(tmp_path / "c"))
    assert moves.under_way(manager.directories[1]) == [T0]
    manager.close()


def test_checkpoints_keep_a_replica_that_was_replaced(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    filled(manager, tmp_path).flush()
    for write in manager.collect_recovery_points():
        write.write()
    moves = copied(manager, tmp_path)
    assert exchanged(moves) is not None
    assert moves.forget_predecessors({T0: str(tmp_path / "a")}) == []
    manager.close()
