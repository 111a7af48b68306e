"""What a clean stop tells the next start about its logs: believed as long as nothing has changed, and no longer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkad.config import LogConfig
from kafkad.errors import KafkaError
from kafkad.log import clean_stop
from kafkad.log.checkpoint import CLEAN_SHUTDOWN, PARTITION_METADATA, RECOVERY_POINTS, START_OFFSETS
from kafkad.log.clean_stop import FILE_NAME
from kafkad.log.deletion import delete_old_segments
from kafkad.log.epochs import FILE_NAME as EPOCHS
from kafkad.log.files import Files
from kafkad.log.loading import LoadingProgress, LoadingStopped
from kafkad.log.log import Log
from kafkad.log.manager import LogManager
from kafkad.names import NO_TOPIC_ID, TopicPartition
from tests.fakes import FakeClock, FaultyFiles
from tests.log.conftest import append as append_one
from tests.log.conftest import batch, records
from tests.log.managers import CONFIG, T0, TOPIC_ID, append, config_for, started

CLUSTER = "rqJN_tDlTSWz79bt_P852g"
FIRST = f"{0:020d}"


class WatchedFiles(Files):
    """Notes every file and directory that is read."""

    def __init__(self) -> None:
        self.read_paths: list[str] = []

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        self.read_paths.append(path)
        return os.open(path, flags, mode)

    def list_files(self, path: str) -> list[str]:
        self.read_paths.append(path)
        return super().list_files(path)

    def of_partitions(self) -> list[str]:
        names = (PARTITION_METADATA, EPOCHS, ".log", ".snapshot", "index")
        return [path for path in self.read_paths if path.endswith((*names, "-0", "-1"))]


def load(directory: Path, files: Files | None = None, cluster: str = "cluster") -> LogManager:
    manager = LogManager([str(directory)], files or Files(), FakeClock())
    manager.lock()
    manager.claim(cluster, 1)
    manager.load(config_for)
    return manager


def readable(log: Log) -> object:
    try:
        return records(log)
    except KafkaError as error:
        return str(error).replace(log.directory, "")


def state(log: Log) -> dict[str, object]:
    return {
        "offsets": (log.start_offset, log.end_offset, log.durability.recovery_point, log.flushed_until),
        "unstable": log.first_unstable_offset(log.end_offset),
        "topic id": log.topic_id,
        "cleaned": log.cleaned_until,
        "epochs": log.epochs.entries,
        "producers": list(log.producers.describe()),
        "snapshots": list(log.producers.snapshots.offsets),
        "segments": [(segment.base, segment.size, segment.has_transactions) for segment in log.segments],
        "records": readable(log),
    }


def states(directory: Path, cluster: str = "cluster") -> dict[TopicPartition, object]:
    """As a start finds the logs; the directory stays in use."""
    manager = load(directory, cluster=cluster)
    found: dict[TopicPartition, object] = {tp: state(log) for tp, log in manager.logs.items()}
    found |= {tp: broken.reason.replace(str(directory), "") for tp, broken in manager.broken.items()}
    for place in manager.live:
        place.release()
    return found


def stopped(directory: Path) -> None:
    """Two partitions: one with several segments, epochs and a producer; one that is plain."""
    manager = started(directory)
    log = manager.create(T0, TOPIC_ID, CONFIG)
    append(log, 30)
    log.assign_epoch(3, log.end_offset)
    for sequence in range(5):
        append_one(log, batch(b"x", producer_id=9, producer_epoch=0, base_sequence=sequence), epoch=3)
    append(manager.create(TopicPartition("t", 1), TOPIC_ID, CONFIG), 2)
    manager.close({})


def test_a_log_that_ends_with_an_empty_segment_is_opened_from_its_files(disks: tuple[Path, Path]) -> None:
    """Earlier versions may have left it in the middle of the segment before."""
    manager = started(disks[0])
    log = manager.create(T0, TOPIC_ID, CONFIG)
    append(log, 30)
    log.roll()
    manager.close({})
    files = WatchedFiles()
    assert load(disks[0], files).logs[T0].end_offset == 30
    assert log.directory in files.of_partitions()


def test_files_that_wait_for_their_removal_at_a_stop_go_at_the_start(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    log = manager.create(T0, TOPIC_ID, CONFIG)
    append(log, 60)
    log.increment_start_offset(50)
    assert delete_old_segments(log, 0)
    manager.close({})
    assert list((disks[0] / "t-0").glob("*.deleted"))
    assert load(disks[0]).logs[T0].start_offset == 50
    assert not list((disks[0] / "t-0").glob("*.deleted"))


def test_that_of_a_release_which_described_logs_with_such_files_is_not_believed(
    disks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(clean_stop, "_VERSION", 1)
        stopped(disks[0])
    files = WatchedFiles()
    manager = load(disks[0], files)
    assert str(disks[0] / "t-0") in files.of_partitions()
    manager.close()
    files = WatchedFiles()
    load(disks[0], files)
    assert str(disks[0] / "t-0") not in files.of_partitions(), "that was the only such start"


def test_after_a_clean_stop_no_file_of_an_unchanged_log_is_read(disks: tuple[Path, Path]) -> None:
    stopped(disks[0])
    (newest,) = (disks[0] / "t-0").glob(f"{35:020d}.snapshot")
    files = WatchedFiles()
    manager = load(disks[0], files)
    assert files.of_partitions() == [str(newest)]  # there is a producer in it
    assert len(manager.logs) == 2
    assert not (disks[0] / FILE_NAME).exists()
    log = manager.logs[T0]
    assert append_one(log, batch(b"x", producer_id=9, producer_epoch=0, base_sequence=5), epoch=3) == 35
    manager.close()
    assert state(load(disks[0]).logs[T0])["offsets"] == (0, 36, 36, 36)


def test_logs_are_the_same_as_read_from_their_own_files(golden: Path, tmp_path: Path) -> None:
    """Of real Kafka: transactions, compacted logs, deleted records, several segments, none at all."""
    manager = load(golden, cluster=CLUSTER)
    new = manager.create(TopicPartition("new", 0), bytes(range(16)), config_for("new"))
    manager.create(TopicPartition("new", 1), bytes(range(16)), config_for("new"))
    append(new, 40)
    now_ms = FakeClock().now_ms()
    for sequence in range(3):
        append_one(new, batch(b"x", producer_id=9, producer_epoch=0, base_sequence=sequence, timestamp=now_ms))
    append(manager.create(TopicPartition("emptied", 0), bytes(range(16)), config_for("emptied")), 3)
    manager.logs[TopicPartition("emptied", 0)].increment_start_offset(3)
    manager.close()
    copy = tmp_path / "copy"
    shutil.copytree(golden, copy)
    (copy / FILE_NAME).unlink()
    from_files = states(copy, CLUSTER)
    assert len(from_files) > 30
    assert states(golden, CLUSTER) == from_files


def truncate_log(partition: Path) -> None:
    log = max(partition.glob("*.log"))
    os.truncate(log, log.stat().st_size - 1)


def append_to_log(partition: Path) -> None:
    with max(partition.glob("*.log")).open("ab") as log:
        log.write(bytes(100))


def lose_first_segment(partition: Path) -> None:
    (partition / f"{FIRST}.log").unlink()


def lose_last_segment(partition: Path) -> None:
    max(partition.glob("*.log")).unlink()


def overwrite_epochs(partition: Path) -> None:
    (partition / EPOCHS).write_text("0\n1\n0 0\n")


def lose_epochs(partition: Path) -> None:
    (partition / EPOCHS).unlink()


def overwrite_topic_id(partition: Path) -> None:
    (partition / PARTITION_METADATA).write_text("version: 7\n")


def lose_topic_id(partition: Path) -> None:
    (partition / PARTITION_METADATA).unlink()


def tear_snapshot(partition: Path) -> None:
    os.truncate(max(partition.glob("*.snapshot")), 20)


def lose_index(partition: Path) -> None:
    (partition / f"{FIRST}.index").unlink()


def leave_what_was_to_be_deleted(partition: Path) -> None:
    (partition / f"{FIRST}.log.deleted").write_bytes(b"")


def lose_recovery_points(partition: Path) -> None:
    (partition.parent / RECOVERY_POINTS).unlink()


def move_the_start(partition: Path) -> None:
    (partition.parent / START_OFFSETS).write_text("0\n1\nt 0 20\n")


def swap_partitions(partition: Path) -> None:
    other = partition.with_name("t-1")
    partition.rename(partition.with_name("aside"))
    other.rename(partition)
    partition.with_name("aside").rename(other)


def lose_partition(partition: Path) -> None:
    shutil.rmtree(partition)


@pytest.mark.parametrize(
    "change",
    [
        truncate_log,
        append_to_log,
        lose_first_segment,
        lose_last_segment,
        overwrite_epochs,
        lose_epochs,
        overwrite_topic_id,
        lose_topic_id,
        tear_snapshot,
        lose_index,
        leave_what_was_to_be_deleted,
        lose_recovery_points,
        move_the_start,
        swap_partitions,
        lose_partition,
    ],
)
def test_a_log_that_has_changed_since_is_read_from_its_files(
    disks: tuple[Path, Path], change: Callable[[Path], None]
) -> None:
    for disk in disks:
        stopped(disk)
        change(disk / "t-0")
    (disks[1] / FILE_NAME).unlink()
    assert states(disks[0]) == states(disks[1])


def test_it_is_not_believed_once_another_broker_has_stopped_there(disks: tuple[Path, Path]) -> None:
    stopped(disks[0])
    marker = disks[0] / CLEAN_SHUTDOWN
    content = marker.read_bytes()
    marker.unlink()
    marker.write_bytes(content)
    files = WatchedFiles()
    load(disks[0], files)
    assert str(disks[0] / "t-1") in files.of_partitions()
    assert not (disks[0] / FILE_NAME).exists()


def test_after_a_kill_it_is_gone(disks: tuple[Path, Path]) -> None:
    stopped(disks[0])
    manager = load(disks[0])
    append(manager.logs[T0], 5)
    for place in manager.live:
        place.release()
    assert state(load(disks[0]).logs[T0])["offsets"] == (0, 40, 35, 35)


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.99])
def test_a_damaged_one_is_not_believed(disks: tuple[Path, Path], part: float) -> None:
    stopped(disks[0])
    path = disks[0] / FILE_NAME
    whole = path.read_bytes()
    at = int(len(whole) * part)
    for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
        with path.open("r+b") as file:
            file.truncate(0)
            file.write(damaged)
        files = WatchedFiles()
        manager = LogManager([str(disks[0])], files, FakeClock())
        manager.lock()
        manager.load(config_for)
        assert str(disks[0] / "t-1") in files.of_partitions()
        assert sorted(log.end_offset for log in manager.logs.values()) == [2, 35]
        manager.close()


def test_loading_that_is_stopped_gives_it_back(disks: tuple[Path, Path]) -> None:
    def stop(progress: LoadingProgress) -> None:
        raise LoadingStopped

    stopped(disks[0])
    manager = LogManager([str(disks[0])], Files(), FakeClock())
    manager.lock()
    with pytest.raises(LoadingStopped):
        manager.load(config_for, stop)
    for place in manager.live:
        place.release()
    files = WatchedFiles()
    load(disks[0], files)
    assert str(disks[0] / "t-1") not in files.of_partitions()


def test_a_log_without_a_topic_id_is_not_in_it(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    append(manager.create(T0, NO_TOPIC_ID, CONFIG), 2)
    manager.close()
    again = LogManager([str(disks[0])], Files(), FakeClock())
    again.lock()
    again.load(config_for, id_of=lambda tp: TOPIC_ID)
    assert again.logs[T0].topic_id == TOPIC_ID


def test_a_log_whose_file_has_more_than_its_records_is_not_in_it(disks: tuple[Path, Path]) -> None:
    manager = started(disks[0])
    append(manager.create(T0, TOPIC_ID, CONFIG), 3)
    append_to_log(disks[0] / "t-0")
    manager.close({})
    found = state(load(disks[0]).logs[T0])
    assert (found["offsets"], found["segments"]) == ((0, 3, 3, 3), [(0, 3 * len(batch(bytes(200))), False)])


def test_a_full_disk_does_without_it(disks: tuple[Path, Path]) -> None:
    files = FaultyFiles()
    manager = LogManager([str(disks[0])], files, FakeClock())
    manager.lock()
    manager.claim("cluster", 1)
    manager.load(config_for)
    append(manager.create(T0, TOPIC_ID, LogConfig()), 2)
    write = files.write_file

    def no_room(path: str, data: bytes, *, durable: bool = True) -> None:
        if path.endswith(FILE_NAME):
            files.fail("pwrite", 28)
        write(path, data, durable=durable)

    files.write_file = no_room  # type: ignore[method-assign]
    manager.close()
    assert (disks[0] / CLEAN_SHUTDOWN).exists() and not (disks[0] / FILE_NAME).exists()
    assert load(disks[0]).logs[T0].end_offset == 2
