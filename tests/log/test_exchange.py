"""The exchange that ends a move: disks refuse it, it is interrupted, and a replaced replica is used again."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path

import pytest

from kafkad.errors import StorageError
from kafkad.log import loading
from kafkad.log.checkpoint import RECOVERY_POINTS
from kafkad.log.duplicates import DuplicatePartitionError
from kafkad.log.files import Files, LogFile, may_pass
from kafkad.log.fsync import OnDone, SharedFsync
from kafkad.log.marks import MOVED
from kafkad.log.move import Moves
from kafkad.log.producers import DuplicateBatch
from kafkad.names import TopicPartition
from tests.fakes import FakeClock, fails_once
from tests.full_disk import FullDisk
from tests.log.conftest import append, batch, records
from tests.log.managers import CONFIG, T0, TOPIC_ID
from tests.log.moving import (
    BadDisk,
    copied,
    copy_all,
    exchanged,
    filled,
    finished,
    future_of,
    marked,
    opened,
    partition_names,
    ready,
)


def test_nothing_is_written_about_directories_that_a_move_is_none_of(tmp_path: Path) -> None:
    manager = opened(tmp_path, "abc")
    filled(manager, tmp_path)
    moved = exchanged(copied(manager, tmp_path))
    assert moved is not None
    assert {os.path.basename(write.directory.path) for write in moved.put_away()} == {"a", "b"}
    manager.close()


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_move_has_ended_whatever_the_disks_refuse_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The old replica is marked as replaced: whatever came to it from now on would be gone with the next restart."""
    manager = opened(tmp_path)
    log = filled(manager, tmp_path)
    log.cleaned_until = 7
    for write in manager.collect_cleaned_offsets():
        write.write()
    moves = copied(manager, tmp_path)
    disk = FullDisk(str(tmp_path / name), monkeypatch)
    moved = exchanged(moves)
    assert moved is not None
    with suppress(StorageError):
        for write in moved.put_away():
            write.write()
    assert disk.refused
    assert manager.get(T0) is moved.log
    assert log.retired
    manager.close()


def test_the_old_replica_stays_where_the_disk_of_the_new_one_fails_at_once(tmp_path: Path) -> None:
    """With what the checkpoints say of it: records that were deleted do not come back."""
    manager = opened(tmp_path)
    log = filled(manager, tmp_path)
    log.increment_start_offset(2)
    log.cleaned_until = 7
    before = records(log)
    log.flush()
    for write in manager.collect_high_watermarks({T0: 25}):
        write.write()
    moves = copied(manager, tmp_path)
    moved = exchanged(moves)
    assert moved is not None
    manager.fail(StorageError(str(tmp_path / "b"), "it is gone"))
    assert moved.put_away() == []
    writes = (manager.collect_start_offsets, manager.collect_recovery_points, manager.collect_cleaned_offsets)
    for write in [*(write for collect in writes for write in collect()), *manager.collect_high_watermarks({})]:
        write.write()
    manager.close()
    (tmp_path / "b").rename(tmp_path / "broken")
    (tmp_path / "b").mkdir()
    manager = opened(tmp_path)
    found = manager.get(T0)
    assert found is not None
    assert records(found) == before
    assert (found.start_offset, found.cleaned_until, manager.checkpointed_high_watermark(T0)) == (2, 7, 25)
    [directory, _] = manager.directories
    assert directory.checkpointed(RECOVERY_POINTS, T0) == 30


class AtTheLimit(Files):
    """The real disk, with file descriptors `left` for the directory of the partition at `path`."""

    def __init__(self, path: Path, left: float = inf) -> None:
        self._path = str(path)
        self.left = left

    def open_log_file(self, path: str, flags: int = os.O_RDWR) -> LogFile:
        if path == self._path:
            if not self.left:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            self.left -= 1
        return super().open_log_file(path, flags)


