"""Decoders of `__cluster_metadata-0` and its snapshots: the records of a KRaft cluster, and the control records of its
quorum. A kind or version nobody knows decodes to None, as in decoders."""

from __future__ import annotations

import re
import struct
from typing import Any

from kafkad.names import id_text
from kafkad.wire.primitives import get_uvarint
from kafkad.wire.records import Record
from kafkad.wire.schema import MalformedError, decode, within
from kctl.segments import metadata_records as records
from kctl.segments.decoders import Decoded, as_dict
from kctl.segments.values import compact

_FRAME = 1
KINDS: dict[int, type[Any]] = {
    known.__schema__.key: known
    for known in vars(records).values()
    if hasattr(known, "__schema__") and known.__schema__.key >= 0
}
CONTROL: dict[int, tuple[str, type[Any]]] = {
    2: ("LeaderChange:", records.LeaderChangeMessage),
    3: ("SnapshotHeader", records.SnapshotHeaderRecord),
    4: ("SnapshotFooter", records.SnapshotFooterRecord),
    5: ("KRaftVersion", records.KRaftVersionRecord),
    6: ("KRaftVoters", records.VotersRecord),
}
"""The words are those of Kafka's dump tool."""


def decode_metadata(record: Record) -> Decoded | None:
    """The value decoded: a frame's version, the kind of record and its version, and the record."""
    data = record.value or b""
    try:
        frame, at = get_uvarint(data, 0)
        kind, at = get_uvarint(data, at)
        version, at = get_uvarint(data, at)
        cls = KINDS.get(kind)
        if frame != _FRAME or cls is None or not within(version, cls.__schema__.versions):
            return None
        value = decode(cls, version, data[at:])
    except MalformedError:
        return None
    return Decoded(type_of(cls), _subject(value), None, kind, value, version)


def type_of(cls: type[Any]) -> str:
    """`register-broker`"""
    return "-".join(word.lower() for word in re.findall("[A-Z][a-z]+", cls.__name__)[:-1])


def _subject(value: Any) -> str:
    """The thing that the record is about, as far as it says so."""
    if hasattr(value, "partition_id"):
        return f"{id_text(value.topic_id)}-{value.partition_id}"
    for name in ("name", "resource_name", "topic_name"):
        if isinstance(said := getattr(value, name, None), str):
            return said
    for name in ("broker_id", "controller_id"):
        if hasattr(value, name):
            return str(getattr(value, name))
    return id_text(value.topic_id) if hasattr(value, "topic_id") else ""


def control_text(record: Record, *, camel: bool) -> str | None:
    """A control record of the quorum as text: its kind and its fields."""
    if record.key is None or len(record.key) < 4 or record.value is None or len(record.value) < 2:
        return None
    _, kind = struct.unpack_from(">hh", record.key)
    (version,) = struct.unpack_from(">h", record.value)
    name, cls = CONTROL.get(kind, ("", None))
    if cls is None or not within(version, cls.__schema__.versions):
        return None
    try:
        message = decode(cls, version, record.value)
    except MalformedError:
        return None
    return f"{name} {compact(as_dict(message, version, camel=camel))}"
