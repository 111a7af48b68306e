"""Deletes the old segments of a log: those that retention no longer keeps."""

from __future__ import annotations

from kafkad.log.files import disk_errors
from kafkad.log.log import Log
from kafkad.log.retention import MOST_AT_ONCE, deletable
from kafkad.turns import Pieces


def delete_old_segments(log: Log, now_ms: int, upto: int | None = None) -> int:
    """Delete the oldest first and `MOST_AT_ONCE` at most; return their number.

    Nothing at or past `upto`, the high watermark, is deleted. When everything is too old, the log rolls, and the
    last segment stays, empty; those before it go first, to make room for that.
    """
    with disk_errors(log.directory, "deleting old segments"):
        count = deletable(
            log.segments.all,
            log.config,
            now_ms,
            start_offset=log.start_offset,
            end_offset=log.end_offset,
            upto=log.end_offset if upto is None else upto,
        )
        closed = min(count, len(log.segments) - 1)
        dropped = _drop_oldest(log, closed)
        if count > closed:
            log.roll()
            dropped += _drop_oldest(log, 1)
    return dropped


def delete_below_start(log: Log) -> Pieces[None]:
    """The closed segments that are wholly below the start of the log, some at a time."""
    while True:
        with disk_errors(log.directory, "deleting old segments"):
            count = min(log.segments.number_of(log.start_offset), MOST_AT_ONCE)
            if not count or log.retired:
                return
            _drop_oldest(log, count)
        yield


def _drop_oldest(log: Log, count: int) -> int:
    """Remove this many closed segments; those that went before the disk refused one are gone."""
    dropped = 0
    try:
        for segment in log.segments[:count]:
            log.doom([segment])
            dropped += 1
    finally:
        if dropped:
            log.segments.become(log.segments[dropped:])
            log.increment_start_offset(log.segments.first_base)
    return dropped


def outlives_retention(log: Log, now_ms: int) -> bool:
    """True if retention would delete some of its records at once."""
    segments, end = log.segments.starting_at(log.start_offset), log.end_offset
    with disk_errors(log.directory, "looking for old segments"):
        return deletable(segments, log.config, now_ms, start_offset=0, end_offset=end, upto=end) > 0
