"""Start and end positions: parses what the job file says, and resolves it to offsets for each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkad.names import TopicPartition
from kafkad_etl.errors import EtlError, EtlExit, exit_of
from kafkad_etl.facts import is_like_a_time
from kafkad_etl.job import Offsets, Position
from kctl.errors import KctlError
from kctl.groups.committed import committed
from kctl.reach.offsets import EARLIEST, LATEST, OffsetAt, offsets_at

if TYPE_CHECKING:
    from kctl.reach.session import Session

Positions = dict[TopicPartition, int]


class Extent(NamedTuple):
    """The offsets of a partition, from `start` up to, but not including, `end`."""

    start: int
    end: int


Extents = Mapping[TopicPartition, Extent]


class At(NamedTuple):
    """A parsed position. `kind` is earliest, latest, time, group or offsets; `named` holds offsets or the words
    earliest and latest."""

    kind: str
    time_ms: int = 0
    named: Mapping[TopicPartition, int | str] = {}


def parse(position: Position, key: str, now_ms: int) -> At:
    """Parses a position. `key` is its key in the job file, such as source.start."""
    if isinstance(position, dict):
        named = {
            TopicPartition(topic, partition): _place(at, f"{key}.{topic}.{partition}")
            for topic, partitions in position.items()
            for partition, at in partitions.items()
        }
        return At("offsets", named=named)
    word = position.strip()
    if word in ("earliest", "latest", "group"):
        return At(word)
    if not is_like_a_time(word):
        raise _no_position(key, word)
    from kctl.texts.parsing import parse_time_ms

    try:
        return At("time", parse_time_ms(word, now_ms, utc=True))
    except KctlError:
        raise _no_position(key, word) from None


def _place(at: int | str, key: str) -> int | str:
    if at in ("earliest", "latest") or (isinstance(at, int) and at >= 0):
        return at
    raise EtlError(f'"{at}" is not an offset, earliest or latest', EtlExit.USAGE, key=key)


def _no_position(key: str, word: str) -> EtlError:
    return EtlError(
        f'"{word}" is not a position to {"start" if key.endswith("start") else "stop"} at',
        EtlExit.USAGE,
        key=key,
        hints=("earliest, latest, group, a time (2026-11-01T00:00:00Z), a time ago (-1h) or {topic: {0: 100}}",),
    )


# --- from words to offsets


def extents(
    session: Session, partitions: Iterable[TopicPartition], *, committed_only: bool
) -> dict[TopicPartition, Extent]:
    """The current extents. `committed_only` ends them at the first open transaction, as read_committed does."""
    partitions = list(partitions)
    starts = offsets_at(session, dict.fromkeys(partitions, EARLIEST))
    ends = offsets_at(session, dict.fromkeys(partitions, LATEST), committed=committed_only)
    return {where: Extent(_known(where, starts).offset, _known(where, ends).offset) for where in partitions}


def _known(where: TopicPartition, found: Mapping[TopicPartition, OffsetAt | KctlError]) -> OffsetAt:
    at = found[where]
    if isinstance(at, KctlError):
        raise EtlError(f"{where}: {at.what}", exit_of(at), hints=at.hints)
    return at


def positions(session: Session, at: At, there: Extents, group: str, *, key: str) -> Positions:
    """The offset that `at` means in each partition. It may lie outside the partition's extent: see `losses`."""
    match at.kind:
        case "earliest":
            return {where: extent.start for where, extent in there.items()}
        case "latest":
            return {where: extent.end for where, extent in there.items()}
        case "time":
            found = offsets_at(session, dict.fromkeys(there, at.time_ms))
            return {where: by_time(_known(where, found).offset, extent) for where, extent in there.items()}
        case "group":
            return of_group(_commits(session, group), there, group)
    return named(at.named, there, key)


def by_time(offset: int, extent: Extent) -> int:
    """Resolves the answer to a time. There is no offset for a time after the last record; that means the end."""
    return extent.end if offset < 0 else min(offset, extent.end)


def _commits(session: Session, group: str) -> Positions:
    found = committed(session, [group])[group]
    if isinstance(found, KctlError):
        raise EtlError(f'group "{group}": {found.what}', exit_of(found), hints=found.hints)
    return {where: commit.offset for where, commit in found.items()}


def of_group(commits: Mapping[TopicPartition, int], there: Extents, group: str) -> Positions:
    """Committed offsets; partitions without one begin at their start."""
    if not any(where in commits for where in there):
        raise EtlError(
            f'group "{group}" has no committed offsets for these topics, so reading cannot start there',
            EtlExit.CLUSTER,
            hints=("source.start: earliest reads everything", "run.group names the group"),
        )
    return {where: commits.get(where, extent.start) for where, extent in there.items()}


def named(offsets: Mapping[TopicPartition, int | str], there: Extents, key: str) -> Positions:
    """Offsets given by name; partitions not named begin at their start, or stop at their end."""
    default = "latest" if key.endswith("end") else "earliest"
    for where in offsets:
        if where not in there:
            known = ", ".join(map(str, sorted(there))) or "none"
            raise EtlError(f"{where} is not read by this job", EtlExit.USAGE, key=key, hints=(f"it reads {known}",))
    found = {}
    for where, extent in there.items():
        at = offsets.get(where, default)
        found[where] = extent.start if at == "earliest" else extent.end if at == "latest" else int(at)
        if found[where] > extent.end:
            has = f"offsets {extent.start}-{extent.end - 1}" if extent.end > extent.start else "no records"
            raise EtlError(
                f"{where} has {has} and ends at {extent.end}, so offset {found[where]} does not exist",
                EtlExit.USAGE,
                key=key,
            )
    return found


def as_offsets(found: Mapping[TopicPartition, int]) -> Offsets:
    offsets: Offsets = {}
    for (topic, partition), offset in sorted(found.items()):
        offsets.setdefault(topic, {})[partition] = offset
    return offsets


def as_positions(offsets: Mapping[str, Mapping[int, int]]) -> Positions:
    return {TopicPartition(topic, p): offset for topic, found in offsets.items() for p, offset in found.items()}
