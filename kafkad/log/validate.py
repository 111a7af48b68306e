"""What a partition leader checks in a produced batch before the append, and rewrites. Pure: bytes and values only.

`unpack_header` and `check_batch` run for every batch and look at no record: what the header says is believed, so a
lying max timestamp or a body that no compressor wrote is found by its readers, not here. Where a topic demands more
(`needs_slow_path`), `rebuild` reads every record and compresses anew: in a worker process, unless `quick_enough`.
`stamp` puts the topic's timestamp type on the batch. Refusals are KafkaErrors with the codes Kafka 3.9 answers.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.bodies import Body, read_keys
from kafkad.wire.compression import CODEC_NAMES, Codec, compress
from kafkad.wire.crc import crc32c
from kafkad.wire.records import (
    BATCH_HEADER,
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC_AT,
    NO_TIMESTAMP,
    PREFIX_SIZE,
    BatchHeader,
    Record,
    RecordsError,
    assemble_batch,
    parse_records,
    records_body,
    seal,
)

if TYPE_CHECKING:
    from kafkad.config import LogConfig
    from kafkad.names import TopicPartition

Header = tuple[int, ...]

QUICK_BYTES = 64 * 1024
QUICK_RECORDS = 500
"""What the event loop may look through itself: about half a millisecond."""
_LEAST_LENGTH = 14
_GROWTH = 100
"""A batch may decompress to this many times the topic's largest message, and to 64 MiB in any case."""
_LEAST_LIMIT = 64 << 20
_TIMESTAMPS = 2**63
_ZSTD_SINCE = 7
_V2_SINCE = 3
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_ATTRIBUTES = struct.Struct(">h")
_INT64 = struct.Struct(">q")
_LENGTH = struct.Struct(">i")


class RecordError(NamedTuple):
    """One record of a refused batch, as `record_errors` of the Produce response names it."""

    batch_index: int
    message: str


class RefusedRecords(KafkaError):
    """Records of the batch are at fault; none of it is appended."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def unpack_header(view: memoryview, at: int, end: int, version: int) -> Header:
    """The header of view[at:end], one partition's records in a Produce request of that version."""
    if end - at >= HEADER_SIZE:
        return BATCH_HEADER.unpack_from(view, at)
    _check_shape(view, at, end, version)
    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch is smaller than its header")


def check_batch(view: memoryview, at: int, end: int, header: Header, config: LogConfig, version: int) -> None:
    """HOT. Whether view[at:end] is one sound v2 batch that this topic takes; KafkaError if not."""
    base_offset, length, _, magic, crc, attributes, last_delta, _, _, producer_id, _, sequence, count = header
    if not (
        magic == 2
        and length == end - at - PREFIX_SIZE
        and base_offset == 0
        and attributes & _UNUSUAL < (5 if version >= _ZSTD_SINCE else 4)
        and last_delta + 1 == count > 0
        and (producer_id < 0 or sequence >= 0)
        and end - at <= config.max_message_bytes
        and crc32c(view[at + CRC_FROM : end]) == crc
    ):
        _refuse(view, at, end, BatchHeader._make(header), config, version)


_UNUSUAL = CONTROL | LOG_APPEND_TIME | CODEC_MASK
"""Attributes that are the codec's number in a batch a producer should send, and more than any codec otherwise."""


