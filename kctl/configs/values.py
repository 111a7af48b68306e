"""Settings as people write and read them: `retention.ms=7d`, `cleanup.policy+=compact`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from kctl.errors import Exit, KctlError, did_you_mean
from kctl.texts.output import duration_text, size_text
from kctl.texts.parsing import parse_duration_ms, parse_rate, parse_size

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
"""The operations of IncrementalAlterConfigs."""

RATES_OF_MOVES = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Settings that brokers take and do not list, unless they are set."""

_OPERATIONS = {"": SET, "+": APPEND, "-": SUBTRACT}
_ASSIGNMENT = re.compile(r"\s*([^\s=+-][^\s=+]*?)\s*([+-]?)=(.*)", re.DOTALL)
_ENDLESS = 2**63 - 1
_UNLIMITED = {"retention.ms", "retention.bytes", "local.retention.ms", "local.retention.bytes"}
_DURATIONS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))
_SIZES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_OF_TOPICS = {
    "log.retention.ms": "retention.ms",
    "log.retention.bytes": "retention.bytes",
    "log.cleanup.policy": "cleanup.policy",
    "message.max.bytes": "max.message.bytes",
}
"""The names that settings of topics have at brokers, for topics without a value of their own, where they differ."""
_UNITS = {"minutes": 60_000, "hours": 3_600_000}
_MAY_DELETE = {"retention.ms", "retention.bytes", "cleanup.policy"}


class Assignment(NamedTuple):
    """One change of one setting, its value in the unit that brokers count in."""

    name: str
    operation: int
    value: str | None


def parse_assignment(text: str) -> Assignment:
    """`name=value`, `name+=item` or `name-=item`."""
    found = _ASSIGNMENT.fullmatch(text)
    if not found:
        hint = "write it as retention.ms=7d, cleanup.policy+=compact or cleanup.policy-=compact"
        raise KctlError(f'"{text}" sets nothing', exit_code=Exit.USAGE, hints=(hint,))
    name, sign, value = found[1], found[2], found[3].strip()
    return Assignment(name, _OPERATIONS[sign], in_units_of_brokers(name, value))


def without_brackets(text: str) -> str:
    """A list may stand in brackets, as in Kafka's own tools."""
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text


def parse_assignments(texts: Iterable[str]) -> list[Assignment]:
    """KctlError USAGE where two of them are about the same setting."""
    found: dict[str, Assignment] = {}
    for text in texts:
        assignment = parse_assignment(text)
        if assignment.name in found:
            raise KctlError(f"{assignment.name} is given twice", exit_code=Exit.USAGE)
        found[assignment.name] = assignment
    return list(found.values())


def values_in_yaml(settings: Mapping[Any, Any], where: str) -> dict[str, str]:
    """The values that a mapping of a YAML file gives settings; `name:` alone gives none."""
    return {
        str(name): in_units_of_brokers(str(name), _yaml_text(value, f"{where}: {name}"))
        for name, value in settings.items()
        if value is not None
    }


def _yaml_text(value: Any, what: str) -> str:
    values = value if isinstance(value, list) else [value]
    if any(each is None or isinstance(each, (dict, list)) for each in values):
        raise KctlError(f"{what} must be a value or a list of values", exit_code=Exit.USAGE)
    return ",".join(str(each).lower() if isinstance(each, bool) else str(each) for each in values)


def in_units_of_brokers(name: str, value: str) -> str:
    """`7d` of a duration is 604800000, `256MiB` of a size 268435456; everything else stays as it is."""
    if re.fullmatch(r"-?\d+", value) or not value:
        return value
    try:
        if name.endswith(".ms"):
            return str(parse_duration_ms(value))
        if name.endswith(".bytes"):
            return str(parse_size(value))
        if name in RATES_OF_MOVES:
            return str(parse_rate(value))
    except KctlError as error:
        raise error.reason_of(name) from None
    return value


def said(name: str, value: str | None) -> str | None:
    """A duration or a size as a person says it (7d, 256MiB); None where the value speaks for itself."""
    number = _number(value)
    if number is None:
        return None
    if (number == -1 and name in _UNLIMITED) or number == _ENDLESS:
        return "unlimited"
    if number < 0 or number < 1000:
        return None
    if name.endswith(".ms"):
        exact = next((f"{number // size}{unit}" for unit, size in _DURATIONS if number % size == 0), None)
        return exact or (f"{number / 1000:g}s" if number < 60_000 else duration_text(number))
    if name.endswith(".bytes") or name in RATES_OF_MOVES:
        exact = next((f"{number // size}{unit}" for unit, size in _SIZES if number % size == 0), None)
        return exact or size_text(number)
    return None


