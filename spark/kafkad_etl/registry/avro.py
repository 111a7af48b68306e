"""Avro schemas that refer to others, as one text: Spark takes no references."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_NAMED = ("record", "error", "enum", "fixed")


def whole(text: str, references: Mapping[str, str]) -> str:
    """The schema with each type that it refers to defined where it is met first."""
    if not references:
        return text
    return json.dumps(
        _Inlining({name: json.loads(each) for name, each in references.items()}).schema(json.loads(text), "")
    )


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
            if each in self._others and each not in self._defined:
                return self.schema(self._others[each], "")
        return name


def full_name(schema: Mapping[str, Any], namespace: str = "") -> str:
    """The name of a record, enum or fixed type with its namespace."""
    name = str(schema.get("name", ""))
    namespace = str(schema.get("namespace", namespace) or "")
    return name if "." in name or not namespace else f"{namespace}.{name}"
