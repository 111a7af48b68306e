"""Avro schemas that refer to others, as one text: Spark takes no references."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kafkad_etl.registry.unsupported import Unsupported

_NAMED = ("record", "error", "enum", "fixed")


def whole(text: str, references: Mapping[str, str]) -> str:
    """The schema with each type that its references define, whatever they are called, where it is met first. Raises
    Unsupported for texts that are no schemas."""
    if not references:
        return text
    try:
        others = [each for other in references.values() for each in _definitions(json.loads(other), "")]
        return json.dumps(_Inlining(dict(others)).schema(json.loads(text), ""))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Unsupported(f"it is no Avro schema, or refers to what is none: {error!r}") from error


def _definitions(schema: Any, namespace: str) -> Iterator[tuple[str, Any]]:
    """All named types in a schema by their full names, each with the namespace that it is in."""
    if isinstance(schema, list):
        for each in schema:
            yield from _definitions(each, namespace)
    elif isinstance(schema, dict):
        if schema.get("type") in _NAMED:
            full = full_name(schema, namespace)
            namespace = full.rpartition(".")[0]
            yield full, schema if "." in schema["name"] else {**schema, "namespace": namespace}
        for field in schema.get("fields", ()):
            yield from _definitions(field["type"], namespace)
        for part in ("type", "items", "values"):
            yield from _definitions(schema.get(part), namespace)


class _Inlining:
    def __init__(self, others: Mapping[str, Any]) -> None:
        self._others = others
        self._defined: set[str] = set()

    def schema(self, schema: Any, namespace: str) -> Any:
        if isinstance(schema, list):
            return [self.schema(each, namespace) for each in schema]
        if isinstance(schema, str):
            return self._named(schema, namespace)
        if not isinstance(schema, dict):
            return schema
        if schema.get("type") in _NAMED:
            full = full_name(schema, namespace)
            if full in self._defined and full in self._others:
                return full
            self._defined.add(full)
            namespace = full.rpartition(".")[0]
        inner = {part: self.schema(schema[part], namespace) for part in ("items", "values") if part in schema}
        if "fields" in schema:
            inner["fields"] = [{**field, "type": self.schema(field["type"], namespace)} for field in schema["fields"]]
        elif schema.get("type") not in _NAMED:
            inner["type"] = self.schema(schema.get("type"), namespace)
        return {**schema, **inner}

    def _named(self, name: str, namespace: str) -> Any:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for each in (full, name):
            if each in self._defined:
                break
            if each in self._others:
                return self.schema(self._others[each], "")
        return name


def full_name(schema: Mapping[str, Any], namespace: str = "") -> str:
    """The name of a record, enum or fixed type with its namespace."""
    name = str(schema.get("name", ""))
    namespace = str(schema.get("namespace", namespace) or "")
    return name if "." in name or not namespace else f"{namespace}.{name}"
