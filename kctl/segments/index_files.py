"""The small files beside segments, as rows: indexes, producer snapshots, checkpoints, metadata."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from kafkad.log import checkpoint, epochs, snapshots, txnindex
from kafkad.log.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, OffsetIndex, TimeIndex, used_entries
from kafkad.log.names import base_of
from kafkad.names import id_text
from kctl.errors import Exit, KctlError
from kctl.segments.files import FILES
from kctl.texts.output import Column

Rows = list[dict[str, Any]]


class FileKind(NamedTuple):
    """A kind of file and its reader. `read` raises ValueError for a file that makes no sense."""

    name: str
    columns: tuple[Column, ...]
    read: Callable[[str], Rows]

    @property
    def is_of_segment(self) -> bool:
        """True if it lies beside a segment, and Kafka's own dump tool reads it."""
        return self.name in _SEGMENT_FILES


_ENTRY = Column("entry", "Its number in the file.", "number")
_OFFSET = Column("offset", "An offset of the log.", "number")
_POSITION = Column("position", "Where in the segment's file the batch with that offset begins.", "number")
_TIME = Column("timestamp_ms", "No record up to the offset has a later time.", "time", "TIME")
_PRODUCER = Column("producer_id", "The producer.", "number", "PRODUCER")


def kind_of(path: str) -> FileKind:
    """The kind of a file by its name; KctlError when kctl does not know such files."""
    name = os.path.basename(path)
    if name in _NAMED:
        return _NAMED[name]
    if base_of(name) is not None:
        for suffix, kind in _SEGMENT_FILES.items():
            if f".{suffix}" in name:
                return kind
    os.stat(path)  # a name that is not there is no name to judge
    hints = ("known are .log .index .timeindex .txnindex .snapshot, checkpoints, partition.metadata, meta.properties",)
    raise KctlError(f"{path}: kctl cannot read files with this name", exit_code=Exit.USAGE, hints=hints)


def read_rows(path: str) -> tuple[FileKind, Rows]:
    kind = kind_of(path)
    return kind, kind.read(path)


def _base(path: str) -> int:
    return base_of(os.path.basename(path)) or 0


def _offset_index(path: str) -> Rows:
    index = OffsetIndex(used_entries(FILES.read_to_hole(path), OFFSET_ENTRY_SIZE))
    base = _base(path)
    pairs = zip(index.offsets, index.positions, strict=True)
    return [{"entry": n, "offset": base + offset, "position": position} for n, (offset, position) in enumerate(pairs)]


def _time_index(path: str) -> Rows:
    index = TimeIndex(used_entries(FILES.read_to_hole(path), TIME_ENTRY_SIZE))
    base = _base(path)
    pairs = zip(index.timestamps, index.offsets, strict=True)
    return [{"entry": n, "timestamp_ms": time, "offset": base + offset} for n, (time, offset) in enumerate(pairs)]


def _transaction_index(path: str) -> Rows:
    return [entry._asdict() for entry in txnindex.decode(FILES.read(path))]


def _snapshot(path: str) -> Rows:
    return [
        {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_offset,
            "offset_delta": entry.offset_delta,
            "timestamp_ms": entry.timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_first_offset": None if entry.txn_start < 0 else entry.txn_start,
        }
        for entry in snapshots.decode(FILES.read(path))
    ]


def _epochs(path: str) -> Rows:
    return [{"leader_epoch": epoch, "start_offset": start} for epoch, start in epochs.decode(FILES.read(path))]


def _offsets(path: str) -> Rows:
    os.stat(path)
    offsets = checkpoint.read_offsets(path, FILES)
    return [
        {"topic": topic, "partition": partition, "offset": offset} for (topic, partition), offset in offsets.items()
    ]


def _partition_metadata(path: str) -> Rows:
    os.stat(path)
    topic_id = checkpoint.read_topic_id(path, FILES)
    return [{"name": "topic_id", "value": None if topic_id is None else id_text(topic_id)}]


def _meta_properties(path: str) -> Rows:
    os.stat(path)
    meta = checkpoint.read_meta_properties(path, FILES)
    assert meta is not None  # it is there
    broker_id = None if meta.broker_id is None else str(meta.broker_id)
    properties = (("broker.id", broker_id), ("cluster.id", meta.cluster_id), *meta.others)
    return [{"name": name, "value": value} for name, value in properties]


_SEGMENT_FILES = {
    "index": FileKind("index", (_ENTRY, _OFFSET, _POSITION), _offset_index),
    "timeindex": FileKind("timeindex", (_ENTRY, _TIME, _OFFSET), _time_index),
    "txnindex": FileKind(
        "txnindex",
        (
            _PRODUCER,
            Column("first_offset", "The first of the aborted transaction.", "number"),
            Column("last_offset", "That of its marker.", "number"),
            Column("last_stable_offset", "What it was when the marker was written.", "number"),
        ),
        _transaction_index,
    ),
    "snapshot": FileKind(
        "snapshot",
        (
            _PRODUCER,
            Column("producer_epoch", "Its epoch.", "number", "EPOCH"),
            Column("last_sequence", "The last sequence of its last batch.", "number"),
            Column("last_offset", "The last offset of that batch.", "number"),
            Column("offset_delta", "How many records that batch has, less one.", "number", wide=True),
            Column("timestamp_ms", "The latest time in that batch.", "time", "TIME"),
            Column("coordinator_epoch", "Of the coordinator that wrote its last marker.", "number", wide=True),
            Column("transaction_first_offset", "Where its open transaction begins.", "number", "OPEN-FROM"),
        ),
        _snapshot,
    ),
}

_CHECKPOINT = FileKind(
    "checkpoint",
    (Column("topic", "Its name."), Column("partition", "Its number.", "number"), _OFFSET),
    _offsets,
)
_PROPERTIES = (Column("name", "The property."), Column("value", "Its value."))
_NAMED = {
    epochs.FILE_NAME: FileKind(
        "epochs",
        (
            Column("leader_epoch", "The epoch.", "number"),
            Column("start_offset", "The first offset written in it.", "number"),
        ),
        _epochs,
    ),
    checkpoint.RECOVERY_POINTS: _CHECKPOINT,
    checkpoint.HIGH_WATERMARKS: _CHECKPOINT,
    checkpoint.START_OFFSETS: _CHECKPOINT,
    checkpoint.CLEANED_OFFSETS: _CHECKPOINT,
    checkpoint.DAMAGED_OFFSETS: _CHECKPOINT,
    checkpoint.PARTITION_METADATA: FileKind("metadata", _PROPERTIES, _partition_metadata),
    checkpoint.META_PROPERTIES: FileKind("properties", _PROPERTIES, _meta_properties),
}
