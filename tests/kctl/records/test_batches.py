from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkad.wire.control import ControlRecord, build_marker
from kafkad.wire.records import BatchHeader, Record, build_batch, crc_matches, iter_batches, iter_records
from kctl.records.batches import Batch, PartitionQueue, Producer
from kctl.records.read_committed import Aborted

IDEMPOTENT = Producer(7, 1)


def record(value: bytes = b"x") -> Record:
    return Record(0, 5, b"k", value, (("a", b"1"),))


def filled(values: list[bytes], limit: int = 10**6) -> PartitionQueue:
    queue = PartitionQueue()
    for line, value in enumerate(values, 1):
        queue.add(record(value), line, limit, now=0)
    return queue


def decoded(data: bytes | bytearray) -> tuple[BatchHeader, list[Record]]:
    view = memoryview(data)
    ((at, header),) = iter_batches(view)
    assert crc_matches(view, at, header)
    return header, list(iter_records(view, at, header))


def test_batch_is_what_was_put_in() -> None:
    queue = filled([b"a", b"b", b"c"])
    header, records = decoded(queue.encoded(IDEMPOTENT, codec=4))
    assert records == [record(value)._replace(offset=at) for at, value in enumerate((b"a", b"b", b"c"))]
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.codec) == (7, 1, 0, 4)
    assert not header.is_transactional


def test_batches_end_at_the_limit_even_of_records_larger_than_it() -> None:
    queue = filled([b"x" * 100] * 5, limit=400)
    assert [batch.count for batch in queue.batches] == [2, 2, 1]
    assert all(batch.bytes <= 400 for batch in queue.batches)
    assert [batch.count for batch in filled([b"x" * 1000] * 2, limit=400).batches] == [1, 1]


@given(
    st.lists(st.binary(max_size=300) | st.integers(0, 9000).map(bytes), max_size=200),
    st.integers(70, 3000) | st.just(10**6),
    st.integers(0, 20_000),
)
def test_values_are_taken_together_as_they_are_one_by_one(values: list[bytes], limit: int, later: int) -> None:
    queue = PartitionQueue()
    queue.add(Record(0, 5, b"k", b"first"), 1, limit, now=0)
    waiting, mark = values, 2
    while waiting:
        count, size = queue.extend(waiting, 5 + later, mark, limit, now=0)
        assert count > 0
        assert size > sum(map(len, waiting[:count]))
        waiting, mark = waiting[count:], mark + count
    assert [mark for batch in queue.batches for mark in batch.marks] == list(range(1, len(values) + 2))
    assert all(batch.bytes <= limit or batch.count == 1 for batch in queue.batches)
    found: list[Record] = []
    for batch in queue.batches:
        data = batch.built(Producer(), 0, None)
        assert len(data) == batch.bytes
        header, records = decoded(data)
        assert [record.offset for record in records] == list(range(batch.count))
        assert header.max_timestamp == records[-1].timestamp
        found += records
    assert [(record.timestamp, record.key, record.value, record.headers) for record in found] == [
        (5, b"k", b"first", ()),
        *((5 + later, None, value, ()) for value in values),
    ]


def test_batches_of_values_are_filled() -> None:
    queue = PartitionQueue()
    queue.extend([b"x" * 1000] * 2000, 5, 1, 512 * 1024, now=0)
    assert 0.99 * 512 * 1024 < queue.batches[0].bytes <= 512 * 1024


def test_values_do_not_join_a_batch_on_its_way() -> None:
    queue = filled([b"a"])
    queue.in_flight = True
    queue.extend([b"b", b"c"], 5, 2, 10**6, now=0)
    assert [batch.marks for batch in queue.batches] == [[1], [2, 3]]


def test_batch_on_its_way_does_not_grow() -> None:
    queue = filled([b"a"])
    queue.in_flight = True
    queue.add(record(), 2, 10**6, now=0)
    queue.add(record(), 3, 10**6, now=0)
    assert [batch.marks for batch in queue.batches] == [[1], [2, 3]]


def test_due_when_full_or_old_or_sent_before() -> None:
    queue = filled([b"a"])
    assert not queue.is_due(now=0.004, linger=0.005)
    assert queue.is_due(now=0.005, linger=0.005)
    queue.in_flight = True
    assert not queue.is_due(now=9, linger=0.005)
    assert filled([b"x" * 100] * 3, limit=200).is_due(now=0, linger=5)
    queue = filled([b"a"])
    queue.encoded(IDEMPOTENT, 0)
    assert queue.is_due(now=0, linger=5)
    assert not PartitionQueue().is_due(now=9, linger=0)


