"""Computes data loss: records deleted before they were read, and topics that end before the checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from kafkad.names import TopicPartition
from kafkad_etl.cluster.starts import Extents, Positions
from kafkad_etl.errors import EtlError, EtlExit


class Gap(NamedTuple):
    """Records that are gone, from `first` up to, but not including, `end`."""

    where: TopicPartition
    first: int
    end: int
    certain: bool = True
    """False if some of the records may have been read, or may not have been records at all."""
    recreated: bool = False
    """True if the records are in a partition that was deleted and made again, and were left out."""

    @property
    def records(self) -> int:
        return self.end - self.first

    def __str__(self) -> str:
        span = f"{self.first}-{self.end - 1}" if self.records > 1 else f"{self.first}"
        count = f"{'' if self.certain else 'up to '}{self.records:,} record{'s' * (self.records > 1)}"
        why = "not read: the topic was deleted and made again" if self.recreated else "deleted before they were read"
        return f"{self.where}: {count} ({span}) {why}"


def gaps(wanted: Mapping[TopicPartition, int], there: Extents) -> list[Gap]:
    """Gaps between the wanted offsets and the start of what is there."""
    return [
        Gap(where, offset, there[where].start)
        for where, offset in sorted(wanted.items())
        if where in there and offset < there[where].start
    ]


def in_batch(begin: Positions, end: Positions, rows_read: int, starts: Positions) -> list[Gap]:
    """Records that a batch did not find, judged by where the logs start after it.

    Records that are gone by then may have been read just before, which the number of rows read tells. Transaction
    markers and compacted records are not rows either, so the result is certain only where the numbers match.
    """
    found = [
        Gap(where, first, min(end[where], starts[where]))
        for where, first in sorted(begin.items())
        if where in end and first < min(end[where], starts.get(where, 0))
    ]
    unread = sum(last - begin[where] for where, last in end.items() if where in begin) - rows_read
    certain = sum(gap.records for gap in found) == unread
    return [gap._replace(first=max(gap.first, gap.end - unread), certain=certain) for gap in found if unread > 0]


def left_out(start: Positions, end: Positions, starts: Positions) -> list[Gap]:
    """Records of partitions that now end before a batch's start. Spark reads nothing there, and goes on at the end."""
    return [
        Gap(where, starts[where], end[where], certain=False, recreated=True)
        for where, first in sorted(start.items())
        if starts.get(where, first) < end.get(where, first) < first
    ]


def cut_off(reached: Mapping[TopicPartition, int], there: Extents) -> Iterator[str]:
    """Lines about partitions that end before what was already read."""
    for where, offset in sorted(reached.items()):
        if where in there and offset > there[where].end:
            yield (
                f"{where}: the checkpoint is at {offset:,}, but the partition now ends at {there[where].end:,}: "
                "it was truncated, or deleted and recreated"
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


def of_deleted(names: Sequence[str]) -> EtlError:
    return _data_loss("topics of the checkpoint were deleted", [deleted_text(name) for name in names])


def deleted_text(name: str) -> str:
    return f'topic "{name}" was deleted; what had not been read of it is lost'


def _data_loss(what: str, lines: Sequence[str]) -> EtlError:
    hint = "--accept-data-loss continues with what is left, for this run only"
    if len(lines) == 1:
        return EtlError(lines[0], EtlExit.DATA_LOSS, hints=(hint,))
    return EtlError(what, EtlExit.DATA_LOSS, hints=(*lines, hint))
