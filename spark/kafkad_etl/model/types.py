"""Finds unknown types in schemas in Spark's JSON and in Avro. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kafkad_etl.facts import PRECISION
from kctl.errors import did_you_mean

_SPARK = (
    *("boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz"),
    *("string", "binary", "void", "variant"),
)
_SPARK_PATTERN = re.compile(
    r"decimal(\(\s*\d{1,9}\s*,\s*-?\d{1,9}\s*\))?|(char|varchar)\(\s*\d+\s*\)|interval( \w+( to \w+)?)?|timestamp_ltz"
)
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,9})\s*,\s*(-?\d{1,9})\s*\)")
_AVRO = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_AVRO_NAMED = ("record", "error", "enum", "fixed")


def of_spark(document: Any, path: str = "") -> Iterator[str]:
    """Faults in a type, each prefixed with the column's name."""
    if isinstance(document, str):
        if document not in _SPARK and not _SPARK_PATTERN.fullmatch(document):
            yield _unknown(path, document, _SPARK)
        elif (decimal := _DECIMAL.fullmatch(document)) and not int(decimal[2]) <= int(decimal[1]) <= PRECISION:
            yield f"{path or 'the schema'}: {document} is impossible; scale <= precision <= {PRECISION}"
        return
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == "struct" and isinstance(document.get("fields"), list):
        for field in document["fields"]:
            if not isinstance(field, dict) or not isinstance(field.get("name"), str):
                yield f"{path or 'the schema'} has a field without a name"
            else:
                yield from of_spark(field.get("type"), f"{path}.{field['name']}".lstrip("."))
    elif kind == "array":
        yield from of_spark(document.get("elementType"), f"{path}[]")
    elif kind == "map":
        yield from of_spark(document.get("keyType"), f"{path}.key")
        yield from of_spark(document.get("valueType"), f"{path}.value")
    elif kind != "udt":
        yield _unknown(path, kind, ("struct", "array", "map"))


def of_avro(document: Any) -> Iterator[str]:
    yield from _avro(document, "", set())


def _avro(document: Any, path: str, known: set[str]) -> Iterator[str]:
    """Faults in an Avro schema. `known` collects the names of records, enums and fixed types."""
    if isinstance(document, list):
        for each in document:
            yield from _avro(each, path, known)
    elif isinstance(document, str):
        if document not in _AVRO and document.rpartition(".")[2] not in known:
            yield _unknown(path, document, (*_AVRO, *_AVRO_NAMED, "array", "map", *sorted(known)))
    elif isinstance(document, dict):
        yield from _avro_block(document, path, known)
    else:
        yield _unknown(path, document, _AVRO)


def _avro_block(document: dict[str, Any], path: str, known: set[str]) -> Iterator[str]:
    kind = document.get("type")
    if kind in _AVRO_NAMED:
        known.add(str(document.get("name", "")).rpartition(".")[2])
    if kind in ("record", "error"):
        for field in document.get("fields") or ():
            if isinstance(field, dict) and "type" in field:
                yield from _avro(field["type"], f"{path}.{field.get('name')}".lstrip("."), known)
            else:
                yield f"{path or 'the record'} has a field without a type"
    elif kind in ("array", "map"):
        part = "items" if kind == "array" else "values"
        yield from _avro(document.get(part), f"{path}[]" if kind == "array" else f"{path}.value", known)
    elif kind not in _AVRO_NAMED:
        yield from _avro(kind, path, known)


def _unknown(path: str, name: Any, types: tuple[str, ...]) -> str:
    hints = did_you_mean(str(name), types)
    return "; ".join((f'{path or "the schema"}: unknown type "{name}"', *hints))
