"""Reads schemas from the job file or a file next to it: DDL, Spark's JSON, JSON Schema, Avro or Protobuf."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.messages import Schema
from kafkad_etl.model import loading, types
from kafkad_etl.registry import protobuf
from kafkad_etl.registry.json_schema import JsonSchema
from kafkad_etl.registry.unsupported import Unsupported
from kctl.texts.documents import read_json

_KINDS = {".ddl": "ddl", ".json": "spark", ".avsc": "avro", ".proto": "protobuf"}
_OWN_KINDS = {"avro": ".avsc", "protobuf": ".proto"}
"""Formats whose schemas have a kind of their own."""


class Schemas(NamedTuple):
    """A job's schemas; None where the format has none, or a registry has not been asked for it yet."""

    value: Schema | None = None
    key: Schema | None = None
    sink: Schema | None = None
    value_writers: Mapping[int, str] = {}
    """Schemas by their id in the registry of `value`."""
    key_writers: Mapping[int, str] = {}
    sink_id: int | None = None
    """The id of `sink` in its registry; None without one, and for a schema that has yet to be registered."""


NO_SCHEMAS = Schemas()


def inline(text: str, form: str, where: str, message: str, beside: Path) -> Schema:
    """A schema in the job file. `form` is the data format, or json-schema: for that and avro, the schema is JSON. What
    a Protobuf schema imports is looked for in `beside`."""
    if form == "protobuf":
        return _protobuf(text, where, message, beside)
    if form == "json-schema":
        return Schema("json-schema", _json_schema(_json(text, where), where))
    if form != "avro":
        return Schema("ddl", text)
    return Schema("avro", _avro(_json(text, where), where))


def from_file(file: Path, form: str, where: str, message: str) -> Schema:
    text = read(file, where)
    kind = _KINDS.get(file.suffix)
    if kind is None:
        raise _wrong(where, f"{file}: unknown kind of schema", f"its name must end in one of {', '.join(_KINDS)}")
    if kind != form and (kind in _OWN_KINDS or form in _OWN_KINDS):
        raise _wrong(where, f"{file}: {form} needs a {_OWN_KINDS.get(form, '.ddl or .json')} schema")
    if kind == "protobuf":
        return _protobuf(text, f"{where}: {file}", message, file.parent)
    if kind == "ddl" and form == "json-schema":
        raise _wrong(where, f"{file}: the registry needs a JSON Schema, in a .json file")
    if kind == "ddl":
        return Schema("ddl", " ".join(text.split()))
    document = _json(text, f"{where}: {file}")
    if form == "json-schema":
        return Schema("json-schema", _json_schema(document, where))
    return Schema("avro", _avro(document, where)) if kind == "avro" else Schema("spark", _spark(document, where, file))


def read(file: Path, where: str) -> str:
    text = loading.read(file, where)
    if not text.strip():
        raise _wrong(where, f"{file} is empty")
    return text


def _json(text: str, where: str) -> Any:
    try:
        return read_json(text)
    except ValueError as error:
        raise _wrong(where, f"the schema is not JSON: {error}") from error


def _avro(document: Any, where: str) -> str:
    if not isinstance(document, dict) or document.get("type") != "record":
        raise _wrong(where, "the schema is not an Avro record", '{"type": "record", "name": …, "fields": […]}')
    if faults := list(types.of_avro(document)):
        raise _wrong(where, *faults)
    return json.dumps(document, separators=(",", ":"))


def _protobuf(text: str, where: str, message: str, beside: Path) -> Schema:
    try:
        compiled = protobuf.compiled(text, message, beside=str(beside))
        protobuf.columns(compiled)
    except (Unsupported, protobuf.NoProtoc) as error:
        raise _wrong(where, str(error)) from error
    return Schema("protobuf", text, compiled.message, compiled.files)


def _json_schema(document: Any, where: str) -> str:
    try:
        JsonSchema(document).columns()
    except Unsupported as error:
        raise _wrong(where, str(error)) from error
    return json.dumps(document, separators=(",", ":"))


def _spark(document: Any, where: str, file: Path) -> str:
    if isinstance(document, dict) and document.get("type") == "struct":
        if faults := list(types.of_spark(document)):
            raise _wrong(where, f"{file}: {faults[0]}", *faults[1:])
        return json.dumps(document, separators=(",", ":"))
    try:
        return json.dumps(JsonSchema(document).columns(), separators=(",", ":"))
    except Unsupported as error:
        raise _wrong(where, f"{file}: {error}", "write the columns as DDL instead: id BIGINT, name STRING") from error


def _wrong(where: str, text: str, *hints: str) -> EtlError:
    return EtlError(text, EtlExit.USAGE, hints=hints, where=where)
