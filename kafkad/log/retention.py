"""Retention: the segments of a log that are no longer kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafkad.config import LogConfig
from kafkad.log.segment import Segment

MOST_AT_ONCE = 16
"""Segments whose deletion takes a few milliseconds."""
BELOW_START = "the log start offset, which a DeleteRecords or the leader had moved"


class Deletion(NamedTuple):
    """Segments that were deleted from the beginning of a log: all from the offset `first` to before `end`."""

    segments: int
    first: int
    end: int
    size: int
    reasons: tuple[str, ...]
    """Each once: the setting that decided, with its value, or `BELOW_START`."""

    def followed_by(self, later: Deletion) -> Deletion:
        return Deletion(
            segments=self.segments + later.segments,
            first=self.first,
            end=later.end,
            size=self.size + later.size,
            reasons=tuple(dict.fromkeys(self.reasons + later.reasons)),
        )


def deletable(
    segments: Sequence[Segment], config: LogConfig, now_ms: int, *, start_offset: int, end_offset: int, upto: int
) -> list[str]:
    """Why the segments, from the oldest on, are to be deleted that are too old, too much, or below the start of the
    log, one reason for each of them; no more than are to be deleted at once.

    None with offsets from `upto` on, the high watermark. The last one may be among them if it is not empty.
    """
    deleting = "delete" in config.cleanup_policy
    excess = -1
    if deleting and config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments) - config.retention_bytes
    reasons = []
    for number, segment in enumerate(segments[:MOST_AT_ONCE]):
        last = number + 1 == len(segments)
        end = end_offset if last else segments[number + 1].base
        if end > upto or (last and not segment.size):
            break
        if deleting and 0 <= config.retention_ms < now_ms - segment.largest_timestamp_ms:
            reasons.append(f"retention.ms={config.retention_ms}")
        elif end <= start_offset and not last:
            reasons.append(BELOW_START)
        elif excess >= segment.size:
            reasons.append(f"retention.bytes={config.retention_bytes}")
        else:
            break
        excess -= segment.size
    return reasons
