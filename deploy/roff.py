"""Formats text in the markup of man(7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_CODE = re.compile(r"`([^`]+)`")
_AS_IT_IS = "\b"
"""Click's marker for a paragraph whose line breaks are kept."""


_SPECIAL = str.maketrans({"\\": "\\e", "-": "\\-", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti", ",": ",\\:"})


def escaped(text: str) -> str:
    """Escapes text: none of it is read as a request, options can be copied, and long lists break at commas."""
    text = text.translate(_SPECIAL)
    return f"\\&{text}" if text.startswith((".", "'")) else text


def bold(text: str) -> str:
    return f"\\fB{escaped(text)}\\fR"


def running(text: str) -> str:
    """One paragraph, with text in backticks set in bold."""
    words = [bold(part) if odd % 2 else escaped(part) for odd, part in enumerate(_CODE.split(" ".join(text.split())))]
    line = "".join(words)
    return f"\\&{line}" if line.startswith((".", "'")) else line


def paragraphs(*texts: str) -> Iterator[str]:
    for number, paragraph in enumerate(re.split(r"\n\s*\n", "\n\n".join(texts).strip())):
        if number:
            yield ".PP"
        if paragraph.lstrip(" ").startswith(_AS_IT_IS):
            yield from (
                ".nf",
                *(escaped(line) for line in paragraph.replace(_AS_IT_IS, "").strip("\n").split("\n")),
                ".fi",
            )
        else:
            yield running(paragraph)


def items(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A list of names in bold with their descriptions."""
    for name, text in pairs:
        yield from (".TP", bold(name), running(text[:1].upper() + text[1:]) or "\\&")


def heading(name: str, section: int, version: str, title: str) -> Iterator[str]:
    yield f'.TH "{escaped(name.upper())}" "{section}" "" "kafkad {escaped(version)}" "{title}"'
    yield ".nh"
    yield ".ad l"
