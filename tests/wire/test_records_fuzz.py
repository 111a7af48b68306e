"""Broken batches: RecordsError and nothing else, whatever the bytes are, and no memory by what they claim."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkad.wire.control import read_control
from kafkad.wire.records import (
    BatchHeader,
    Record,
    RecordsError,
    assemble_batch,
    build_batch,
    iter_batches,
    iter_records,
    parse_records,
    read_header,
)
from tests.log.produced import changed
from tests.wire.dump import LOG_FILES, LOGS

SAMPLES = [path.read_bytes() for path in LOG_FILES if 0 < path.stat().st_size < 10_000]
LIMIT = 1 << 20
SOME = settings(max_examples=60, deadline=None)
BATCH = build_batch([Record(n, 1000, b"k", b"v") for n in range(3)])


def read_all(data: bytes | bytearray | memoryview) -> None:
    view = memoryview(data)
    try:
        for at, header in iter_batches(view):
            for record in iter_records(view, at, header, LIMIT):
                if header.is_control:
                    read_control(record)
    except RecordsError as error:
        assert 0 <= error.position <= len(view)


@SOME
@given(
    sample=st.sampled_from(SAMPLES),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_changed_golden_bytes(sample: bytes, changes: list[tuple[int, int]]) -> None:
    data = bytearray(sample)
    for at, new in changes:
        data[at % len(data)] = new
    read_all(data)


@SOME
@given(sample=st.sampled_from(SAMPLES), end=st.integers(0, 10_000))
def test_golden_bytes_cut_off(sample: bytes, end: int) -> None:
    read_all(sample[: end % len(sample)])


@SOME
@given(st.binary(max_size=300))
def test_random_bytes(data: bytes) -> None:
    read_all(data)


@SOME
@given(body=st.binary(max_size=100), count=st.integers(-(2**31), 2**31 - 1), codec=st.integers(0, 7))
def test_random_records_under_a_good_header(body: bytes, count: int, codec: int) -> None:
    header = read_header(memoryview(BATCH), 0)._replace(record_count=count, attributes=codec)
    read_all(assemble_batch(header, body))


@SOME
@given(st.binary(max_size=100))
def test_random_records_that_are_cut_off_nowhere(body: bytes) -> None:
    """Straight at the record parser, where varints, sizes and counts of headers lie."""
    header = BatchHeader._make(read_header(memoryview(BATCH), 0))
    try:
        for record in parse_records(b"\x7e\x00\x00\x00" + body, header._replace(record_count=2**31 - 1)):
            assert isinstance(record.key, bytes | None)
    except RecordsError:
        return


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("a record longer than the body", "7e" + "00" * 6),
        ("a negative record length", "01" + "00" * 6),
        ("a key below null", "0c000000030100"),
        ("a value below null", "0c000000010300"),
        ("a key of 2 GB", "14000000feffffff0f0100"),
        ("a varint of 11 bytes", "0c" + "ff" * 11),
        ("2 billion headers", "14000000 0101 feffffff0f"),
        ("a negative count of headers", "0c0000000101 01"),
        ("a null header key", "10000000010102 01 01"),
        ("bytes after the last", "0c000000010100" + "00"),
    ],
)
def test_lies_inside_a_record(what: str, body: str) -> None:
    header = read_header(memoryview(BATCH), 0)._replace(record_count=1)
    with pytest.raises(RecordsError):
        list(parse_records(bytes.fromhex(body), header))


def test_a_sound_record_for_comparison() -> None:
    header = read_header(memoryview(BATCH), 0)._replace(record_count=1)
    (record,) = parse_records(bytes.fromhex("0c000000010100"), header)
    assert record == Record(0, 1000, None, None)


def test_a_lying_count_takes_no_memory() -> None:
    view = memoryview(changed(BATCH, record_count=2**31 - 1, last_offset_delta=2**31 - 2))
    tracemalloc.start()
    try:
        with pytest.raises(RecordsError):
            list(iter_records(view, 0, read_header(view, 0)))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_stops_at_the_limit(codec: int) -> None:
    view = memoryview(build_batch([Record(0, 0, None, bytes(16 << 20))], codec=codec))
    with pytest.raises(RecordsError, match="more than"):
        list(iter_records(view, 0, read_header(view, 0), LIMIT))


@pytest.mark.parametrize("path", sorted((LOGS / "old-formats").glob("old-rdk-v1-gzip-0/*.log")), ids=str)
def test_old_wrappers_stop_at_the_limit(path: Path) -> None:
    view = memoryview(path.read_bytes())
    with pytest.raises(RecordsError, match="more than"):
        list(iter_records(view, 0, read_header(view, 0), 100))
