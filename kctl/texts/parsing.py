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


LARGEST = 2**63 - 1
"""The largest number that Kafka's protocol has room for."""
LARGEST_INT32 = 2**31 - 1
"""Likewise of ids of brokers, of partitions, and for times that requests may take."""
LARGEST_INT16 = 2**15 - 1
"""Likewise of replicas of a partition, and of versions of requests."""
_MOST_DIGITS = 19


def whole_number(text: str, largest: int = LARGEST) -> int | None:
    """The number of a text of plain digits; None if it is something else, or larger."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return None
    number = int(text)
    return number if number <= largest else None


def _wrong(text: str, kind: str, examples: str) -> KctlError:
    return KctlError(f'"{text}" is not a {kind}', exit_code=Exit.USAGE, hints=(f"write it as {examples}",))


def parse_size(text: str) -> int:
    """Bytes: 500, 64KB, 1.5GB (thousands), 64KiB or 1GiB (1,024s); `/s` may follow."""
    found = re.fullmatch(_SIZE, text.strip())
    if not found:
        raise _wrong(text, "size", "500, 64KB, 1.5GB or 64MiB")
    return _whole(text, _number(found[1]) * _SIZES[(found[2] or "").lower()], "size")


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
        return _whole(text, _number(text) * _DURATIONS[unit], "duration")
    if text[:1].lower() == "p" or text[:2].lower() == "-p":
        return _iso_duration_ms(text)
    parts = re.findall(_DURATION_PART, text)
    if not parts or re.sub(_DURATION_PART, "", text).strip():
        raise _wrong(text, "duration", "500ms, 10s, 1h30m, 7d or PT5M")
    return sum(_whole(text, _number(count) * _DURATIONS[name.lower()], "duration") for count, name in parts)


def _number(text: str) -> float:
    """Exact if it is whole: as a float, the largest number would be one more."""
    whole = whole_number(text)
    return float(text) if whole is None else whole


def _whole(text: str, number: float, kind: str) -> int:
    if number > LARGEST:
        raise KctlError(f'"{text}" is too large a {kind}', exit_code=Exit.USAGE)
    return int(number)


def _iso_duration_ms(text: str) -> int:
    found = re.fullmatch(_ISO_DURATION, text)
    if not found or not any(found.groups()[1:]):
        raise _wrong(text, "duration", "PT5M or P1DT12H")
    parts = zip(found.groups()[1:], _ISO_UNITS, strict=True)
    whole = sum(_whole(text, float(part) * unit, "duration") for part, unit in parts if part)
    return -whole if found[1] else whole


def parse_time_ms(text: str, now_ms: int, utc: bool = False) -> int:
    """Milliseconds since 1970 of a time: `now`, -30m (before now), 1763700000 or 1763700000000 (seconds or
    milliseconds), a date or a time of ISO 8601; without a zone it is local, or UTC where `utc`. A leading @ is dropped.
    No record is older than 1970, and to a broker a negative number means something else.
    """
    found = _time_ms(text, now_ms, utc)
    if not 0 <= found <= LARGEST:
        raise KctlError(f'"{text}" is {"before 1970" if found < 0 else "too late a time"}', exit_code=Exit.USAGE)
    return found


def _time_ms(text: str, now_ms: int, utc: bool) -> int:
    text = text.strip().removeprefix("@").strip()
    if text == "now":
        return now_ms
    if text[:1] in "+-" and text[1:2].isdigit():
        moved = parse_duration_ms(text[1:], unit="s")
        return now_ms - moved if text[0] == "-" else now_ms + moved
    if len(text) >= 9 and (number := whole_number(text)) is not None:
        return number if len(text) >= 12 else number * 1000
    return _iso_time_ms(text, utc)


def _iso_time_ms(text: str, utc: bool) -> int:
    from datetime import UTC, datetime

    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        examples = "2026-11-21T05:30, 2026-11-21T05:30:00.000Z, -30m or milliseconds since 1970"
        raise _wrong(text, "time", examples) from None
    try:
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC) if utc else when.astimezone()
        return round(when.timestamp() * 1000)
    except (ValueError, OverflowError):  # in UTC its year is none from 1 to 9999
        raise KctlError(f'"{text}" is not a time that can be told', exit_code=Exit.USAGE) from None
