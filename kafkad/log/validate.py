"""Validation of produced batches by the partition leader before the append. Pure: bytes and values only.

`end_of_batch` finds the batch in what was sent, `check_batch` looks at its header, then `plain_records_match_header` at
its records. What is compressed, or has a header that contradicts its records, or belongs to a topic that demands more,
goes through `rebuild`, which corrects a wrong max timestamp and compresses anew where the topic wants it: in a worker
process, unless `quick_enough`. `stamp` puts the topic's timestamp type on the batch. Refusals are KafkaErrors with the
codes Kafka 3.9 answers; but INVALID_RECORD for what Kafka takes although its readers would not get past it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.bodies import Body, read_keys
from kafkad.log.contents import SMALLEST_RECORD, LengthError, OffsetDeltaError, TooManyError, latest_delta
from kafkad.wire.compression import CODEC_NAMES, Codec, CompressionError, TooLargeError, compress, decompress
from kafkad.wire.crc import crc32c
from kafkad.wire.records import (
    ATTRIBUTES,
    ATTRIBUTES_AT,
    BASE_TIMESTAMP,
    BATCH_HEADER,
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    HEADER_SIZE,
    LENGTH,
    LOG_APPEND_TIME,
    MAGIC_AT,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
    PREFIX_SIZE,
    RECORD_COUNT,
    BatchHeader,
    Header,
    RecordsError,
    assemble_batch,
    parse_records,
    seal,
)

if TYPE_CHECKING:
    from kafkad.config import LogConfig
    from kafkad.names import TopicPartition


QUICK_BYTES = 128 * 1024
QUICK_RECORDS = 1000
"""The most that the event loop looks through itself: about a millisecond."""
QUICK_PLAIN_BYTES = 4 * QUICK_BYTES
"""The largest size that a compressed batch may reach on the event loop."""
_LEAST_LENGTH = 14
_GROWTH = 100
"""A batch may decompress to this many times the topic's largest message, and to 64 MiB in any case."""
_LEAST_LIMIT = 64 << 20
_LAST_TIMESTAMP = 2**63 - 1
_ZSTD_SINCE = 7
_V2_SINCE = 3
_ATTRIBUTES = struct.Struct(">h")
_INT64 = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_MAGIC = struct.Struct(">b")


class RecordError(NamedTuple):
    """One record of a refused batch, as `record_errors` of the Produce response names it."""

    batch_index: int
    message: str


