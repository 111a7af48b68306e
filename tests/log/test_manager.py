"""The log manager: what is found in its directories, and what becomes of partitions."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkad.clock import SystemClock
from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log import checkpoint
from kafkad.log import manager as manager_module
from kafkad.log.duplicates import DuplicatePartitionError
from kafkad.log.files import Files, disk_errors, may_pass
from kafkad.log.loading import LoadingProgress, LoadingStopped
from kafkad.log.log import Log
from kafkad.log.manager import LogManager
from kafkad.log.marks import Mark
from kafkad.log.mending import verify_batch
from kafkad.log.move import Moves
from kafkad.log.truncation import truncate_to
from kafkad.names import NO_TOPIC_ID, TopicPartition
from kafkad.wire.control import ControlRecord, build_marker
from tests.fakes import FakeClock, FaultyFiles, no_more_threads
from tests.full_disk import no_room
from tests.log.conftest import GOLDEN, batch
from tests.log.conftest import append as append_one
from tests.log.consistency import check
from tests.log.managers import CONFIG, T0, TOPIC_ID, append, config_for, forget_predecessors, started


def test_logs_survive_a_clean_stop_with_everything_a_kafka_needs(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    log = manager.create(T0, TOPIC_ID, CONFIG)
    append(log, 40)
    log.increment_start_offset(3)
    manager.close({T0: 40})
    assert sorted(os.listdir(disks[0])) == [
        ".kafka_cleanshutdown",
        ".kafkad_cleanshutdown",
        ".lock",
        "log-start-offset-checkpoint",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "t-0",
    ]
    assert (disks[0] / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 40\n"
    assert (disks[0] / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"

    again = started(disks[0])
    assert again.directories[0].was_clean
    found = again.get(T0)
    assert found is not None
    assert (found.start_offset, found.end_offset, found.topic_id) == (3, 40, TOPIC_ID)
    assert again.checkpointed_high_watermark(T0) == 40
    assert not (disks[0] / ".kafka_cleanshutdown").exists()
    again.close()


def test_damage_is_known_again_after_each_start_and_nothing_on_the_disk_is_cut_off(disks: tuple[Path, Path]) -> None:
    """Recovery points are as far as the disk has the log, for a Kafka would cut it off at damage behind them."""
    manager = started(disks[0])
    log = manager.create(T0, TOPIC_ID, CONFIG)
    append(log, 40)
    for segment in (log.segments[1], log.segments[-1]):
        with open(segment.path(".log"), "r+b") as file:
            file.seek(100)
            file.write(b"!")
        verify_batch(log, segment.base)
    holes = [hole for _, hole in log.damage]
    assert len(holes) == 2
    for _ in range(3):
        manager.close()
        assert (disks[0] / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 40\n"
        assert (disks[0] / checkpoint.DAMAGED_OFFSETS).read_text() == f"0\n1\nt 0 {log.damaged_from}\n"
        manager = started(disks[0])
        found = manager.get(T0)
        assert found is not None
        assert ([hole for _, hole in found.damage], found.end_offset) == (holes, 40)
    found.truncate_fully_at(40)
    manager.close()
    assert (disks[0] / checkpoint.DAMAGED_OFFSETS).read_text() == "0\n0\n"
    assert (disks[0] / ".kafka_cleanshutdown").exists()


def test_loading_that_is_stopped_leaves_directories_as_they_were_found(disks: tuple[Path, Path]) -> None:
    clean, unclean = disks
    started(clean).close()
    manager = started(unclean)
    append(manager.create(T0, TOPIC_ID, CONFIG), 5)
    for directory in manager.live:
        directory.release()

    def stop(progress: LoadingProgress) -> None:
        raise LoadingStopped

    again = LogManager([str(clean), str(unclean)], Files(), FakeClock())
    again.lock()
    again.claim("cluster", 1)
    with pytest.raises(LoadingStopped):
        again.load(config_for, stop)
    assert (clean / ".kafka_cleanshutdown").exists()
    assert not (unclean / ".kafka_cleanshutdown").exists()
    for directory in again.live:
        directory.release()


def test_after_an_unclean_stop_progress_is_told(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    for partition in range(3):
        append(manager.create(TopicPartition("t", partition), TOPIC_ID, CONFIG), 5)
    for directory in manager.live:
        directory.release()
    told: list[LoadingProgress] = []
    again = LogManager([str(disks[0])], Files(), FakeClock())
    again.lock()
    again.claim("cluster", 1)
    again.load(config_for, told.append)
    assert (told[-1].directory, told[-1].done, told[-1].total) == (str(disks[0]), 3, 3)
    assert told[-1].recovered == sum(log.size for log in again.logs.values()) > 0
    assert {log.end_offset for log in again.logs.values()} == {5}
    again.close()


def test_a_directory_of_real_kafka_opens_whole_and_closes_as_kafka_would(golden: Path) -> None:
    marker = (golden / ".kafka_cleanshutdown").read_bytes()
    manager = LogManager([str(golden)], Files(), SystemClock())
    manager.lock()
    assert manager.identity() == ("rqJN_tDlTSWz79bt_P852g", 1)
    manager.claim("rqJN_tDlTSWz79bt_P852g", 1)
    manager.load(config_for)
    assert manager.broken == {}
    ends = checkpoint.read_offsets(str(GOLDEN / "main" / checkpoint.HIGH_WATERMARKS), Files())
    assert {tp: log.end_offset for tp, log in manager.logs.items()} == {
        tp: offset for tp, offset in ends.items() if not tp.topic.startswith("dmg-")
    }
    cleaned = {tp: log.cleaned_until for tp, log in manager.logs.items() if log.cleaned_until is not None}
    assert cleaned == checkpoint.read_offsets(str(golden / checkpoint.CLEANED_OFFSETS), Files()) != {}
    delrec = manager.logs[TopicPartition("delrec", 0)]
    assert delrec.start_offset == 77
    topics = {topic.name: topic for topic in manager.found_topics()}
    assert set(topics) == {path.name.rpartition("-")[0] for path in (GOLDEN / "main").glob("*-*/")}
    assert topics["murmur"].partitions == (0, 1, 2)
    assert all(len(topic.topic_ids) == 1 and not topic.missing for topic in topics.values())
    manager.close({tp: log.end_offset for tp, log in manager.logs.items()})
    assert (golden / ".kafka_cleanshutdown").read_bytes() == marker
    assert cleaned == checkpoint.read_offsets(str(golden / checkpoint.CLEANED_OFFSETS), Files())
    for name in ("log-start-offset-checkpoint", "meta.properties"):
        assert (golden / name).read_bytes() == (GOLDEN / "main" / name).read_bytes()


def test_what_was_compacted_is_remembered_until_it_is_cut_off_or_deleted(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    t1 = TopicPartition("t", 1)
    for tp in (T0, t1):
        append(manager.create(tp, TOPIC_ID, CONFIG), 40)
    assert [write.offsets for write in manager.collect_cleaned_offsets()] == [{}]
    manager.logs[T0].cleaned_until, manager.logs[t1].cleaned_until = 30, 25
    for write in manager.collect_cleaned_offsets():
        write.write()
    assert (disks[0] / "cleaner-offset-checkpoint").read_text() == "0\n2\nt 0 30\nt 1 25\n"
    manager.directories[0].release()
    manager = started(disks[0])
    assert [manager.logs[tp].cleaned_until for tp in (T0, t1)] == [30, 25]
    truncate_to(manager.logs[T0], 20)
    assert manager.logs[T0].cleaned_until == 20
    manager.delete(t1)
    forget_predecessors(manager, t1)
    assert manager.create(t1, TOPIC_ID, CONFIG).cleaned_until is None
    manager.close()
    assert (disks[0] / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 20\n"


def test_retention_deletes_many_segments_in_several_steps(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    log = manager.create(T0, TOPIC_ID, LogConfig(segment_bytes=300, retention_bytes=0))
    append(log, 50)
    many = len(log.segments)
    steps = list(manager.retention_pass(lambda tp: 50, manager.fail))
    assert sum(steps) == many == 50
    assert max(steps) <= 16
    assert (log.start_offset, len(log.segments)) == (50, 1)
    manager.close()


def test_retention_leaves_alone_what_is_being_compacted(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    log = manager.create(T0, TOPIC_ID, LogConfig(segment_bytes=1024, retention_bytes=1024))
    append(log, 40)
    log.compacting = True
    assert list(manager.retention_pass(lambda tp: 40, manager.fail)) == []
    log.compacting = False
    assert list(manager.retention_pass(lambda tp: 40, manager.fail)) > [0]
    manager.close()


def test_a_broken_partition_is_reported_and_neither_deleted_nor_made_anew(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    append(manager.create(T0, TOPIC_ID, CONFIG), 20)
    manager.create(TopicPartition("u", 0), TOPIC_ID, CONFIG)
    manager.logs[T0].increment_start_offset(5)
    manager.close({T0: 20})
    (disks[0] / "t-0" / "partition.metadata").write_text("version: 9\n")
    for _ in range(2):
        again = started(disks[0])
        assert list(again.logs) == [TopicPartition("u", 0)]
        assert "partition.metadata, line 1" in again.broken[T0].reason
        with pytest.raises(KafkaError, match="cannot be opened"):
            again.create(T0, TOPIC_ID, CONFIG)
        again.close({})
        assert not (disks[0] / ".kafka_cleanshutdown").exists()
    (disks[0] / "t-0" / "partition.metadata").unlink()
    mended = started(disks[0])
    assert (mended.logs[T0].start_offset, mended.logs[T0].end_offset) == (5, 20)
    assert mended.checkpointed_high_watermark(T0) == 20
    mended.close()


def test_one_partition_in_two_directories_is_refused_before_anything_is_touched(disks: tuple[Path, Path]) -> None:
    manager = started(*disks)
    manager.create(T0, TOPIC_ID, CONFIG, directory=str(disks[0]))
    manager.close()
    shutil.copytree(disks[0] / "t-0", disks[1] / "t-0")
    (disks[1] / "t-0" / f"{0:020}.log").write_bytes(bytes(70))
    named = rf"t-0 in {disks[0]}/t-0 \(0 bytes\) and in {disks[1]}/t-0 \(70 bytes\)\."
    with pytest.raises(DuplicatePartitionError, match=named):
        started(*disks)
    assert (disks[0] / ".kafka_cleanshutdown").exists()


def test_a_partition_in_two_directories_is_named_although_one_of_them_cannot_be_listed(
    disks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = started(*disks)
    manager.create(T0, TOPIC_ID, CONFIG, directory=str(disks[0]))
    manager.close()
    shutil.copytree(disks[0] / "t-0", disks[1] / "t-0")
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path) == str(disks[1] / "t-0"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    named = rf"t-0 in {disks[0]}/t-0 \(0 bytes\) and in {disks[1]}/t-0 \(not readable: Input/output error\)\."
    with pytest.raises(DuplicatePartitionError, match=named):
        started(*disks)


OWN = ["notes.txt"]
LEFT_OVER = [[], ["partition.metadata.tmp"], ["partition.metadata", f"{0:020}.index"]]


@pytest.mark.parametrize("is_marked", [False, True])
@pytest.mark.parametrize("names", [OWN, *LEFT_OVER])
def test_what_only_has_the_name_of_a_partition_elsewhere_is_not_taken_for_it(
    disks: tuple[Path, Path], names: list[str], is_marked: bool
) -> None:
    """Somebody's own directory is left alone. What a power cut has left of a copy goes, also of a marked replica's."""
    manager, there = beside(disks, names)
    log = manager.logs[T0]
    manager.close()
    if is_marked:
        Mark(manager.files, log.directory, 1).put()
    again = started(*disks)
    assert again.logs[T0].directory == log.directory
    assert again.foreign == ([str(there)] if names == OWN else [])
    assert there.exists() == (names == OWN)
    again.close()


def beside(disks: tuple[Path, Path], names: list[str]) -> tuple[LogManager, Path]:
    """A manager with partitions in both directories, and something with the name of one in the other."""
    manager = started(*disks)
    manager.create(T0, TOPIC_ID, CONFIG, directory=str(disks[1]))
    manager.create(TopicPartition("u", 0), TOPIC_ID, CONFIG, directory=str(disks[0]))
    there = disks[0] / "t-0"
    there.mkdir()
    for name in names:
        (there / name).touch()
    return manager, there


def test_what_is_left_of_a_copy_and_cannot_be_put_away_keeps_nothing_from_being_opened(
    disks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, there = beside(disks, [])
    manager.close()

    def busy(source: str, target: str) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    with monkeypatch.context() as patched:
        patched.setattr(Files, "rename", staticmethod(busy))
        again = LogManager([str(disk) for disk in disks], Files(), FakeClock())
        again.lock()
        again.load(lambda topic: CONFIG)
    assert sorted(again.logs) == [T0, TopicPartition("u", 0)]
    assert again.foreign == [str(there)]


def test_nothing_is_put_away_where_a_start_is_refused(disks: tuple[Path, Path]) -> None:
    manager, there = beside(disks, [])
    manager.close()
    shutil.copytree(disks[0] / "u-0", disks[1] / "u-0")
    with pytest.raises(DuplicatePartitionError, match="u-0 in"):
        started(*disks)
    assert there.exists()


def test_new_partitions_go_where_the_fewest_are(disks: tuple[Path, Path]) -> None:
    manager = started(*disks)
    for partition in range(4):
        manager.create(TopicPartition("t", partition), TOPIC_ID, CONFIG)
    assert [len(directory.logs) for directory in manager.directories] == [2, 2]
    with pytest.raises(KafkaError) as unknown:
        manager.create(TopicPartition("t", 9), TOPIC_ID, CONFIG, directory="/nowhere")
    assert unknown.value.code == ErrorCode.LOG_DIR_NOT_FOUND
    manager.close()


@pytest.mark.parametrize("is_full", [True, False])
def test_a_partition_is_made_in_the_directory_that_is_preferred_also_if_that_refuses_it_at_first(
    disks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    """It is full, or its checkpoints still have a predecessor."""
    manager = started(*disks)
    if not is_full:
        manager.create(T0, TOPIC_ID, CONFIG, directory=str(disks[1]))
        for write in manager.collect_high_watermarks({T0: 30}):
            write.write()
        manager.delete(T0)
    manager.prefer(T0, str(disks[1]))
    with monkeypatch.context() as patched:
        if is_full:
            patched.setattr(manager.files, "mkdir", no_room)
        with pytest.raises(StorageError):
            manager.create(T0, TOPIC_ID, CONFIG)
    forget_predecessors(manager, T0)
    manager.create(T0, TOPIC_ID, CONFIG)
    assert manager.directory_of(T0) is manager.directories[1]
    manager.delete(T0)
    manager.create(T0, TOPIC_ID, CONFIG)
    assert manager.directory_of(T0) is manager.directories[0], "it holds once"
    manager.close()


def test_a_directory_that_has_failed_is_preferred_no_more(disks: tuple[Path, Path]) -> None:
    manager = started(*disks)
    manager.prefer(T0, str(disks[1]))
    manager.fail(StorageError(str(disks[1]), "it is broken"))
    manager.create(T0, TOPIC_ID, CONFIG)
    assert manager.directory_of(T0) is manager.directories[0]
    manager.close()


def test_a_deleted_partition_goes_after_its_delay_and_may_be_made_anew(disks: tuple[Path, Path]) -> None:
    clock = FakeClock()
    manager = started(disks[0], clock=clock)
    append(manager.create(T0, TOPIC_ID, CONFIG), 30)
    for write in (*manager.collect_recovery_points(), *manager.collect_high_watermarks({T0: 30})):
        write.write()
    manager.delete(T0)
    assert manager.get(T0) is None
    with pytest.raises(StorageError, match="its predecessor is still in a checkpoint") as refused:
        manager.create(T0, bytes(16)[:-1] + b"\1", CONFIG)
    assert may_pass(refused.value)
    forget_predecessors(manager, T0)
    anew = manager.create(T0, bytes(16)[:-1] + b"\1", CONFIG)
    assert anew.end_offset == 0
    assert manager.checkpointed_high_watermark(T0) == 0
    assert (disks[0] / "recovery-point-offset-checkpoint").read_text() == "0\n0\n"
    assert manager.due_removals(*manager.directories) == []
    clock.advance(60_000)
    due = manager.due_removals(*manager.directories)
    assert [each.path.endswith("-delete") for each in due] == [True]
    manager.removal.remove(due[0].path)
    manager.removal.remove(due[0].path)
    for mistaken in ("/", str(disks[0]), str(disks[0] / "t-0")):
        with pytest.raises(ValueError, match="does not wait"):
            manager.removal.remove(mistaken)
    assert sorted(name for name in os.listdir(disks[0]) if name.startswith("t-")) == ["t-0"]
    manager.close()


def test_a_partition_is_made_on_the_other_disk_while_one_does_not_forget_its_predecessor(
    disks: tuple[Path, Path],
) -> None:
    manager = started(*disks)
    manager.create(T0, TOPIC_ID, CONFIG, directory=str(disks[0]))
    for write in manager.collect_high_watermarks({T0: 30}):
        write.write()
    manager.delete(T0)
    manager.create(T0, TOPIC_ID, CONFIG)
    assert manager.directory_of(T0) is manager.directories[1]
    assert manager.checkpointed_high_watermark(T0) == 0
    manager.close()


@pytest.mark.parametrize("renamed", [0, 1])
def test_a_partition_that_a_full_disk_keeps_from_being_deleted_is_still_here(
    disks: tuple[Path, Path], renamed: int
) -> None:
    """Neither it nor its copy in another directory, or the copy alone, has been put away then."""
    files = FaultyFiles()
    manager = LogManager([str(path) for path in disks], files, FakeClock())
    manager.lock()
    manager.claim("cluster", 1)
    manager.load(config_for)
    log = manager.create(T0, TOPIC_ID, CONFIG, directory=str(disks[0]))
    append(log, 5)
    moves = Moves(manager)
    moves.start(T0, str(disks[1]))
    files.fail("rename", errno.ENOSPC, after=renamed)
    with pytest.raises(StorageError):
        manager.delete(T0)
    assert (moves.future(T0) is None) == bool(renamed)
    assert manager.get(T0) is log
    append(log)
    manager.delete(T0)
    assert (manager.get(T0), moves.future(T0)) == (None, None)
    assert manager.create(T0, TOPIC_ID[::-1], CONFIG, directory=str(disks[0])).end_offset == 0
    manager.close()


def test_a_directory_that_is_in_the_way_of_a_new_partition_is_no_fault_of_the_disk(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    (disks[0] / "t-0").mkdir()
    (disks[0] / "t-0" / "backup").touch()
    with pytest.raises(KafkaError, match="is there already and not empty") as refused:
        manager.create(T0, TOPIC_ID, CONFIG)
    assert not isinstance(refused.value, StorageError)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    manager.close()


def test_a_deleted_partition_goes_without_what_somebody_has_put_into_it(
    disks: tuple[Path, Path], tmp_path: Path
) -> None:
    clock = FakeClock()
    told: list[tuple[str, Sequence[str]]] = []
    options = {"clock": clock, "on_kept": lambda path, names: told.append((path, names))}
    manager = started(disks[0], **options)
    log = manager.create(T0, TOPIC_ID, CONFIG)
    append(log, 30)
    kept = tmp_path / "elsewhere"
    kept.mkdir()
    (kept / "file").touch()
    partition = disks[0] / "t-0"
    (partition / "backup").mkdir()
    (partition / "backup" / "00000000000000000000.log").touch()
    (partition / "00000000000000000000.tar.gz").touch()
    (partition / "00000000000000000000.index.deleted").touch()
    (partition / "00000000000000000777.log").symlink_to(kept)
    manager.delete(T0)
    clock.advance(60_000)
    [due] = manager.due_removals(*manager.directories)
    assert manager.removal.remove(due.path)
    stays = ["00000000000000000000.tar.gz", "00000000000000000777.log", "backup"]
    assert sorted(os.listdir(due.path)) == stays
    due.was_tried(due.path, clock.now_ms(), is_gone=True)
    clock.advance(3_600_000)
    assert manager.due_removals(*manager.directories) == []
    manager.close()
    manager = started(disks[0], **options)
    clock.advance(60_000)
    [again] = manager.due_removals(*manager.directories)
    assert manager.removal.remove(again.path)
    assert told == [(due.path, stays)] * 2
    shutil.rmtree(f"{due.path}/backup")
    for name in stays[:2]:
        os.unlink(f"{due.path}/{name}")
    assert manager.removal.remove(again.path)
    assert not os.path.exists(due.path)
    link = disks[0] / "t-1.0123456789abcdef0123456789abcdef-delete"
    link.symlink_to(kept)
    assert manager.removal.remove(str(link))
    assert not link.is_symlink()
    assert os.listdir(kept) == ["file"]
    manager.close()


@pytest.mark.parametrize("code", [errno.ENOTEMPTY, errno.EBUSY])
def test_what_is_in_use_is_no_fault_of_the_disk_and_removed_later(
    disks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def in_use(path: str) -> None:
        raise OSError(code, os.strerror(code))

    manager = started(disks[0])
    manager.create(T0, TOPIC_ID, CONFIG)
    manager.delete(T0)
    [due] = manager.removal.due_in(str(disks[0]), manager.clock.now_ms() + 60_000)
    with monkeypatch.context() as patched:
        patched.setattr(manager.files, "rmdir", in_use)
        assert not manager.removal.remove(due.path)
    assert manager.removal.remove(due.path)
    manager.close()


@pytest.mark.parametrize("name", [".nfs0000000000000001", ".fuse_hidden0000000100000001"])
def test_a_file_that_a_network_file_system_keeps_open_is_nobodys_own(disks: tuple[Path, Path], name: str) -> None:
    told: list[str] = []
    manager = started(disks[0], on_kept=lambda path, names: told.append(path))
    manager.create(T0, TOPIC_ID, CONFIG)
    (disks[0] / "t-0" / name).touch()
    manager.delete(T0)
    [due] = manager.removal.due_in(str(disks[0]), manager.clock.now_ms() + 60_000)
    assert not manager.removal.remove(due.path)
    os.unlink(f"{due.path}/{name}")
    assert manager.removal.remove(due.path)
    assert (told, os.path.exists(due.path)) == ([], False)
    manager.close()


def test_a_log_that_was_cut_back_is_not_said_to_be_on_the_disk_as_far_as_before(disks: tuple[Path, Path]) -> None:
    """What is appended to it has offsets that had been on the disk; recovery would not look at it."""
    manager = started(disks[0])
    log = manager.create(T0, TOPIC_ID, CONFIG)
    append(log, 30)
    log.flush()
    for write in manager.collect_recovery_points():
        write.write()
    truncate_to(log, 20)
    assert list(manager.cut) == [log]
    settling = log.start_settling()
    settling.wait()
    assert (disks[0] / "recovery-point-offset-checkpoint").read_text() == f"0\n1\nt 0 {log.durability.recovery_point}\n"
    assert log.durability.recovery_point < 20
    assert list(manager.cut) == [log]
    truncate_to(log, 19)
    log.end_settling(settling)
    assert list(manager.cut) == [log]  # it was cut back again meanwhile
    log.end_settling(log.start_settling())
    assert not manager.cut
    manager.close()


def test_an_append_to_a_log_that_was_cut_back_waits_for_the_disk(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    log = manager.create(T0, TOPIC_ID, CONFIG)
    append(log, 30)
    log.flush()
    for write in manager.collect_recovery_points():
        write.write()
    truncate_to(log, 20)
    append(log, 1)
    assert not manager.cut
    written = (disks[0] / "recovery-point-offset-checkpoint").read_text().split()
    assert int(written[-1]) < 20
    manager.close()


def test_a_checkpoint_that_is_about_to_be_written_does_not_vouch_for_what_was_cut_off(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    log = manager.create(T0, TOPIC_ID, CONFIG)
    append(log, 30)
    log.flush()
    late = list(manager.collect_recovery_points())
    truncate_to(log, 20)
    log.start_settling().wait()
    for write in late:
        write.write()
    written = (disks[0] / "recovery-point-offset-checkpoint").read_text().split()
    assert int(written[-1]) < 20
    manager.close()


def test_a_new_replica_that_begins_at_a_later_offset_has_nothing_cut_off(disks: tuple[Path, Path]) -> None:
    """Thousands begin like that on a new broker, and would wait for as many fsyncs."""
    manager = started(disks[0])
    log = manager.create(T0, TOPIC_ID, CONFIG)
    log.truncate_fully_at(100)
    assert not manager.cut
    log.truncate_fully_at(50)
    assert list(manager.cut) == [log]
    manager.close()


def test_nothing_is_to_be_settled_of_a_log_that_was_deleted(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    log = manager.create(T0, TOPIC_ID, CONFIG)
    append(log, 30)
    truncate_to(log, 20)
    manager.delete(T0)
    settling = log.start_settling()
    settling.wait()
    log.end_settling(settling)
    assert not manager.cut
    manager.close()


def test_a_start_after_a_crash_remembers_no_transactions_that_were_passed_long_ago(tmp_path: Path) -> None:
    manager = started(tmp_path)
    log = manager.create(T0, TOPIC_ID, CONFIG)
    for sequence in range(3):
        of_producer = {"producer_id": 9, "producer_epoch": 0}
        append_one(log, batch(base_sequence=sequence, transactional=True, **of_producer))
        append_one(log, build_marker(ControlRecord(True, 0), timestamp=1000, **of_producer))
    for write in manager.collect_high_watermarks({T0: 4}):
        write.write()
    for directory in manager.directories:  # a crash
        directory.release()
    manager = started(tmp_path)
    assert manager.logs[T0].first_unstable_offset(0) == 4
    manager.close()


def test_predecessors_of_many_partitions_are_forgotten_in_one_write_for_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    manager = started(tmp_path)
    gone = [TopicPartition("t", partition) for partition in range(3)]
    stays = TopicPartition("u", 0)
    for tp in (*gone, stays):
        append(manager.create(tp, TOPIC_ID, CONFIG), 30)
    for write in (
        *manager.collect_recovery_points(),
        *manager.collect_high_watermarks(dict.fromkeys(manager.logs, 30)),
    ):
        write.write()
    for tp in gone:
        manager.delete(tp)
    with monkeypatch.context() as patched:
        patched.setattr(Files, "write_file", lambda files, path, data: written.append(os.path.basename(path)))
        [(_, forget)] = manager.forget_predecessors([*gone, stays])
        forget()
    assert written == [checkpoint.RECOVERY_POINTS, checkpoint.HIGH_WATERMARKS]
    assert manager.forget_predecessors(gone) == []
    assert manager.checkpointed_high_watermark(stays) == 30
    manager.close()


def test_a_stop_says_nothing_of_what_is_on_the_disk_if_it_cannot_say_what_is_damaged_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = started(tmp_path)
    log = manager.create(T0, TOPIC_ID, CONFIG)
    append(log, 100)
    log.segments.damaged_from = 0
    written: list[str] = []

    def write(path: str, offsets: object, files: object) -> None:
        written.append(os.path.basename(path))
        if written[-1] == checkpoint.DAMAGED_OFFSETS:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint, "write_offsets", write)
    manager.close()
    assert checkpoint.DAMAGED_OFFSETS in written
    assert checkpoint.RECOVERY_POINTS not in written


@pytest.mark.parametrize("many", [True, False])
def test_a_checkpoint_that_was_collected_before_a_topic_was_deleted_says_nothing_of_the_next_one(
    tmp_path: Path, many: bool
) -> None:
    manager = started(tmp_path)
    stays = TopicPartition("u", 0)
    for tp in (T0, stays):
        log = manager.create(tp, TOPIC_ID, CONFIG)
        append(log, 100)
        log.increment_start_offset(60)
        log.cleaned_until = 70
        log.flush()
    late = [
        *manager.collect_start_offsets(),
        *manager.collect_recovery_points(),
        *manager.collect_cleaned_offsets(),
        *manager.collect_high_watermarks(dict.fromkeys(manager.logs, 100)),
    ]
    manager.delete(T0)
    assert not many or manager.forget_predecessors([T0]) == []
    append(manager.create(T0, bytes(range(1, 17)), CONFIG), 40)
    for write in late:
        write.write()
    for name, known in (
        (checkpoint.START_OFFSETS, 60),
        (checkpoint.RECOVERY_POINTS, 100),
        (checkpoint.CLEANED_OFFSETS, 70),
        (checkpoint.HIGH_WATERMARKS, 100),
    ):
        assert checkpoint.read_offsets(str(tmp_path / name), Files()) == {stays: known}
    for directory in manager.directories:  # a crash
        directory.release()
    manager = started(tmp_path)
    assert (manager.logs[T0].start_offset, manager.logs[T0].end_offset) == (0, 40)
    manager.close()


def test_what_waited_for_removal_at_a_stop_is_removed_after_the_next_start(disks: tuple[Path, Path]) -> None:
    clock = FakeClock()
    manager = started(disks[0], clock=clock)
    manager.create(T0, TOPIC_ID, CONFIG)
    manager.delete(T0)
    manager.close()
    (disks[0] / "s-0.0123456789abcdef0123456789abcdef-stray").mkdir()
    (disks[0] / "lost+found").mkdir()
    again = started(disks[0], clock=clock)
    assert not again.logs
    assert [os.path.basename(path)[:4] for path in again.strays] == ["s-0."]
    clock.advance(60_000)
    for due in again.due_removals(*again.directories):
        again.removal.remove(due.path)
    assert not [name for name in os.listdir(disks[0]) if name.endswith("-delete")]
    again.close()


def test_the_delay_of_a_removal_begins_with_the_deletion(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    manager.create(T0, TOPIC_ID, CONFIG)
    manager.delete(T0)
    manager.close()
    for seconds, gone in ((40, False), (80, True)):
        again = started(disks[0], clock=FakeClock(int(time.time() * 1000) + seconds * 1000))
        assert bool(again.due_removals(*again.directories)) is gone
        again.close()


def test_a_topic_of_the_same_name_but_another_id_is_refused(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    log = manager.create(T0, NO_TOPIC_ID, CONFIG)
    assert not (disks[0] / "t-0" / "partition.metadata").exists()
    assert manager.create(T0, TOPIC_ID, CONFIG) is log
    assert log.topic_id == TOPIC_ID
    with pytest.raises(KafkaError) as other:
        manager.create(T0, bytes(15) + b"\2", CONFIG)
    assert other.value.code == ErrorCode.INCONSISTENT_TOPIC_ID
    manager.close()


def test_passes_work_log_by_log(disks: tuple[Path, Path]) -> None:
    clock = FakeClock()
    manager = started(disks[0], clock=clock)
    small = LogConfig(segment_bytes=1024, retention_bytes=1024, flush_messages=10)
    log = manager.create(T0, TOPIC_ID, small)
    manager.create(TopicPartition("u", 0), TOPIC_ID, small)
    append(log, 20)
    assert list(manager.flush_pass(*manager.directories)) == [log, None]
    log.flush()
    assert list(manager.flush_pass(*manager.directories)) == [None, None]
    assert [deleted > 0 for deleted in manager.retention_pass(lambda tp: 20, manager.fail)] == [True, False]
    assert log.start_offset > 0
    assert list(manager.producer_expiry_pass()) == [0, 0]
    clock.advance(60_000)
    for due in manager.due_removals(*manager.directories):
        manager.removal.remove(due.path)
    assert not [name for name in os.listdir(disks[0] / "t-0") if name.endswith(".deleted")]
    manager.close()


def test_a_stop_without_threads_to_be_had_is_a_clean_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = started(tmp_path)
    for partition in range(3):
        append(manager.create(TopicPartition("t", partition), TOPIC_ID, CONFIG), 30)
    with monkeypatch.context() as system:
        no_more_threads(system)
        manager.close({})
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert not [problem for partition in range(3) for problem in check(str(tmp_path / f"t-{partition}"))]


def test_no_more_files_stay_open_than_logs_that_are_written(tmp_path: Path) -> None:
    manager = started(tmp_path)
    for partition in range(20):
        append(manager.create(TopicPartition("t", partition), TOPIC_ID, CONFIG))
    manager.close()
    before = len(os.listdir("/proc/self/fd"))
    manager = started(tmp_path)
    assert len(os.listdir("/proc/self/fd")) <= before + 2  # the lock, and the directory
    append(manager.logs[T0], 30)
    manager.close()


def test_a_topic_made_anew_goes_on_with_its_predecessors_producers(tmp_path: Path) -> None:
    manager = started(tmp_path)
    producer = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 5}
    with pytest.raises(KafkaError, match="out of order"):
        append_one(manager.create(T0, TOPIC_ID, CONFIG), batch(**producer))
    manager.delete(T0)
    append_one(manager.create(T0, TOPIC_ID, CONFIG), batch(**producer))
    manager.close()


def test_a_partition_that_was_lost_begins_empty_under_producers_that_go_on(tmp_path: Path) -> None:
    manager = started(tmp_path)
    log = manager.create(T0, TOPIC_ID, CONFIG, is_new=False)
    append_one(log, batch(producer_id=9, producer_epoch=0, base_sequence=5))
    truncate_to(log, 0)
    append_one(log, batch(producer_id=8, producer_epoch=0, base_sequence=5))
    log.truncate_fully_at(0)
    append_one(log, batch(producer_id=7, producer_epoch=0, base_sequence=5))
    manager.close()


def test_after_very_many_deletions_any_topic_may_be_a_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager_module, "MOST_DELETED", 3)
    manager = started(tmp_path)
    for number in range(4):
        manager.create(TopicPartition(f"t{number}", 0), TOPIC_ID, CONFIG)
        manager.delete(TopicPartition(f"t{number}", 0))
    assert not manager._deleted
    again = manager.create(TopicPartition("t0", 0), TOPIC_ID, CONFIG)
    append_one(again, batch(producer_id=9, producer_epoch=0, base_sequence=5))
    manager.close()


def test_a_longer_memory_for_producers_holds_over_a_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    week_ms = 7 * 86_400_000
    manager = started(tmp_path, clock=clock, producer_expiration_ms=week_ms)
    now = {"producer_id": 9, "producer_epoch": 0, "timestamp": clock.now_ms()}
    append_one(manager.create(T0, TOPIC_ID, CONFIG), batch(base_sequence=0, **now))
    manager.close()
    clock.advance(2 * 86_400_000)
    again = started(tmp_path, clock=clock, producer_expiration_ms=week_ms)
    assert len(again.logs[T0].producers) == 1
    again.expire_producers_after(86_400_000)
    assert list(again.producer_expiry_pass()) == [1]
    again.close()


@pytest.mark.parametrize("left", [b"", bytes(43), b"version: 0\ntopic_id: AAEC", b"vers", None])
def test_a_topic_id_that_a_crash_tore_is_taken_from_the_metadata_store(
    disks: tuple[Path, Path], left: bytes | None
) -> None:
    manager = started(disks[0])
    append(manager.create(T0, TOPIC_ID, CONFIG), 5)
    manager.close()
    metadata = disks[0] / "t-0" / "partition.metadata"
    whole = metadata.read_bytes()
    metadata.unlink() if left is None else metadata.write_bytes(left)
    again = LogManager([str(disks[0])], Files(), FakeClock())
    again.lock()
    again.load(config_for, id_of={T0: TOPIC_ID}.__getitem__)
    assert again.mended == [str(metadata)]
    assert metadata.read_bytes() == whole
    log = again.get(T0)
    assert log is not None
    assert (log.topic_id, log.end_offset) == (TOPIC_ID, 5)
    again.close()


class FullFiles(Files):
    """Nothing new fits where the path has `full` in it."""

    def __init__(self, full: str) -> None:
        self.full = full

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        if self.full in path and flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.open(path, flags, mode)


def test_what_a_full_disk_kept_from_opening_opens_later(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    append(manager.create(T0, TOPIC_ID, CONFIG), 5)
    manager.create(TopicPartition("t", 1), TOPIC_ID, CONFIG)
    manager.close()
    (disks[0] / "t-1" / f"{0:020}.log").unlink()
    files = FullFiles("/t-1/")
    again = LogManager([str(disks[0])], files, FakeClock())
    again.lock()
    again.load(config_for)
    assert again.live
    assert [broken.may_pass for broken in again.broken.values()] == [True]
    with pytest.raises(StorageError):
        again.create(TopicPartition("t", 1), TOPIC_ID, CONFIG, is_new=False)
    files.full = "nowhere"
    ends = {p: again.create(TopicPartition("t", p), TOPIC_ID, CONFIG, is_new=False).end_offset for p in (0, 1)}
    assert ends == {0: 5, 1: 0}
    assert not again.broken
    again.close()


def test_directory_that_could_not_be_closed_is_not_clean(
    disks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(log: Log, clean: bool = True) -> None:
        with disk_errors(log.directory, "closing"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    manager = started(disks[0])
    append(manager.create(T0, TOPIC_ID, CONFIG), 5)
    monkeypatch.setattr(Log, "close", close)
    manager.close()
    assert not (disks[0] / ".kafka_cleanshutdown").exists()
