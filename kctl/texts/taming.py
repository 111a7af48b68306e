"""Text that others have made up, on a terminal: nothing in it moves the cursor, or ends a line that it is part of."""

from __future__ import annotations

import re
from typing import Any

_COLOR = re.compile(r"(\x1b\[[0-9;]*m)")
_C1 = re.compile(r"[\x80-\x9f]")


def line_text(value: Any) -> str:
    """A value on one line; `-`: not known."""
    if value is None:
        return "-"
    text = str(value)
    return text if text.isprintable() else _escaped(text)


def tame(text: str) -> str:
    """A line of the command's own making, with its colors, in which names may be anything else: `line_text` is for one
    that has no colors, in which a name's could conceal what follows."""
    if text.isprintable():
        return text
    return "".join(part if at % 2 else _escaped(part) for at, part in enumerate(_COLOR.split(text)))


def tame_lines(text: str) -> str:
    """Lines of which none is a name's."""
    return "\n".join(map(line_text, text.split("\n")))


def _escaped(text: str) -> str:
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def without_c1(text: str) -> str:
    """JSON in which the control characters that it allows in strings, and terminals obey, are written as escapes."""
    if text.isascii() or not _C1.search(text):
        return text
    return _C1.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
