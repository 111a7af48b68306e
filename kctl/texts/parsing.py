"""Parsers of times, durations and sizes as people write them."""

from __future__ import annotations

import re

from kctl.errors import Exit, KctlError

_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_DURATIONS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZE = r"(?i)(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?(?:/s)?"  # compiled when it is needed: no start shall pay for that
_DURATION_PART = r"(?i)(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)"
_ISO_DURATION = r"(?i)(-?)P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?"
_ISO_UNITS = (604_800_000, 86_400_000, 3_600_000, 60_000, 1000)


def _wrong(text: str, kind: str, examples: str) -> KctlError:
    return KctlError(f'"{text}" is not a {kind}', exit_code=Exit.USAGE, hints=(f"write it as {examples}",))


def parse_size(text: str) -> int:
    """Bytes: 500, 64KB, 1.5GB (thousands), 64KiB or 1GiB (1,024s); `/s` may follow."""
    found = re.fullmatch(_SIZE, text.strip())
    if not found:
        raise _wrong(text, "size", "500, 64KB, 1.5GB or 64MiB")
    return int(float(found[1]) * _SIZES[(found[2] or "").lower()])


def parse_rate(text: str) -> int:
    """Bytes a second, one at least: at a lower rate a move never ends."""
    rate = parse_size(text)
    if rate < 1:
        raise KctlError(f'at "{text}" a move would never end', exit_code=Exit.USAGE, hints=("as in 50MB/s",))
    return rate


def parse_duration_ms(text: str, unit: str = "ms") -> int:
    """Milliseconds of 500ms, 10s, 1h30m, 7d or ISO 8601 (PT5M, P1DT12H); a bare number counts `unit`s."""
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return int(float(text) * _DURATIONS[unit])
    if text[:1].lower() == "p" or text[:2].lower() == "-p":
        return _iso_duration_ms(text)
    parts = re.findall(_DURATION_PART, text)
    if not parts or re.sub(_DURATION_PART, "", text).strip():
        raise _wrong(text, "duration", "500ms, 10s, 1h30m, 7d or PT5M")
    return sum(int(float(count) * _DURATIONS[name.lower()]) for count, name in parts)


def _iso_duration_ms(text: str) -> int:
    found = re.fullmatch(_ISO_DURATION, text)
    if not found or not any(found.groups()[1:]):
        raise _wrong(text, "duration", "PT5M or P1DT12H")
    whole = sum(int(float(part) * unit) for part, unit in zip(found.groups()[1:], _ISO_UNITS, strict=True) if part)
    return -whole if found[1] else whole


def parse_time_ms(text: str, now_ms: int, utc: bool = False) -> int:
    """Milliseconds since 1970 of a time: `now`, -30m (before now), 1763700000 or 1763700000000 (seconds or
    milliseconds), a date or a time of ISO 8601; without a zone it is local, or UTC where `utc`. A leading @ is dropped.
    """
    text = text.strip().removeprefix("@").strip()
    if text == "now":
        return now_ms
    if text[:1] in "+-" and text[1:2].isdigit():
        moved = parse_duration_ms(text[1:], unit="s")
        return now_ms - moved if text[0] == "-" else now_ms + moved
    if text.isdigit() and len(text) >= 9:
        return int(text) if len(text) >= 12 else int(text) * 1000
    return _iso_time_ms(text, utc)


def _iso_time_ms(text: str, utc: bool) -> int:
    from datetime import UTC, datetime

    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        examples = "2026-11-21T05:30, 2026-11-21T05:30:00.000Z, -30m or milliseconds since 1970"
        raise _wrong(text, "time", examples) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC) if utc else when.astimezone()
    return round(when.timestamp() * 1000)
