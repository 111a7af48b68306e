"""Checks a YAML tree against the types of `job`: returns plain values, and every mistake in the file's own terms.

msgspec would stop at the first mistake and name Python types. An invalid value is left out, and checking continues.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any

from msgspec import inspect
from msgspec.inspect import Type
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from kafkad_etl.model.document import BOOLEAN, INTEGER, NULL, NUMBER, STRING, Mistake, below, children
from kctl.errors import did_you_mean

_LARGEST = 2**63 - 1
_WORDS: dict[type, str] = {
    inspect.StrType: "text",
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.BoolType: "true or false",
    inspect.VarTupleType: "a list",
    inspect.DictType: "a block of keys",
    inspect.StructType: "a block of keys",
}


class _Wrong(Exception):
    """A mistake has been noted; the value is left out."""


def check(root: Node, kind: Type) -> tuple[Any, list[Mistake]]:
    """The values in the tree that are valid for `kind`, and all mistakes."""
    checking = _Checking(kind)
    try:
        return checking.value(root, kind, ""), checking.mistakes
    except _Wrong:
        return {}, checking.mistakes


class _Checking:
    def __init__(self, root: Type) -> None:
        self.mistakes: list[Mistake] = []
        self._root = root

    @cached_property
    def _homes(self) -> dict[str, list[str]]:
        """The blocks that have each key, by key."""
        homes: dict[str, list[str]] = {}
        _add_homes(_bare(self._root), "", homes)
        return homes

    def _wrong(self, path: str, text: str, *hints: str) -> _Wrong:
        self.mistakes.append(Mistake(path, text, hints))
        return _Wrong()

    def value(self, node: Node, kind: Type, path: str) -> Any:
        kind = _bare(kind)
        if isinstance(kind, inspect.AnyType):
            return _plain(node)
        if isinstance(kind, inspect.UnionType):
            kind = self._alternative(node, kind, path)
        if _is_null(node):
            if isinstance(kind, inspect.NoneType):
                return None
            raise self._wrong(path, "has no value", "give it one, or remove the key")
        if isinstance(kind, inspect.StructType):
            return self._struct(node, kind, path)
        if isinstance(kind, inspect.DictType):
            return self._dict(node, kind, path)
        if isinstance(kind, inspect.VarTupleType):
            return self._list(node, kind, path)
        return self._scalar(node, kind, path)

    def _alternative(self, node: Node, union: inspect.UnionType, path: str) -> Type:
        """The alternative that matches the node's form; for scalars, an exact one before text, which matches
        everything."""
        kinds = [_bare(kind) for kind in union.types]
        fitting = [kind for kind in kinds if _fits(node, kind)]
        if fitting:
            return min(fitting, key=lambda kind: isinstance(kind, inspect.StrType))
        named = [kind for kind in kinds if not isinstance(kind, inspect.NoneType)]
        if len(named) == 1:
            return named[0]
        if _is_null(node):
            raise self._wrong(path, "has no value", "give it one, or remove the key")
        raise self._wrong(path, f"must be {_either(_words(kind) for kind in named)}, not {_shown(node)}")

    def _struct(self, node: Node, kind: inspect.StructType, path: str) -> dict[str, Any]:
        if not isinstance(node, MappingNode):
            keys = ", ".join(field.name for field in kind.fields[:4])
            raise self._wrong(path, f"must be a block of keys ({keys} …), not {_shown(node)}")
        fields = {field.name: field for field in kind.fields}
        values: dict[str, Any] = {}
        for name, child in children(node):
            if name not in fields:
                self.mistakes.append(Mistake(below(path, name), "unknown key", self._hints(name, list(fields), kind)))
                continue
            self._into(values, name, child, fields[name].type, below(path, name))
        present = {name for name, _ in children(node)}
        for field in kind.fields:
            if field.required and field.name not in present:
                self.mistakes.append(Mistake(path, f'the key "{field.name}" is missing', _choices(_bare(field.type))))
        return values

    def _into(self, values: dict[Any, Any], name: Any, child: Node, kind: Type, path: str) -> None:
        with suppress(_Wrong):  # noted: the value stays out
            values[name] = self.value(child, kind, path)

    def _hints(self, name: str, known: list[str], kind: Type) -> tuple[str, ...]:
        close = did_you_mean(name, known)
        if close:
            return close
        elsewhere = [path for path in self._homes.get(name, ()) if path]
        if 0 < len(elsewhere) <= 2:
            return (f"it belongs under {' or '.join(elsewhere)}",)
        return (f"known: {', '.join(known)}",)

    def _dict(self, node: Node, kind: inspect.DictType, path: str) -> dict[Any, Any]:
        if not isinstance(node, MappingNode):
            raise self._wrong(path, f"must be a block of keys, not {_shown(node)}")
        values: dict[Any, Any] = {}
        for name, child in children(node):
            key: Any = name
            if isinstance(kind.key_type, inspect.IntType):
                if not re.fullmatch(r"[0-9]{1,9}", name):
                    hint = "it is a partition number"
                    self.mistakes.append(Mistake(below(path, name), "the key must be a whole number", (hint,)))
                    continue
                key = int(name)
            self._into(values, key, child, kind.value_type, below(path, name))
        return values

    def _list(self, node: Node, kind: inspect.VarTupleType, path: str) -> list[Any]:
        if not isinstance(node, SequenceNode):
            hints = (f"write [{node.value}]",) if isinstance(node, ScalarNode) and node.value.isprintable() else ()
            raise self._wrong(path, f"must be a list, not {_shown(node)}", *hints)
        values: list[Any] = []
        for name, child in children(node):
            with suppress(_Wrong):  # noted: the item stays out
                values.append(self.value(child, kind.item_type, below(path, name)))
        if kind.min_length and not node.value:
            raise self._wrong(path, "must not be empty")
        return values

    def _scalar(self, node: Node, kind: Type, path: str) -> Any:
        if not isinstance(node, ScalarNode):
            raise self._wrong(path, f"must be {_words(kind)}, not {_shown(node)}")
        match kind:
            case inspect.StrType():
                return self._text(node.value, kind, path)
            case inspect.LiteralType():
                return self._literal(node, kind, path)
        value = _plain(node)
        if isinstance(kind, inspect.FloatType) and type(value) is int:
            value = float(value) if abs(value) <= _LARGEST else value
        wanted = {inspect.IntType: int, inspect.FloatType: float, inspect.BoolType: bool}[type(kind)]
        if type(value) is not wanted:
            raise self._wrong(path, f"must be {_words(kind)}, not {_shown(node)}")
        self._range(value, kind, path)
        return value

    def _text(self, text: str, kind: inspect.StrType, path: str) -> str:
        if kind.min_length and len(text) < kind.min_length:
            raise self._wrong(path, "must not be empty")
        if kind.pattern and not re.search(kind.pattern, text):
            raise self._wrong(path, f'"{text}" is not allowed here', f"it must match {kind.pattern}")
        return text

    def _literal(self, node: ScalarNode, kind: inspect.LiteralType, path: str) -> Any:
        for value in kind.values:
            if _is_literally(node, value):
                return value
        known = [str(value) for value in kind.values if value != ""]
        if len(known) == 1:
            raise self._wrong(path, f"must be {known[0]}, not {_shown(node)}")
        raise self._wrong(path, f'"{node.value}" is not one of {", ".join(known)}', *did_you_mean(node.value, known))

    def _range(self, value: Any, kind: Type, path: str) -> None:
        least, most = getattr(kind, "ge", None), getattr(kind, "le", None)
        if least is not None and value < least:
            raise self._wrong(path, f"must be at least {least}, not {value}")
        if most is not None and value > most:
            raise self._wrong(path, f"must be at most {most}, not {value}")
        if abs(value) > _LARGEST:
            raise self._wrong(path, "is too large")


def _bare(kind: Type) -> Type:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    return kind


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and bool(node.tag == NULL)


def _fits(node: Node, kind: Type) -> bool:
    if isinstance(node, MappingNode):
        return isinstance(kind, inspect.StructType | inspect.DictType)
    if isinstance(node, SequenceNode):
        return isinstance(kind, inspect.VarTupleType)
    match kind:
        case inspect.LiteralType():
            return any(_is_literally(node, value) for value in kind.values)
        case inspect.StrType():
            return node.tag not in (NULL, BOOLEAN)
        case inspect.IntType():
            return bool(node.tag == INTEGER)
        case inspect.FloatType():
            return bool(node.tag == NUMBER)
        case inspect.BoolType():
            return bool(node.tag == BOOLEAN)
    return isinstance(kind, inspect.NoneType) and _is_null(node)


def _is_literally(node: Node, value: Any) -> bool:
    if isinstance(value, bool):
        return node.tag == BOOLEAN and (node.value.lower() == "true") is value
    return bool(node.value == str(value))


def _plain(node: Node) -> Any:
    if isinstance(node, MappingNode):
        return {name: _plain(child) for name, child in children(node)}
    if isinstance(node, SequenceNode):
        return [_plain(child) for _, child in children(node)]
    text = node.value
    match node.tag:
        case t if t == NULL:
            return None
        case t if t == BOOLEAN:
            return text.lower() == "true"
        case t if t == INTEGER:
            return int(text) if len(text) < 100 else text
        case t if t == NUMBER:
            return float(text)
    return text


def _words(kind: Type) -> str:
    if isinstance(kind, inspect.LiteralType):
        return _either(
            str(value).lower() if isinstance(value, bool) else str(value) for value in kind.values if value != ""
        )
    return _WORDS[type(kind)]


def _either(words: Iterator[str]) -> str:
    *others, last = dict.fromkeys(words)
    return f"{', '.join(others)} or {last}" if others else last


def _shown(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a block of keys"
    if isinstance(node, SequenceNode):
        return "a list"
    if not node.value:
        return "empty"
    text = node.value if len(node.value) <= 40 else node.value[:40] + "…"
    return f'the text "{text}"' if node.tag == STRING else text


def _choices(kind: Type) -> tuple[str, ...]:
    return (f"one of {', '.join(map(str, kind.values))}",) if isinstance(kind, inspect.LiteralType) else ()


def _add_homes(kind: Type, path: str, homes: dict[str, list[str]]) -> None:
    if isinstance(kind, inspect.UnionType):
        for alternative in kind.types:
            _add_homes(_bare(alternative), path, homes)
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            homes.setdefault(field.name, []).append(path)
            _add_homes(_bare(field.type), below(path, field.name), homes)
