"""The log manager: whose directories, what is found in them, and what happens when a disk or a file is bad."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.clock import SystemClock
from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log import checkpoint
from kafkad.log.describe import describe
from kafkad.log.directories import DirectoryLockedError, ForeignDirectoryError
from kafkad.log.files import Files
from kafkad.log.loading import DuplicatePartitionError, Progress
from kafkad.log.log import Log
from kafkad.log.manager import LogManager, NoLogDirectoryError
from kafkad.model import NO_TOPIC_ID, TopicPartition
from tests.fakes import FakeClock, FaultyFiles
from tests.log.conftest import append as append_one
from tests.log.conftest import batch

GOLDEN = Path(__file__).parent.parent / "golden" / "logs"
TOPIC_ID = bytes(range(16))
CONFIG = LogConfig(segment_bytes=4096, index_interval_bytes=300)
T0 = TopicPartition("t", 0)


def config_for(topic: str) -> LogConfig:
    return CONFIG


def append(log: Log, count: int = 1, size: int = 200) -> None:
    for _ in range(count):
        append_one(log, batch(bytes(size)))


def started(*paths: Path, clock: FakeClock | None = None, **options: object) -> LogManager:
    manager = LogManager([str(path) for path in paths], Files(), clock or FakeClock(), **options)  # type: ignore[arg-type]
    manager.lock()
    manager.claim("cluster", 1)
    manager.load(config_for)
    return manager


@pytest.fixture
def disks(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "a", tmp_path / "b"


@pytest.fixture
def golden(tmp_path: Path) -> Iterator[Path]:
    copy = tmp_path / "main"
    shutil.copytree(GOLDEN / "main", copy)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    yield copy


def test_logs_survive_a_clean_stop_with_everything_a_kafka_needs(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    log = manager.create(T0, TOPIC_ID, CONFIG)
    append(log, 40)
    log.increment_start_offset(3)
    manager.close({T0: 40})
    assert sorted(os.listdir(disks[0])) == [
        ".kafka_cleanshutdown",
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


def test_after_an_unclean_stop_progress_is_told(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    for partition in range(3):
        append(manager.create(TopicPartition("t", partition), TOPIC_ID, CONFIG), 5)
    for directory in manager.live:
        directory.release()
    told: list[Progress] = []
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
    delrec = manager.logs[TopicPartition("delrec", 0)]
    assert delrec.start_offset == 77
    topics = {topic.name: topic for topic in manager.found_topics()}
    assert set(topics) == {path.name.rpartition("-")[0] for path in (GOLDEN / "main").glob("*-*/")}
    assert topics["murmur"].partitions == (0, 1, 2)
    assert all(len(topic.topic_ids) == 1 and not topic.missing for topic in topics.values())
    manager.close({tp: log.end_offset for tp, log in manager.logs.items()})
    assert (golden / ".kafka_cleanshutdown").read_bytes() == marker
    for name in ("log-start-offset-checkpoint", "meta.properties"):
        assert (golden / name).read_bytes() == (GOLDEN / "main" / name).read_bytes()


def test_a_second_broker_is_refused_and_told_who_has_the_lock(tmp_path: Path) -> None:
    manager = started(tmp_path)
    with pytest.raises(DirectoryLockedError, match=r"\.lock is held by"):
        LogManager([str(tmp_path)], Files(), FakeClock()).lock()
    code = (
        "import sys; from kafkad.log.manager import LogManager; from kafkad.log.files import Files\n"
        "from kafkad.clock import SystemClock\n"
        "LogManager([sys.argv[1]], Files(), SystemClock()).lock()"
    )
    other = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert f"held by process {os.getpid()}: " in other.stderr
    manager.close()
    started(tmp_path).close()


def test_directories_of_another_cluster_or_broker_are_refused(disks: tuple[Path, Path]) -> None:
    started(disks[0]).close()
    for cluster, broker, word in (("other", 1, "cluster cluster"), ("cluster", 2, "broker 1")):
        manager = LogManager([str(disks[0])], Files(), FakeClock())
        manager.lock()
        with pytest.raises(ForeignDirectoryError, match=word):
            manager.claim(cluster, broker)
        for directory in manager.live:
            directory.release()


def test_an_unusable_directory_is_left_out_and_none_at_all_is_the_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    failures: list[str] = []
    manager = started(
        tmp_path / "good", tmp_path / "file", on_failure=lambda directory, lost: failures.append(directory.path)
    )
    assert failures == [str(tmp_path / "file")]
    manager.create(T0, TOPIC_ID, CONFIG)
    with pytest.raises(StorageError, match="offline"):
        manager.create(TopicPartition("t", 1), TOPIC_ID, CONFIG, is_new=False)
    manager.close()
    with pytest.raises(NoLogDirectoryError, match="file"):
        LogManager([str(tmp_path / "file")], Files(), FakeClock()).lock()


def test_a_broken_checkpoint_takes_its_directory_offline_and_is_left_alone(disks: tuple[Path, Path]) -> None:
    started(*disks).close()
    broken = disks[0] / "log-start-offset-checkpoint"
    broken.write_text("0\nmany\n")
    manager = started(*disks)
    assert [directory.failure is None for directory in manager.directories] == [False, True]
    assert f"{broken}, line 2" in (manager.directories[0].failure or "")
    assert broken.read_text() == "0\nmany\n"
    assert (disks[0] / ".kafka_cleanshutdown").exists()
    manager.close()
    assert broken.read_text() == "0\nmany\n"


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
    with pytest.raises(DuplicatePartitionError, match="t-0 is in"):
        started(*disks)
    assert (disks[0] / ".kafka_cleanshutdown").exists()


def test_new_partitions_go_where_the_fewest_are(disks: tuple[Path, Path]) -> None:
    manager = started(*disks)
    for partition in range(4):
        manager.create(TopicPartition("t", partition), TOPIC_ID, CONFIG)
    assert [len(directory.logs) for directory in manager.directories] == [2, 2]
    with pytest.raises(KafkaError) as unknown:
        manager.create(TopicPartition("t", 9), TOPIC_ID, CONFIG, directory="/nowhere")
    assert unknown.value.code == ErrorCode.LOG_DIR_NOT_FOUND
    manager.close()


def test_a_deleted_partition_goes_after_its_delay_and_may_be_made_anew(disks: tuple[Path, Path]) -> None:
    clock = FakeClock()
    manager = started(disks[0], clock=clock)
    append(manager.create(T0, TOPIC_ID, CONFIG), 30)
    for write in (*manager.collect_recovery_points(), *manager.collect_high_watermarks({T0: 30})):
        write.write()
    manager.delete(T0)
    assert manager.get(T0) is None
    anew = manager.create(T0, bytes(16)[:-1] + b"\1", CONFIG)
    assert anew.end_offset == 0
    assert manager.checkpointed_high_watermark(T0) == 0
    assert (disks[0] / "recovery-point-offset-checkpoint").read_text() == "0\n0\n"
    assert manager.take_due_removals() == []
    clock.advance(60_000)
    due = manager.take_due_removals()
    assert [path.endswith("-delete") for path in due] == [True]
    manager.removal.remove(due[0])
    manager.removal.remove(due[0])
    for mistaken in ("/", str(disks[0]), str(disks[0] / "t-0")):
        with pytest.raises(ValueError, match="does not wait"):
            manager.removal.remove(mistaken)
    assert sorted(name for name in os.listdir(disks[0]) if name.startswith("t-")) == ["t-0"]
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
    for path in again.take_due_removals():
        again.removal.remove(path)
    assert not [name for name in os.listdir(disks[0]) if name.endswith("-delete")]
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


def test_a_failing_disk_costs_its_directory_and_no_other(disks: tuple[Path, Path]) -> None:
    lost: list[TopicPartition] = []
    manager = started(*disks, on_failure=lambda directory, partitions: lost.extend(partitions))
    for partition, disk in enumerate(disks):
        manager.create(TopicPartition("t", partition), TOPIC_ID, CONFIG, directory=str(disk))
    with manager.guarded():
        raise StorageError(str(disks[0]), "the disk is gone")
    assert lost == [T0]
    assert list(manager.logs) == [TopicPartition("t", 1)]
    append(manager.logs[TopicPartition("t", 1)])
    offline, online = describe(manager, lambda tp: 1)
    assert (offline.failure, offline.replicas, offline.total_bytes) == ("the disk is gone", (), -1)
    assert [(r.topic_partition.partition, r.size > 0, r.offset_lag) for r in online.replicas] == [(1, True, 0)]
    assert online.total_bytes >= online.usable_bytes > 0
    with pytest.raises(KafkaError, match="offline"):
        manager.create(T0, TOPIC_ID, CONFIG, directory=str(disks[0]))
    with pytest.raises(NoLogDirectoryError):
        manager.fail(StorageError(str(disks[1]), "this one too"))


def test_a_later_checkpoint_is_never_overwritten_by_an_earlier_one(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    log = manager.create(T0, TOPIC_ID, CONFIG)
    (early,) = manager.collect_recovery_points()
    append(log)
    log.flush()
    (late,) = manager.collect_recovery_points()
    late.write()
    early.write()
    assert (disks[0] / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 1\n"
    manager.close()


def test_passes_work_log_by_log(disks: tuple[Path, Path]) -> None:
    clock = FakeClock()
    manager = started(disks[0], clock=clock)
    small = LogConfig(segment_bytes=1024, retention_bytes=1024, flush_messages=10)
    log = manager.create(T0, TOPIC_ID, small)
    manager.create(TopicPartition("u", 0), TOPIC_ID, small)
    append(log, 20)
    assert manager.logs_to_flush() == [log]
    log.flush()
    assert manager.logs_to_flush() == []
    assert [deleted > 0 for deleted in manager.retention_pass(lambda tp: 20)] == [True, False]
    assert log.start_offset > 0
    assert list(manager.producer_expiry_pass()) == [0, 0]
    clock.advance(60_000)
    for path in manager.take_due_removals():
        manager.removal.remove(path)
    assert not [name for name in os.listdir(disks[0] / "t-0") if name.endswith(".deleted")]
    manager.close()


def test_a_jvm_and_a_kafkad_keep_each_other_out(tmp_path: Path) -> None:
    """A JVM's FileLock is a POSIX record lock, as `lockf` takes it."""
    code = (
        "import fcntl, sys; lock = open(sys.argv[1], 'a')\n"
        "fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB); print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / ".lock")]
    manager = started(tmp_path)
    assert subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False).returncode == 1
    manager.close()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as jvm:
        assert jvm.stdout is not None
        assert jvm.stdout.readline() == b"locked\n"
        with pytest.raises(DirectoryLockedError, match=f"held by process {jvm.pid}: "):
            LogManager([str(tmp_path)], Files(), FakeClock()).lock()
        jvm.communicate()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_a_full_disk_refuses_appends_and_stays_readable(tmp_path: Path, code: int) -> None:
    files = FaultyFiles()
    manager = LogManager([str(tmp_path)], files, FakeClock())
    manager.lock()
    manager.claim("cluster", 1)
    manager.load(config_for)
    log = manager.create(T0, TOPIC_ID, CONFIG)
    append(log, 3)
    files.fail("pwrite", code)
    with pytest.raises(StorageError) as full:
        append(log)
    manager.fail(full.value)
    assert manager.logs[T0] is log
    assert log.read(0, 1 << 20, 3) is not None
    append(log)
    manager.close()


