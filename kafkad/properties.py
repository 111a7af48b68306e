"""Java's format of properties: that of the files of Kafka's brokers and clients."""

from __future__ import annotations

import os
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import NamedTuple

_LINE_END = re.compile(r"\r\n|\r|\n")
"""Everything else at which Python also ends a line may stand in a value."""

_BLANKS = " \t\f"
_SEPARATOR = re.compile(r"((?:\\.|[^\\=: \t\f])*)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+|$)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    line: int
    """The first one of it."""
    name: str
    value: str


def is_properties(path: str, text: str) -> bool:
    """True for Kafka's format: by the ending, or else by the first line with content: Kafka's has `=`, YAML `:`."""
    ending = os.path.splitext(path)[1].lower()
    if ending in (".properties", ".yaml", ".yml"):
        return ending == ".properties"
    first = next((line for line in _LINE_END.split(text) if line.strip() and line.lstrip()[0] not in "#!"), "")
    return "=" in first.partition(":")[0]


def java_text(content: bytes) -> str:
    """Of a file of properties: ISO 8859-1, whatever it was written in, so that Kafka has the same letters. The mark
    that some editors put before them is left out."""
    return content.removeprefix(BOM_UTF8).decode("latin-1")


def was_utf_8(value: str) -> bool:
    """It has letters beyond ASCII that were written in UTF-8, and are others now."""
    try:
        return not value.isascii() and bool(value.encode("latin-1").decode())
    except UnicodeError:
        return False


def parse_properties(text: str) -> Iterator[Property]:
    """Comments, `=`, `:` or a blank between name and value, lines continued by a backslash. Of a name that comes twice
    the last one counts."""
    for number, line in _logical_lines(text):
        match = _SEPARATOR.match(line)
        name, value = match.groups() if match else (line, "")
        yield Property(number, _ESCAPE.sub(_unescape, name), _ESCAPE.sub(_unescape, value))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    pending, started = "", 0
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.lstrip(_BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continue
        started = started if pending else number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
        else:
            yield started, pending + line
            pending = ""
    if pending:
        yield started, pending


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) == 5 else _CONTROL.get(code, code)
