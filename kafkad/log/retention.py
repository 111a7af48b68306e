"""Retention: the segments of a log that are no longer kept."""

from __future__ import annotations

from collections.abc import Sequence

from kafkad.config import LogConfig
from kafkad.log.segment import Segment

MOST_AT_ONCE = 16
"""Segments whose deletion takes a few milliseconds."""


def deletable(
    segments: Sequence[Segment], config: LogConfig, now_ms: int, *, start_offset: int, end_offset: int, upto: int
) -> int:
    """The number of segments, from the oldest on, that are too old, too much, or below the start of the log; no more
    than are to be deleted at once.

    None with offsets from `upto` on, the high watermark. The last one may be among them if it is not empty.
    """
    deleting = "delete" in config.cleanup_policy
    excess = -1
    if deleting and config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for number, segment in enumerate(segments[:MOST_AT_ONCE]):
        last = number + 1 == len(segments)
        end = end_offset if last else segments[number + 1].base
        if end > upto or (last and not segment.size):
            break
        too_old = deleting and 0 <= config.retention_ms < now_ms - segment.largest_timestamp_ms
        below_start = end <= start_offset and not last
        if not (too_old or below_start or excess >= segment.size):
            break
        excess -= segment.size
        count += 1
    return count