@pytest.mark.parametrize(
    ("is_clean", "left"),
    [(True, inf), (False, inf), (True, 0)],
    ids=["clean", "crash", "clean, and without file descriptors at the start"],
)
def test_an_old_replica_that_is_used_again_knows_its_producers(tmp_path: Path, is_clean: bool, left: float) -> None:
    """No stop has closed it, and nothing but its records tells of them."""
    manager = opened(tmp_path)
    log = manager.create(T0, TOPIC_ID, CONFIG, directory=str(tmp_path / "a"))
    manager.create(TopicPartition("t", 1), TOPIC_ID, CONFIG, directory=str(tmp_path / "a"))
    append(log, batch(b"of a transaction that is open", producer_id=8, producer_epoch=0, transactional=True))
    last = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    append(log, batch(b"last", **last))
    log.flush()
    assert exchanged(copied(manager, tmp_path)) is not None
    manager.fail(StorageError(str(tmp_path / "b"), "it is gone"))
    if is_clean:
        manager.close()
    else:
        for write in manager.collect_recovery_points():
            write.write()
        manager.directories[0].release()
    (tmp_path / "b").rename(tmp_path / "broken")
    (tmp_path / "b").mkdir()
    disk = AtTheLimit(tmp_path / "a" / "t-0", left)
    manager = opened(tmp_path, files=disk)
    if not left:
        assert manager.get(T0) is None
        disk.left = inf
        manager.create(T0, TOPIC_ID, CONFIG)
    [directory, _] = manager.directories
    assert directory.was_clean is is_clean, "the other logs there need not be checked"
    found = manager.logs[T0]
    assert found.producers.first_unstable_offset(found.end_offset) == 0
    with pytest.raises(DuplicateBatch):
        append(found, batch(b"last", **last))
    assert not (Path(found.directory) / MOVED).exists()
    manager.close()


def test_a_topic_that_is_deleted_before_the_old_replica_is_put_away_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = opened(tmp_path)
    filled(manager, tmp_path)
    moved = exchanged(copied(manager, tmp_path))
    assert moved is not None
    disk = BadDisk(tmp_path / "a", "rename", errno.ENOSPC, monkeypatch)
    for step in (moved.put_away, lambda: manager.delete(T0)):
        with pytest.raises(StorageError):
            step()
    disk.is_bad = False
    manager.delete(T0)
    assert not [name for name in partition_names(tmp_path / "a") if not name.endswith("-delete")]
    moved.put_away()
    manager.close()
    assert opened(tmp_path).get(T0) is None


def test_a_replica_whose_place_the_copy_cannot_take_is_not_marked_as_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, log, moves = ready(tmp_path)
    disk = BadDisk(tmp_path / "b", "rename", errno.ENOSPC, monkeypatch)
    with pytest.raises(StorageError):
        exchanged(moves)
    assert manager.get(T0) is log
    assert not (Path(log.directory) / MOVED).exists()
    append(log, batch(b"late"), epoch=2)
    before = records(log)
    disk.is_bad = False
    copy_all(moves)
    moved = finished(moves)
    assert moved is not None
    assert records(moved) == before
    manager.close()


@pytest.mark.parametrize("left", [0, 1])
def test_a_replica_whose_place_the_copy_cannot_take_is_not_marked_for_want_of_file_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    disk = AtTheLimit(tmp_path / "a" / "t-0")
    manager, log, moves = ready(tmp_path, files=disk)
    disk.left = left
    target = BadDisk(tmp_path / "b", "rename", errno.ENOSPC, monkeypatch)
    with pytest.raises(StorageError) as refused:
        exchanged(moves)
    assert may_pass(refused.value)
    assert not (Path(log.directory) / MOVED).exists()
    target.is_bad = False
    assert not disk.left
    moves.cancel(T0)
    assert moves.future(T0) is None, "without any"
    manager.close()


