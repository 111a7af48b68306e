"""Gathering reads what the codec reads, and refuses what it refuses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkad.shard.gather import Latest, gather
from kafkad.wire.records import Record, RecordsError, encode_records, parse_records

BLOB = st.none() | st.binary(max_size=80) | st.binary(min_size=60, max_size=70).map(lambda data: data * 140)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple)
RECORDS = st.lists(
    st.builds(Record, st.integers(0, 2**31 - 1), st.integers(-(2**40), 2**40), BLOB, BLOB, HEADERS), max_size=8
)


def header(count: int) -> tuple[int, ...]:
    return (0, 0, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, count)


def expected(records: list[Record]) -> Latest:
    latest: Latest = {}
    for record in records:
        if record.key is not None:
            latest.pop(record.key, None)
            latest[record.key] = record.value
    return latest


@given(RECORDS, st.binary(max_size=5), st.binary(max_size=5))
def test_the_last_value_of_each_key_in_the_order_of_the_last_ones(
    records: list[Record], before: bytes, after: bytes
) -> None:
    body = encode_records(records, 0, 0)
    latest: Latest = {}
    end = len(before) + len(body)
    found = gather(before + body + after, len(before), end, len(records), latest)
    assert found == (end, sum(record.key is None for record in records))
    assert list(latest.items()) == list(expected(records).items())


@given(RECORDS, st.data())
def test_what_the_codec_takes_is_gathered_and_nothing_but_records_error_comes_of_the_rest(
    records: list[Record], data: st.DataObject
) -> None:
    body = bytearray(encode_records(records, 0, 0))
    for _ in range(data.draw(st.integers(0, 3))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        whole = list(parse_records(bytes(body), header(len(records))))
    except RecordsError:
        whole = None
    latest: Latest = {}
    try:
        end, _ = gather(bytes(body), 0, len(body), len(records), latest)
    except RecordsError:
        assert whole is None
    else:
        assert whole is None or (end == len(body) and latest == expected(whole))
