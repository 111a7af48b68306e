"""Record batches (message format v2): headers, records, control records, and building them.

`BATCH_HEADER` unpacks the 61 bytes in front of every batch into a plain tuple, a `Header`, which hot paths index by
`BASE_OFFSET` to `RECORD_COUNT`; `BatchHeader` is the same tuple with named fields, for everyone else. Messages of
formats v0 and v1 come through `iter_batches` and `iter_records` in the same shape (see `legacy`). Malformed bytes raise
RecordsError and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from kafkad.wire.compression import CompressionError, compress, decompress
from kafkad.wire.crc import crc32c

BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
Header = tuple[int, ...]
"""The 13 fields of a batch header as `BATCH_HEADER` unpacks them."""
(
    BASE_OFFSET,
    LENGTH,
    LEADER_EPOCH,
    MAGIC,
    CRC,
    ATTRIBUTES,
    LAST_OFFSET_DELTA,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    BASE_SEQUENCE,
    RECORD_COUNT,
) = range(13)

HEADER_SIZE = BATCH_HEADER.size
PREFIX_SIZE = 12
"""Base offset and length, which the length does not count; common to all formats."""
MAGIC_AT = 16
CRC_AT = 17
CRC_FROM = ATTRIBUTES_AT = 21
"""The CRC covers the batch from its attributes on, so offset and leader epoch change without it."""
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
SMALLEST_BATCH = 26
"""A v0 message with neither key nor value."""

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1
MAX_SEQUENCE = 2**31 - 1
DECOMPRESSED_LIMIT = 256 << 20

_CRC = struct.Struct(">I")
_UINT64_MAX = 2**64 - 1
_NULL = b"\x01"
_BYTES = tuple(bytes((n,)) for n in range(128))
_ONE_BYTE = tuple((n >> 1) ^ -(n & 1) for n in range(128)) + (None,) * 128
"""Zigzag values of the varints of one byte, None where the varint goes on."""


class RecordsError(ValueError):
    """Bytes that are no batch or no records; `position` counts from the start of the view read."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} (at byte {position})")
        self.position = position


class BatchHeader(NamedTuple):
    """A batch header. In formats v0 and v1 `base_offset` is the message's own; of a wrapper, its last record's."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.length + PREFIX_SIZE

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        return next_sequence(self.base_sequence, self.last_offset_delta) if self.base_sequence >= 0 else -1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> str:
        return "LogAppendTime" if self.attributes & LOG_APPEND_TIME else "CreateTime"

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


class Record(NamedTuple):
    """Header keys that are not UTF-8 keep their bytes as surrogate escapes."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def next_sequence(sequence: int, increment: int) -> int:
    """Sequences of a producer wrap from 2^31 - 1 to 0."""
    return (sequence + increment) & MAX_SEQUENCE


def read_header(view: memoryview, at: int) -> BatchHeader:
    """The header of the whole batch that starts at `at`; RecordsError when the view ends inside that batch."""
    left = len(view) - at
    if left < SMALLEST_BATCH:
        raise RecordsError(f"a batch cannot fit in {left} bytes", at)
    magic = view[at + MAGIC_AT]
    if magic < 2:
        from kafkad.wire.legacy import read_message_header

        return read_message_header(view, at)
    if magic != 2:
        raise RecordsError(f"unknown magic {magic}", at + MAGIC_AT)
    if left < HEADER_SIZE:
        raise RecordsError(f"a batch header cannot fit in {left} bytes", at)
    header = BatchHeader._make(BATCH_HEADER.unpack_from(view, at))
    if not HEADER_SIZE - PREFIX_SIZE <= header.length <= left - PREFIX_SIZE:
        raise RecordsError(f"batch length {header.length} where {left - PREFIX_SIZE} bytes are left", at)
    return header


