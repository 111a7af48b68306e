"""The range to read in each partition: `--from` and `--to`, and their offsets once these are known."""

from __future__ import annotations

from typing import NamedTuple

from kctl.errors import Exit, KctlError
from kctl.texts.parsing import parse_time_ms, whole_number

EARLIEST, LATEST, TIME, OFFSET, BACK = "earliest", "latest", "time", "offset", "back"


class Bound(NamedTuple):
    """`number` is the time (ms), the offset, or how many offsets before the end."""

    kind: str
    number: int = 0


FIRST, LAST = Bound(EARLIEST), Bound(LATEST)
FOR_EVER = 2**63 - 1
"""The end of a span that has none."""


class Extent(NamedTuple):
    """The first and end offsets of a partition now."""

    start: int
    end: int


class Span(NamedTuple):
    """Offsets to read: from `start` up to, but not including, `end`."""

    start: int
    end: int


def parse_bound(text: str, what: str, now_ms: int, utc: bool = False) -> Bound:
    """`earliest`, `latest`, `@TIME`, an offset, or `-N`: N offsets before the end."""
    word = text.lower()
    if word in ("earliest", "beginning", "start"):
        return FIRST
    if word in ("latest", "end", "now"):
        return LAST
    if text.startswith("@"):
        return Bound(TIME, parse_time_ms(text, now_ms, utc))
    if (number := whole_number(text.removeprefix("-"))) is not None:
        return Bound(BACK if text.startswith("-") else OFFSET, number)
    raise KctlError(
        f'{what} "{text}" is not earliest, latest, @TIME, an offset or -N',
        exit_code=Exit.USAGE,
        hints=("a time is like @-30m, @2026-11-21T05:30 or @1763703000000",),
    )


def place(bound: Bound, extent: Extent, at_time: int | None) -> int:
    """The offset that a bound means. `at_time`: of the first record at its time or later, None when there is none."""
    match bound.kind:
        case "earliest":
            offset = extent.start
        case "latest":
            offset = extent.end
        case "back":
            offset = extent.end - bound.number
        case "time":
            offset = extent.end if at_time is None else at_time
        case _:
            offset = bound.number
    return min(max(offset, extent.start), extent.end)
