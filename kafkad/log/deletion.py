"""Deletes the old segments of a log: those that retention no longer keeps."""

from __future__ import annotations

from collections.abc import Sequence

from kafkad.log.files import disk_errors
from kafkad.log.log import Log
from kafkad.log.retention import BELOW_START, MOST_AT_ONCE, Deletion, deletable
from kafkad.log.segment import Segment
from kafkad.turns import Pieces


def delete_old_segments(log: Log, now_ms: int, upto: int | None = None) -> int:
    """Delete the oldest first and `MOST_AT_ONCE` at most; return their number.

    Nothing at or past `upto`, the high watermark, is deleted. When everything is too old, the log rolls, and the
    last segment stays, empty; those before it go first, to make room for that.
    """
    with disk_errors(log.directory, "deleting old segments"):
        reasons = deletable(
            log.segments.all,
            log.config,
            now_ms,
            start_offset=log.start_offset,
            end_offset=log.end_offset,
            upto=log.end_offset if upto is None else upto,
        )
        closed = min(len(reasons), len(log.segments) - 1)
        _drop_oldest(log, reasons[:closed])
        if len(reasons) > closed:
            log.roll()
            _drop_oldest(log, reasons[closed:])
    return len(reasons)


def delete_below_start(log: Log) -> Pieces[None]:
    """The closed segments that are wholly below the start of the log, some at a time."""
    while True:
        with disk_errors(log.directory, "deleting old segments"):
            count = min(log.segments.number_of(log.start_offset), MOST_AT_ONCE)
            if not count or log.retired:
                return
            _drop_oldest(log, [BELOW_START] * count)
        yield


def _drop_oldest(log: Log, reasons: Sequence[str]) -> None:
    """Remove a closed segment for each reason; those that went before the disk refused one are gone."""
    dropped: list[Segment] = []
    try:
        for segment in log.segments[: len(reasons)]:
            log.doom([segment])
            dropped.append(segment)
    finally:
        if dropped:
            log.segments.become(log.segments[len(dropped) :])
            log.increment_start_offset(log.segments.first_base)
            deletion = Deletion(
                segments=len(dropped),
                first=dropped[0].base,
                end=log.segments.first_base,
                size=sum(segment.size for segment in dropped),
                reasons=tuple(dict.fromkeys(reasons[: len(dropped)])),
            )
            log.on_deleted(log.topic_partition, deletion)


def outlives_retention(log: Log, now_ms: int) -> bool:
    """True if retention would delete some of its records at once."""
    segments, end = log.segments.starting_at(log.start_offset), log.end_offset
    with disk_errors(log.directory, "looking for old segments"):
        return deletable(segments, log.config, now_ms, start_offset=0, end_offset=end, upto=end) != []
