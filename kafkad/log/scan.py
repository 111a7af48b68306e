"""Reading all of a log, from its start to its end, around whatever is damaged.

Whoever scans may pause between batches: the log may grow, be truncated or compacted meanwhile. Of what is rewritten
behind the scan's back it may give some batches twice, in their order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafkad.log.batches import BASE_OFFSET, LAST_DELTA, LENGTH, BadBatch, Header, read_header, read_whole
from kafkad.log.files import disk_errors
from kafkad.log.indexed import LOG
from kafkad.log.log import Log
from kafkad.log.segment import Segment
from kafkad.wire.records import PREFIX_SIZE, crc_matches


class Damage(NamedTuple):
    """`offset` is the first that may be missing."""

    path: str
    position: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, position {self.position}, offset {self.offset}: {self.reason}"


Report = Callable[[Damage], None]


def scan(log: Log, report: Report) -> Iterator[tuple[memoryview, int, Header]]:
    """Every sound batch, as (view, where it begins in the view, header); the view is overwritten by the next steps."""
    offset = log.start_offset
    while offset < log.end_offset:
        segments = log.segments
        number = max(bisect_right([segment.base for segment in segments], offset) - 1, 0)
        following = segments[number + 1].base if number + 1 < len(segments) else log.end_offset
        with disk_errors(log.directory, "loading"):
            yield from _scan_segment(segments[number], offset, following, report)
        offset = following


def find(log: Log, offset: int, reason: str) -> Damage:
    """What to say of a record that turned out to be damaged."""
    segment = max((each for each in log.segments if each.base <= offset), key=lambda each: each.base)
    try:
        position = segment.locate(offset)
    except BadBatch as bad:
        position = bad.position
    return Damage(segment.path(LOG), position, offset, reason)


def _scan_segment(
    segment: Segment, offset: int, following: int, report: Report
) -> Iterator[tuple[memoryview, int, Header]]:
    """From the batch that holds `offset` on, as far as the segment reaches now."""
    file, size = segment.file, segment.size  # held open, should the segment be deleted meanwhile
    position = _start(segment, offset)
    while position < size:
        try:
            for view, at, header in read_whole(segment.files, file.fd, position, size):
                first, last = header[BASE_OFFSET], header[BASE_OFFSET] + header[LAST_DELTA]
                if not segment.base <= first <= last < following:
                    raise BadBatch(position, f"a batch with offset {first} before {following}")
                if not crc_matches(view, at, header):
                    report(Damage(segment.path(LOG), position, first, "a batch that fails its checksum"))
                elif last >= offset:
                    yield view, at, header
                    offset = last + 1
                position += header[LENGTH] + PREFIX_SIZE
        except BadBatch as bad:
            report(Damage(segment.path(LOG), bad.position, offset, bad.reason))
            position = _next_indexed(segment, bad.position, size)


def _start(segment: Segment, offset: int) -> int:
    if offset <= segment.base:
        return 0
    try:
        return segment.locate(offset)
    except BadBatch:
        return 0


def _next_indexed(segment: Segment, position: int, size: int) -> int:
    """Where the next batch begins that the index names; the end when none of its entries leads to one."""
    offsets = segment.offsets
    for number in range(len(offsets)):
        offset, start = offsets.entry(number)
        if position < start < size:
            try:
                header = read_header(segment.files.pread, segment.file.fd, start, size)
            except BadBatch:
                continue
            if header[BASE_OFFSET] + header[LAST_DELTA] == segment.base + offset:
                return start
    return size
