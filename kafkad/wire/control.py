"""Control records: the markers that end a transaction."""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafkad.wire.crc import crc32c
from kafkad.wire.records import CONTROL, HEADER_SIZE, PREFIX_SIZE, TRANSACTIONAL, Record, RecordsError

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1

_FRONT = struct.Struct(">qiibI")
"""A batch header up to its CRC."""
_BACK = struct.Struct(">hiqqqhii bbbbbhhbhib")
"""The rest of the header, and one record: its length and attributes, its deltas, its sized key, its sized value."""
_RECORD_LENGTH, _KEY_LENGTH, _VALUE_LENGTH = (2 * length for length in (16, _KEY.size, _VALUE.size))
"""As varints of one byte."""
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
