"""The batches that a coordinator writes: what `wire.records.build_batch` makes of such records, much faster."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kafkad.wire.compression import compress
from kafkad.wire.crc import crc32c
from kafkad.wire.records import HEADER_SIZE, NO_PRODUCER_ID, PREFIX_SIZE, write_varint

Header = tuple[int, ...]

_FRONT = struct.Struct(">qiibI")
_BACK = struct.Struct(">hiqqqhii")
"""A batch header up to its CRC, and from there on, where the CRC begins to count."""
_LEAST_LENGTH = HEADER_SIZE - PREFIX_SIZE
_VARINTS = tuple(map(write_varint, range(512)))
_NULL = write_varint(-1)


def build(
    records: Sequence[tuple[bytes, bytes | None]], timestamp: int, codec: int, base_sequence: int
) -> tuple[bytearray, Header]:
    """HOT. One batch with base offset 0 of (key, value) records, all of the same time; and its header."""
    if len(records) == 1:
        [(key, value)] = records
        body = _record(_VARINTS[0], key, value)
    else:
        body = b"".join([_record(_varint(number), key, value) for number, (key, value) in enumerate(records)])
    if codec:
        body = compress(codec, body)
    count = len(records)
    back = _BACK.pack(codec, count - 1, timestamp, timestamp, NO_PRODUCER_ID, -1, base_sequence, count) + body
    length = _LEAST_LENGTH + len(body)
    crc = crc32c(back)
    header = (0, length, -1, 2, crc, codec, count - 1, timestamp, timestamp, NO_PRODUCER_ID, -1, base_sequence, count)
    return bytearray(_FRONT.pack(0, length, -1, 2, crc) + back), header


def _record(number: bytes, key: bytes, value: bytes | None) -> bytes:
    """Attributes, timestamp delta, offset delta, key, value, no headers; and in front how long all that is."""
    sized = _NULL if value is None else _varint(len(value)) + value
    record = b"\0\0" + number + _varint(len(key)) + key + sized + b"\0"
    return _varint(len(record)) + record


def _varint(value: int) -> bytes:
    return _VARINTS[value] if value < 512 else write_varint(value)