def with_unit(name: str, value: str | None) -> str | None:
    """The value as a person says it, with its unit also below 1000 (7 ms, 10 B); as it is where it has none."""
    number = _number(value)
    if number is not None and 0 <= number < 1000:
        unit = " ms" if name.endswith(".ms") else " B" if name.endswith(".bytes") or name in RATES_OF_MOVES else ""
        return f"{value}{unit}"
    return said(name, value) or value


def with_meaning(name: str, value: str | None) -> str | None:
    """`604800000 (7d)`."""
    meaning = said(name, value)
    return value if meaning is None else f"{value} ({meaning})"


def result(old: str | None, change: Assignment) -> str | None:
    """The value after a change; None: whatever it is by default. `old` is the value that is in force."""
    items = [item.strip() for item in (old or "").split(",") if item.strip()]
    given = [item.strip() for item in (change.value or "").split(",") if item.strip()]
    if change.operation == APPEND:
        return ",".join([*items, *(item for item in given if item not in items)])
    if change.operation == SUBTRACT:
        return ",".join(item for item in items if item not in given)
    return change.value


def is_same(one: str | None, other: str | None) -> bool:
    """Brokers write values their own way: `TRUE` as true, `0.50` as 0.5, a list without spaces."""
    return _plain(one) == _plain(other)


def _plain(value: str | None) -> object:
    items = [item.strip() for item in (value or "").split(",")]
    if len(items) > 1:
        return items
    for number in (int, float):
        with suppress(ValueError):
            return number(items[0])
    return items[0].lower() if items[0].lower() in ("true", "false") else items[0]


def misspelt(name: str, known: Sequence[str], what: str = "setting") -> KctlError | None:
    """A name that nobody knows and that looks like a known one. Others may be a plug-in's: the broker decides."""
    if not known or name in (*known, *RATES_OF_MOVES) or name.startswith("listener.name."):
        return None
    hints = did_you_mean(name, known)
    return KctlError(f'there is no {what} "{name}"', exit_code=Exit.USAGE, hints=hints) if hints else None


def in_other_units(name: str) -> list[str]:
    """The settings that count the same as one in milliseconds: log.retention.minutes and log.retention.hours."""
    base, dot, unit = name.rpartition(".")
    return [f"{base}.{other}" for other in _UNITS] if dot and unit == "ms" else []


def in_milliseconds(name: str, value: str | None) -> str | None:
    """The value of a setting as that of the one which counts the same in milliseconds: 168 of log.retention.hours is
    604800000; a negative number has a meaning of its own."""
    unit, number = _UNITS.get(name.rpartition(".")[2]), _number(value)
    return value if unit is None or number is None or number < 0 else str(number * unit)


def effect_on_topics(name: str, old: str | None, new: str | None) -> str | None:
    """The warning to give before a broker's setting changes: what follows for topics that have no value of their
    own, or None."""
    told = effect(_OF_TOPICS.get(name, name), old, new)
    return told and f"topics without a value of their own: {told}"


def effect(name: str, old: str | None, new: str | None) -> str | None:
    """A warning to give before a topic's setting changes, or None. `old` is None where it is not known, `new` for a
    default that is not known."""
    if new is None:
        return "may delete data: the default is not known" if name in _MAY_DELETE else None
    before, after = _number(old), _number(new)
    is_less = after is not None and after >= 0 and (before is None or before < 0 or after < before)
    if name in ("retention.ms", "retention.bytes") and is_less:
        gone = "data older than" if name == "retention.ms" else "the oldest data of partitions larger than"
        return f"deletes {gone} {with_unit(name, new)} now"
    if name == "cleanup.policy" and not new:
        return "keeps all records, whatever retention.ms and retention.bytes say"
    if name == "cleanup.policy":
        gained = set(new.split(",")) - set((old or "").split(","))
        if "compact" in gained:
            return "keeps only the newest record of each key, and refuses records without a key"
        if "delete" in gained:
            return "deletes data older than retention.ms or beyond retention.bytes"
    if name == "unclean.leader.election.enable" and new == "true" and old != "true":
        return "acknowledged records may be lost when a replica out of sync becomes leader"
    if name == "min.insync.replicas" and after is not None and after > (1 if before is None else before):
        return f"writes with acks=all stop while fewer than {after} replicas are in sync"
    if name == "max.message.bytes" and after is not None and (before is None or after < before):
        return f"producers with batches above {with_unit(name, new)} are refused"
    return None


def _number(text: str | None) -> int | None:
    """None also for a number that is larger than any that brokers know."""
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,19}", text) else None