def test_a_replica_that_stays_marked_as_replaced_takes_nothing_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came to it would be gone with the next restart."""
    manager, log, moves = ready(tmp_path)
    BadDisk(tmp_path / "b", "rename", errno.ENOSPC, monkeypatch)
    BadDisk(tmp_path / "a" / "t-0", "unlink", errno.EDQUOT, monkeypatch)
    mark = marked(moves)
    with pytest.raises(StorageError):
        moves.finish(T0)
    with pytest.raises(StorageError) as refused:
        mark.take_away()
    manager.fail(refused.value)
    assert log.closed
    assert [directory.path for directory in manager.live] == [str(tmp_path / "b")]
    manager.close()


def test_a_replica_that_was_in_use_and_marked_as_replaced_is_not_marked_after_a_clean_start(tmp_path: Path) -> None:
    """As earlier versions could leave one."""
    manager = opened(tmp_path)
    log = filled(manager, tmp_path)
    mark = Path(log.directory) / MOVED
    mark.touch()
    manager.close()
    manager = opened(tmp_path)
    assert not mark.exists()
    assert manager.logs[T0].end_offset == 30
    manager.close()


def test_an_exchange_waits_for_no_disk_and_tells_of_nothing_that_a_disk_may_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the disk has the name of the copy, a power cut may have the next start take the replica."""
    manager, log, moves = ready(tmp_path, 20)
    log.flush()
    append(log, batch(b"late"), epoch=9)
    copy_all(moves)
    future_of(moves).flush()
    marked(moves)
    synced: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(Files, "sync", staticmethod(synced.append))
        moved = moves.finish(T0)
    assert moved is not None
    assert not synced
    assert manager.get(T0) is moved.log is log.replaced_by
    assert (moved.log.flushed_until, moved.log.end_offset) == (20, 21)
    told: list[StorageError | None] = []
    asked: list[tuple[Callable[[], None], OnDone]] = []
    group = SharedFsync(manager.files, lambda _, work, done: asked.append((work, done)), lambda error: None)
    group.fsync(moved.log, told.append)
    assert told == []
    [(work, done)] = asked
    work()
    done(None)
    assert told == [None]
    assert moved.log.flushed_until == 21
    assert partition_names(tmp_path / "a") == ["t-0"]
    moved.put_away()
    assert [name.endswith("-delete") for name in partition_names(tmp_path / "a")] == [True]
    manager.close()


def test_a_copy_takes_no_place_before_its_disk_has_what_is_known_to_be_on_that_of_the_replica(tmp_path: Path) -> None:
    manager, log, moves = ready(tmp_path)
    future_of(moves).flush()
    append(log, batch(b"late"), epoch=2)
    copy_all(moves)
    log.flush()
    assert moves.finish(T0) is None
    future_of(moves).flush()
    assert moves.finish(T0) is not None
    manager.close()


@pytest.mark.parametrize("back_ms", [0, 5_000])
def test_of_two_replicas_that_are_marked_the_start_takes_the_one_that_was_marked_last(
    tmp_path: Path, back_ms: int
) -> None:
    """The first move had not put its replica away, nor the second taken the place of the second one; and the clock may
    have been put back between them."""
    manager = opened(tmp_path, "abc")
    filled(manager, tmp_path)
    assert exchanged(copied(manager, tmp_path)) is not None
    append(manager.logs[T0], batch(b"late"), epoch=2)
    assert isinstance(manager.clock, FakeClock)
    manager.clock.advance(-back_ms)
    moves = Moves(manager)
    moves.start(T0, str(tmp_path / "c"))
    marked(moves)
    for directory in manager.live:
        directory.release()
    again = opened(tmp_path, "abc")
    found = again.logs[T0]
    assert (found.directory, found.end_offset) == (str(tmp_path / "b" / "t-0"), 31)
    assert not (Path(found.directory) / MOVED).exists()
    assert [name.endswith("-delete") for name in partition_names(tmp_path / "a")] == [True]
    again.close()


