"""The targets of a group's offsets: which partitions, and which offset for each. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from kafkad.names import TopicPartition
from kctl.errors import Exit, KctlError, did_you_mean
from kctl.groups.partition_lag import Range
from kctl.groups.partitions_text import partitions_text
from kctl.texts.parsing import parse_duration_ms, parse_time_ms, whole_number
from kctl.texts.scopes import Scope, not_there

EARLIEST, LATEST, CURRENT = "earliest", "latest", "current"
OFFSET, SHIFT, TIME, GIVEN = "offset", "shift", "time", "given"
TO_START, TO_END = "clamped to the start", "clamped to the end"
NONE_SO_LATE, WAS_UNCOMMITTED = "no record so late: the end", "no commit: the end"


class Target(NamedTuple):
    """`value`: the offset, how far to shift, or the time in ms. GIVEN has an offset for each partition by itself."""

    kind: str
    value: int = 0


def parse_target(text: str, now_ms: int, utc: bool) -> Target:
    """earliest, latest, current, an offset, @TIME, +N or -N."""
    word = text.strip()
    if word in (EARLIEST, LATEST, CURRENT):
        return Target(word)
    if word.startswith("@"):
        return Target(TIME, parse_time_ms(word, now_ms, utc))
    sign = word[:1] if word[:1] in ("+", "-") else ""
    if (number := whole_number(word[len(sign) :])) is not None:
        return Target(SHIFT, -number if sign == "-" else number) if sign else Target(OFFSET, number)
    raise KctlError(
        f'"{text}" is nowhere to reset offsets to',
        exit_code=Exit.USAGE,
        hints=("earliest, latest, current, 4711, @2026-11-21T05:30, @-30m, +100 or -100",),
    )


def parse_ago(text: str, now_ms: int) -> Target:
    """So long before now, as in PT5M."""
    return Target(TIME, max(now_ms - parse_duration_ms(text, unit="s"), 0))


def partitions_of(scopes: Iterable[Scope], there: Mapping[str, Iterable[int]]) -> list[TopicPartition]:
    """Those of the topics that are `there`; KctlError for a partition that is not."""
    found: dict[TopicPartition, None] = {}
    for scope in scopes:
        numbers = sorted(there[scope.topic])
        wanted = numbers if scope.partitions is None else scope.partitions
        for error in not_there(scope.topic, wanted, numbers):
            raise error
        found |= {TopicPartition(scope.topic, number): None for number in wanted}
    return list(found)


def committed_in(
    scopes: Iterable[Scope], group: str, commits: Collection[TopicPartition]
) -> tuple[list[TopicPartition], list[KctlError]]:
    """Those that the group has committed, and what of the scopes it has not."""
    found: set[TopicPartition] = set()
    errors = []
    for scope in scopes:
        there = {where for where in commits if where.topic == scope.topic}
        asked = there if scope.partitions is None else {TopicPartition(scope.topic, n) for n in scope.partitions}
        found |= asked & there
        if not there:
            hints = did_you_mean(scope.topic, sorted({where.topic for where in commits}))
            errors.append(_uncommitted(group, f'topic "{scope.topic}"', hints))
        elif missing := asked - there:
            errors.append(_uncommitted(group, partitions_text(missing)))
    return sorted(found), errors


def _uncommitted(group: str, what: str, hints: Sequence[str] = ()) -> KctlError:
    return KctlError(f'group "{group}" has committed nothing of {what}', exit_code=Exit.NOT_FOUND, hints=hints)


class Planned(NamedTuple):
    """`note` says where the offset is not the one that was asked for."""

    where: TopicPartition
    current: int | None
    new: int
    end: int
    note: str = ""

    @property
    def change(self) -> int | None:
        return None if self.current is None else self.new - self.current


def planned(
    where: TopicPartition, target: Target, current: int | None, there: Range, found: int | None = None
) -> Planned:
    """`found` is the offset at the target's time (-1: no record is so late), or the one given for this partition."""
    match target.kind:
        case "earliest":
            return Planned(where, current, there.start, there.end)
        case "latest":
            return Planned(where, current, there.end, there.end)
        case "current":
            new, note = (there.end, WAS_UNCOMMITTED) if current is None else (current, "")
            return Planned(where, current, new, there.end, note)
        case "time":
            new, note = (there.end, NONE_SO_LATE) if found is None or found < 0 else (found, "")
            return Planned(where, current, new, there.end, note)
        case "shift":
            if current is None:
                raise KctlError(f"{where} has no committed offset to shift", exit_code=Exit.REFUSED)
            return _clamped(where, current, current + target.value, there)
    return _clamped(where, current, target.value if found is None else found, there)


def _clamped(where: TopicPartition, current: int | None, wanted: int, there: Range) -> Planned:
    if wanted < there.start:
        return Planned(where, current, there.start, there.end, TO_START)
    if wanted > there.end:
        return Planned(where, current, there.end, there.end, TO_END)
    return Planned(where, current, wanted, there.end)


def effect(plan: Iterable[Planned]) -> str:
    """The effect of the plan on the group, in a few words."""
    back = ahead = fresh = 0
    for one in plan:
        change = one.change
        if change is None:
            fresh += 1
        elif change < 0:
            back -= change
        else:
            ahead += change
    said = [
        ("replays", back, "record", ""),
        ("skips", ahead, "record", ""),
        ("gives", fresh, "partition", " a first commit"),
    ]
    words = [f"{verb} {count:,} {what}{'s' * (count != 1)}{rest}" for verb, count, what, rest in said if count]
    return ", ".join(words) or "changes nothing"
