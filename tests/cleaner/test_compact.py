"""Reports of a compaction, and single rules of it that the model does not spell out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkad.cleaner.compact import Extent, grouped
from kafkad.config import LONG_MAX
from kafkad.log.compaction import CompactionStats, LastOfProducer, UncleanableError
from kafkad.log.indexed import INDEX, LARGEST_RELATIVE_OFFSET, LOG
from kafkad.log.txnindex import SUFFIX as TXN_INDEX
from kafkad.log.txnindex import AbortedTransaction
from kafkad.wire.records import Record, build_batch
from tests.cleaner.compacting import DAY_MS, NOW_MS, Partition, modified_ns, run


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path / "t-0")


def batch(offset: int, *keyed: tuple[bytes | None, bytes | None], **options: int) -> bytearray:
    return build_batch([Record(offset + i, NOW_MS + i, *pair) for i, pair in enumerate(keyed)], **options)


def test_the_counts(partition: Partition) -> None:
    first = batch(0, (b"a", b"1"), (None, b"2"), (b"b", b"3"))
    second = batch(3, (b"a", b"4"))
    partition.write(0, first, second)
    partition.write(4)
    stats = partition.compact().stats
    written = partition.path(0).stat().st_size
    assert stats._replace(seconds=0, map_seconds=0, buffer_utilization=0) == CompactionStats(
        bytes_read=len(first) + len(second),
        records_read=4,
        bytes_written=written,
        records_written=2,
    )
    assert stats.buffer_utilization > 0
    assert 0 < stats.map_seconds <= stats.seconds


def test_a_cleaned_segment_is_as_old_as_the_last_one_in_it(partition: Partition) -> None:
    for base in (0, 1):
        partition.write(base, batch(base, (b"%d" % base, b"v")))
        os.utime(partition.path(base), ns=(0, (base + 1) * 10**18 + 7))
    partition.write(2)
    partition.compact()
    assert partition.bases == [0, 2]
    assert modified_ns(partition.path(0, LOG)) == modified_ns(partition.path(0, INDEX)) == 2 * 10**18 + 7


def test_a_batch_that_stays_whole_keeps_its_bytes(partition: Partition) -> None:
    whole = batch(0, (b"a", b"1"), (b"b", b"2"), codec=3, leader_epoch=4)
    partition.write(0, whole, batch(2, (b"c", b"1"), (b"c", b"2")))
    partition.write(4)
    partition.compact()
    assert partition.path(0).read_bytes().startswith(whole)


def test_a_horizon_is_set_once(partition: Partition) -> None:
    partition.write(0, batch(0, (b"a", None), (b"b", b"2")))
    partition.write(2, batch(2, (b"c", b"2")))
    partition.write(3)
    partition.compact(upto=2)
    partition.compact(first_dirty=2, now_ms=NOW_MS + DAY_MS - 1)
    (first, _) = partition.batches()
    assert first.header.delete_horizon_ms == NOW_MS + DAY_MS
    assert [record.timestamp for record in first.records] == [NOW_MS, NOW_MS + 1]
    partition.compact(first_dirty=3, now_ms=NOW_MS + DAY_MS)
    assert partition.offsets() == [1, 2]


def test_the_last_batch_of_a_live_producer_stays_without_its_records(partition: Partition) -> None:
    options = {"producer_id": 9, "producer_epoch": 3}
    partition.write(
        0, batch(0, (b"a", b"1"), base_sequence=0, **options), batch(1, (b"a", b"2"), base_sequence=1, **options)
    )
    partition.write(2, batch(2, (b"a", b"3")))
    partition.write(3)
    partition.compact(last_of_producer={9: LastOfProducer(1, 3)})
    emptied, _ = partition.batches()
    assert (emptied.header.last_offset, emptied.header.last_sequence, emptied.header.producer_epoch) == (1, 1, 3)
    assert emptied.records == []
    partition.compact(first_dirty=3)
    assert partition.offsets() == [2]
    assert len(partition.batches()) == 1


def test_the_last_batch_of_a_round_stays_without_its_records(partition: Partition) -> None:
    """Or a reader would never reach the end of a log that ends there, and be behind for ever."""
    partition.write(0, batch(0, (b"a", b"1"), (None, b"2")))
    partition.write(2, batch(2, (None, b"3")), batch(3, (None, b"4"), (None, b"5")))
    partition.write(5)
    partition.compact()
    assert [(each.header.base_offset, each.header.last_offset) for each in partition.batches()] == [(0, 1), (3, 4)]
    assert partition.offsets() == [0]
    partition.write(5, batch(5, (b"b", b"1")))
    partition.write(6)
    partition.compact(first_dirty=5)
    assert [each.header.base_offset for each in partition.batches()] == [0, 5]


def test_tombstones_may_stay_for_ever(partition: Partition) -> None:
    """And get a horizon, as with Kafka, as soon as they may not."""
    partition.write(0, batch(0, (b"a", b"1"), (b"a", None)), batch(2, (b"b", None)))
    partition.write(3)
    partition.compact(delete_retention_ms=LONG_MAX)
    assert partition.offsets() == [1, 2]
    assert [each.header.delete_horizon_ms for each in partition.batches()] == [None, None]
    partition.compact(first_dirty=3, delete_retention_ms=LONG_MAX - NOW_MS)
    assert [each.header.delete_horizon_ms for each in partition.batches()] == [LONG_MAX, LONG_MAX]
    assert [record.timestamp for record in partition.records()] == [NOW_MS + 1, NOW_MS]


def test_what_an_attempt_left_behind_is_no_hindrance(partition: Partition) -> None:
    partition.write(0, batch(0, (b"a", b"1")))
    partition.write(1)
    for suffix in (LOG, TXN_INDEX):
        partition.path(0, suffix + ".cleaned").write_bytes(b"half of something")
    partition.compact()
    assert partition.offsets() == [0]
    assert not partition.path(0, TXN_INDEX).exists()


def test_a_broken_transaction_index_is_named(partition: Partition) -> None:
    partition.write(0, batch(0, (b"a", b"1")))
    partition.write(1)
    partition.path(0, TXN_INDEX).write_bytes(b"no entry")
    with pytest.raises(UncleanableError, match="no whole number of entries") as caught:
        partition.compact()
    assert caught.value.path == str(partition.path(0, TXN_INDEX))


def test_what_is_half_written_of_later_transactions_is_not_looked_at(partition: Partition) -> None:
    """A broker goes on writing behind what is compacted."""
    kind = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    partition.write(0, batch(0, (b"a", b"1")), batch(1, (b"a", b"aborted"), **kind))
    aborted = AbortedTransaction(7, 1, 2, 3)
    partition.write(2, aborted=[aborted])
    partition.write(4)
    job = partition.job(upto=2)
    for base in (2, 4):
        with partition.path(base, TXN_INDEX).open("ab") as index:
            index.write(bytes(17))
    run(job, partition.offered.append)
    partition.take()
    assert [record.value for record in partition.records()] == [b"1"]


def test_a_batch_larger_than_the_buffer_is_read_whole(partition: Partition) -> None:
    partition.write(0, batch(0, (b"a", b"x" * 100_000)), batch(1, (b"b", b"1")), batch(2, (b"b", b"2")))
    partition.write(3)
    partition.compact(io_buffer_bytes=10, segment_bytes=1 << 20)
    assert partition.offsets() == [0, 2]


def extents(*sizes: int, span: int = 100, index_size: int = 8) -> list[Extent]:
    return [Extent(n * span, size, (n + 1) * span, index_size, 0) for n, size in enumerate(sizes)]


def bases(groups: list[list[Extent]]) -> list[list[int]]:
    return [[extent.base for extent in group] for group in groups]


def test_neighbours_become_one_as_far_as_they_fit() -> None:
    assert bases(grouped(extents(40, 60, 1, 90, 200), 100, 1000)) == [[0, 100], [200, 300], [400]]
    assert bases(grouped(extents(1, 1, 1), 100, 16)) == [[0, 100], [200]]
    half = LARGEST_RELATIVE_OFFSET // 2
    assert bases(grouped(extents(1, 1, 1, span=half), 100, 1000)) == [[0, half], [2 * half]]
    assert bases(grouped(extents(1, 1, 0, span=half), 100, 1000)) == [[0, half, 2 * half]]
