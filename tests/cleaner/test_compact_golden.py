"""Our compaction of logs that real Kafka wrote, beside what its own cleaner made of the same bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkad.log.compaction import LastOfProducer
from kafkad.log.txnindex import decode
from kafkad.wire.records import BatchHeader
from tests.cleaner.compacting import DAY_MS, NOW_MS, Batch, Partition
from tests.log.consistency import check
from tests.wire.dump import LOGS

LAST_OF_PRODUCER = {"compact-tx-0": {9: LastOfProducer(235, 0)}}
SEGMENT_BYTES = {"compact-zstd-0": 4096, "compact-tx-0": 3000}
"""The settings that the topics were created with: they decide which segments become one."""
CLEANED_ONCE = sorted(SEGMENT_BYTES)
CLEANED_AGAIN = ["compact-0", "compact-tomb0-0"]


def copy(name: str, tmp_path: Path) -> Partition:
    return Partition(shutil.copytree(LOGS / "before-compaction" / name, tmp_path / name, copy_function=shutil.copyfile))


def without_delete_horizon(header: BatchHeader) -> BatchHeader:
    """Kafka's clock had another time; timestamps that count from it have other lengths, and bytes another checksum."""
    return header._replace(length=0, crc=0, base_timestamp=0)


@pytest.mark.parametrize("name", CLEANED_ONCE)
def test_every_batch_is_as_kafka_left_it(name: str, tmp_path: Path) -> None:
    ours, kafkas = copy(name, tmp_path), Partition(LOGS / "main" / name)
    upto = ours.bases[-1]
    result = ours.compact(segment_bytes=SEGMENT_BYTES[name], last_of_producer=LAST_OF_PRODUCER.get(name, {}))
    assert result.next_dirty == upto
    assert ours.bases == kafkas.bases
    for mine, theirs in zip(ours.batches(upto), kafkas.batches(upto), strict=True):
        assert without_delete_horizon(mine.header) == without_delete_horizon(theirs.header)
        assert mine.records == theirs.records
        if mine.header.delete_horizon_ms is not None:
            assert mine.header.delete_horizon_ms == NOW_MS + DAY_MS
    assert check(str(ours.directory)) == []


def test_the_transaction_index_is_as_kafka_left_it(tmp_path: Path) -> None:
    ours, kafkas = copy("compact-tx-0", tmp_path), Partition(LOGS / "main" / "compact-tx-0")
    ours.compact(segment_bytes=SEGMENT_BYTES["compact-tx-0"])
    names = {path.name for path in kafkas.directory.glob("*.txnindex")}
    assert {path.name for path in ours.directory.glob("*.txnindex")} == names
    for name in names:
        assert decode((ours.directory / name).read_bytes()) == decode((kafkas.directory / name).read_bytes())


@pytest.mark.parametrize("name", CLEANED_AGAIN)
def test_what_kafka_removed_besides_has_a_successor_in_what_came_later(name: str, tmp_path: Path) -> None:
    ours, kafkas = copy(name, tmp_path), Partition(LOGS / "main" / name)
    upto = ours.bases[-1]
    ours.compact()
    kept = {record.offset: record for batch in ours.batches(upto) for record in batch.records}
    theirs = {record.offset: record for batch in kafkas.batches(upto) for record in batch.records}
    assert theirs.items() <= kept.items()
    later = {record.key for record in kafkas.records() + ours.records() if record.offset >= upto}
    assert all(
        record.key in later or (record.value is None and name == "compact-tomb0-0")
        for offset, record in kept.items()
        if offset not in theirs
    )


def test_tombstones_go_once_their_horizon_has_passed(tmp_path: Path) -> None:
    ours = copy("compact-tomb0-0", tmp_path)
    upto = ours.bases[-1]
    ours.compact(delete_retention_ms=0)
    first = ours.batches(upto)
    assert tombstones(first)
    ours.compact(first_dirty=upto, now_ms=NOW_MS + 1)
    assert [r for b in ours.batches(upto) for r in b.records] == [
        record for batch in first for record in batch.records if record.value is not None
    ]


OLD = sorted(path.name for path in (LOGS / "old-formats").glob("old-*-v[01]-*-0"))


@pytest.mark.parametrize("name", OLD)
def test_messages_of_old_formats_are_compacted_too(name: str, tmp_path: Path) -> None:
    partition = Partition(shutil.copytree(LOGS / "old-formats" / name, tmp_path / name, copy_function=shutil.copyfile))
    before = partition.batches()
    records = [record for batch in before for record in batch.records]
    last = {record.key: record for record in records if record.key is not None}
    partition.compact(upto=records[-1].offset + 1)
    assert partition.records() == sorted(last.values(), key=lambda record: record.offset)
    assert {batch.header.magic for batch in partition.batches()} == {before[0].header.magic}
    assert check(str(partition.directory)) == []


def tombstones(batches: list[Batch]) -> list[int]:
    return [record.offset for batch in batches for record in batch.records if record.value is None]
