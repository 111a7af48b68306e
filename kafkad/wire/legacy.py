"""Messages of formats v0 and v1, which logs older than Kafka 0.11 still hold. Only read here: nothing but
compaction (`cleaner/old_formats`) writes such messages.

A message is offset, size, CRC-32, magic, attributes, in v1 a timestamp, key, value. A compressed one wraps others in
its value: in v0 they carry their absolute offsets, in v1 offsets relative to the first, and the wrapper the last one's.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from kafkad.wire.compression import CompressionError, decompress
from kafkad.wire.records import (
    CODEC_MASK,
    CRC,
    LENGTH,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    PREFIX_SIZE,
    SMALLEST_BATCH,
    BatchHeader,
    Header,
    Record,
    RecordsError,
)

_HEADER = struct.Struct(">qiIbB")
_TIMESTAMP = struct.Struct(">q")
_SIZE = struct.Struct(">i")
_CRC_FROM = 16


def smallest_length(magic: int) -> int:
    """The length of a message without key and value."""
    return SMALLEST_BATCH - PREFIX_SIZE + (_TIMESTAMP.size if magic else 0)


def read_message_header(view: memoryview, at: int) -> BatchHeader:
    """The header of the whole message at `at`, seen as a batch."""
    header = unpack_message_header(view, at)
    left = len(view) - at - PREFIX_SIZE
    if not smallest_length(header.magic) <= header.length <= left:
        raise RecordsError(f"message length {header.length} where {left} bytes are left", at)
    return header


def unpack_message_header(view: bytes | bytearray | memoryview, at: int) -> BatchHeader:
    """A message's header as that of a batch: no producer, no leader epoch; record_count is -1 when it wraps others."""
    offset, length, crc, magic, attributes = _HEADER.unpack_from(view, at)
    timestamp = _TIMESTAMP.unpack_from(view, at + _HEADER.size)[0] if magic else NO_TIMESTAMP
    return BatchHeader(
        base_offset=offset,
        length=length,
        leader_epoch=-1,
        magic=magic,
        crc=crc,
        attributes=attributes & (CODEC_MASK | LOG_APPEND_TIME if magic else CODEC_MASK),
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=-1 if attributes & CODEC_MASK else 1,
    )


def message_crc_matches(view: memoryview, at: int, header: Header) -> bool:
    return zlib.crc32(view[at + _CRC_FROM : at + PREFIX_SIZE + header[LENGTH]]) == header[CRC]


def read_legacy(view: memoryview, at: int, limit: int) -> Iterator[Record]:
    """The records of one message: itself, or those it wraps, which `limit` bounds in bytes."""
    return (record for _, record in read_messages(view, at, limit))


def read_messages(view: memoryview, at: int, limit: int) -> Iterator[tuple[BatchHeader, Record]]:
    """The same, each with the header of its own message, as it stands (its offset may be a relative one)."""
    header = read_message_header(view, at)
    record = _read_message(view, at, header)
    if not header.codec:
        yield header, record
        return
    if record.value is None:
        raise RecordsError("a compressed message without value", at)
    try:
        inner = memoryview(decompress(header.codec, record.value, limit))
    except CompressionError as error:
        raise RecordsError(str(error), at) from None
    yield from _unwrap(inner, at, header)


def _unwrap(inner: memoryview, at: int, outer: BatchHeader) -> Iterator[tuple[BatchHeader, Record]]:
    starts = []
    cursor = 0
    while cursor < len(inner):
        if len(inner) - cursor < SMALLEST_BATCH:
            raise RecordsError("a wrapped message is cut off", at)
        header = read_message_header(inner, cursor)
        if header.magic != outer.magic or header.codec:
            raise RecordsError("a wrapped message of another format, or wrapping again", at)
        if not message_crc_matches(inner, cursor, header):
            raise RecordsError("a wrapped message fails its CRC", at)
        starts.append((cursor, header))
        cursor += header.size
    if not starts:
        raise RecordsError("a compressed message wraps nothing", at)
    shift = _offset_shift(outer, starts[-1][1].base_offset)
    for cursor, header in starts:
        record = _read_message(inner, cursor, header)
        timestamp = outer.max_timestamp if outer.attributes & LOG_APPEND_TIME else record.timestamp
        yield header, record._replace(offset=record.offset + shift, timestamp=timestamp)


def _offset_shift(outer: BatchHeader, last: int) -> int:
    """The shift of inner offsets. In v1 a wrapper has its last record's offset; inner ones count from anywhere."""
    return outer.base_offset - last if outer.magic else 0


def _read_message(view: memoryview, at: int, header: BatchHeader) -> Record:
    end = at + header.size
    key, cursor = _read_bytes(view, at + _HEADER.size + (_TIMESTAMP.size if header.magic else 0), end)
    value, cursor = _read_bytes(view, cursor, end)
    if cursor != end:
        raise RecordsError(f"{end - cursor} bytes after the value of a message", at)
    return Record(header.base_offset, header.max_timestamp, key, value)


def _read_bytes(view: memoryview, cursor: int, end: int) -> tuple[bytes | None, int]:
    if cursor + _SIZE.size > end:
        raise RecordsError("a message ends before its key or value", cursor)
    (size,) = _SIZE.unpack_from(view, cursor)
    cursor += _SIZE.size
    if size == -1:
        return None, cursor
    if not 0 <= size <= end - cursor:
        raise RecordsError(f"a key or value of {size} bytes in a message that has {end - cursor} left", cursor)
    return bytes(view[cursor : cursor + size]), cursor + size
