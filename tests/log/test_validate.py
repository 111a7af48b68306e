"""Batches that a leader refuses, rewrites or lets pass, against the codes that Kafka 3.9.2 answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.validate import (
    RebuildResult,
    RefusedRecords,
    demands,
    quick_enough,
    rebuild,
    rebuild_quickly,
    stamp,
)
from kafkad.names import TopicPartition
from kafkad.wire.compression import Codec
from kafkad.wire.records import (
    BATCH_HEADER,
    BatchHeader,
    Record,
    build_batch,
    crc_matches,
    iter_batches,
    iter_records,
    seal,
)
from tests.log.produced import (
    NOW_MS,
    PLAIN,
    TOPICS,
    Case,
    cases,
    changed,
    config_of,
    leader,
    legacy_message,
    records_at,
)
from tests.wire.dump import LOGS

CASES = cases(NOW_MS)


def refusal(batch: bytes | bytearray, config: LogConfig, version: int = 8) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        leader(batch, config, version)
    return caught.value


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_answers_as_kafka(case: Case) -> None:
    expected = case.code if case.ours is None else case.ours
    try:
        leader(case.records, config_of(case.topic), case.version)
    except KafkaError as error:
        assert error.code == expected, error
        refused = error.record_errors if isinstance(error, RefusedRecords) else ()
        assert tuple(record.batch_index for record in refused) == case.refused or not case.refused
    else:
        assert expected == ErrorCode.NONE


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_of_old_requests_are_refused_by_name(magic: int) -> None:
    assert refusal(legacy_message(magic, NOW_MS), PLAIN, 2).code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_a_good_batch_passes_untouched() -> None:
    batch = build_batch(records_at(NOW_MS), producer_id=5, producer_epoch=1, base_sequence=9, transactional=True)
    view, _ = leader(batch, PLAIN)
    assert bytes(view) == bytes(batch)


def test_null_keys_are_named_by_kafkas_words() -> None:
    error = refusal(build_batch([Record(0, NOW_MS, None, b"v")]), config_of("compacted"))
    assert isinstance(error, RefusedRecords)
    words = "Compacted topic cannot accept message without key in topic partition compacted-0"
    assert error.record_errors == ((0, words),)


@pytest.mark.parametrize("keyless", [(), (0,), (333,), (8, 200, 399)])
def test_null_keys_are_found_among_many_records_that_look_alike(keyless: tuple[int, ...]) -> None:
    records = [Record(n, NOW_MS, None if n in keyless else b"key %03d" % n, b"v" * 80) for n in range(400)]
    batch = build_batch(records)
    if keyless:
        error = refusal(batch, config_of("compacted"))
        assert isinstance(error, RefusedRecords)
        assert [refused.batch_index for refused in error.record_errors] == list(keyless)
    else:
        assert bytes(leader(batch, config_of("compacted"))[0]) == bytes(batch)


def test_append_time_is_stamped_without_touching_records() -> None:
    for codec in Codec:
        batch = build_batch(records_at(NOW_MS), codec=codec)
        view, header = leader(batch, config_of("append-time"))
        assert (header.timestamp_type, header.max_timestamp, header.codec) == ("LogAppendTime", NOW_MS + 7, codec)
        assert view[61:] == batch[61:]
        assert crc_matches(view, 0, header)
        assert [record.timestamp for record in iter_records(view, 0, header)] == [NOW_MS + 7] * 4


def test_stamping_gives_the_bytes_kafka_wrote() -> None:
    """Undo the broker's stamp on golden batches, do it again, and expect the same bytes."""
    config = config_of("append-time")
    for path in sorted((LOGS / "main" / "appendtime-0").glob("*.log")):
        view = memoryview(path.read_bytes())
        for at, header in iter_batches(view):
            original = view[at : at + header.size]
            sent = memoryview(changed(original, attributes=header.codec, max_timestamp=0))
            stamp(
                sent,
                0,
                len(sent),
                BatchHeader._make(header)._replace(attributes=header.codec),
                config,
                header.max_timestamp,
            )
            assert sent == original


def test_create_time_takes_the_append_time_flag_away() -> None:
    view, header = leader(build_batch(records_at(NOW_MS), append_time=NOW_MS + 3), PLAIN)
    assert header.timestamp_type == "CreateTime"
    assert crc_matches(view, 0, header)
    assert list(iter_records(view, 0, header)) == records_at(NOW_MS)


