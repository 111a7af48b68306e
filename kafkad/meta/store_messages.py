"""Messages between the process that owns the embedded store and the brokers that use it: JSON, each after its length.

A request is `[number, operation, arguments]`, its answer `[number, result]` or `[number, null, error]`. What the server
says unasked has no number: `["changed", change, path]` for a watch, `["expired"]` for the session. Bytes travel as
text of the code points 0 to 255.
"""

from __future__ import annotations

import json
from asyncio import StreamReader
from collections.abc import Sequence
from struct import Struct
from typing import Any

from kafkad.meta import store
from kafkad.meta.store import Check, Create, Delete, MetaError, MultiFailed, Operation, Result, Set, Stat

SESSION_TICK_S = 1.0
SESSION_TICKS = 6
"""A broker that says nothing for this many ticks has lost its session; it says something in each of them."""

_LENGTH = Struct(">I")
_OPERATIONS: dict[str, type[Operation]] = {kind.__name__: kind for kind in (Create, Set, Delete, Check)}
_ERRORS: dict[str, type[MetaError]] = {
    kind.__name__: kind
    for kind in (
        store.BadPath,
        store.BadVersion,
        store.ConnectionLoss,
        store.NoChildrenForEphemerals,
        store.NoNode,
        store.NoRoom,
        store.NodeExists,
        store.NotEmpty,
        store.SessionExpired,
    )
}


def packed(message: Sequence[Any]) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return _LENGTH.pack(len(body)) + body


async def receive(reader: StreamReader) -> Any:
    """The next message. IncompleteReadError or an OSError when the peer is gone."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return json.loads(await reader.readexactly(length))


def text_of(data: bytes) -> str:
    return data.decode("latin-1")


def bytes_of(text: str) -> bytes:
    return text.encode("latin-1")


def node_values(node: tuple[bytes, Stat] | None) -> Any:
    return None if node is None else [text_of(node[0]), node[1]]


def node_of(values: Any) -> tuple[bytes, Stat] | None:
    return None if values is None else (bytes_of(values[0]), Stat(*values[1]))


def operation_values(operation: Operation) -> list[Any]:
    values = [text_of(value) if isinstance(value, bytes) else value for value in operation]
    return [type(operation).__name__, *values]


def operation_of(values: list[Any]) -> Operation:
    kind, path, *rest = values
    if kind in (Create.__name__, Set.__name__):
        rest[0] = bytes_of(rest[0])
    return _OPERATIONS[kind](path, *rest)


def result_of(values: Any) -> Result:
    """The result of one operation of a `multi`; a Stat travels as a list."""
    return Stat(*values) if isinstance(values, list) else values


def error_values(error: MetaError) -> list[Any]:
    if isinstance(error, MultiFailed):
        return ["MultiFailed", error.index, error_values(error.cause)]
    return [type(error).__name__, error.path, str(error).removeprefix(f"{error.path}: ")]


def error_of(values: list[Any]) -> Exception:
    kind, *rest = values
    if kind == "MultiFailed":
        index, cause = rest
        inner = error_of(cause)
        assert isinstance(inner, MetaError)
        return MultiFailed(index, inner)
    return _ERRORS[kind](*rest)
