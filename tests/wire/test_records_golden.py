"""Every batch and record of the golden logs, read and built again, against the dump of Kafka's own tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkad.wire.control import ControlRecord, build_marker, marker_at, read_control
from kafkad.wire.records import (
    BATCH_HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    Record,
    build_batch,
    encode_records,
    iter_batches,
    iter_records,
    records_body,
)
from tests.wire.dump import LOG_FILES, dump, expected_dump, log_id

V2_FILES = [path for path in LOG_FILES if "old-formats" not in path.parts]


@pytest.mark.parametrize("path", LOG_FILES, ids=log_id)
def test_reads_what_kafka_dumps(path: Path) -> None:
    assert dump(path) == expected_dump(path)


@pytest.mark.parametrize("path", V2_FILES, ids=log_id)
def test_builds_the_same_bytes(path: Path) -> None:
    """Compressed bytes depend on the compressor's release: those batches are compared before compression."""
    view = memoryview(path.read_bytes())
    for at, header in iter_batches(view):
        append_time = header.attributes & LOG_APPEND_TIME
        records = list(iter_records(view, at, header._replace(attributes=header.attributes ^ append_time)))
        if header.codec:
            body = encode_records(records, header.base_offset, header.base_timestamp)
            assert body == records_body(view, at, header)
            continue
        built = build_batch(
            records,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
            append_time=header.max_timestamp if append_time else None,
            delete_horizon_ms=header.delete_horizon_ms,
            base_timestamp=header.base_timestamp,
            max_timestamp=None if records else header.max_timestamp,
        )
        assert bytes(built) == bytes(view[at : at + header.size])


@pytest.mark.parametrize("path", [path for path in V2_FILES if "tx-0" in path.parts], ids=log_id)
def test_builds_the_same_markers(path: Path) -> None:
    view = memoryview(path.read_bytes())
    for at, header in iter_batches(view):
        if not header.is_control:
            continue
        (record,) = iter_records(view, at, header)
        marker = read_control(record)
        assert marker is not None
        assert marker_at(view, at, header) == marker
        built = build_marker(
            marker,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            timestamp=record.timestamp,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
        )
        assert bytes(built) == bytes(view[at : at + header.size])


def test_a_marker_that_is_not_as_it_is_built_is_read_record_by_record() -> None:
    built = build_marker(ControlRecord(True, 7), producer_id=1, producer_epoch=2, timestamp=3)
    header = BATCH_HEADER.unpack_from(built)
    assert marker_at(memoryview(built), 0, header) == ControlRecord(True, 7)
    assert marker_at(memoryview(built)[:-1], 0, header) is None
    for at in (HEADER_SIZE, HEADER_SIZE + 4, HEADER_SIZE + 8, HEADER_SIZE + 9, len(built) - 1):
        other = bytearray(built)
        other[at] ^= 0x40
        assert marker_at(memoryview(other), 0, header) is None
    longer = build_batch([Record(0, 3, b"\0\0\0\1", b"\0\0\0\0\0\7", (("h", b"1"),))], producer_id=1, control=True)
    assert marker_at(memoryview(longer), 0, BATCH_HEADER.unpack_from(longer)) is None
