"""Reading Avro's binary form by a schema, as far as records in Kafka use it: all types, no other schema to resolve to.

A value may begin with the five bytes that a schema registry's serialisers put there: 0 and the schema's number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from math import isfinite, isnan
from typing import Any

from kctl.segments.values import base64_text, compact, renderer
from kctl.texts.documents import read_json

_REGISTRY_PREFIX = 5
_MOST_ITEMS = 10_000_000

Read = Callable[["_Bytes"], Any]
Avro = Callable[[bytes], Any]


class AvroError(ValueError):
    """A schema that is none, or bytes that it does not describe."""


def compile_schema(text: str) -> Avro:
    """A decoder for bytes of this schema into plain values; AvroError when the schema is not valid."""
    try:
        schema = read_json(text)
    except ValueError as error:
        raise AvroError(f"the schema is no JSON: {error}") from None
    try:
        read = _Schema().reader(schema, "")
    except RecursionError:
        raise AvroError("the schema is nested too deeply") from None

    def decode(data: bytes) -> Any:
        if len(data) > _REGISTRY_PREFIX and data[0] == 0:
            try:
                return _whole(read, data, _REGISTRY_PREFIX)
            except AvroError:
                pass  # it may be a value that only begins with 0
        return _whole(read, data, 0)

    return decode


class AvroValues:
    """Shows values that are of the schema as JSON, others as they are, and counts these."""

    def __init__(self, schema: str, *, machine: bool) -> None:
        self.strangers = 0
        self._decode = compile_schema(schema)
        self._machine = machine
        self._other = renderer("auto", machine=machine)

    def __call__(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            value = self._decode(data)
        except AvroError:
            self.strangers += 1
            return self._other(data)
        return value if self._machine else compact(value)


def _whole(read: Read, data: bytes, at: int) -> Any:
    source = _Bytes(data, at)
    try:
        value = read(source)
    except (IndexError, struct.error, UnicodeDecodeError, RecursionError) as error:
        raise AvroError(f"no such value: {error}") from None
    if source.at != len(data):
        raise AvroError(f"{len(data) - source.at} bytes after the value")
    return value


class _Bytes:
    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise AvroError(f"{size} bytes where {len(self.data) - self.at} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def long(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 128:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise AvroError("a number longer than 64 bits")


def _boolean(source: _Bytes) -> bool:
    byte = source.take(1)[0]
    if byte > 1:
        raise AvroError(f"a boolean of {byte}")
    return byte == 1


def _number(value: float) -> float | str:
    """What JSON has no number for is its name: NaN, Infinity or -Infinity."""
    if isfinite(value):
        return value
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _binary(data: bytes) -> Any:
    return {"base64": base64_text(data)}


_PRIMITIVES: dict[str, Read] = {
    "null": lambda source: None,
    "boolean": _boolean,
    "int": _Bytes.long,
    "long": _Bytes.long,
    "float": lambda source: _number(struct.unpack("<f", source.take(4))[0]),
    "double": lambda source: _number(struct.unpack("<d", source.take(8))[0]),
    "bytes": lambda source: _binary(source.take(source.long())),
    "string": lambda source: source.take(source.long()).decode(),
}


class _Schema:
    """Names are known from where they stand on, so that a record may hold its own kind."""

    def __init__(self) -> None:
        self._named: dict[str, Read] = {}

    def reader(self, schema: Any, namespace: str) -> Read:
        if isinstance(schema, list):
            return self._union([self.reader(branch, namespace) for branch in schema])
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._known(schema, namespace)
        if not isinstance(schema, dict):
            raise AvroError(f"{schema!r} is no schema")
        match schema.get("type"):
            case "array":
                return _array(self.reader(schema.get("items"), namespace))
            case "map":
                return _map(self.reader(schema.get("values"), namespace))
            case "record" | "error":
                return self._record(schema, namespace)
            case "enum":
                return self._name(schema, namespace, _enum(schema.get("symbols")))
            case "fixed":
                size = schema.get("size")
                if not isinstance(size, int):
                    raise AvroError(f"a fixed of size {size!r}")
                return self._name(schema, namespace, lambda source: _binary(source.take(size)))
            case inner:
                return self.reader(inner, namespace)  # a logical type, or one in brackets: shown as what it is made of

    def _known(self, name: str, namespace: str) -> Read:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for candidate in (full, name):
            if candidate in self._named:
                return lambda source: self._named[candidate](source)
        raise AvroError(f"there is no type {name!r}")

    def _name(self, schema: dict[str, Any], namespace: str, read: Read) -> Read:
        self._named[_full_name(schema, namespace)] = read
        return read

    def _record(self, schema: dict[str, Any], namespace: str) -> Read:
        full = _full_name(schema, namespace)
        fields: list[tuple[str, Read]] = []

        def read(source: _Bytes) -> dict[str, Any]:
            return {name: field(source) for name, field in fields}

        self._named[full] = read
        inner = full.rpartition(".")[0]
        for field in schema.get("fields") or ():
            if not isinstance(field, dict) or "name" not in field:
                raise AvroError(f"{field!r} is no field of a record")
            fields.append((str(field["name"]), self.reader(field.get("type"), inner)))
        return read

    def _union(self, branches: list[Read]) -> Read:
        def read(source: _Bytes) -> Any:
            number = source.long()
            if not 0 <= number < len(branches):
                raise AvroError(f"branch {number} of a union of {len(branches)}")
            return branches[number](source)

        return read


def _full_name(schema: dict[str, Any], namespace: str) -> str:
    name = str(schema.get("name", ""))
    namespace = schema.get("namespace", namespace)
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _enum(symbols: Any) -> Read:
    def read(source: _Bytes) -> Any:
        number = source.long()
        if not isinstance(symbols, list) or not 0 <= number < len(symbols):
            raise AvroError(f"symbol {number} of {symbols}")
        return symbols[number]

    return read


def _blocks(source: _Bytes, add: Callable[[], None]) -> None:
    """Items come in blocks with their count, which is negative when the block's size follows; 0 ends them."""
    total = 0
    while count := source.long():
        if count < 0:
            count = -count
            source.long()
        total += count
        if total > _MOST_ITEMS:
            raise AvroError(f"{total} items")
        for _ in range(count):
            add()


def _array(item: Read) -> Read:
    def read(source: _Bytes) -> list[Any]:
        found: list[Any] = []
        _blocks(source, lambda: found.append(item(source)))
        return found

    return read


def _map(value: Read) -> Read:
    def read(source: _Bytes) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def add() -> None:
            name = source.take(source.long()).decode()
            found[name] = value(source)

        _blocks(source, add)
        return found

    return read
