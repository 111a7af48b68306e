"""Builds the batches that coordinators write: as `wire.records.build_batch` does, but much faster."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from kafkad.turns import Pieces
from kafkad.wire.compression import compress
from kafkad.wire.crc import crc32c
from kafkad.wire.records import (
    BASE_TIMESTAMP_AT,
    HEADER_SIZE,
    NO_PRODUCER_ID,
    PREFIX_SIZE,
    TRANSACTIONAL,
    Header,
    seal,
    write_varint,
)

_FRONT = struct.Struct(">qiibI")
_BACK = struct.Struct(">hiqqqhii")
"""A batch header up to its CRC, and from there on, where the CRC begins to count."""
_TIMES = struct.Struct(">qq")
_LEAST_LENGTH = HEADER_SIZE - PREFIX_SIZE
_VARINTS = tuple(map(write_varint, range(512)))
_NULL = write_varint(-1)
_NO_HEADERS = b"\0"
_AT_ONCE = 100

R = TypeVar("R")


class TransactionalProducer(NamedTuple):
    """In whose open transaction a coordinator writes."""

    id: int
    epoch: int


NO_PRODUCER: Final = TransactionalProducer(NO_PRODUCER_ID, -1)


def build(
    records: Sequence[tuple[bytes, bytes | None]],
    timestamp: int,
    codec: int,
    base_sequence: int,
    producer: TransactionalProducer = NO_PRODUCER,
) -> tuple[bytearray, Header]:
    """HOT. One batch with base offset 0 of (key, value) records, all of the same time; and its header."""
    if len(records) == 1:
        [(key, value)] = records
        body = _record(_VARINTS[0], key, value)
    else:
        body = b"".join([_record(_varint(number), key, value) for number, (key, value) in enumerate(records)])
    return build_around(body, len(records), timestamp, codec, base_sequence, producer)


class Prepared(NamedTuple):
    """What was made in turns of many records that are to be written as one batch."""

    body: bytes
    """See `body_of`."""
    apply: Callable[[], None]
    """Applies all of them."""


def body_of(records: Sequence[R], encode: Callable[[R], tuple[bytes, bytes | None]]) -> Pieces[bytes]:
    """What `build_around` takes: the bytes of many records, made in turns."""
    made = []
    for number, record in enumerate(records):
        if number % _AT_ONCE == _AT_ONCE - 1:
            yield
        made.append(_record(_varint(number), *encode(record)))
    return b"".join(made)


def build_around(
    body: bytes,
    count: int,
    timestamp: int,
    codec: int,
    base_sequence: int,
    producer: TransactionalProducer = NO_PRODUCER,
) -> tuple[bytearray, Header]:
    """HOT. The batch of so many records, whose bytes are made already."""
    if codec:
        body = compress(codec, body)
    producer_id, epoch = producer
    attributes = codec if producer_id < 0 else codec | TRANSACTIONAL
    back = _BACK.pack(attributes, count - 1, timestamp, timestamp, producer_id, epoch, base_sequence, count) + body
    length = _LEAST_LENGTH + len(body)
    crc = crc32c(back)
    header = (
        0,
        length,
        -1,
        2,
        crc,
        attributes,
        count - 1,
        timestamp,
        timestamp,
        producer_id,
        epoch,
        base_sequence,
        count,
    )
    return bytearray(_FRONT.pack(0, length, -1, 2, crc) + back), header


def cut(
    records: Sequence[R], encode: Callable[[R], tuple[bytes, bytes | None]], most: int
) -> Iterator[tuple[list[R], bytes]]:
    """The records in their order, for batches of at most so many bytes uncompressed; one that is larger is alone. With
    those of each batch comes what `build_around` takes."""
    batch: list[R] = []
    made: list[bytes] = []
    size = HEADER_SIZE
    for record in records:
        key, value = encode(record)
        raw = _record(_varint(len(batch)), key, value)
        if batch and size + len(raw) > most:
            yield batch, b"".join(made)
            batch, made, size = [], [], HEADER_SIZE
            raw = _record(_varint(0), key, value)
        batch.append(record)
        made.append(raw)
        size += len(raw)
    if batch:
        yield batch, b"".join(made)


class Repeating:
    """A batch of one record that is written again and again, each time with another value of the same size."""

    __slots__ = (
        "_base_sequence",
        "_data",
        "_length",
        "_value_at",
        "_value_end",
        "size",
        "value_size",
        "view",
    )

    def __init__(self, key: bytes, value_size: int, base_sequence: int) -> None:
        self._data, _ = build([(key, bytes(value_size))], 0, 0, base_sequence)
        self._base_sequence = base_sequence
        self.view = memoryview(self._data)
        self.size = len(self._data)
        self._length = self.size - PREFIX_SIZE
        self.value_size = value_size
        self._value_end = self.size - len(_NO_HEADERS)
        self._value_at = self._value_end - value_size

    def fill(self, value: bytes, timestamp: int) -> Header:
        """HOT. The batch is in `view`, with base offset and epoch of the last time; this is its header with none."""
        data = self._data
        _TIMES.pack_into(data, BASE_TIMESTAMP_AT, timestamp, timestamp)
        data[self._value_at : self._value_end] = value
        crc = seal(self.view, 0, self.size)
        return 0, self._length, -1, 2, crc, 0, 0, timestamp, timestamp, NO_PRODUCER_ID, -1, self._base_sequence, 1


def _record(number: bytes, key: bytes, value: bytes | None) -> bytes:
    """Attributes, timestamp delta, offset delta, key, value, no headers; and in front how long all that is."""
    sized = _NULL if value is None else _varint(len(value)) + value
    record = b"\0\0" + number + _varint(len(key)) + key + sized + _NO_HEADERS
    return _varint(len(record)) + record


def _varint(value: int) -> bytes:
    return _VARINTS[value] if value < 512 else write_varint(value)
