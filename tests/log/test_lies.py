"""Batches with a true CRC and lying contents: refused with the codes of Kafka 3.9.2, or readable to the end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.contents import TooManyError, latest_delta
from kafkad.log.validate import check_batch, plain_records_match_header, records_match_header
from kafkad.wire.compression import Codec, compress
from kafkad.wire.records import (
    BATCH_HEADER,
    HEADER_SIZE,
    MAX_TIMESTAMP,
    BatchHeader,
    Record,
    assemble_batch,
    build_batch,
    encode_records,
    iter_records,
    read_header,
)
from tests.log.lies import NOW_MS, TOPICS, Lie, answers, key, lies, readable
from tests.log.produced import config_of, leader

LIES = lies()
ANSWERS = answers()
TOLD_OTHERWISE = {
    # Java reads a gzip stream over what comes behind it, and one lz4 frame of two; librdkafka and kafka-python do not.
    "gzip: bytes after its end": ErrorCode.UNKNOWN_SERVER_ERROR,
    "lz4: bytes after its end": ErrorCode.UNKNOWN_SERVER_ERROR,
    "lz4: twice": ErrorCode.UNKNOWN_SERVER_ERROR,
    # The library takes a frame that is cut off for a short one: so records are missing.
    "zstd: one byte": ErrorCode.INVALID_RECORD,
    "zstd: cut off in the middle": ErrorCode.INVALID_RECORD,
    "zstd: last 9 bytes missing": ErrorCode.INVALID_RECORD,
    "zstd: last byte missing": ErrorCode.INVALID_RECORD,
}
"""Batches of which `readable` cannot tell why we differ."""


def told(topic: str, lie: Lie) -> tuple[int, BatchHeader | None]:
    try:
        _, header = leader(lie.batch, config_of(topic), now_ms=NOW_MS)
    except KafkaError as error:
        return error.code, None
    return ErrorCode.NONE, header


def allowed(topic: str, lie: Lie) -> set[int]:
    """Kafka's code, but nothing is taken that readers do not get past, and where Kafka stumbles over what it is about
    to write anew, ours may be a sober answer."""
    kafka = ANSWERS[topic][key(lie)]
    if key(lie) in TOLD_OTHERWISE:
        return {TOLD_OTHERWISE[key(lie)]}
    if kafka.code == ErrorCode.NONE:
        return {ErrorCode.NONE if readable(lie) else ErrorCode.INVALID_RECORD}
    if kafka.code == ErrorCode.UNKNOWN_SERVER_ERROR and topic in ("gzip", "uncompressed"):
        return {ErrorCode.NONE} if readable(lie) else {ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_RECORD}
    return {kafka.code}


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("codec", list(Codec))
def test_kafkas_codes(topic: str, codec: Codec) -> None:
    differing = {}
    for lie in LIES:
        if lie.codec == codec:
            kafka = ANSWERS[topic][key(lie)]
            code, header = told(topic, lie)
            if code not in allowed(topic, lie):
                differing[key(lie)] = kafka.code, code
            elif header is not None and kafka.max_timestamp >= 0:
                assert header.max_timestamp == kafka.max_timestamp, key(lie)
    assert differing == {}


varints = st.one_of(st.integers(-3, 200), st.sampled_from([2**31 - 1, -(2**31), 8191, 8192, 2**20]))
records = st.lists(
    st.tuples(st.integers(-3, 300_000), st.none() | st.binary(max_size=3), st.none() | st.binary(max_size=70)),
    min_size=1,
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(records=records, copies=st.integers(1, 12), headers=st.booleans())
def test_sound_records_pass(records: list[tuple[int, bytes | None, bytes | None]], copies: int, headers: bool) -> None:
    added = (("name", b"v"), ("", None)) if headers else ()
    many = [
        Record(n, NOW_MS + late, name, value, added)
        for n, (late, name, value) in enumerate(record for record in records for _ in range(copies))
    ]
    batch = memoryview(build_batch(many, base_timestamp=NOW_MS))
    latest = latest_delta(batch, HEADER_SIZE, len(batch), len(many))
    assert NOW_MS + latest == max(record.timestamp for record in many)
    header = BATCH_HEADER.unpack_from(batch)
    assert plain_records_match_header(batch, 0, len(batch), header)


def test_the_quick_way_takes_only_what_can_be_read() -> None:
    taken = []
    for lie in LIES:
        view = memoryview(lie.batch)
        header = BATCH_HEADER.unpack_from(view)
        try:
            check_batch(view, 0, len(view), header, config_of("plain"), 8)
        except KafkaError:
            continue
        if records_match_header(view, 0, len(view), header):
            taken.append(key(lie))
            assert readable(lie), key(lie)
            assert header[MAX_TIMESTAMP] == ANSWERS["plain"][key(lie)].max_timestamp, key(lie)
    assert {f"{codec.name.lower()}: nothing but the truth" for codec in Codec} <= set(taken)


@pytest.mark.parametrize("count", [1, 6, 64, 65, 1000, 8192, 8193, 20_000])
@pytest.mark.parametrize("every_ms", [0, 1, 3])
def test_long_batches_pass(count: int, every_ms: int) -> None:
    """Varints of one, two and three bytes, alike and in between."""
    records = [Record(n, NOW_MS + n * every_ms // 8, b"k", b"value") for n in range(count)]
    body = encode_records(records, 0, NOW_MS)
    assert latest_delta(body, 0, len(body), count, 2500 if every_ms else 200) == (count - 1) * every_ms // 8


def test_who_does_not_look_alike_is_left_to_others() -> None:
    records = [Record(n, NOW_MS, b"k" * (n % 3), b"v" * (n % 7)) for n in range(300)]
    body = encode_records(records, 0, NOW_MS)
    assert latest_delta(body, 0, len(body), 300) == 0
    with pytest.raises(TooManyError):
        latest_delta(body, 0, len(body), 300, 200)


@settings(max_examples=500, deadline=None)
@given(
    count=st.sampled_from([1, 2, 5, 12, 40, 90]),
    alike=st.booleans(),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4]),
    changes=st.lists(
        st.tuples(st.floats(0, 1), st.one_of(st.integers(0, 255), st.sampled_from([0, 1, 2, 3, 127, 128, 129, 255]))),
        max_size=3,
    ),
    cut=st.integers(-8, 8),
    header=st.dictionaries(
        st.sampled_from(["record_count", "last_offset_delta", "max_timestamp", "base_timestamp"]), varints, max_size=2
    ),
)
def test_what_is_taken_is_readable_whole(
    count: int,
    alike: bool,
    codec: Codec,
    changes: list[tuple[float, int]],
    cut: int,
    header: dict[str, int],
) -> None:
    """Whatever is damaged under a true CRC: refused, or a reader gets as many records as the log end moves by."""
    sizes = [0 if alike else n * n % 7 for n in range(count)]
    sound = [Record(n, NOW_MS + n, b"k", bytes(size), (("h", b""),) * (n == 7)) for n, size in enumerate(sizes)]
    body = bytearray(encode_records(sound, 0, NOW_MS))
    for place, new in changes:
        body[int(place * (len(body) - 1))] = new
    body = body[:cut] if cut < 0 else body + bytes(cut)
    lie = Lie("", codec, bytes(_lying(bytes(body), codec, count, header)))
    code, taken = told("plain", lie)
    view = memoryview(lie.batch)
    if records_match_header(view, 0, len(view), read_header(view, 0)):
        assert readable(lie)
        assert taken is None or taken.max_timestamp == read_header(view, 0).max_timestamp
    assert (code == ErrorCode.NONE) <= readable(lie)
    if taken is not None:
        assert taken.last_offset_delta + 1 == taken.record_count == len(_read(lie.batch))
        times = [record.timestamp for record in _read(lie.batch)]
        assert taken.max_timestamp == max(-1, *times)


def _lying(body: bytes, codec: Codec, count: int, header: dict[str, int]) -> bytearray:
    sound = BatchHeader(0, 0, -1, 2, 0, codec, count - 1, NOW_MS, NOW_MS + count - 1, -1, -1, -1, count)
    return assemble_batch(sound._replace(**header), compress(codec, body))


def _read(batch: bytes) -> list[Record]:
    view = memoryview(batch)
    header = read_header(view, 0)
    return list(iter_records(view, 0, header._replace(attributes=header.codec)))
