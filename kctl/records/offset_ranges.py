"""The offset ranges that `consume` and `copy` read, by partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafkad.names import TopicPartition
from kctl.errors import Exit, KctlError
from kctl.reach.offsets import EARLIEST, LATEST, offsets_at
from kctl.reach.session import Session
from kctl.records.bounds import FIRST, FOR_EVER, LAST, TIME, Bound, Extent, Span, parse_bound, place
from kctl.records.filters import is_exact
from kctl.records.partitioning import partitions_of_key
from kctl.texts.scopes import parse_numbers


class Range(NamedTuple):
    """`--from` and `--to`."""

    start: Bound
    stop: Bound
    follow: bool
    committed: bool


def parse_range(options: Mapping[str, Any], now_ms: int, utc: bool) -> Range:
    start, stop, follow = options["start"], options["stop"], options["follow"]
    if follow and stop:
        raise KctlError("--follow never ends: leave out --to", exit_code=Exit.USAGE)
    return Range(
        parse_bound(start, "--from", now_ms, utc) if start else LAST if follow else FIRST,
        parse_bound(stop, "--to", now_ms, utc) if stop else LAST,
        follow,
        options["committed"],
    )


def partitions_to_read(topics: Mapping[str, Any], numbers: str | None, key: str | None) -> list[TopicPartition]:
    """Those asked for. `key`, if it is an exact one, leaves only those where producers put it by default."""
    wanted = sorted(parse_numbers(numbers)) if numbers else None
    found: list[TopicPartition] = []
    for name, topic in topics.items():
        there = sorted(part.partition_index for part in topic.partitions)
        missing = [number for number in wanted or () if number not in there]
        if missing:
            what = f"topic {name} has no partition {missing[0]}, only 0 to {len(there) - 1}"
            raise KctlError(what, exit_code=Exit.NOT_FOUND)
        chosen = there if wanted is None else wanted
        if key is not None and is_exact(key):
            own = partitions_of_key(key.encode("utf-8", "surrogateescape"), len(there))
            chosen = [number for number in chosen if number in own]
        found += [TopicPartition(name, number) for number in chosen]
    return found


def extents(
    session: Session, partitions: Iterable[TopicPartition], committed: bool
) -> tuple[dict[TopicPartition, Extent], dict[TopicPartition, KctlError]]:
    """The first and end offsets of the partitions now, and the errors of those whose offsets nobody knows."""
    asked = list(partitions)
    starts = offsets_at(session, dict.fromkeys(asked, EARLIEST))
    ends = offsets_at(session, dict.fromkeys(asked, LATEST), committed=committed)
    found: dict[TopicPartition, Extent] = {}
    failed: dict[TopicPartition, KctlError] = {}
    for where in asked:
        start, end = starts[where], ends[where]
        if isinstance(start, KctlError):
            failed[where] = start
        elif isinstance(end, KctlError):
            failed[where] = end
        else:
            found[where] = Extent(start.offset, end.offset)
    return found, failed


def spans(
    session: Session, partitions: Iterable[TopicPartition], wanted: Range
) -> tuple[dict[TopicPartition, Span], dict[TopicPartition, KctlError]]:
    known, failed = extents(session, partitions, wanted.committed)
    starts = _places(session, known, wanted.start, failed)
    stops = dict.fromkeys(known, FOR_EVER) if wanted.follow else _places(session, known, wanted.stop, failed)
    return {where: Span(starts[where], stops[where]) for where in known if where not in failed}, failed


def _places(
    session: Session, known: Mapping[TopicPartition, Extent], bound: Bound, failed: dict[TopicPartition, KctlError]
) -> dict[TopicPartition, int]:
    """Adds to `failed`."""
    times: dict[TopicPartition, int] = {}
    if bound.kind == TIME:
        for where, found in offsets_at(session, dict.fromkeys(known, bound.number)).items():
            if isinstance(found, KctlError):
                failed[where] = found
            elif found.offset >= 0:
                times[where] = found.offset
    return {where: place(bound, extent, times.get(where)) for where, extent in known.items()}
