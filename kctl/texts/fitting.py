"""Fitting the columns of a table to a screen. Pure; widths are counted in places on the screen, not in characters."""

from __future__ import annotations

from collections.abc import Collection, Sequence

GAP = "  "
NARROWEST = 12
"""The width to which a column of text is cut on a narrow screen; then columns are left out."""


def places(text: str) -> int:
    """The width of a text on the screen: two for each Chinese character, none for combining accents."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(sign) else 1 + (east_asian_width(sign) in "WF") for sign in text)


def cut(text: str, width: int) -> str:
    """The text, or its beginning with an ellipsis."""
    if places(text) <= width:
        return text
    text = text[: width - 1]
    while places(text) >= width:
        text = text[:-1]
    return f"{text}…"


def pad(text: str, width: int, *, right: bool) -> str:
    blank = " " * (width - places(text))
    return blank + text if right else text + blank


def total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def that_fit(widths: Sequence[int], texts: Collection[int], stay: Collection[int], room: int) -> list[int]:
    """The columns that stay when those on the right go first, and `texts` may be cut."""
    least = [min(width, NARROWEST) if at in texts else width for at, width in enumerate(widths)]
    kept = list(range(len(widths)))
    for at in reversed(kept[:]):
        if total([least[each] for each in kept]) <= room:
            break
        if at not in stay:
            kept.remove(at)
    return kept


def narrow(widths: list[int], kept: Sequence[int], texts: Collection[int], room: int) -> set[int]:
    """Takes from the widest texts what a line is too long; which they are."""
    narrowed: set[int] = set()
    over = total([widths[at] for at in kept]) - room
    for width in range(max((widths[at] for at in texts), default=0), NARROWEST, -1):
        for at in kept:
            if over > 0 and at in texts and widths[at] == width:
                widths[at] -= 1
                over -= 1
                narrowed.add(at)
    return narrowed
