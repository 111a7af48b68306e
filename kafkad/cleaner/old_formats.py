"""Compaction of messages of formats v0 and v1, which the logs of a cluster that began before Kafka 0.11 still hold.

A message stays whole or goes. Of one that wraps others those that stay are wrapped again, their bytes and so their
relative offsets as they were; the wrapper has the offset of its last one. There is no room for a delete horizon: how
long tombstones stay is judged by the age of their segment.
"""

from __future__ import annotations

import struct
import zlib

from kafkad.cleaner.keymap import KeyMap
from kafkad.log.bodies import Keys
from kafkad.wire.compression import compress, decompress
from kafkad.wire.legacy import read_message_header, read_messages
from kafkad.wire.records import (
    ATTRIBUTES,
    CODEC_MASK,
    DECOMPRESSED_LIMIT,
    LENGTH,
    LOG_APPEND_TIME,
    MAGIC,
    MAX_TIMESTAMP,
    PREFIX_SIZE,
    Header,
    Record,
)

_PREFIX = struct.Struct(">qiI")
_NO_KEY = struct.pack(">i", -1)
_SIZE = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")
_KEY_AT = (18, 26)


def read_keys(data: bytes, at: int) -> Keys:
    """As `bodies.read_keys` does it for a batch."""
    records = [record for _, record in read_messages(memoryview(data), at, DECOMPRESSED_LIMIT)]
    return [record.key for record in records], [record.offset << 1 | (record.value is None) for record in records]


def stays(record: Record, keys: KeyMap, tombstones_stay: bool) -> bool:
    if record.offset > keys.latest:
        return True
    if record.key is None or record.offset < keys.find(record.key):
        return False
    return record.value is not None or tombstones_stay


def sift(data: bytes, at: int, header: Header, keys: KeyMap, tombstones_stay: bool) -> tuple[int, bytes | None]:
    """The number of records kept of a message, and the message or its replacement; None when none is kept."""
    view = memoryview(data)
    records = [record for _, record in read_messages(view, at, DECOMPRESSED_LIMIT)]
    kept = [stays(record, keys, tombstones_stay) for record in records]
    count = sum(kept)
    if not count:
        return 0, None
    message = data[at : at + PREFIX_SIZE + header[LENGTH]]
    if count == len(kept):
        return count, message
    return count, _rewrapped(message, header, records, kept)


def _rewrapped(message: bytes, header: Header, records: list[Record], kept: list[bool]) -> bytes:
    magic, attributes = header[MAGIC], header[ATTRIBUTES]
    codec = attributes & CODEC_MASK
    inner = _inner_messages(decompress(codec, _value(message, magic), DECOMPRESSED_LIMIT))
    value = compress(codec, b"".join([data for data, stays in zip(inner, kept, strict=True) if stays]))
    staying = [record for record, stays in zip(records, kept, strict=True) if stays]
    head = message[16:18]
    if magic:
        timestamp = (
            header[MAX_TIMESTAMP] if attributes & LOG_APPEND_TIME else max(record.timestamp for record in staying)
        )
        head += _TIMESTAMP.pack(timestamp)
    body = head + _NO_KEY + _SIZE.pack(len(value)) + value
    return _PREFIX.pack(staying[-1].offset, 4 + len(body), zlib.crc32(body)) + body


def _value(message: bytes, magic: int) -> bytes:
    (size,) = _SIZE.unpack_from(message, _KEY_AT[magic])
    return message[_KEY_AT[magic] + 2 * _SIZE.size + max(size, 0) :]


def _inner_messages(data: bytes) -> list[bytes]:
    view = memoryview(data)
    found = []
    at = 0
    while at < len(data):
        size = read_message_header(view, at).size
        found.append(data[at : at + size])
        at += size
    return found
