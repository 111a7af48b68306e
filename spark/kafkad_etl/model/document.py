"""Parses a job file into a tree of YAML nodes with their line numbers.

Scalars follow YAML 1.2: only `true` and `false` are booleans, and no text becomes a date, so a topic may be called `on`
and a start be `2026-11-01`. Duplicate keys are mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import yaml
from yaml.composer import Composer
from yaml.events import AliasEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from kctl.errors import did_you_mean

_DEEPEST = 50
"""Maximum nesting depth. A job needs eight levels; anything deeper was not written by hand."""
_TAG = "tag:yaml.org,2002:"
STRING, INTEGER, NUMBER, BOOLEAN, NULL = (_TAG + name for name in ("str", "int", "float", "bool", "null"))
_TAGGED = {INTEGER: (INTEGER,), NUMBER: (NUMBER, INTEGER), BOOLEAN: (BOOLEAN,), NULL: (NULL,)}
"""The tags that a text without quotes must have for one that was written before it: `!!float 1`."""
_MAPPING = _TAG + "map"
_FREE_NAMES = ("options", "conf", "config", "vars")
"""Blocks whose keys are the user's own and may contain dots: `--set kafka.options.fetch.max.bytes=1`."""


class Mistake(NamedTuple):
    """A mistake at a dotted path: sink.path, transform.steps.0.sql."""

    path: str
    text: str
    hints: tuple[str, ...] = ()


class Place(NamedTuple):
    """The place of a key. `line` is the key's; the value's text, or its lines in a `block` (|), starts at
    `text_line` and `text_column`."""

    line: int
    text_line: int = 0
    text_column: int = 0
    block: bool = False


class Unreadable(Exception):
    """The file cannot be parsed at all."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text


class _Resolver(BaseResolver):
    pass


_Resolver.add_implicit_resolver(NULL, re.compile(r"^(~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Resolver.add_implicit_resolver(BOOLEAN, re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Resolver.add_implicit_resolver(INTEGER, re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))
_Resolver.add_implicit_resolver(
    NUMBER, re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"), list("-+.0123456789")
)


class _Composer(Reader, Scanner, Parser, Composer, _Resolver):
    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        _Resolver.__init__(self)
        self.depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        line = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
        if self.check_event(AliasEvent):  # a few of them can name more than a memory holds
            raise Unreadable(line, "aliases (*name) are not supported in job files; use `vars` and ${name}")
        if self.depth == _DEEPEST:
            raise Unreadable(line, "blocks are nested too deeply")
        self.depth += 1
        try:
            node: Node | None = super().compose_node(parent, index)
        finally:
            self.depth -= 1
        if isinstance(node, ScalarNode) and node.tag in _TAGGED and tag_of(node.value) not in _TAGGED[node.tag]:
            raise Unreadable(line, f'"{node.value[:40]}" is not what its tag says; write the value alone')
        return node


def tag_of(text: str) -> str:
    """The tag of a scalar without quotes."""
    tag: str = _Resolver().resolve(ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return tag


def compose(text: str) -> Node | None:
    """The root node; None for an empty file."""
    try:
        node: Node | None = _Composer(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ": ".join(filter(None, (error.context, error.problem)))
        raise Unreadable(mark.line + 1 if mark else 1, f"this is not YAML: {said}") from error
    except yaml.YAMLError as error:
        raise Unreadable(1, f"this is not YAML: {str(error).splitlines()[0]}") from error
    return node


def children(node: Node) -> Iterator[tuple[str, Node]]:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield str(key.value), value
    elif isinstance(node, SequenceNode):
        for index, value in enumerate(node.value):
            yield str(index), value


def below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def wrong_keys(node: Node, path: str = "") -> Iterator[Mistake]:
    """Finds keys that are blocks themselves and duplicate keys."""
    seen: set[str] = set()
    for key, _ in node.value if isinstance(node, MappingNode) else ():
        if not isinstance(key, ScalarNode):
            yield Mistake(path, "a key must be a single word")
        elif key.value in seen:
            yield Mistake(below(path, key.value), "appears twice", ("remove one of them",))
        else:
            seen.add(key.value)
    for name, child in children(node):
        yield from wrong_keys(child, below(path, name))


def places(node: Node, lines: list[str], path: str = "") -> Iterator[tuple[str, Place]]:
    keys = dict(zip((str(key.value) for key, _ in node.value), node.value, strict=True)) if _is_map(node) else {}
    for name, child in children(node):
        key = keys[name][0] if name in keys else child
        yield below(path, name), Place(key.start_mark.line + 1, *_text_place(child, lines))
        yield from places(child, lines, below(path, name))


def _is_map(node: Node) -> bool:
    return isinstance(node, MappingNode)


def _text_place(node: Node, lines: list[str]) -> tuple[int, int, bool]:
    line, column = node.start_mark.line + 1, node.start_mark.column + 1
    if not isinstance(node, ScalarNode) or node.style not in ("|", ">"):
        return line, column + (1 if getattr(node, "style", None) in ("'", '"') else 0), False
    while line < len(lines) and not lines[line].strip():
        line += 1
    first = lines[line] if line < len(lines) else ""
    return line + 1, len(first) - len(first.lstrip(" ")) + 1, node.style == "|"


def put(root: Node, path: str, value: Node) -> Mistake | None:
    """Sets one value, as --set does, creating the blocks it needs."""
    node = root
    parts = _parts(path)
    for index, part in enumerate(parts):
        found = _child(node, part, value if index == len(parts) - 1 else None)
        if found is None:
            names = [name for name, _ in children(node)]
            return Mistake(path, f'there is no key "{part}" to set', did_you_mean(part, names))
        node = found
    return None


def _parts(path: str) -> list[str]:
    parts = path.split(".")
    for index, part in enumerate(parts):
        if part in _FREE_NAMES:
            return [*parts[: index + 1], ".".join(parts[index + 1 :])] if parts[index + 1 :] else parts
    return parts


def _child(node: Node, part: str, value: Node | None) -> Node | None:
    """The child `part`, or `value` in its place; creates a missing block."""
    if isinstance(node, SequenceNode):
        if not part.isdecimal() or int(part) >= len(node.value):
            return None
        items: list[Node] = node.value
        items[int(part)] = value or items[int(part)]
        return items[int(part)]
    entries: list[tuple[Node, Node]] = node.value
    at = next((index for index, (key, _) in enumerate(entries) if key.value == part), len(entries))
    present = entries[at][1] if at < len(entries) else None
    if value is None and isinstance(present, MappingNode | SequenceNode):
        return present
    entries[at : at + 1] = [(ScalarNode(STRING, part, node.start_mark), value or _empty(node))]
    return entries[at][1]


def _empty(beside: Node) -> MappingNode:
    return MappingNode(_MAPPING, [], beside.start_mark)