def test_repetition_has_the_same_sequence_and_the_next_batch_the_next() -> None:
    queue = filled([b"a", b"b", b"c"])
    first = queue.encoded(IDEMPOTENT, 0)
    assert queue.encoded(IDEMPOTENT, 0) == first
    queue.batches.popleft()
    queue.add(record(), 4, 10**6, now=0)
    assert decoded(queue.encoded(IDEMPOTENT, 0))[0].base_sequence == 3


def test_without_idempotence_there_are_no_sequences() -> None:
    header, _ = decoded(filled([b"a"]).encoded(Producer(), 0))
    assert (header.producer_id, header.base_sequence) == (-1, -1)


def sequences(queue: PartitionQueue) -> list[tuple[int, int]]:
    found = []
    while queue.batches:
        header, records = decoded(queue.encoded(IDEMPOTENT, 0))
        found.append((header.base_sequence, len(records)))
        queue.batches.popleft()
    return found


def test_halves_of_a_batch_follow_each_other() -> None:
    queue = filled([b"a", b"b", b"c"])
    queue.encoded(IDEMPOTENT, 0)
    queue.split()
    assert [batch.marks for batch in queue.batches] == [[1], [2, 3]]
    assert sequences(queue) == [(0, 1), (1, 2)]


def test_numbers_of_a_batch_given_up_go_to_the_next() -> None:
    queue = filled([b"a", b"b", b"c"])
    queue.encoded(IDEMPOTENT, 0)
    queue.split()
    assert queue.drop().marks == [1]
    assert sequences(queue) == [(0, 2)]


def test_bytes_of_a_batch_are_those_it_has_without_compression() -> None:
    names = (("h" * 300, None), ("\u20ac" * 300, b"1")) * 9
    for one in (Record(0, 0, None, None), record(b"x" * 100_000), Record(0, 2**62, b"", b"", names)):
        batch = Batch(0, base_timestamp=-1)
        for _ in range(200):
            batch.add(one, 1)
        assert batch.bytes == len(batch.built(Producer(), 0, None))


def test_times_of_records_are_kept() -> None:
    queue = PartitionQueue()
    times = [2**40, 5, 2**41, -1]
    for time in times:
        queue.add(Record(0, time, None, b"v"), 1, 10**6, now=0)
    header, records = decoded(queue.encoded(IDEMPOTENT, 0))
    assert [one.timestamp for one in records] == times
    assert (header.base_timestamp, header.max_timestamp) == (2**40, 2**41)
    queue.split()
    assert [one.timestamp for _ in range(2) for one in decoded(drained(queue))[1]] == times


def drained(queue: PartitionQueue) -> bytes:
    data = queue.encoded(IDEMPOTENT, 0)
    queue.batches.popleft()
    return data


def header(base: int, last: int, producer: int, *, transactional: bool = True) -> BatchHeader:
    data = build_batch(
        [Record(offset, 0, None, b"") for offset in range(base, last + 1)],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
    )
    return decoded(data)[0]


def test_aborted_transactions_hide_their_batches_until_their_marker() -> None:
    aborted = Aborted([(7, 10), (8, 0)])
    assert aborted.hides(header(0, 4, 8))
    assert not aborted.hides(header(5, 6, 7))
    assert not aborted.hides(header(7, 8, 8, transactional=False))
    assert aborted.hides(header(10, 12, 7))
    data = build_marker(ControlRecord(False, 0), producer_id=8, producer_epoch=0, timestamp=0, base_offset=13)
    marker, (said,) = decoded(data)
    aborted.marker(marker, said)
    assert not aborted.hides(header(14, 15, 8))
    assert aborted.hides(header(16, 17, 7))


def test_commit_marker_ends_no_aborted_transaction() -> None:
    aborted = Aborted([(7, 0)])
    assert aborted.hides(header(0, 4, 7))
    data = build_marker(ControlRecord(True, 0), producer_id=7, producer_epoch=0, timestamp=0, base_offset=5)
    marker, (said,) = decoded(data)
    aborted.marker(marker, said)
    assert aborted.hides(header(6, 7, 7))
