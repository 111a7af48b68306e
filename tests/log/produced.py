"""Batches good and bad as a producer might send them, with the error code that Kafka 3.9.2 answers for each.

`test_validate` holds our checks against these codes, `test_validate_oracle` holds the codes against a running Kafka.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from typing import NamedTuple

from kafkad.config import LogConfig
from kafkad.errors import ErrorCode
from kafkad.log.validate import check_batch, demands, end_of_batch, rebuild, stamp
from kafkad.names import TopicPartition
from kafkad.wire.compression import Codec, compress
from kafkad.wire.control import ControlRecord, build_marker
from kafkad.wire.records import (
    BATCH_HEADER,
    BatchHeader,
    Record,
    assemble_batch,
    build_batch,
    encode_records,
    read_header,
    seal,
)

NOW_MS = 1_700_000_000_000
PLAIN = LogConfig()
TOPICS = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "gzip": {"compression.type": "gzip"},
    "gzip-append-time": {"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"},
    "gzip-compacted": {"compression.type": "gzip", "cleanup.policy": "compact"},
    "uncompressed": {"compression.type": "uncompressed"},
    "recent": {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": "3600000"},
    "gzip-recent": {
        "compression.type": "gzip",
        "message.timestamp.before.max.ms": "3600000",
        "message.timestamp.after.max.ms": "3600000",
    },
    "small": {"max.message.bytes": "300"},
    "small-uncompressed": {"max.message.bytes": "300", "compression.type": "uncompressed"},
}


class Case(NamedTuple):
    name: str
    topic: str
    records: bytes | bytearray
    code: int
    version: int = 8
    refused: tuple[int, ...] = ()
    """Indexes of the records at fault."""
    ours: int | None = None
    """Our code where we differ on purpose."""


def cases(now_ms: int) -> list[Case]:
    return [*_shapes(now_ms), *_headers(now_ms), *_attributes(now_ms), *_contents(now_ms), *_limits(now_ms)]


def records_at(now_ms: int, count: int = 4) -> list[Record]:
    return [Record(n, now_ms + n, b"k%d" % n, b"v%d" % n) for n in range(count)]


def changed(batch: bytes | bytearray, **fields: int) -> bytearray:
    """The batch with other header fields and a CRC that fits them."""
    header = read_header(memoryview(batch), 0)._replace(**fields)
    out = bytearray(batch)
    BATCH_HEADER.pack_into(out, 0, *header)
    seal(memoryview(out), 0, len(out))
    return out


def with_body(now_ms: int, codec: int, body: bytes) -> bytearray:
    """A header of four records over any body."""
    header = BatchHeader._make(BATCH_HEADER.unpack_from(build_batch(records_at(now_ms))))
    return assemble_batch(header._replace(attributes=codec), body)


def legacy_message(magic: int, now_ms: int) -> bytes:
    body = bytes((magic, 0)) + (struct.pack(">q", now_ms) if magic else b"") + struct.pack(">i1si1s", 1, b"k", 1, b"v")
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def config_of(topic: str) -> LogConfig:
    overrides = TOPICS[topic]
    config = PLAIN
    for name, value in overrides.items():
        field = name.replace(".", "_")
        if name == "cleanup.policy":
            config = replace(config, cleanup_policy=frozenset({value}))
        else:
            config = replace(config, **{field: int(value) if value.isdigit() else value})
    return config


def leader(
    batch: bytes | bytearray, config: LogConfig, version: int = 8, *, now_ms: int = NOW_MS, stamped_ms: int = NOW_MS + 7
) -> tuple[memoryview, BatchHeader]:
    """All that a leader does to one partition's bytes before the append, in a frame with something on both sides."""
    frame = memoryview(bytearray(b"before" + batch + b"after"))
    at, end = 6, 6 + len(batch)
    end = end_of_batch(frame, at, end, version)
    header = BATCH_HEADER.unpack_from(frame, at)
    check_batch(frame, at, end, header, config, version)
    sent = frame[at:end]
    outcome = rebuild(sent, demands(config, TopicPartition("compacted", 0), now_ms))
    kept = outcome.unwrap(sent)
    header = stamp(kept, 0, len(kept), BATCH_HEADER.unpack_from(kept), config, stamped_ms)
    return kept, BatchHeader._make(header)


