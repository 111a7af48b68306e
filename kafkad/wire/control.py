"""Control records: the markers that end a transaction."""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafkad.wire.records import Record, RecordsError, build_batch

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1


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
    """The batch of one marker that a partition leader appends when the transaction coordinator tells it to."""
    key = _KEY.pack(0, _COMMIT if marker.commit else _ABORT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        (Record(base_offset, timestamp, key, value),),
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
