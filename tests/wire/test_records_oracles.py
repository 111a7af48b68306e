"""Records that Hypothesis thought up, against the readers and builders of kafka-python and aiokafka."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import aiokafka.record.default_records as aiokafka_batches
import aiokafka.record.legacy_records as aiokafka_messages
import kafka.record.default_records as kafka_batches
import kafka.record.legacy_records as kafka_messages
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkad.wire.compression import Codec
from kafkad.wire.records import (
    BatchHeader,
    Record,
    build_batch,
    crc_matches,
    iter_batches,
    iter_records,
    next_sequence,
    read_varint,
    write_varint,
)

NOW_MS = 1_700_000_000_000
BATCHES = pytest.mark.parametrize("theirs", [kafka_batches, aiokafka_batches], ids=["kafka-python", "aiokafka"])
MESSAGES = pytest.mark.parametrize("theirs", [kafka_messages, aiokafka_messages], ids=["kafka-python", "aiokafka"])
FEW = settings(max_examples=15, deadline=None)
CODECS = pytest.mark.parametrize("codec", list(Codec))

data = st.none() | st.binary(max_size=200)
contents = st.tuples(
    st.integers(NOW_MS - 2**40, NOW_MS + 2**40),
    data,
    data,
    st.lists(st.tuples(st.text(max_size=20), data), max_size=3).map(tuple),
)
batches = st.lists(contents, min_size=1, max_size=20).map(
    lambda items: [Record(offset, *item) for offset, item in enumerate(items)]
)
messages = st.lists(contents, min_size=1, max_size=20).map(
    lambda items: [Record(offset, *item[:3]) for offset, item in enumerate(items)]
)


def their_batch(theirs: ModuleType, codec: int, records: list[Record]) -> bytearray:
    builder = theirs.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=77,
        producer_epoch=3,
        base_sequence=11,
        batch_size=1 << 30,
    )
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytearray(builder.build())


def our_batch(codec: int, records: list[Record]) -> bytearray:
    return build_batch(
        records,
        codec=codec,
        producer_id=77,
        producer_epoch=3,
        base_sequence=11,
        transactional=True,
    )


def only_batch(batch: bytes | bytearray) -> tuple[memoryview, BatchHeader]:
    view = memoryview(batch)
    ((at, header),) = iter_batches(view)
    assert at == 0
    assert crc_matches(view, 0, header)
    return view, header


def fields(record: Any) -> Record:
    headers = tuple((key, None if value is None else bytes(value)) for key, value in record.headers)
    return Record(record.offset, record.timestamp, record.key, record.value, headers)


@BATCHES
@FEW
@given(records=batches)
def test_builds_the_bytes_they_build(theirs: ModuleType, records: list[Record]) -> None:
    built = their_batch(theirs, Codec.NONE, records)
    epoch = only_batch(built)[1].leader_epoch
    ours = our_batch(Codec.NONE, records)
    ours[12:16] = epoch.to_bytes(4, "big", signed=True)
    assert ours == built


@CODECS
@BATCHES
@FEW
@given(records=batches)
def test_reads_what_they_build(theirs: ModuleType, codec: Codec, records: list[Record]) -> None:
    view, header = only_batch(their_batch(theirs, codec, records))
    assert header.codec in (codec, Codec.NONE)  # they leave alone what does not shrink
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 11)
    assert list(iter_records(view, 0, header)) == records


@CODECS
@BATCHES
@FEW
@given(records=batches)
def test_they_read_what_we_build(theirs: ModuleType, codec: Codec, records: list[Record]) -> None:
    batch = theirs.DefaultRecordBatch(bytes(our_batch(codec, records)))
    assert batch.validate_crc()
    assert [fields(record) for record in batch] == records


@CODECS
@FEW
@given(records=batches, base_offset=st.integers(0, 2**62))
def test_reads_what_we_build(codec: Codec, records: list[Record], base_offset: int) -> None:
    moved = [record._replace(offset=base_offset + 3 * record.offset) for record in records]
    view, header = only_batch(build_batch(moved, codec=codec))
    assert (header.base_offset, header.last_offset) == (base_offset, moved[-1].offset)
    assert list(iter_records(view, 0, header)) == moved


@pytest.mark.parametrize(
    ("magic", "codec"),
    [(magic, codec) for magic in (0, 1) for codec in list(Codec)[:4] if magic or codec != Codec.LZ4],
)
@MESSAGES
@FEW
@given(records=messages)
def test_reads_the_old_messages_they_build(theirs: ModuleType, magic: int, codec: Codec, records: list[Record]) -> None:
    builder = theirs.LegacyRecordBatchBuilder(magic, codec, 1 << 30)
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value)
    view = memoryview(bytes(builder.build()))
    expected = records if magic else [record._replace(timestamp=-1) for record in records]
    read = []
    for at, header in iter_batches(view):
        assert crc_matches(view, at, header)
        if codec and magic:  # a producer does not know the offset that the broker will put on the wrapper
            header = header._replace(base_offset=records[-1].offset)
            view = memoryview(header.base_offset.to_bytes(8, "big") + view[8:])
        read += iter_records(view, at, header)
    assert read == expected


@FEW
@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_round_trip(value: int) -> None:
    encoded = write_varint(value)
    assert read_varint(encoded, 0) == (value, len(encoded))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_varints_are_protocol_buffers(value: int, encoded: str) -> None:
    assert write_varint(value).hex() == encoded


def test_sequences_wrap() -> None:
    assert next_sequence(2**31 - 1, 1) == 0
    assert next_sequence(2**31 - 3, 5) == 2
    header = only_batch(build_batch([Record(n, 0, None, None) for n in range(3)], base_sequence=2**31 - 2))[1]
    assert header.last_sequence == 0