def _with_length(batch: bytearray, length: int) -> bytearray:
    out = bytearray(batch)
    struct.pack_into(">i", out, 8, length)
    return out


def _shapes(now_ms: int) -> list[Case]:
    batch = build_batch(records_at(now_ms))
    length = len(batch) - 12
    bad, corrupt = ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE
    return [
        Case("nothing", "plain", b"", bad),
        Case("10 bytes", "plain", bytes(10), bad),
        Case("30 zero bytes", "plain", bytes(30), corrupt),
        Case("a header cut off", "plain", batch[:60], bad),
        Case("a byte missing", "plain", batch[:-1], bad),
        Case("a length too long", "plain", _with_length(batch, length + 5), bad),
        Case("a length too short", "plain", _with_length(batch, length - 5), corrupt),
        Case("a length below any message", "plain", _with_length(batch, 10), corrupt),
        Case("a length below the header", "plain", _with_length(batch, 40), corrupt),
        Case("a negative length", "plain", _with_length(batch, -1), corrupt),
        Case("a byte left over", "plain", batch + b"x", ErrorCode.NONE),
        Case("5 bytes left over", "plain", batch + bytes(5), ErrorCode.NONE),
        Case("12 zero bytes left over", "plain", batch + bytes(12), corrupt),
        Case("half a batch left over", "plain", batch + batch[:-30], ErrorCode.NONE),
        Case("16 bytes of a batch left over", "plain", batch + batch[:16], ErrorCode.NONE),
        Case("half a batch of magic 3 left over", "plain", batch + changed(batch, magic=3)[:-30], corrupt),
        Case("half a message of format v1 left over", "plain", batch + legacy_message(1, now_ms)[:-3], ErrorCode.NONE),
        Case("a message of format v1 left over", "plain", batch + legacy_message(1, now_ms), bad),
        Case("two batches", "plain", batch + batch, bad),
        Case("a message of format v0", "plain", legacy_message(0, now_ms), bad),
        Case("a message of format v1", "plain", legacy_message(1, now_ms), bad),
        Case("magic 3", "plain", changed(batch, magic=3), corrupt),
        Case("a wrong CRC", "plain", batch[:-1] + b"?", corrupt),
        Case("a wrong CRC under a control flag", "plain", changed(batch, attributes=0x20)[:-1] + b"?", corrupt),
    ]


def _headers(now_ms: int) -> list[Case]:
    records = records_at(now_ms)
    batch = build_batch(records)
    bad, fine = ErrorCode.INVALID_RECORD, ErrorCode.NONE
    return [
        Case("a good batch", "plain", batch, fine),
        Case("a base offset", "plain", changed(batch, base_offset=5), bad),
        Case("a leader epoch", "plain", changed(batch, leader_epoch=9), fine),
        Case("no records", "plain", changed(batch, record_count=0, last_offset_delta=-1), bad),
        Case("no records and an offset", "plain", changed(batch, record_count=0, last_offset_delta=0), bad),
        Case("a negative count", "plain", changed(batch, record_count=-1, last_offset_delta=-2), bad),
        Case("a count below the offsets", "plain", changed(batch, record_count=3), bad),
        Case("a count above the offsets", "plain", changed(batch, last_offset_delta=2), bad),
        Case("a producer without sequence", "plain", build_batch(records, producer_id=7, producer_epoch=0), bad),
        Case("a producer without epoch", "plain", build_batch(records, producer_id=7, base_sequence=0), fine),
        Case("a sequence without producer", "plain", build_batch(records, base_sequence=0), fine),
        Case("a lying max timestamp", "plain", changed(batch, max_timestamp=5), fine),
    ]


