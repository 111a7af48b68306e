"""Search for offsets by timestamp, over the segments of a log.

Timestamps come from clients and are in no order, but the largest one up to the end of each segment grows with the
segments: it is found once, and then a search costs the same with one segment and with a thousand.
"""

from __future__ import annotations

from bisect import bisect_left

from kafkad.log.batches import walk
from kafkad.log.segment import Segment
from kafkad.wire.records import (
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH,
    MAX_TIMESTAMP,
    PREFIX_SIZE,
    Header,
    Record,
    iter_records,
)

TimestampedOffset = tuple[int, int, int]
"""Timestamp, offset, leader epoch."""


class Timestamps:
    """`segments` is the log's own list, which grows at its end while this is in use."""

    __slots__ = ("_largest_until", "_segments")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._largest_until: list[int] = []

    def _largest_per_segment(self) -> list[int]:
        """For each segment but the last, the largest timestamp in it and those before it."""
        known = self._largest_until
        for segment in self._segments[len(known) : -1]:
            known.append(max(segment.max_timestamp, known[-1] if known else -1))
        return known

    def first_at_or_after(self, timestamp: int, start_offset: int) -> TimestampedOffset | None:
        """The first record, in the order of offsets, that is not older."""
        segments = self._segments
        for number in range(bisect_left(self._largest_per_segment(), timestamp), len(segments)):
            if segments[number].max_timestamp >= timestamp:
                found = _search(segments[number], timestamp, start_offset)
                if found is not None:
                    return found
        return None

    def largest(self, start_offset: int) -> TimestampedOffset | None:
        """The first record with the largest timestamp of all; None when no record has one."""
        known = self._largest_per_segment()
        timestamp = max(self._segments[-1].max_timestamp, known[-1] if known else -1)
        if timestamp < 0:
            return None
        found = self.first_at_or_after(timestamp, start_offset)
        if found is None:  # its record is below the start of the log, whose segment is still there
            timestamp = max(_largest_from(segment, start_offset) for segment in self._segments)
            if timestamp < 0:
                return None
            found = self.first_at_or_after(timestamp, start_offset)
        return found


def _largest_from(segment: Segment, start_offset: int) -> int:
    """The largest timestamp of the records from `start_offset` on."""
    if segment.base >= start_offset:
        return segment.max_timestamp
    largest = -1
    for start, end in segment.sound_stretches(segment.locate(start_offset)):
        for position, header in walk(segment.files.pread, segment.file.fd, start, end):
            if header[MAX_TIMESTAMP] > largest:
                stamps = [r.timestamp for r in _records(segment, position, header) if r.offset >= start_offset]
                largest = max([largest, *stamps])
    return largest


def _search(segment: Segment, timestamp: int, start_offset: int) -> TimestampedOffset | None:
    times = segment.times
    number = times.before(timestamp)
    first = max(start_offset, segment.base + times.entry(number - 1)[1] + 1 if number else 0)
    for start, end in segment.sound_stretches(segment.locate(first)):
        for position, header in walk(segment.files.pread, segment.file.fd, start, end):
            if header[MAX_TIMESTAMP] >= timestamp and header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] >= start_offset:
                for record in _records(segment, position, header):
                    if record.timestamp >= timestamp and record.offset >= start_offset:
                        return record.timestamp, record.offset, header[LEADER_EPOCH]
    return None


def _records(segment: Segment, position: int, header: Header) -> list[Record]:
    data = segment.files.pread(segment.file.fd, header[LENGTH] + PREFIX_SIZE, position)
    return list(iter_records(memoryview(data), 0, header))