def test_no_more_files_stay_open_than_logs_that_are_written(tmp_path: Path) -> None:
    manager = started(tmp_path)
    for partition in range(20):
        append(manager.create(TopicPartition("t", partition), TOPIC_ID, CONFIG))
    manager.close()
    before = len(os.listdir("/proc/self/fd"))
    manager = started(tmp_path)
    assert len(os.listdir("/proc/self/fd")) <= before + 1
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


@pytest.mark.parametrize("operation", ["sync", "rename", "pwrite"])
def test_a_disk_that_fails_at_the_stop_leaves_no_mark_of_a_clean_one(tmp_path: Path, operation: str) -> None:
    files = FaultyFiles()
    manager = LogManager([str(tmp_path)], files, FakeClock())
    manager.lock()
    manager.claim("cluster", 1)
    manager.load(config_for)
    append(manager.create(T0, TOPIC_ID, CONFIG), 20)
    files.fail(operation, errno.EIO, once=False)
    manager.close({T0: 20})
    assert manager.directories[0].failure is not None
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    again = started(tmp_path)
    assert again.logs[T0].end_offset == 20
    again.close()


def test_one_disk_that_fails_at_the_stop_does_not_cost_the_other_its_mark(disks: tuple[Path, Path]) -> None:
    manager = started(*disks)
    for partition, disk in enumerate(disks):
        append(manager.create(TopicPartition("t", partition), TOPIC_ID, CONFIG, directory=str(disk)))
    shutil.rmtree(disks[0])
    manager.close({})
    assert [directory.failure is None for directory in manager.directories] == [False, True]
    assert (disks[1] / ".kafka_cleanshutdown").exists()


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


def test_a_disk_that_is_full_at_a_flush_has_lost_records(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = LogManager([str(tmp_path / "a"), str(tmp_path / "b")], files, FakeClock())
    manager.lock()
    manager.claim("cluster", 1)
    manager.load(config_for)
    log = manager.create(T0, TOPIC_ID, CONFIG, directory=str(tmp_path / "a"))
    append(log, 3)
    files.fail("sync", errno.ENOSPC)
    with pytest.raises(StorageError, match="records were lost") as lost:
        log.flush()
    manager.fail(lost.value)
    assert [directory.failure is None for directory in manager.directories] == [False, True]
    manager.close()
