"""Search for offsets by timestamp, over the segments of a log.

Within a segment every batch may have to be looked at, and in a batch a million records: so a search may pause, and
leave a batch to a worker process. Segments may be deleted, compacted and added meanwhile; only after a truncation it
has to begin anew.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TypeVar

from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.batches import BadBatch, walk
from kafkad.log.files import LogFile, disk_errors
from kafkad.log.log import Log
from kafkad.log.record_search import RecordSearch, SearchResult, look_through_quickly
from kafkad.log.segment import Segment
from kafkad.log.segments import Segments
from kafkad.wire.records import (
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH,
    MAX_TIMESTAMP,
    PREFIX_SIZE,
    Header,
    RecordsError,
)

TimestampedOffset = tuple[int, int, int]
"""Timestamp, offset, leader epoch."""

T = TypeVar("T")
Search = Generator[RecordSearch | None, SearchResult | None, T]
"""Pauses where it yields None. It yields what a worker process is to look for, too, whose answer must be sent to it."""
_Batch = tuple[int, Header]
"""Position and header."""

_BATCHES_AT_ONCE = 64


def offset_for_timestamp(log: Log, timestamp: int) -> Search[TimestampedOffset | None]:
    """The first record that is not older than `timestamp`."""
    current = partial(_searched, log)
    return _search(log, lambda: _first_at_or_after(current, timestamp, log.start_offset))


def max_timestamp(log: Log) -> Search[TimestampedOffset | None]:
    """The first record that has the largest timestamp."""
    current = partial(_searched, log)
    return _search(log, lambda: _first_with_largest(current, log.start_offset))


def _search(log: Log, begin: Callable[[], Search[TimestampedOffset | None]]) -> Search[TimestampedOffset | None]:
    while True:
        history = log.history
        try:
            with disk_errors(log.directory, "searching for a timestamp"):
                found = yield from begin()
        except (BadBatch, RecordsError) as error:
            if history == log.history:
                raise log.unreadable(error) from None
        else:
            if history == log.history:
                return found


def _searched(log: Log) -> Segments:
    """The segments, while these are their files."""
    if log.retired:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{log.topic_partition} is not at {log.directory} now")
    return log.segments


def _first_at_or_after(
    current: Callable[[], Segments], timestamp: int, start_offset: int
) -> Search[TimestampedOffset | None]:
    """The first record, in the order of offsets, that is not older. `current` gives the segments of the moment."""
    offset = start_offset
    while True:
        segments = yield from _learned(current)
        number = segments.timestamps.first_that_may_hold(timestamp, segments.number_of(offset))
        if number is None:
            return None
        segment = segments.all[number]
        following = segments.all[number + 1].base if number + 1 < len(segments) else None
        times = segment.times
        older = times.before(timestamp)
        first = max(offset, segment.base + times.entry(older - 1)[1] + 1 if older else 0)
        found = yield from _in_segment(segment, first, offset, timestamp)
        if found is not None or following is None:
            return found
        offset = following


def _first_with_largest(current: Callable[[], Segments], start_offset: int) -> Search[TimestampedOffset | None]:
    """The first record with the largest timestamp of all; None when no record has one."""
    segments = yield from _learned(current)
    segment = segments.timestamps.first_with_largest()
    timestamp, first = segment.max_timestamp, segment.newest_timestamp_offset
    if timestamp < 0:
        return None
    if first >= start_offset:
        found = yield from _in_segment(segment, first, start_offset, timestamp)
        if found is not None:
            return found
    return (yield from _first_with_largest_from(current, start_offset))


def _first_with_largest_from(current: Callable[[], Segments], start_offset: int) -> Search[TimestampedOffset | None]:
    """The same where a record below the start of the log, whose segment is still there, has a larger one."""
    segments = yield from _learned(current)
    segment, *later = segments.starting_at(start_offset)
    largest = max((each.max_timestamp for each in later), default=-1)
    file, first, after = segment.file, None, start_offset
    for count, batch in enumerate(_batches(segment, file, start_offset), start=1):
        _, header = batch
        if first is None:  # some of its records may be below the start
            first, after = batch, header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        else:
            largest = max(largest, header[MAX_TIMESTAMP])
        if count % _BATCHES_AT_ONCE == 0:
            yield None
    least = max(largest, 0)
    if first is not None and first[1][MAX_TIMESTAMP] >= least:
        found = yield from _in_batch(segment, file, first, start_offset, least, largest=True)
        if found is not None:
            return found
    return None if largest < 0 else (yield from _first_at_or_after(current, largest, after))


def _learned(current: Callable[[], Segments]) -> Search[Segments]:
    """The segments, when it is known which has which timestamps."""
    while (segments := current()).timestamps.learn_one():
        yield None
    return segments


def _in_segment(segment: Segment, first: int, start_offset: int, timestamp: int) -> Search[TimestampedOffset | None]:
    """The first record that is not older than `timestamp`, in the batch that holds the offset `first` or after it."""
    file = segment.file
    for count, batch in enumerate(_batches(segment, file, first), start=1):
        _, header = batch
        if header[MAX_TIMESTAMP] >= timestamp and header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] >= start_offset:
            found = yield from _in_batch(segment, file, batch, start_offset, timestamp)
            if found is not None:
                return found
            yield None
        elif count % _BATCHES_AT_ONCE == 0:
            yield None
    return None


def _batches(segment: Segment, file: LogFile, first: int) -> Iterator[_Batch]:
    """From the one that holds the offset `first` to the present end of the segment. The caller keeps `file` open."""
    for start, end in list(segment.sound_stretches(segment.locate(first))):
        yield from walk(segment.files.pread, file.fd, start, end)


def _in_batch(
    segment: Segment, file: LogFile, batch: _Batch, start_offset: int, timestamp: int, *, largest: bool = False
) -> Search[TimestampedOffset | None]:
    position, header = batch
    data = segment.files.pread(file.fd, header[LENGTH] + PREFIX_SIZE, position)
    search = RecordSearch(data, start_offset, timestamp, largest)
    result = look_through_quickly(search, header)
    if result is None:
        result = yield search
        assert result is not None
    found = result.unwrap()
    return None if found is None else (*found, header[LEADER_EPOCH])
