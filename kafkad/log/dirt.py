"""The dirty part of a compacted log, and the choice of the next log to compact: Kafka's rules, as functions.

A log is clean up to its entry in `cleaner-offset-checkpoint`; from there to the first segment that must stay as it is,
it is dirty. The dirtiest log is cleaned first, by the share of its bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

from kafkad.config import LONG_MAX, LogConfig

_base = attrgetter("base")


class DatedSegment(Protocol):
    """The view of a segment that these rules need; the last two properties may read its files."""

    base: int
    size: int

    @property
    def largest_timestamp_ms(self) -> int: ...

    @property
    def oldest_timestamp_ms(self) -> int:
        """The timestamp of the first batch; not positive when it has none."""


class Dirt(NamedTuple):
    """`upto` begins the first segment that must not be cleaned; it is below `first_dirty` when nothing may be."""

    first_dirty: int
    upto: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """For how long `max.compaction.lag.ms` has been exceeded; 0 when it has not."""

    @property
    def share(self) -> float:
        """The dirty share of the bytes; 0 for an empty log."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def wants_cleaning(self, config: LogConfig) -> bool:
        return self.dirty_bytes > 0 and (self.overdue_ms > 0 or self.share > config.min_cleanable_dirty_ratio)


def assess(
    segments: Sequence[DatedSegment], config: LogConfig, now_ms: int, *, first_dirty: int, stable_offset: int
) -> Dirt:
    """`stable_offset` is the last stable one: nothing is cleaned that may still be taken back."""
    closed, active = segments[:-1], segments[-1]
    dirty = _from(closed, first_dirty, active.base)
    limit = min(stable_offset, active.base)
    if config.min_compaction_lag_ms > 0:
        youngest = now_ms - config.min_compaction_lag_ms
        fresh = (segment.base for segment in dirty if segment.largest_timestamp_ms > youngest)
        limit = min(limit, next(fresh, limit))
    kept = _from(closed, max(first_dirty, limit), active.base)
    upto = kept[0].base if kept else active.base
    return Dirt(
        first_dirty=first_dirty,
        upto=upto,
        clean_bytes=sum(segment.size for segment in segments if segment.base < first_dirty),
        dirty_bytes=sum(segment.size for segment in dirty if segment.base < upto),
        overdue_ms=_overdue(dirty, config, now_ms),
    )


def _from(closed: Sequence[DatedSegment], offset: int, end: int) -> Sequence[DatedSegment]:
    """The segments from the one that holds `offset` on."""
    if offset >= end:
        return ()
    return closed[max(bisect_right(closed, offset, key=_base) - 1, 0) :]


def _overdue(dirty: Iterable[DatedSegment], config: LogConfig, now_ms: int) -> int:
    if config.max_compaction_lag_ms == LONG_MAX:
        return 0
    stamps = [stamp for segment in dirty if (stamp := segment.oldest_timestamp_ms) > 0]
    return max(now_ms - config.max_compaction_lag_ms - min(stamps), 0) if stamps else 0


def first_dirty(checkpoint: int | None, start_offset: int, end_offset: int) -> int:
    """The offset at which compaction ended, if the log still has it; otherwise the start: all of the log is dirty."""
    return checkpoint if checkpoint is not None and start_offset <= checkpoint <= end_offset else start_offset
