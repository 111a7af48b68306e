"""Ranges on the command line: `--offsets 10:20`, `--time 2026-11-21T06:00:10m`."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

import click

from kctl.errors import KctlError
from kctl.texts.parsing import parse_time_ms

_END = 2**63


class Range(NamedTuple):
    """A range from `start` up to, but not including, `end`."""

    start: int
    end: int

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and self.start <= value < self.end


EVERYTHING = Range(-_END, _END)


class OffsetRange(click.ParamType[Range]):
    """`A:B`, `A:`, `:B`, or one offset."""

    name = "A:B"

    def convert(self, value: str | Range, param: click.Parameter | None, ctx: click.Context | None) -> Range:
        if isinstance(value, Range):
            return value
        match = re.fullmatch(r"(\d{0,19})(:?)(\d{0,19})", value)
        if not match or not (match[1] or match[3]):
            self.fail(f"{value!r} is no range of offsets like 10:20, 10:, :20 or 10", param, ctx)
        start = int(match[1] or 0)
        return Range(start, int(match[3]) if match[3] else _END if match[2] else start + 1)


class TimeRange(click.ParamType[Range]):
    """Two times around a colon; either may be left out."""

    name = "A:B"

    def convert(self, value: str | Range, param: click.Parameter | None, ctx: click.Context | None) -> Range:
        if isinstance(value, Range):
            return value
        now_ms = time.time_ns() // 1_000_000
        for start, end in _splits(value):
            try:
                first = parse_time_ms(start, now_ms) if start else -_END
                return Range(first, parse_time_ms(end, now_ms) if end else _END)
            except KctlError:
                continue
        raise click.BadParameter(f"{value!r} is no range of times like -30m: or 2026-11-21:2026-11-22", ctx, param)


def _splits(text: str) -> list[tuple[str, str]]:
    """A time has colons of its own: every one is tried, the middle ones first."""
    places = [at for at, sign in enumerate(text) if sign == ":"]
    places.sort(key=lambda at: abs(2 * at - len(text)))
    return [(text[:at], text[at + 1 :]) for at in places]
