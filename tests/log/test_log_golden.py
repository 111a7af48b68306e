"""Logs that real Kafka wrote: we read what it reads, and index as it indexes."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.files import Files
from kafkad.log.indexed import INDEX, TIME_INDEX
from kafkad.log.log import Log
from kafkad.log.segment import Segment
from kafkad.log.snapshots import ProducerEntry, decode
from kafkad.log.time_search import offset_for_timestamp
from kafkad.log.transactions import aborted_transactions
from kafkad.names import TopicPartition
from kafkad.wire.records import iter_batches
from tests.fakes import FakeClock, FaultyFiles
from tests.log.conftest import SMALL, records, searched
from tests.log.consistency import check
from tests.wire.dump import DIRECTORIES, LOGS

PARTITIONS = sorted(path for name in DIRECTORIES for path in (LOGS / name).glob("*-[0-9]"))
CLEANED = {"compact-0", "compact-zstd-0", "compact-tomb0-0", "compact-tx-0", "old-v1-compact-0"}
RESTARTED = {("main", "murmur-0", 0), ("main", "epochs-0", 94)}
"""Segments that the broker reopened in between: it counts the bytes to the next index entry from 0 again."""
DAMAGED = LOGS / "damaged"


def partition_id(path: Path) -> str:
    return str(path.relative_to(LOGS))


def copy(source: Path, target: Path) -> Path:
    """A copy that may be written to."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    target.chmod(0o755)
    return target


def checkpoint(path: Path) -> dict[str, int]:
    entries = (line.split(" ") for line in path.read_text().splitlines()[2:]) if path.exists() else ()
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in entries}


def open_log(
    directory: Path,
    *,
    clean: bool = True,
    start_offset: int = 0,
    recovery_point: int = 0,
    damaged_from: int | None = None,
    files: Files | None = None,
) -> Log:
    topic, _, partition = directory.name.rpartition("-")
    return Log.open(
        str(directory),
        SMALL,
        files or Files(),
        FakeClock(),
        topic_partition=TopicPartition(topic, int(partition)),
        start_offset=start_offset,
        recovery_point=recovery_point,
        damaged_from=damaged_from,
        clean=clean,
    )


def interval_of(partition: Path) -> int:
    """`index.interval.bytes` of the topic."""
    if partition.name.startswith("__"):
        return 4096
    return 400 if partition.name.startswith(("epochs", "old-")) else 512


def dumped(partition: Path, suffix: str) -> list[str]:
    paths = sorted((LOGS / "expected" / partition.relative_to(LOGS)).glob(f"*.{suffix}.txt"))
    return [path.read_bytes().decode() for path in paths]


@pytest.mark.parametrize("partition", PARTITIONS, ids=partition_id)
def test_a_kafka_log_opens_after_a_clean_stop_and_stays_as_it_is(partition: Path, tmp_path: Path) -> None:
    directory = copy(partition, tmp_path / partition.name)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    start = checkpoint(partition.parent / "log-start-offset-checkpoint").get(partition.name, 0)
    end = checkpoint(partition.parent / "replication-offset-checkpoint").get(partition.name)
    log = open_log(directory, start_offset=start, recovery_point=1 << 40)
    text = "".join(dumped(partition, "log"))
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)]
    if not offsets:
        offsets = [int(found) for found in re.findall(r"^offset: (\d+)", text, re.MULTILINE)]
    assert [record.offset for record in records(log)] == [offset for offset in offsets if offset >= start]
    if end is not None:
        assert log.end_offset == end
    log.close()
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert check(str(directory)) == []


@pytest.mark.parametrize("partition", [p for p in PARTITIONS if p.name not in CLEANED], ids=partition_id)
def test_indexes_made_from_the_log_are_kafkas_bytes(partition: Path, tmp_path: Path) -> None:
    directory = copy(partition, tmp_path / partition.name)
    interval = interval_of(partition)
    for path in sorted(directory.glob("*.log")):
        base = int(path.stem)
        if (partition.parent.name, partition.name, base) in RESTARTED:
            continue
        segment = Segment(Files(), str(directory), base, path.stat().st_size, interval, 0)
        segment.rebuild_indexes()
        for suffix in (INDEX, TIME_INDEX):
            assert (
                Path(segment.path(suffix)).read_bytes()
                == path.with_suffix(suffix).with_name(path.stem + suffix).read_bytes()
            )


DAMAGE = json.loads((DAMAGED / "damaged.json").read_text())


def recover(name: str, tmp_path: Path) -> Log:
    directory = copy(DAMAGED / "before" / f"{name}-0", tmp_path / f"{name}-0")
    return open_log(directory, clean=False, recovery_point=DAMAGE[name]["recovery_point"])


@pytest.mark.parametrize("name", sorted(DAMAGE.keys() - {"dmg-flip-old"}))
def test_recovery_ends_where_kafkas_does(name: str, tmp_path: Path) -> None:
    log = recover(name, tmp_path)
    assert (log.start_offset, log.end_offset) == (0, DAMAGE[name]["kafka"]["log_end_offset"])
    assert not log.damage
    log.close()
    after = DAMAGED / "after" / f"{name}-0"
    ours = {path.name: path.read_bytes() for path in (tmp_path / f"{name}-0").iterdir()}
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        kafkas = {path.name: path.read_bytes() for path in after.glob("*" + suffix)}
        mine = {found: data for found, data in ours.items() if found.endswith(suffix)}
        if suffix == ".txnindex":  # Kafka leaves an empty file behind, so may we
            kafkas, mine = ({k: v for k, v in files.items() if v} for files in (kafkas, mine))
        assert mine == kafkas
    if name not in UNREPAIRED:
        assert check(str(tmp_path / f"{name}-0")) == []