class RefusedRecords(KafkaError):
    """Records of the batch are at fault; none of it is appended."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class NotOneBatch(KafkaError):
    """What was sent for a partition is not one batch of format v2. Kafka finds it before any partition."""


def end_of_batch(view: memoryview, at: int, end: int, version: int) -> int:
    """Where the batch in view[at:end] ends, one partition's records in a Produce request of that version. Bytes behind
    it that are no whole batch are not looked at, as by Kafka."""
    batch_end = _end_of_next(view, at, end)
    if batch_end is None:
        raise NotOneBatch(ErrorCode.INVALID_RECORD, f"no whole batch in {end - at} bytes")
    magic = view[at + MAGIC_AT]
    if magic < 2:
        code = ErrorCode.INVALID_RECORD if version >= _V2_SINCE else ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        raise NotOneBatch(code, f"message format v{magic} is not accepted, only v2")
    if _end_of_next(view, batch_end, end) is not None:
        raise NotOneBatch(ErrorCode.INVALID_RECORD, "more than one batch for the partition")
    if batch_end - at < HEADER_SIZE:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch is smaller than its header")
    return batch_end


def _end_of_next(view: memoryview, at: int, end: int) -> int | None:
    """Where the batch or message ends that begins here; None if it is not whole."""
    left = end - at
    if left < PREFIX_SIZE:
        return None
    (length,) = _LENGTH.unpack_from(view, at + PREFIX_SIZE - _LENGTH.size)
    if length < _LEAST_LENGTH:
        message = f"Record size {length} is less than the minimum record overhead ({_LEAST_LENGTH})"
        raise NotOneBatch(ErrorCode.CORRUPT_MESSAGE, message)
    if left <= MAGIC_AT:
        return None
    (magic,) = _MAGIC.unpack_from(view, at + MAGIC_AT)
    if not 0 <= magic <= 2:
        raise NotOneBatch(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
    return at + PREFIX_SIZE + length if length <= left - PREFIX_SIZE else None


def check_batch(view: memoryview, at: int, end: int, header: Header, config: LogConfig, version: int) -> None:
    """HOT. True if view[at:end] is one sound v2 batch that this topic takes; KafkaError if not."""
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
    if end_of_batch(view, at, end, version) != end:
        raise NotOneBatch(ErrorCode.INVALID_RECORD, "bytes behind the batch")
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
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"unknown compression codec {header.codec}")
    if config.stamps_append_time and header.attributes & LOG_APPEND_TIME:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer must not set LogAppendTime")


_NOT_PLAIN = CODEC_MASK | LOG_APPEND_TIME


def plain_records_match_header(view: memoryview, at: int, end: int, header: Header) -> bool:
    """HOT. True if a checked batch is not compressed and its records are what its header says; False also for what
    would take long to find out."""
    if header[ATTRIBUTES] & _NOT_PLAIN:
        return False
    try:
        latest = header[BASE_TIMESTAMP] + latest_delta(view, at + HEADER_SIZE, end, header[RECORD_COUNT], QUICK_RECORDS)
    except (RecordsError, TooManyError):
        return False
    return latest == header[MAX_TIMESTAMP] >= NO_TIMESTAMP


def records_match_header(view: memoryview, at: int, end: int, header: Header) -> bool:
    """HOT. The same, also of a compressed batch if it is small."""
    codec = header[ATTRIBUTES] & CODEC_MASK
    if not codec:
        return plain_records_match_header(view, at, end, header)
    if header[ATTRIBUTES] & LOG_APPEND_TIME or header[LENGTH] > QUICK_BYTES or header[RECORD_COUNT] > QUICK_RECORDS:
        return False
    try:
        body = decompress(codec, view[at + HEADER_SIZE : end], QUICK_PLAIN_BYTES)
        latest = header[BASE_TIMESTAMP] + latest_delta(body, 0, len(body), header[RECORD_COUNT])
    except (CompressionError, RecordsError):
        return False
    return latest == header[MAX_TIMESTAMP] >= NO_TIMESTAMP


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
    appends = config.stamps_append_time
    if not appends and not header[ATTRIBUTES] & LOG_APPEND_TIME:
        return header
    attributes = header[ATTRIBUTES] | LOG_APPEND_TIME if appends else header[ATTRIBUTES] & ~LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(view, at + ATTRIBUTES_AT, attributes)
    if appends:
        _INT64.pack_into(view, at + MAX_TIMESTAMP_AT, now_ms)
    seal(view, at, end)
    return BATCH_HEADER.unpack_from(view, at)


# Batches that must be looked into


class Demands(NamedTuple):
    """One topic's requirements of each record: plain values, so that they cross to a worker process cheaply."""

    partition: str
    keys: bool
    codec: int | None
    """The codec of the batch to write; None keeps the producer's."""
    level: int | None
    earliest_ms: int | None
    latest_ms: int | None
    max_bytes: int
    limit: int

    def allows(self, timestamp: int) -> bool:
        if self.earliest_ms is None or self.latest_ms is None or timestamp == NO_TIMESTAMP:
            return True
        return self.earliest_ms <= timestamp <= self.latest_ms


class RebuildResult(NamedTuple):
    """A batch to append, or why not: a value, since exceptions do not cross from a worker process whole."""

    batch: bytearray | None = None
    """None also when the one that was sent is to be appended as it is."""
    code: int = ErrorCode.NONE
    message: str = ""
    record_errors: tuple[RecordError, ...] = ()

    def unwrap(self, sent: memoryview) -> memoryview:
        if self.batch is not None:
            return memoryview(self.batch)
        if self.record_errors:
            raise RefusedRecords(ErrorCode(self.code), self.message, self.record_errors)
        if self.code:
            raise KafkaError(ErrorCode(self.code), self.message)
        return sent


def target_codec(config: LogConfig) -> int | None:
    """The codec of `compression.type`, None where the producer's is kept."""
    if config.compression_type == "producer":
        return None
    return 0 if config.compression_type == "uncompressed" else CODEC_NAMES.index(config.compression_type)


def quick_enough(header: Header, config: LogConfig) -> bool:
    """True if `rebuild` of this batch may run on the event loop, as far as can be seen from outside."""
    codec, length, count = header[ATTRIBUTES] & CODEC_MASK, header[LENGTH], header[RECORD_COUNT]
    if not codec and count * SMALLEST_RECORD > length:
        return True  # it will be refused at once
    return target_codec(config) in (None, codec) and length <= QUICK_BYTES and count <= QUICK_RECORDS


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


