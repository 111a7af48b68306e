"""A metadata log of a KRaft cluster with a record of each kind, in its newest version, every field filled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafkad.wire.primitives import put_uvarint
from kafkad.wire.records import Record, build_batch
from kafkad.wire.schema import Field, encode, span, within
from kctl.segments.metadata import CONTROL, KINDS

FILLED = {"string": "x", "bytes": b"\0\xff", "16s": bytes(range(16)), "?": True, "d": 2.5}


def filled(cls: Any, version: int) -> Any:
    known = [field for field in cls.__schema__.fields if within(version, field.versions)]
    return cls(**{field.name: value(field, version) for field in known})


def value(field: Field, version: int) -> Any:
    if field.kind == "array":
        simple = not hasattr(field.item, "__schema__")
        return [value(field.item(), version) if simple else filled(field.item, version)]
    if field.kind == "struct":
        return filled(field.item, version)
    return FILLED.get(field.kind, 3)


def write_metadata(directory: Path) -> Path:
    directory.mkdir()
    records = []
    for key, cls in KINDS.items():
        version = span(cls.__schema__.versions)[1]
        data = bytearray()
        for number in (1, key, version):
            put_uvarint(data, number)
        records.append(
            Record(len(records), 1_790_000_000_000, None, bytes(data) + encode(filled(cls, version), version))
        )
    log = bytes(build_batch(tuple(records)))
    for kind, (_, cls) in CONTROL.items():
        version = span(cls.__schema__.versions)[0]  # Kafka's tool reads a newer change of leaders wrongly
        message = filled(cls, version)
        message.version = version
        offset = len(records)
        records.append(Record(offset, 1_790_000_000_000, bytes((0, 0, 0, kind)), encode(message, version)))
        log += bytes(build_batch((records[-1],), base_offset=offset, control=True))
    file = directory / "00000000000000000000.log"
    file.write_bytes(log)
    return file