UNREPAIRED = {"dmg-flip-old-safe", "dmg-badindex-safe", "dmg-badtimeindex"}
"""Damage below the recovery point, where nobody looks until somebody reads there."""


@pytest.mark.parametrize("name", ["dmg-badindex-safe", "dmg-badtimeindex"])
def test_a_broken_index_is_made_anew_when_it_is_used(name: str, tmp_path: Path) -> None:
    log = recover(name, tmp_path)
    assert [record.offset for record in records(log)] == list(range(100))
    found = [searched(offset_for_timestamp(log, record.timestamp)) for record in records(log)]
    assert all(found)
    log.close()
    assert check(str(tmp_path / f"{name}-0")) == []


def test_damage_before_the_tail_is_reported_and_nothing_is_cut(tmp_path: Path) -> None:
    """Kafka cuts the log at offset 28 and deletes what follows; here only the damaged batch is lost."""
    log = recover("dmg-flip-old", tmp_path)
    assert (log.start_offset, log.end_offset) == (0, 100)
    [(segment, hole)] = log.damage
    assert (segment.base, hole.start, hole.first) == (9, 1549, 28)
    assert [record.offset for record in records(log, hole.next)] == list(range(hole.next, 100))
    with pytest.raises(KafkaError) as refused:
        log.read(28, 1 << 20, 100)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    before = log.read(9, 1 << 20, 100)
    assert before is not None
    assert before.position + before.length == hole.start
    log.close()
    recovery_point, damaged_from = log.durability.recovery_point, log.damaged_from
    again = open_log(tmp_path / "dmg-flip-old-0", recovery_point=recovery_point, damaged_from=damaged_from)
    assert [hole for _, hole in again.damage] == [hole], "a clean stop must not make it forgotten"


SEGMENT_BYTES = {
    "codec-none-0": 8192,
    "appendtime-0": 8192,
    "idempotent-0": 8192,
    "delrec-0": 4096,
    "epochs-0": 4096,
    "tx-0": 4096,
    "__transaction_state-0": 100 << 20,
    "__transaction_state-1": 100 << 20,
    "large-0": 100 << 20,
}
"""The segment sizes that the topics were created with; all others in `main` have 5000 bytes."""
OTHERWISE = {
    "epochs-0": {f"{94:020d}.index"},
    "murmur-0": {f"{0:020d}.timeindex"},
}
"""Files that show a restart of the broker between the appends."""
FORGOTTEN = {"epochs-0", "murmur-0", "idempotent-0"}
"""Partitions for which such a restart forgot producers that had been silent for a day, or left another snapshot."""


@pytest.mark.parametrize(
    "partition",
    [p for p in PARTITIONS if p.parent.name == "main" and p.name not in CLEANED],
    ids=lambda path: path.name,
)
def test_the_same_appends_give_kafkas_files(partition: Path, tmp_path: Path) -> None:
    paths = sorted(partition.glob("*.log"))
    config = replace(
        SMALL,
        segment_bytes=SEGMENT_BYTES.get(partition.name, 5000),
        segment_index_bytes=10 << 20,
        index_interval_bytes=interval_of(partition),
    )
    directory = tmp_path / partition.name
    topic_partition = TopicPartition("t", 0)
    log = Log.open(
        str(directory), config, Files(), FakeClock(), topic_partition=topic_partition, start_offset=int(paths[0].stem)
    )
    for path in paths:
        view = memoryview(bytearray(path.read_bytes()))
        for at, header in iter_batches(view):
            if partition.name.startswith("__"):  # whose batches of transactions do not count their sequences
                log.append_copied(view[at : at + header.size])
            else:
                assert log.append(view, at, at + header.size, header, header.leader_epoch) == header.base_offset
    log.close()
    assert check(str(directory)) == []
    suffixes = (".log", ".index", ".timeindex", ".txnindex")
    ours, kafkas = (
        {path.name: path.read_bytes() for path in place.iterdir() if path.name.endswith(suffixes)}
        for place in (directory, partition)
    )
    differing = {name for name in ours.keys() | kafkas.keys() if ours.get(name) != kafkas.get(name)}
    assert differing == OTHERWISE.get(partition.name, set())
    if partition.name not in FORGOTTEN:
        assert producers(directory) == producers(partition)


def producers(directory: Path) -> dict[str, set[ProducerEntry]]:
    """The contents of the snapshots; Kafka's are in the order of a hash map."""
    return {path.name: set(decode(path.read_bytes())) for path in directory.glob("*.snapshot")}


@pytest.mark.parametrize("operation", ["unlink", "rename"])
@pytest.mark.parametrize("after", range(4))
def test_a_swap_may_be_interrupted_again_and_again(operation: str, after: int, tmp_path: Path) -> None:
    directory = copy(DAMAGED / "before" / "dmg-swap-0", tmp_path / "dmg-swap-0")
    for path in list(directory.glob("*.swap")):  # the segment that is to be replaced is still there, too
        shutil.copyfile(path, directory / path.name.removesuffix(".swap"))
    for _ in range(3):
        files = FaultyFiles()
        files.fail(operation, after=after)
        try:
            log = open_log(directory, files=files, clean=False, recovery_point=89)
        except StorageError:
            continue
        log.close(clean=False)
    log = open_log(directory, clean=False, recovery_point=89)
    assert [record.offset for record in records(log)] == list(range(100))
    intact = aborted_transactions(recover("dmg-clean", tmp_path), 0, 100)
    assert len(intact) == 2
    assert [first for _, first in aborted_transactions(log, 0, 100)] == [first for _, first in intact]
    assert not list(directory.glob("*.swap"))
    log.close()
    assert check(str(directory)) == []