def rebuild_quickly(batch: memoryview, wanted: Demands) -> RebuildResult | None:
    """The result of `rebuild`; None when it turns out to take long."""
    try:
        return _rebuild(batch, wanted._replace(limit=min(wanted.limit, QUICK_PLAIN_BYTES)))
    except TooLargeError:
        return None


def rebuild(batch: bytes | bytearray | memoryview, wanted: Demands) -> RebuildResult:
    """Check every record of a batch that `check_batch` passed, and write it again with the topic's codec.

    Record bytes are taken over as they are, so base timestamp, deltas and everything about the producer stay; the max
    timestamp becomes the true one. Offset and leader epoch are left to the append, LogAppendTime to `stamp`.
    """
    try:
        return _rebuild(memoryview(batch), wanted)
    except TooLargeError as error:
        return RebuildResult(code=ErrorCode.INVALID_RECORD, message=str(error))


def _rebuild(view: memoryview, wanted: Demands) -> RebuildResult:
    header = BatchHeader._make(BATCH_HEADER.unpack_from(view))
    try:
        body = decompress(header.codec, view[HEADER_SIZE:], wanted.limit)
        latest = _latest_timestamp(body, header)
        refusal = _refuse_records(body, header, wanted)
    except (CompressionError, RecordsError) as error:
        if isinstance(error, TooLargeError):
            raise
        return RebuildResult(code=_code_of(error, header, wanted), message=str(error))
    if refusal is not None:
        return refusal
    codec = header.codec if wanted.codec is None else wanted.codec
    if codec == header.codec and latest == header.max_timestamp:
        return RebuildResult()
    stored = bytes(view[HEADER_SIZE:]) if codec == header.codec else compress(codec, body, wanted.level)
    size = HEADER_SIZE + len(stored)
    if size > wanted.max_bytes:
        message = f"{size} bytes in the codec of the topic, max.message.bytes is {wanted.max_bytes}"
        return RebuildResult(code=ErrorCode.MESSAGE_TOO_LARGE, message=message)
    header = header._replace(attributes=header.attributes & ~CODEC_MASK | codec, max_timestamp=latest)
    return RebuildResult(assemble_batch(header, stored))


def _latest_timestamp(body: bytes, header: BatchHeader) -> int:
    latest = header.base_timestamp + latest_delta(body, 0, len(body), header.record_count)
    if latest > _LAST_TIMESTAMP:
        raise RecordsError("a timestamp of more than 64 bits", 0)
    return max(latest, NO_TIMESTAMP)


def _code_of(error: CompressionError | RecordsError, header: BatchHeader, wanted: Demands) -> ErrorCode:
    """Kafka's error code: it does not expect some faults, and sees wrong numbers only when it rewrites the records."""
    if isinstance(error, RecordsError):
        kept = wanted.codec in (None, header.codec)
        surprises = isinstance(error, OffsetDeltaError) and kept if header.codec else isinstance(error, LengthError)
    else:
        surprises = True
    return ErrorCode.UNKNOWN_SERVER_ERROR if surprises else ErrorCode.INVALID_RECORD


def _all_have_keys(body: bytes, header: BatchHeader) -> bool:
    return not any(None in keys for keys, _ in read_keys(Body(body, 0, len(body)), 0, header.record_count))


def _refuse_records(body: bytes, header: BatchHeader, wanted: Demands) -> RebuildResult | None:
    if wanted.earliest_ms is None and (not wanted.keys or _all_have_keys(body, header)):
        return None
    plain = header._replace(attributes=header.attributes & ~LOG_APPEND_TIME)
    errors = []
    code = ErrorCode.INVALID_RECORD
    for index, record in enumerate(parse_records(body, plain)):
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
    return RebuildResult(code=code, message=_rejection(code, errors), record_errors=tuple(errors))


def _rejection(code: int, errors: list[RecordError]) -> str:
    """Kafka's sentence."""
    if code == ErrorCode.INVALID_TIMESTAMP:
        return "One or more records have been rejected due to invalid timestamp"
    shown = ", ".join(f"RecordError(batchIndex={e.batch_index}, message='{e.message}')" for e in errors[:3])
    return (
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