def _attributes(now_ms: int) -> list[Case]:
    records = records_at(now_ms)
    batch = build_batch(records)
    appended = build_batch(records, append_time=now_ms)
    marker = changed(
        build_marker(ControlRecord(True, 0), producer_id=-1, producer_epoch=-1, timestamp=now_ms), attributes=0x20
    )
    unknown, bad = ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_RECORD
    return [
        Case("a control batch", "plain", marker, bad),
        Case("zstd", "plain", build_batch(records, codec=Codec.ZSTD), ErrorCode.NONE),
        Case(
            "zstd too early", "plain", build_batch(records, codec=4), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, version=6
        ),
        Case("codec 5", "plain", changed(batch, attributes=5), unknown),
        Case("codec 7", "plain", changed(batch, attributes=7), unknown),
        Case("unused attributes", "plain", changed(batch, attributes=0x180), ErrorCode.NONE),
        Case("the append time flag", "plain", appended, ErrorCode.NONE),
        Case("the append time flag twice", "append-time", appended, ErrorCode.INVALID_TIMESTAMP),
        Case("append time", "append-time", batch, ErrorCode.NONE),
        Case("append time of gzip", "append-time", build_batch(records, codec=Codec.GZIP), ErrorCode.NONE),
    ]


def _contents(now_ms: int) -> list[Case]:
    records = records_at(now_ms)
    batch = build_batch(records)
    keyless = [record._replace(key=None) if n % 2 else record for n, record in enumerate(records)]
    body = encode_records(records, 0, now_ms)
    gaps = encode_records([record._replace(offset=n + n // 2) for n, record in enumerate(records)], 0, now_ms)
    bad, fine, unknown = ErrorCode.INVALID_RECORD, ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR
    return [
        Case("keys", "compacted", batch, fine),
        Case("missing keys", "compacted", build_batch(keyless), bad, refused=(1, 3)),
        Case("missing keys in lz4", "compacted", build_batch(keyless, codec=Codec.LZ4), bad, refused=(1, 3)),
        Case("missing keys to compress", "gzip-compacted", build_batch(keyless), bad, refused=(1, 3)),
        Case("to gzip", "gzip", batch, fine),
        Case("from zstd to gzip", "gzip", build_batch(records, codec=Codec.ZSTD), fine),
        Case("from snappy to gzip", "gzip", build_batch(records, codec=Codec.SNAPPY), fine),
        Case("to gzip with append time", "gzip-append-time", batch, fine),
        Case("gzip to plain", "uncompressed", build_batch(records, codec=Codec.GZIP), fine),
        Case("rubbish to gzip", "gzip", with_body(now_ms, Codec.LZ4, b"rubbish"), unknown),
        Case("fewer than there are", "gzip", changed(batch, record_count=3, last_offset_delta=2), bad),
        Case("more than there are", "gzip", changed(batch, record_count=5, last_offset_delta=4), bad),
        Case("the last cut off", "gzip", with_body(now_ms, 0, body[:-3]), bad),
        Case("deltas with gaps", "gzip", with_body(now_ms, 0, gaps), fine, ours=bad),
        Case("deltas with gaps in gzip", "compacted", with_body(now_ms, 1, compress(1, gaps)), unknown),
    ]


def _limits(now_ms: int) -> list[Case]:
    old, new = Record(0, now_ms - 7_200_000, b"k", b"v"), Record(0, now_ms + 7_200_000, b"k", b"v")
    mixed = [old, Record(1, now_ms, b"k", b"v"), old._replace(offset=2)]
    large = [Record(0, now_ms, b"k", b"v" * 400)]
    exact = [Record(0, now_ms, b"k", b"v" * 229)]
    early, fine, large_code = ErrorCode.INVALID_TIMESTAMP, ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE
    return [
        Case("recent", "recent", build_batch(records_at(now_ms)), fine),
        Case("too old", "recent", build_batch([old]), early, refused=(0,)),
        Case("too new", "recent", build_batch([new]), early, refused=(0,)),
        Case("one too old beside a new one", "recent", build_batch([mixed[0], mixed[1]]), early, refused=(0,)),
        Case("two too old in lz4", "recent", build_batch(mixed, codec=Codec.LZ4), early, refused=(0, 2)),
        Case("no timestamp", "recent", build_batch([old._replace(timestamp=-1)]), fine),
        Case("one too new to compress", "gzip-recent", build_batch([new]), early),
        Case("too large", "small", build_batch(large), large_code),
        Case("too large before its CRC", "small", build_batch(large)[:-1] + b"?", large_code),
        Case("just small enough", "small", build_batch(exact), fine),
        Case("small when compressed", "small", build_batch(large, codec=Codec.GZIP), fine),
        Case("too large uncompressed", "small-uncompressed", build_batch(large, codec=Codec.GZIP), large_code),
    ]