def iter_batches(view: memoryview, at: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Whole batches from `at`; RecordsError at the first byte that belongs to none. CRCs are left to `crc_matches`."""
    end = len(view)
    while at < end:
        header = read_header(view, at)
        yield at, header
        at += header.size


def crc_matches(view: memoryview, at: int, header: Header) -> bool:
    """True if the batch at `at`, of which `header` was unpacked, carries the checksum of its bytes."""
    if header[MAGIC] < 2:
        from kafkad.wire.legacy import message_crc_matches

        return message_crc_matches(view, at, header)
    return crc32c(view[at + CRC_FROM : at + PREFIX_SIZE + header[LENGTH]]) == header[CRC]


def iter_records(view: memoryview, at: int, header: Header, limit: int = DECOMPRESSED_LIMIT) -> Iterator[Record]:
    """The records of one batch; `limit` bounds what a compressed one may grow to."""
    if header[MAGIC] < 2:
        from kafkad.wire.legacy import read_legacy

        return read_legacy(view, at, limit)
    return parse_records(records_body(view, at, header, limit), header, at)


def records_body(view: memoryview, at: int, header: Header, limit: int = DECOMPRESSED_LIMIT) -> bytes:
    """The bytes of a v2 batch's records, decompressed."""
    body = view[at + HEADER_SIZE : at + PREFIX_SIZE + header[LENGTH]]
    codec = header[ATTRIBUTES] & CODEC_MASK
    if not codec:
        return bytes(body)
    try:
        return decompress(codec, body, limit)
    except CompressionError as error:
        raise RecordsError(str(error), at) from None


def parse_records(data: bytes, header: Header, at: int = 0) -> Iterator[Record]:  # noqa: C901
    """The records in the decompressed body of a v2 batch; `at` is where errors say that batch stands.

    Varints of one byte, and of two where they are common, are read in line: a call for each would halve the speed.
    """
    base_offset, base_timestamp, count = header[BASE_OFFSET], header[BASE_TIMESTAMP], header[RECORD_COUNT]
    append_time = header[MAX_TIMESTAMP] if header[ATTRIBUTES] & LOG_APPEND_TIME else None
    one_byte = _ONE_BYTE
    new = tuple.__new__
    cursor = 0
    try:
        for _ in range(count):
            if (length := one_byte[low := data[cursor]]) is None:
                if (high := data[cursor + 1]) < 128 and not low & 1:  # two bytes, not negative: 64 to 8191
                    length = (low & 0x7F | high << 7) >> 1
                    cursor += 2
                else:
                    length, cursor = _read_long_varint(data, cursor)
            else:
                cursor += 1
            end = cursor + length
            if (delta := one_byte[data[cursor + 1]]) is None:  # the byte before: attributes, which have no meaning yet
                delta, cursor = _read_long_varint(data, cursor + 1)
            else:
                cursor += 2
            timestamp = base_timestamp + delta if append_time is None else append_time
            if (delta := one_byte[data[cursor]]) is None:
                delta, cursor = _read_long_varint(data, cursor)
            else:
                cursor += 1
            if (size := one_byte[data[cursor]]) is None:
                size, cursor = _read_long_varint(data, cursor)
            else:
                cursor += 1
            key = data[cursor : (cursor := cursor + size)] if size >= 0 else None
            if size < -1:
                raise RecordsError(f"a key of {size} bytes", at)
            if (size := one_byte[low := data[cursor]]) is None:
                if (high := data[cursor + 1]) < 128 and not low & 1:
                    size = (low & 0x7F | high << 7) >> 1
                    cursor += 2
                else:
                    size, cursor = _read_long_varint(data, cursor)
            else:
                cursor += 1
            value = data[cursor : (cursor := cursor + size)] if size >= 0 else None
            if size < -1:
                raise RecordsError(f"a value of {size} bytes", at)
            if data[cursor]:
                headers, cursor = read_headers(data, cursor, at)
            else:
                headers = ()
                cursor += 1
            if cursor != end:
                raise RecordsError(f"a record of {length} bytes ends {cursor - end} bytes off", at)
            yield new(Record, (base_offset + delta, timestamp, key, value, headers))
    except IndexError:
        raise RecordsError(f"{count} records do not fit in {len(data)} bytes", at) from None
    if cursor != len(data) or count < 0:
        raise RecordsError(f"{len(data) - cursor} bytes after the last of {count} records", at)


def read_headers(data: bytes, cursor: int, at: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, cursor = read_varint(data, cursor)
    if not 0 <= count <= len(data) - cursor:
        raise RecordsError(f"{count} record headers", at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, cursor = read_varint(data, cursor)
        if size < 0:
            raise RecordsError(f"a header key of {size} bytes", at)
        key = data[cursor : cursor + size].decode("utf-8", "surrogateescape")
        size, cursor = read_varint(data, cursor + size)
        if size < -1:
            raise RecordsError(f"a header value of {size} bytes", at)
        headers.append((key, data[cursor : (cursor := cursor + size)] if size >= 0 else None))
    return tuple(headers), cursor


def read_varint(data: bytes | memoryview, cursor: int) -> tuple[int, int]:
    """A zigzag varint of up to 64 bits and where it ends; IndexError when the bytes end first."""
    value = _ONE_BYTE[data[cursor]]
    return _read_long_varint(data, cursor) if value is None else (value, cursor + 1)


def _read_long_varint(data: bytes | memoryview, cursor: int) -> tuple[int, int]:
    """The same of one known to have two bytes at least, most often just two."""
    value = data[cursor] & 0x7F
    cursor += 1
    shift = 7
    while (byte := data[cursor]) & 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        cursor += 1
        if shift == 70:
            raise RecordsError("a varint longer than 10 bytes", cursor)
    value = (value | byte << shift) & _UINT64_MAX
    return (value >> 1) ^ -(value & 1), cursor + 1


def write_varint(value: int) -> bytes:
    """`value`, a signed 64-bit number, as a zigzag varint."""
    value = ((value << 1) ^ (value >> 63)) & _UINT64_MAX
    if value < 0x80:
        return _BYTES[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_varint = lru_cache(maxsize=1 << 14)(write_varint)
"""Lengths and deltas of neighbouring records are few, and the same again and again."""


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    codec: int = 0,
    level: int | None = None,
    transactional: bool = False,
    control: bool = False,
    append_time: int | None = None,
    delete_horizon_ms: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
) -> bytearray:
    """One batch as a Kafka producer or broker builds it.

    Records carry absolute offsets; `base_offset` and `last_offset` default to the first and last of them; `base_offset`
    must be given when the cleaner left none. `append_time` makes it a LogAppendTime batch. Timestamps default to the
    first record's and the largest.
    """
    first_offset = records[0].offset if base_offset is None else base_offset
    final_offset = last_offset if last_offset is not None else records[-1].offset if records else first_offset
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    elif base_timestamp is None:
        base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    if append_time is not None:
        max_timestamp = append_time
    elif max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    attributes = (
        codec
        | (LOG_APPEND_TIME if append_time is not None else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
        | (DELETE_HORIZON if delete_horizon_ms is not None else 0)
    )
    body = encode_records(records, first_offset, base_timestamp)
    if codec:
        body = compress(codec, body, level)
    return assemble_batch(
        BatchHeader(
            base_offset=first_offset,
            length=0,
            leader_epoch=leader_epoch,
            magic=2,
            crc=0,
            attributes=attributes,
            last_offset_delta=final_offset - first_offset,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=len(records),
        ),
        body,
    )


def assemble_batch(header: BatchHeader, body: bytes) -> bytearray:
    """`header` in front of `body`, records already compressed as it says; its length and CRC are computed again."""
    length = HEADER_SIZE - PREFIX_SIZE + len(body)
    batch = bytearray(BATCH_HEADER.pack(*header._replace(length=length, crc=0)))
    batch += body
    seal(memoryview(batch), 0, len(batch))
    return batch


def seal(view: memoryview, at: int, end: int) -> int:
    """Write the CRC of the batch view[at:end] again, after something under it changed; and return it."""
    crc = crc32c(view[at + CRC_FROM : end])
    _CRC.pack_into(view, at + CRC_AT, crc)
    return crc


def encode_records(records: Sequence[Record], base_offset: int, base_timestamp: int) -> bytes:
    """Records one after the other as they stand in a v2 batch before compression."""
    return b"".join(
        [
            encode_record(offset - base_offset, timestamp - base_timestamp, key, value, headers)
            for offset, timestamp, key, value, headers in records
        ]
    )


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
) -> bytes:
    """One record as it stands in a v2 batch."""
    varint = _varint
    head = b"\0%b%b%b" % (varint(timestamp_delta), varint(offset_delta), _NULL if key is None else _sized(key))
    tail = _encode_headers(headers) if headers else b"\0"
    if value is None:
        return b"%b%b\1%b" % (varint(len(head) + 1 + len(tail)), head, tail)
    size = varint(len(value))
    return b"%b%b%b%b%b" % (varint(len(head) + len(size) + len(value) + len(tail)), head, size, value, tail)


def encode_values(values: Sequence[bytes], offset_delta: int, timestamp_delta: int) -> list[bytes]:
    """Pieces that joined are the records of these values, without keys and headers, from `offset_delta` on: as
    `encode_record` gives them, for a small part of the time."""
    time = _varint(timestamp_delta)
    width = len(time)
    pieces: list[bytes] = []
    for delta, value in enumerate(values, offset_delta):
        offset = _varint(delta)
        start, middle = _around_value(len(value), width + len(offset))
        pieces += start, time, offset, middle, value, b"\0"
    return pieces


@lru_cache(maxsize=1 << 14)
def _around_value(size: int, deltas_size: int) -> tuple[bytes, bytes]:
    """The bytes before the deltas of a record without key and headers, and between them and its value."""
    middle = _NULL + write_varint(size)
    return write_varint(1 + deltas_size + len(middle) + size + 1) + b"\0", middle


def most_around_value(limit: int, timestamp_delta: int) -> int:
    """The most bytes that a record of `encode_values` has besides its value, in a batch of so many bytes."""
    return 3 * len(_varint(limit)) + len(_varint(timestamp_delta)) + 3


def _sized(data: bytes | None) -> bytes:
    return _NULL if data is None else _varint(len(data)) + data


def _encode_headers(headers: tuple[tuple[str, bytes | None], ...]) -> bytes:
    parts = [write_varint(len(headers))]
    for key, value in headers:
        parts.append(_sized(key.encode("utf-8", "surrogateescape")))
        parts.append(_sized(value))
    return b"".join(parts)