def _refuse(view: memoryview, at: int, end: int, header: BatchHeader, config: LogConfig, version: int) -> None:
    """Raise the first reason in Kafka's order; return when what looked unusual is allowed here."""
    _check_shape(view, at, end, version)
    if header.codec == Codec.ZSTD and version < _ZSTD_SINCE:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version {_ZSTD_SINCE}, this is {version}"
        )
    if header.base_offset:
        raise _invalid(f"the base offset is {header.base_offset}, a producer sends 0")
    check_size(end - at, config.max_message_bytes)
    if crc32c(view[at + CRC_FROM : end]) != header.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its CRC")
    if header.last_offset_delta + 1 != header.record_count or header.record_count < 1:
        raise _invalid(f"{header.record_count} records where the last has number {header.last_offset_delta}")
    if header.is_control:
        raise _invalid("clients are not allowed to write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise _invalid(f"producer {header.producer_id} sends sequence {header.base_sequence}")
    if header.codec >= len(CODEC_NAMES):
        raise _invalid(f"unknown compression codec {header.codec}")
    if config.message_timestamp_type == "LogAppendTime" and header.attributes & LOG_APPEND_TIME:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer must not set LogAppendTime")


def _check_shape(view: memoryview, at: int, end: int, version: int) -> None:
    """Refuse what is not exactly one batch of format v2, and whole."""
    left = end - at
    if left <= MAGIC_AT:
        raise _invalid("no batch")
    (length,) = _LENGTH.unpack_from(view, at + PREFIX_SIZE - _LENGTH.size)
    magic = view[at + MAGIC_AT]
    if length < _LEAST_LENGTH:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"batch length {length} is less than any message has")
    if magic > 2:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"unknown magic {magic}")
    if length > left - PREFIX_SIZE:
        raise _invalid(f"the batch is cut off: {left} bytes of {length + PREFIX_SIZE}")
    if magic < 2:
        code = ErrorCode.INVALID_RECORD if version >= _V2_SINCE else ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        raise KafkaError(code, f"message format v{magic} is not accepted, only v2")
    if length < HEADER_SIZE - PREFIX_SIZE:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch is smaller than its header")
    if length < left - PREFIX_SIZE:
        raise _invalid("more than one batch for the partition")


def check_size(size: int, allowed: int) -> None:
    if size > allowed:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes, max.message.bytes is {allowed}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def stamp(view: memoryview, at: int, end: int, header: Header, config: LogConfig, now_ms: int) -> Header:
    """HOT. The topic's timestamp type on a checked batch, in place; returns the header as it now stands.

    A LogAppendTime batch gets `now_ms` as its max timestamp, which readers then take for every record: records stay as
    they are, compressed or not. A CreateTime topic takes the flag away again, as Kafka does.
    """
    appends = config.message_timestamp_type == "LogAppendTime"
    if not appends and not header[5] & LOG_APPEND_TIME:
        return header
    attributes = header[5] | LOG_APPEND_TIME if appends else header[5] & ~LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(view, at + _ATTRIBUTES_AT, attributes)
    if appends:
        _INT64.pack_into(view, at + _MAX_TIMESTAMP_AT, now_ms)
    seal(view, at, end)
    return BATCH_HEADER.unpack_from(view, at)


# Batches that must be looked into


class Demands(NamedTuple):
    """What one topic wants of each record: plain values, so that they cross to a worker process cheaply."""

    partition: str
    keys: bool
    codec: int | None
    """Of the batch to write; None keeps the producer's."""
    level: int | None
    earliest_ms: int | None
    latest_ms: int | None
    max_bytes: int
    limit: int

    def allows(self, timestamp: int) -> bool:
        if self.earliest_ms is None or self.latest_ms is None or timestamp == NO_TIMESTAMP:
            return True
        return self.earliest_ms <= timestamp <= self.latest_ms


class Outcome(NamedTuple):
    """A batch to append, or why not: a value, since exceptions do not cross from a worker process whole."""

    batch: bytearray | None
    code: int = ErrorCode.NONE
    message: str = ""
    record_errors: tuple[RecordError, ...] = ()

    def unwrap(self) -> bytearray:
        if self.batch is not None:
            return self.batch
        if self.record_errors:
            raise RefusedRecords(ErrorCode(self.code), self.message, self.record_errors)
        raise KafkaError(ErrorCode(self.code), self.message)


def target_codec(config: LogConfig) -> int | None:
    """The codec of `compression.type`, None where the producer's is kept."""
    if config.compression_type == "producer":
        return None
    return 0 if config.compression_type == "uncompressed" else CODEC_NAMES.index(config.compression_type)


def needs_slow_path(header: Header, config: LogConfig) -> bool:
    """HOT. Whether a checked batch must go through `rebuild` before the append."""
    if config.compression_type != "producer" and target_codec(config) != header[5] & CODEC_MASK:
        return True
    return config.compacted or config.limits_timestamps


def quick_enough(header: Header, config: LogConfig) -> bool:
    """Whether `rebuild` of this batch may run on the event loop."""
    plain = not header[5] & CODEC_MASK and target_codec(config) in (None, Codec.NONE)
    return plain and header[1] <= QUICK_BYTES and header[12] <= QUICK_RECORDS