@pytest.mark.parametrize("too_full", [False, True])
def test_what_goes_at_a_start_is_marked_below_what_is_marked_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, too_full: bool
) -> None:
    """A power cut may bring it back. The disk may be too full at first to open the one that is taken."""
    manager = opened(tmp_path)
    filled(manager, tmp_path)
    assert exchanged(copied(manager, tmp_path)) is not None
    before = manager.logs[T0].last_mark
    for directory in manager.live:
        directory.release()
    if too_full:
        refused = StorageError(str(tmp_path / "b"), "opening failed")
        refused.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fails_once(monkeypatch, loading, "open_log", refused)
    again = opened(tmp_path)
    assert (T0 in again.broken) is too_full
    assert again.create(T0, TOPIC_ID, CONFIG, is_new=False).last_mark == before > 0
    again.close()


def test_a_mark_without_a_number_is_older_than_any(tmp_path: Path) -> None:
    """As earlier releases have left them. Of two such nobody knows which is the one."""
    manager, log, moves = ready(tmp_path)
    marked(moves)
    for directory in manager.live:
        directory.release()
    old = tmp_path / "b" / "t-0"
    os.rename(future_of(moves).directory, old)
    (old / MOVED).touch()
    again = opened(tmp_path)
    assert again.logs[T0].directory == log.directory
    again.close()
    shutil.copytree(log.directory, old)
    for path in (Path(log.directory), old):
        (path / MOVED).touch()
    with pytest.raises(DuplicatePartitionError):
        opened(tmp_path)


def test_a_start_that_cannot_tell_which_replica_to_take_takes_none_and_leaves_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, log, moves = ready(tmp_path)
    assert exchanged(moves) is not None
    for directory in manager.live:
        directory.release()
    with monkeypatch.context() as patched:
        BadDisk(Path(log.directory), "listdir", errno.EIO, patched)
        with pytest.raises(DuplicatePartitionError, match="cannot be listed"):
            opened(tmp_path)
    assert (partition_names(tmp_path / "a"), partition_names(tmp_path / "b")) == (["t-0"], ["t-0"])


def test_what_an_earlier_move_has_left_is_put_away_by_that_one_only(tmp_path: Path) -> None:
    """The topic was deleted, made anew and moved meanwhile."""
    manager = opened(tmp_path)
    filled(manager, tmp_path)
    earlier = exchanged(copied(manager, tmp_path))
    manager.delete(T0)
    filled(manager, tmp_path)
    later = exchanged(copied(manager, tmp_path))
    assert earlier is not None
    assert later is not None
    earlier.put_away()
    assert "t-0" in partition_names(tmp_path / "a")
    later.put_away()
    assert "t-0" not in partition_names(tmp_path / "a")
    manager.close()


def test_a_replaced_replica_that_is_used_again_is_not_marked_any_more(tmp_path: Path) -> None:
    """Its copy is on a disk that failed before it was put away. When that comes back, the copy lacks records."""
    manager, log, moves = ready(tmp_path)
    assert exchanged(moves) is not None
    manager.close()
    (tmp_path / "b").rename(tmp_path / "away")
    (tmp_path / "b").mkdir()
    manager = opened(tmp_path)
    append(manager.logs[T0], batch(b"late"), epoch=2)
    assert not (Path(log.directory) / MOVED).exists()
    manager.close()
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "away").rename(tmp_path / "b")
    with pytest.raises(DuplicatePartitionError):
        opened(tmp_path)


@pytest.mark.parametrize("renamed", [False, True])
def test_a_crash_in_the_middle_of_the_exchange_leaves_one_replica(tmp_path: Path, renamed: bool) -> None:
    manager, log, moves = ready(tmp_path)
    future = future_of(moves)
    (Path(log.directory) / MOVED).touch()
    if renamed:
        os.rename(future.directory, tmp_path / "b" / "t-0")
    for directory in manager.live:
        directory.release()
    again = opened(tmp_path)
    assert again.logs[T0].directory == str(tmp_path / ("b" if renamed else "a") / "t-0")
    assert [record.offset for record in records(again.logs[T0])] == list(range(30))
    assert len(partition_names(tmp_path / "a")) == 1
    again.close()
