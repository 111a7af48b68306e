"""As much of DER as certificates need: elements, one after the other, and the names and dates in them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

SEQUENCE, SET, OID, OCTETS, UTC_TIME = 0x30, 0x31, 0x06, 0x04, 0x17


class Element(NamedTuple):
    """`whole` is the element as it stands, with tag and length before its content."""

    tag: int
    content: bytes
    whole: bytes


def elements(data: bytes) -> Iterator[Element]:
    """Raises ValueError for what is not DER."""
    at = 0
    while at < len(data):
        element = _element(data, at)
        at += len(element.whole)
        yield element


def element(data: bytes) -> Element:
    """The first one. Raises ValueError."""
    return _element(data, 0)


def _element(data: bytes, start: int) -> Element:
    if len(data) < start + 2:
        raise ValueError("it ends in the middle of an element")
    tag, size, at = data[start], data[start + 1], start + 2
    if size & 0x80:
        count = size & 0x7F
        if not 1 <= count <= 4:
            raise ValueError("an element has no definite length")
        size = int.from_bytes(data[at : at + count], "big")
        at += count
    if len(data) < at + size:
        raise ValueError("it ends in the middle of an element")
    return Element(tag, data[at : at + size], data[start : at + size])


def oid_text(content: bytes) -> str:
    """1.2.840.… Raises ValueError."""
    if not content or content[-1] & 0x80:
        raise ValueError("an object identifier is cut off")
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def time_of(found: Element) -> datetime:
    """UTCTime has two digits for the year, up to 2049. Raises ValueError."""
    text = found.content.decode("ascii", "replace")
    if found.tag == UTC_TIME:
        text = ("20" if text[:2] < "50" else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