def demands(config: LogConfig, partition: TopicPartition, now_ms: int) -> Demands:
    codec = target_codec(config)
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    timed = config.limits_timestamps
    return Demands(
        partition=str(partition),
        keys=config.compacted,
        codec=codec,
        level=None if codec is None else levels.get(Codec(codec)),
        earliest_ms=now_ms - config.message_timestamp_before_max_ms if timed else None,
        latest_ms=now_ms + config.message_timestamp_after_max_ms if timed else None,
        max_bytes=config.max_message_bytes,
        limit=max(_LEAST_LIMIT, _GROWTH * config.max_message_bytes),
    )


def rebuild(batch: bytes | bytearray | memoryview, wanted: Demands) -> Outcome:
    """Check every record of a batch that `check_batch` passed, and write it again with the topic's codec.

    Record bytes are taken over as they are, so base timestamp, deltas and everything about the producer stay; the max
    timestamp becomes the true one. Where only keys are asked for, the batch stays as it is. Offset and leader epoch are
    left to the append, LogAppendTime to `stamp`.
    """
    view = memoryview(batch)
    header = BatchHeader._make(BATCH_HEADER.unpack_from(view))
    if not header.codec and not wanted.codec and wanted.earliest_ms is None and _all_have_keys(view, header):
        return Outcome(bytearray(view))
    try:
        body = records_body(view, 0, header, wanted.limit)
        records = list(parse_records(body, header._replace(attributes=header.attributes & ~LOG_APPEND_TIME)))
    except RecordsError as error:
        return Outcome(None, ErrorCode.INVALID_RECORD, str(error))
    refusal = _refuse_records(records, wanted)
    if refusal is not None:
        return refusal
    codec = header.codec if wanted.codec is None else wanted.codec
    stored = bytes(view[HEADER_SIZE:]) if codec == header.codec else compress(codec, body, wanted.level)
    size = HEADER_SIZE + len(stored)
    if size > wanted.max_bytes:
        message = f"{size} bytes in the codec of the topic, max.message.bytes is {wanted.max_bytes}"
        return Outcome(None, ErrorCode.MESSAGE_TOO_LARGE, message)
    header = header._replace(
        attributes=header.attributes & ~CODEC_MASK | codec, max_timestamp=max(record.timestamp for record in records)
    )
    return Outcome(assemble_batch(header, stored))


def _all_have_keys(view: memoryview, header: BatchHeader) -> bool:
    """A look at the keys and offsets alone, to be believed when it finds nothing wrong; as on other topics, what the
    header says of timestamps is believed then."""
    data = bytes(view)
    at = 0
    try:
        for keys, entries in read_keys(Body(data, HEADER_SIZE, len(data)), 0, header.record_count):
            if None in keys or [entry >> 1 for entry in entries] != list(range(at, at + len(entries))):
                return False
            at += len(entries)
    except (RecordsError, IndexError):
        return False
    return True


def _refuse_records(records: list[Record], wanted: Demands) -> Outcome | None:
    errors = []
    code = ErrorCode.INVALID_RECORD
    for index, record in enumerate(records):
        if record.offset != index:
            return Outcome(None, code, f"record {index} has offset delta {record.offset}")
        if not -_TIMESTAMPS <= record.timestamp < _TIMESTAMPS:
            return Outcome(None, code, f"record {index} has a timestamp of more than 64 bits")
        if wanted.keys and record.key is None:
            message = f"Compacted topic cannot accept message without key in topic partition {wanted.partition}"
            errors.append(RecordError(index, message))
        elif not wanted.allows(record.timestamp):
            code = ErrorCode.INVALID_TIMESTAMP
            message = f"Timestamp {record.timestamp} of message with offset {index} is out of range. "
            message += f"The timestamp should be within [{wanted.earliest_ms}, {wanted.latest_ms}]"
            errors.append(RecordError(index, message))
    if not errors:
        return None
    return Outcome(None, code, _rejection(code, errors), tuple(errors))


def _rejection(code: int, errors: list[RecordError]) -> str:
    """Kafka's sentence."""
    if code == ErrorCode.INVALID_TIMESTAMP:
        return "One or more records have been rejected due to invalid timestamp"
    shown = ", ".join(f"RecordError(batchIndex={e.batch_index}, message='{e.message}')" for e in errors[:3])
    return (
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