@pytest.mark.parametrize("sent", list(Codec))
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_recompression_keeps_all_but_the_codec(sent: Codec, wanted: str) -> None:
    records = [
        Record(n, NOW_MS - n, None if n % 3 else b"", b"value" * n, (("h", None), ("", b"x"))) for n in range(50)
    ]
    batch = build_batch(
        records, codec=sent, producer_id=9, producer_epoch=3, base_sequence=2**31 - 4, transactional=True
    )
    before = BatchHeader._make(BATCH_HEADER.unpack_from(batch))
    view, header = leader(batch, replace(PLAIN, compression_type=wanted))
    assert header.codec == (0 if wanted == "uncompressed" else Codec[wanted.upper()])
    same = before._replace(length=header.length, crc=header.crc, attributes=header.attributes)
    assert header == same
    assert header.is_transactional
    assert crc_matches(view, 0, header)
    assert list(iter_records(view, 0, header)) == records


def test_rebuilding_corrects_a_lying_max_timestamp() -> None:
    batch = changed(build_batch(records_at(NOW_MS)), max_timestamp=NOW_MS + 99)
    view, header = leader(batch, config_of("gzip"))
    assert header.max_timestamp == NOW_MS + 3
    assert crc_matches(view, 0, header)


def test_a_bomb_is_refused() -> None:
    bomb = build_batch([Record(0, NOW_MS, b"k", bytes(80 << 20))], codec=Codec.ZSTD)
    config = replace(config_of("gzip"), max_message_bytes=100_000)
    error = refusal(bomb, config)
    assert error.code == ErrorCode.INVALID_RECORD
    assert "more than" in str(error)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_kafkas_own_recompression_needs_none(compression: str) -> None:
    """Batches that Kafka's leader wrote for `compression.type` pass ours as they are, and ours agree in all fields."""
    config = replace(PLAIN, compression_type=compression)
    for path in sorted((LOGS / "main" / f"broker-{compression}-0").glob("*.log")):
        view = memoryview(path.read_bytes())
        for at, header in iter_batches(view):
            sent = changed(view[at : at + header.size], base_offset=0, leader_epoch=-1)
            assert leader(sent, config)[0] == sent
            plain, plain_header = leader(sent, replace(PLAIN, compression_type="uncompressed"))
            again, again_header = leader(plain, config)
            assert again_header == header._replace(
                base_offset=0, leader_epoch=-1, length=again_header.length, crc=again_header.crc
            )
            assert list(iter_records(again, 0, again_header)) == list(iter_records(plain, 0, plain_header))


def test_timestamps_that_no_header_can_hold_are_refused() -> None:
    far = build_batch([Record(0, 2**62, b"k", b"v")], base_timestamp=0)
    batch = changed(far, base_timestamp=2**62)
    assert refusal(batch, config_of("gzip")).code == ErrorCode.INVALID_RECORD


@settings(max_examples=100, deadline=None)
@given(
    case=st.sampled_from([case for case in CASES if len(case.records) > 61]),
    topic=st.sampled_from(list(TOPICS)),
    changes=st.lists(st.tuples(st.integers(21, 300), st.integers(0, 255)), max_size=4),
)
def test_broken_batches_raise_kafka_errors_only(case: Case, topic: str, changes: list[tuple[int, int]]) -> None:
    data = bytearray(case.records)
    for at, new in changes:
        data[at % len(data)] = new
    seal(memoryview(data), 0, len(data))
    try:
        leader(data, config_of(topic))
    except KafkaError:
        return


def test_the_loop_looks_into_small_batches_only() -> None:
    compacted, gzip = config_of("compacted"), config_of("gzip-compacted")

    def quick(config: LogConfig, count: int, codec: int = 0, size: int = 1) -> bool:
        batch = build_batch([Record(n, NOW_MS, b"k", b"v" * size) for n in range(count)], codec=codec)
        return quick_enough(BATCH_HEADER.unpack_from(batch), config)

    assert quick(compacted, 1000)
    assert quick(compacted, 1000, codec=Codec.GZIP)
    assert not quick(compacted, 1001)
    assert not quick(compacted, 1, size=140_000)
    lie = changed(build_batch(records_at(NOW_MS)), record_count=2**31 - 1, last_offset_delta=2**31 - 2)
    assert quick_enough(BATCH_HEADER.unpack_from(lie), compacted)
    assert quick(gzip, 1, codec=Codec.GZIP)
    assert not quick(gzip, 1)


def test_what_grows_a_lot_when_it_is_decompressed_is_left_to_the_worker() -> None:
    wanted = demands(PLAIN, TopicPartition("t", 0), NOW_MS)
    small = build_batch([Record(0, NOW_MS, b"k", bytes(500_000))], codec=Codec.ZSTD)
    large = build_batch([Record(0, NOW_MS, b"k", bytes(600_000))], codec=Codec.ZSTD)
    assert rebuild_quickly(memoryview(small), wanted) == rebuild(small, wanted) == RebuildResult()
    assert rebuild_quickly(memoryview(large), wanted) is None
    assert rebuild(large, wanted) == RebuildResult()
