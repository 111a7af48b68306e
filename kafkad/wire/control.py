"""Control records: the markers that end a transaction."""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafkad.wire.crc import crc32c
from kafkad.wire.records import (
    ATTRIBUTES,
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LENGTH,
    MAGIC,
    PREFIX_SIZE,
    TRANSACTIONAL,
    Header,
    Record,
    RecordsError,
)

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1

_FRONT = struct.Struct(">qiibI")
"""A batch header up to its CRC."""
_BACK = struct.Struct(">hiqqqhii bbbbbhhbhib")
"""The rest of the header, and one record: its length and attributes, its deltas, its sized key, its sized value."""
_RECORD_LENGTH, _KEY_LENGTH, _VALUE_LENGTH = (2 * length for length in (16, _KEY.size, _VALUE.size))
"""As varints of one byte."""
_SIZES = bytes((_RECORD_LENGTH, 0, 0, 0, _KEY_LENGTH))
_AS_BUILT = struct.Struct(">5s2xhB2xiB")
"""The record: what comes before its key, the kind, the length of its value, the coordinator's epoch, no headers."""
_LENGTH = HEADER_SIZE - PREFIX_SIZE + 1 + 16


class ControlRecord(NamedTuple):
    commit: bool
    coordinator_epoch: int


def read_control(record: Record) -> ControlRecord | None:
    """The marker in the record of a control batch; None for the kinds (of KRaft) that end no transaction."""
    if record.key is None or len(record.key) < _KEY.size:
        raise RecordsError("a control record without version and type", 0)
    _version, kind = _KEY.unpack_from(record.key)
    if kind not in (_ABORT, _COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise RecordsError("an end-of-transaction marker without coordinator epoch", 0)
    return ControlRecord(kind == _COMMIT, _VALUE.unpack_from(record.value)[1])


def marker_at(view: memoryview, at: int, header: Header) -> ControlRecord | None:
    """HOT. The marker in a batch that is as `build_marker` makes it; None for what has to be read record by record."""
    if header[LENGTH] != _LENGTH or header[ATTRIBUTES] & CODEC_MASK or header[MAGIC] != 2:
        return None
    if len(view) - at < PREFIX_SIZE + _LENGTH:
        return None
    sizes, kind, value_length, coordinator_epoch, headers = _AS_BUILT.unpack_from(view, at + HEADER_SIZE)
    if sizes != _SIZES or value_length != _VALUE_LENGTH or headers or kind not in (_ABORT, _COMMIT):
        return None
    return ControlRecord(kind == _COMMIT, coordinator_epoch)


def build_marker(
    marker: ControlRecord,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """HOT. The batch of one marker that a partition leader appends when the transaction coordinator tells it to."""
    kind = _COMMIT if marker.commit else _ABORT
    back = _BACK.pack(
        *(TRANSACTIONAL | CONTROL, 0, timestamp, timestamp, producer_id, producer_epoch, -1, 1),
        *(_RECORD_LENGTH, 0, 0, 0, _KEY_LENGTH, 0, kind, _VALUE_LENGTH, 0, marker.coordinator_epoch, 0),
    )
    return bytearray(_FRONT.pack(base_offset, _LENGTH, leader_epoch, 2, crc32c(back)) + back)
