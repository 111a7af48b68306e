"""What was to be read, and is gone: records that were deleted before, topics that end before what was read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from kafkad.names import TopicPartition
from kafkad_etl.cluster.starts import Extents, Positions
from kafkad_etl.errors import EtlError, EtlExit


class Gap(NamedTuple):
    """Records from `first` up to, but not including, `end` are gone."""

    where: TopicPartition
    first: int
    end: int
    certain: bool = True
    """Else some of them may have been read, or have been no records."""

    @property
    def records(self) -> int:
        return self.end - self.first

    def __str__(self) -> str:
        span = f"{self.first}-{self.end - 1}" if self.records > 1 else f"{self.first}"
        count = f"{'' if self.certain else 'up to '}{self.records:,} record{'s' * (self.records > 1)}"
        return f"{self.where}: {count} ({span}) deleted before they were read"


def gaps(wanted: Mapping[TopicPartition, int], there: Extents) -> list[Gap]:
    """What was to be read, and lies before what is there."""
    return [
        Gap(where, offset, there[where].start)
        for where, offset in sorted(wanted.items())
        if where in there and offset < there[where].start
    ]


def in_batch(begin: Positions, end: Positions, rows_read: int, starts: Positions) -> list[Gap]:
    """What a batch did not find, by where the logs start after it.

    What is gone by then may have been read just before: that is known by the rows that it did read. Markers of
    transactions and compacted records are no rows either, so only where the numbers meet it is certain."""
    found = [
        Gap(where, first, min(end[where], starts[where]))
        for where, first in sorted(begin.items())
        if where in end and first < min(end[where], starts.get(where, 0))
    ]
    unread = sum(last - begin[where] for where, last in end.items() if where in begin) - rows_read
    certain = sum(gap.records for gap in found) == unread
    return [gap._replace(first=max(gap.first, gap.end - unread), certain=certain) for gap in found if unread > 0]


def cut_off(reached: Mapping[TopicPartition, int], there: Extents) -> Iterator[str]:
    """Partitions that end before what was read already."""
    for where, offset in sorted(reached.items()):
        if where in there and offset > there[where].end:
            yield (
                f"{where}: read up to {offset:,}, and it ends at {there[where].end:,} now: "
                "it was cut off, or deleted and created again"
            )


def lost(reached: Mapping[TopicPartition, int], there: Extents) -> EtlError | None:
    if found := gaps(reached, there):
        return of_gaps(found)
    short = list(cut_off(reached, there))
    return of_cut_off(short) if short else None


def of_gaps(found: Sequence[Gap]) -> EtlError:
    records = sum(gap.records for gap in found)
    return _data_loss(f"{records:,} records were deleted before they were read", [str(gap) for gap in found])


def of_cut_off(lines: Sequence[str]) -> EtlError:
    return _data_loss("topics end before the checkpoint", lines)


def _data_loss(what: str, lines: Sequence[str]) -> EtlError:
    hint = "--accept-data-loss goes on with what is there, this time only"
    if len(lines) == 1:
        return EtlError(lines[0], EtlExit.DATA_LOSS, hints=(hint,))
    return EtlError(what, EtlExit.DATA_LOSS, hints=(*lines, hint))
