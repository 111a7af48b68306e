"""Log directories: who may use them, and what happens when a disk or a file is bad."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kafkad.errors import KafkaError, StorageError
from kafkad.log.describe import describe
from kafkad.log.directories import DirectoryLockedError, ForeignDirectoryError, LogDirectory, NameTakenError
from kafkad.log.files import Files
from kafkad.log.manager import LogManager, NoLogDirectoryError
from kafkad.names import TopicPartition
from kafkad.turns import at_once
from tests.fakes import FakeClock, FaultyFiles
from tests.log.managers import CONFIG, T0, TOPIC_ID, append, config_for, started


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


@pytest.mark.parametrize("content", ["", "version=0\ncluster.id=cluster\n", "version=0\nbroker.id=1\n"])
def test_what_a_directory_does_not_say_of_its_broker_is_filled_in(disks: tuple[Path, Path], content: str) -> None:
    for disk in disks:
        started(disk).close()
    properties = disks[0] / "meta.properties"
    whole = properties.read_text()
    properties.write_text(content)
    manager = LogManager([str(disk) for disk in disks], Files(), FakeClock())
    manager.lock()
    assert manager.identity() == ("cluster", 1), "the other one says it"
    manager.claim("cluster", 1)
    assert properties.read_text() == whole
    for directory in manager.live:
        directory.release()


@pytest.mark.parametrize(("name", "content"), [("__cluster_metadata-0", None), ("meta.properties", "version=1\n")])
@pytest.mark.parametrize("others", [[], ["new"]])
def test_a_directory_of_a_kafka_in_kraft_mode_ends_the_start(
    tmp_path: Path, name: str, content: str | None, others: list[str]
) -> None:
    """Left out as one that is offline, it would have a new cluster begin in another one, and without its topics."""
    kraft = tmp_path / "kraft"
    started(kraft).close()
    if content is None:
        (kraft / "meta.properties").write_text("")
        (kraft / name).mkdir()
    else:
        (kraft / name).write_text(content)
    manager = LogManager([str(tmp_path / each) for each in (*others, "kraft")], Files(), FakeClock())
    with pytest.raises(ForeignDirectoryError, match=f"{kraft}/{name}.* is of a Kafka in KRaft mode"):
        manager.lock()
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
    manager.prefer(TopicPartition("t", 1), str(tmp_path / "good"))
    with pytest.raises(StorageError, match="offline"):
        manager.create(TopicPartition("t", 1), TOPIC_ID, CONFIG, is_new=False)
    manager.close()
    with pytest.raises(NoLogDirectoryError, match="file"):
        LogManager([str(tmp_path / "file")], Files(), FakeClock()).lock()


def test_the_last_directory_fails_once_and_then_refuses_each_partition(disks: tuple[Path, Path]) -> None:
    manager = started(*disks)
    first, last = (StorageError(str(disk), f"{disk} is gone") for disk in disks)
    manager.fail(first)
    with pytest.raises(NoLogDirectoryError, match=f"{disks[0]} is gone; {disks[1]} is gone"):
        manager.fail(last)
    manager.fail(first)
    with pytest.raises(StorageError, match="no log directory is left for t-0") as refused:
        manager.create(T0, TOPIC_ID, CONFIG)
    manager.fail(refused.value)


def test_an_error_of_ours_when_the_last_directory_fails_does_not_keep_it(tmp_path: Path) -> None:
    manager = started(tmp_path)

    def fail(directory: LogDirectory, lost: object) -> None:
        raise MemoryError

    manager.on_failure = fail
    with pytest.raises(NoLogDirectoryError):
        manager.fail(StorageError(str(tmp_path), "it is gone"))


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


@pytest.mark.parametrize("name", ["meta.properties", "t-0/partition.metadata"])
def test_a_file_that_cannot_be_read_takes_its_directory_offline(disks: tuple[Path, Path], name: str) -> None:
    manager = started(*disks)
    manager.create(T0, TOPIC_ID, CONFIG, directory=str(disks[0]))
    manager.close()
    (disks[0] / name).unlink()
    (disks[0] / name).mkdir()
    manager = started(*disks)
    assert [directory.failure is None for directory in manager.directories] == [False, True]
    assert f"{name}: Is a directory" in (manager.directories[0].failure or "")
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
    offline, online = at_once(describe(manager, lambda tp: 1))
    assert (offline.failure, offline.replicas, offline.total_bytes) == ("the disk is gone", (), -1)
    assert [(r.topic_partition.partition, r.size > 0, r.offset_lag) for r in online.replicas] == [(1, True, 0)]
    assert online.total_bytes >= online.usable_bytes > 0
    with pytest.raises(KafkaError, match="offline"):
        manager.create(T0, TOPIC_ID, CONFIG, directory=str(disks[0]))
    with pytest.raises(StorageError, match=r"may be in .* offline"):
        manager.delete(T0)
    manager.delete(TopicPartition("t", 1))
    with pytest.raises(NoLogDirectoryError):
        manager.fail(StorageError(str(disks[1]), "this one too"))


def test_a_later_checkpoint_is_never_overwritten_by_an_earlier_one(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    log = manager.create(T0, TOPIC_ID, CONFIG)
    early = list(manager.collect_recovery_points())
    append(log)
    log.flush()
    for write in (*manager.collect_recovery_points(), *early):
        write.write()
    assert (disks[0] / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 1\n"
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


@pytest.mark.parametrize("calls", range(5))
def test_a_partition_that_a_full_disk_has_no_room_for_can_be_made_later_or_elsewhere(
    disks: tuple[Path, Path], calls: int
) -> None:
    files = FaultyFiles()
    manager = LogManager([str(disk) for disk in disks], files, FakeClock())
    manager.lock()
    manager.claim("cluster", 1)
    manager.load(config_for)
    files.fail("open", errno.ENOSPC, after=calls)
    with pytest.raises(StorageError) as full:
        manager.create(T0, TOPIC_ID, CONFIG, directory=str(disks[0]))
    manager.fail(full.value)
    assert not (disks[0] / "t-0").exists()
    files.fail("open", errno.ENOSPC, after=calls)
    log = manager.create(T0, TOPIC_ID, CONFIG)
    assert log.directory == str(disks[1] / "t-0")
    append(log)
    assert manager.create(TopicPartition("t", 1), TOPIC_ID, CONFIG).directory == str(disks[0] / "t-1")
    manager.close()
    assert all(directory.failure is None for directory in manager.directories)


@pytest.mark.parametrize("free", range(5))
def test_a_partition_that_too_many_open_files_refuse_leaves_nothing_behind(tmp_path: Path, free: int) -> None:
    manager = started(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(lowest := os.open(tmp_path, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + free, hard))
    try:
        manager.create(T0, TOPIC_ID, CONFIG)
    except StorageError as refused:
        manager.fail(refused)
        assert not (tmp_path / "t-0").exists()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    append(manager.create(T0, TOPIC_ID, CONFIG))
    assert manager.directories[0].failure is None
    manager.close()


def test_a_partition_takes_over_what_was_left_half_made_of_it(tmp_path: Path) -> None:
    manager = started(tmp_path)
    half = tmp_path / "t-0"
    half.mkdir()
    (half / "partition.metadata").write_text("version: 0\ntopic_id: another\n")
    (half / "00000000000000000000.log").touch()
    log = manager.create(T0, TOPIC_ID, CONFIG)
    append(log)
    assert log.topic_id == TOPIC_ID
    manager.close()


@pytest.mark.parametrize("name", ["00000000000000000007.log", "notes"])
def test_a_directory_that_holds_something_is_refused_to_its_partition_alone(tmp_path: Path, name: str) -> None:
    manager = started(tmp_path)
    there = tmp_path / "t-0" / name
    there.parent.mkdir()
    there.write_text("of somebody")
    with pytest.raises(KafkaError, match="move it away"):
        manager.create(T0, TOPIC_ID, CONFIG)
    assert there.read_text() == "of somebody"
    assert manager.directories[0].failure is None
    append(manager.create(TopicPartition("t", 1), TOPIC_ID, CONFIG))
    manager.close()
    assert there.read_text() == "of somebody"


def test_a_partition_is_not_made_where_a_directory_is(tmp_path: Path) -> None:
    manager = started(tmp_path)
    there = tmp_path / "t-0" / "00000000000000000007.snapshot"
    there.mkdir(parents=True)
    with pytest.raises(KafkaError, match="move it away"):
        manager.create(T0, TOPIC_ID, CONFIG)
    assert manager.directories[0].failure is None
    manager.close()


@pytest.mark.parametrize("kind", ["file", "dangling link", "link to itself"])
def test_what_is_no_directory_is_in_the_way_of_its_partition_alone(tmp_path: Path, kind: str) -> None:
    manager = started(tmp_path)
    there = tmp_path / "t-0"
    if kind == "file":
        there.touch()
    else:
        there.symlink_to(there if kind == "link to itself" else tmp_path / "nowhere")
    with pytest.raises(NameTakenError, match=f"{there} is there already and cannot be used .*: move it away"):
        manager.create(T0, TOPIC_ID, CONFIG)
    assert manager.directories[0].failure is None
    assert os.path.lexists(there)
    there.unlink()
    append(manager.create(T0, TOPIC_ID, CONFIG))
    manager.close()


@pytest.mark.parametrize("mode", [os.R_OK, os.W_OK | os.X_OK], ids=["read", "write"])
def test_a_directory_of_another_user_is_in_the_way_of_its_partition_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    manager = started(tmp_path)
    there = tmp_path / "t-0"
    there.mkdir()
    access, list_directory = os.access, manager.files.listdir

    def listdir(path: str) -> list[str]:
        if mode == os.R_OK and path == str(there):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return list_directory(path)

    monkeypatch.setattr(manager.files, "listdir", listdir)
    monkeypatch.setattr(os, "access", lambda path, asked: not asked & mode and access(path, asked))
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(NameTakenError, match=f"{there} is .*: Permission denied .*{there} belongs to .*: move it away"):
        manager.create(T0, TOPIC_ID, CONFIG)
    assert manager.directories[0].failure is None
    manager.close()


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("suffix", [".log", ".index", ".snapshot", ".log.deleted", ".log.cleaned", ".log.swap"])
def test_a_directory_in_a_partition_is_passed_over_as_by_kafka(tmp_path: Path, suffix: str, is_clean: bool) -> None:
    manager = started(tmp_path)
    append(manager.create(T0, TOPIC_ID, CONFIG), 30)
    manager.close()
    there = tmp_path / "t-0" / f"{777:020d}{suffix}"
    there.mkdir()
    if not is_clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    manager = started(tmp_path)
    assert manager.directories[0].failure is None
    assert manager.logs[T0].end_offset == 30
    manager.close()
    assert there.is_dir()


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


def test_names_are_waited_for_without_a_file_descriptor_to_be_had(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = LogManager([str(tmp_path)], files, FakeClock())
    manager.lock()
    [directory] = manager.directories
    files.fail("open", errno.EMFILE, once=False)
    directory.sync_names()
    assert files.synced == [str(tmp_path)]
    files.heal()
    manager.close()
    with pytest.raises(StorageError, match="offline"):
        directory.sync_names()


def test_a_disk_that_is_full_at_a_flush_has_lost_records(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = LogManager([str(tmp_path / "a"), str(tmp_path / "b")], files, FakeClock())
    manager.lock()
    manager.claim("cluster", 1)
    manager.load(config_for)
    log = manager.create(T0, TOPIC_ID, CONFIG, directory=str(tmp_path / "a"))
    append(log, 3)
    files.fail("sync", errno.ENOSPC)
    with pytest.raises(StorageError, match="what was written is lost") as lost:
        log.flush()
    manager.fail(lost.value)
    assert [directory.failure is None for directory in manager.directories] == [False, True]
    manager.close()
