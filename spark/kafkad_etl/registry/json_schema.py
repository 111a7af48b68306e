"""JSON Schemas and Spark's columns: which columns a schema describes, and which columns fit a schema.

Types, properties, required ones and null are understood, and `$ref` to definitions or to other schemas of a registry.
Further constraints, such as `pattern` and `maximum`, are not. Types are in Spark's JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kafkad_etl.registry.unsupported import Unsupported
from kafkad_etl.sql_text import named

_SIMPLE = {"integer": "long", "number": "double", "boolean": "boolean", "string": "string"}
_FORMATS = {"date-time": "timestamp", "date": "date"}
_JSON_TYPES = {
    **dict.fromkeys(("byte", "short", "integer", "long"), ("integer", "number")),
    **dict.fromkeys(("float", "double"), ("number",)),
    "boolean": ("boolean",),
}
"""The JSON types of Spark's simple types; anything else is text, and decimals are numbers."""
_MAX_DEPTH = 50


class JsonSchema:
    def __init__(self, document: Any, references: Mapping[str, str] | None = None) -> None:
        self._root = document
        self._others = {name: json.loads(text) for name, text in (references or {}).items()}

    def columns(self) -> dict[str, Any]:
        """Spark's struct for the properties."""
        return self._columns(self._root, "$", 0)

    def faults(self, struct: Any) -> Iterator[str]:
        """The reasons why rows of this struct may not be of the schema, apart from nulls."""
        yield from self._faults(struct, self._root, "", 0)

    def writes_nulls(self, struct: Any) -> bool:
        """True if every column may be null. Otherwise nulls have to be left out."""
        return self._allows_nulls(struct, self._root, 0)

    def lacking(self, struct: Any) -> Iterator[str]:
        """SQL conditions under which a row that leaves out its nulls lacks a required property."""
        yield from self._lacking(struct, self._root, "", 0)

    # --- reading

    def _columns(self, schema: Any, path: str, depth: int) -> dict[str, Any]:
        schema = self._bare(schema)
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if not isinstance(properties, dict) or not properties:
            raise Unsupported(f"{path} is neither a Spark schema nor a JSON Schema object with `properties`")
        fields = [
            {"name": name, "type": self._type(child, f"{path}.{name}", depth + 1), "nullable": True, "metadata": {}}
            for name, child in properties.items()
        ]
        return {"type": "struct", "fields": fields}

    def _type(self, schema: Any, path: str, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise Unsupported(f"{path}: the schema is nested without end")
        schema = self._bare(schema)
        kinds = _kinds(schema)
        kind = kinds[0] if len(kinds) == 1 else None
        if kind == "object":
            return self._object(schema, path, depth)
        if kind == "array":
            item = self._type(schema.get("items"), f"{path}[]", depth + 1)
            return {"type": "array", "elementType": item, "containsNull": True}
        if kind == "string" and isinstance(schema.get("format"), str):
            return _FORMATS.get(schema["format"], "string")
        if not isinstance(kind, str) or kind not in _SIMPLE:
            raise Unsupported(f"{path}: a column needs exactly one simple `type`")
        return _SIMPLE[kind]

    def _object(self, schema: dict[str, Any], path: str, depth: int) -> dict[str, Any]:
        values = schema.get("additionalProperties")
        if "properties" not in schema and isinstance(values, dict):
            value = self._type(values, f"{path}.*", depth + 1)
            return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": True}
        return self._columns(schema, path, depth)

    def _bare(self, schema: Any) -> Any:
        """The schema itself, for a `$ref` to it, or for an alternative of it and null."""
        for _ in range(_MAX_DEPTH):
            if not isinstance(schema, dict):
                return schema
            if isinstance(schema.get("$ref"), str):
                schema = self._referred(schema["$ref"])
                continue
            choices = schema.get("oneOf") or schema.get("anyOf") or ()
            others = [each for each in choices if each != {"type": "null"}]
            if len(others) != 1:
                return schema
            schema = others[0]
        raise Unsupported("a $ref leads back to itself")

    def _referred(self, reference: str) -> Any:
        name, _, pointer = reference.partition("#")
        if name and name not in self._others:
            raise Unsupported(f'"$ref": "{reference}" names a schema that is not there')
        found = self._others[name] if name else self._root
        for part in filter(None, pointer.split("/")):
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                raise Unsupported(f'"$ref": "{reference}" names nothing')
            found = found[key]
        return found

    # --- writing

    def _faults(self, kind: Any, schema: Any, path: str, depth: int) -> Iterator[str]:
        schema = self._bare(schema)
        kinds = _kinds(schema)
        if depth > _MAX_DEPTH or not kinds:  # anything is allowed, or what is allowed is not known here
            return
        names = _json_types(kind)
        if not set(names) & set(kinds):
            yield f"{path or 'the record'} is {_spark_name(kind)}, and the schema wants {' or '.join(kinds)}"
        elif names == ("array",):
            yield from self._faults(kind["elementType"], schema.get("items"), f"{path}[]", depth + 1)
        elif kind["type"] == "map" if isinstance(kind, dict) else False:
            values = schema.get("additionalProperties")
            yield from self._faults(kind["valueType"], values, f"{path}.*", depth + 1)
        elif names == ("object",):
            yield from self._struct_faults(kind, schema, path, depth)

    def _struct_faults(self, kind: Any, schema: Any, path: str, depth: int) -> Iterator[str]:
        columns = {field["name"]: field["type"] for field in kind["fields"]}
        properties = schema.get("properties") or {}
        for name in schema.get("required") or ():
            if name not in columns:
                yield f"{f'{path}.{name}'.lstrip('.')} is missing, and the schema requires it"
        for name, inner in columns.items():
            at = f"{path}.{name}".lstrip(".")
            if name in properties:
                yield from self._faults(inner, properties[name], at, depth + 1)
            elif schema.get("additionalProperties") is False:
                yield f"{at} is not in the schema, which has no further properties"

    def _allows_nulls(self, kind: Any, schema: Any, depth: int) -> bool:
        bare = self._bare(schema)
        properties = bare.get("properties") or {} if isinstance(bare, dict) else {}
        for field in kind["fields"]:
            inner = properties.get(field["name"])
            if inner is not None and not self._may_be_null(inner):
                return False
            nested = _struct_in(field["type"])
            if (
                nested is not None
                and depth < _MAX_DEPTH
                and not self._allows_nulls(nested, self._inside(inner), depth + 1)
            ):
                return False
        return True

    def _inside(self, schema: Any) -> Any:
        """The schema of the objects in an array, a map, or itself."""
        bare = self._bare(schema)
        if not isinstance(bare, dict):
            return {}
        if "array" in _kinds(bare):
            return self._inside(bare.get("items"))
        values = bare.get("additionalProperties")
        return self._inside(values) if "properties" not in bare and isinstance(values, dict) else bare

    def _may_be_null(self, schema: Any) -> bool:
        if not isinstance(schema, dict):
            return True
        if isinstance(schema.get("$ref"), str):
            return self._may_be_null(self._referred(schema["$ref"]))
        choices = schema.get("oneOf") or schema.get("anyOf")
        if choices:
            return any(self._may_be_null(each) for each in choices)
        kind = schema.get("type")
        return kind is None or kind == "null" or (isinstance(kind, list) and "null" in kind)

    def _lacking(self, kind: Any, schema: Any, value: str, depth: int) -> Iterator[str]:
        bare = self._bare(schema)
        if not isinstance(bare, dict) or depth > _MAX_DEPTH or isinstance(kind, str):
            return
        if kind["type"] == "struct":
            properties = bare.get("properties") or {}
            for field in kind["fields"]:
                inner = ".".join(filter(None, (value, named(field["name"]))))
                if field["name"] in (bare.get("required") or ()):
                    yield f"{inner} IS NULL"
                within = list(self._lacking(field["type"], properties.get(field["name"]), inner, depth + 1))
                yield from _if_there(inner, within)
            return
        is_array, each = kind["type"] == "array", f"x{depth}"
        item = kind["elementType" if is_array else "valueType"]
        of_item = bare.get("items" if is_array else "additionalProperties")
        tests = list(_if_there(each, list(self._lacking(item, of_item, each, depth + 1))))
        if is_array and isinstance(of_item, dict) and not self._may_be_null(of_item):
            tests.append(f"{each} IS NULL")
        if tests:
            yield f"exists({value if is_array else f'map_values({value})'}, {each} -> {' OR '.join(tests)})"


def _if_there(value: str, tests: list[str]) -> Iterator[str]:
    if tests:
        yield f"({value} IS NOT NULL AND ({' OR '.join(tests)}))"


def _kinds(schema: Any) -> list[str]:
    """The schema's types but null."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    kinds = kind if isinstance(kind, list) else [kind] if kind else []
    if not kinds and isinstance(schema, dict) and "properties" in schema:
        return ["object"]
    return [str(each) for each in kinds if each != "null"]


def _is(kind: Any, name: str) -> bool:
    return isinstance(kind, dict) and kind.get("type") == name


def _json_types(kind: Any) -> tuple[str, ...]:
    if isinstance(kind, str):
        return ("number",) if kind.startswith("decimal") else _JSON_TYPES.get(kind, ("string",))
    return ("array",) if _is(kind, "array") else ("object",)


def _spark_name(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])


def _struct_in(kind: Any) -> Any:
    """The struct that a type is, or holds in arrays and maps; None if there is none."""
    while isinstance(kind, dict) and kind["type"] != "struct":
        kind = kind["elementType"] if kind["type"] == "array" else kind["valueType"]
    return kind if isinstance(kind, dict) else None
