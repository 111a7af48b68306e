"""A scan of a whole log, from its start to its end, which skips damage.

Whoever scans may pause between batches: the log may grow, be truncated or compacted meanwhile. Of what is rewritten
behind the scan's back it may give some batches twice, in their order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafkad.log.batches import BadBatch, header_at, read_header
from kafkad.log.files import Files, disk_errors
from kafkad.log.indexed import LOG
from kafkad.log.log import Log
from kafkad.log.segment import Segment
from kafkad.wire.records import BASE_OFFSET, HEADER_SIZE, LAST_OFFSET_DELTA, LENGTH, PREFIX_SIZE, Header, crc_matches

_CHUNK = 1 << 20


class SkippedStretch(NamedTuple):
    """`offset` is the first that may be missing."""

    path: str
    position: int
    offset: int
    reason: str
    fails_checksum: bool = False
    """A batch as its header says is there; otherwise it is not even known where it ends."""

    def __str__(self) -> str:
        return f"{self.path}, position {self.position}, offset {self.offset}: {self.reason}"


Report = Callable[[SkippedStretch], None]


def scan(log: Log, report: Report) -> Iterator[tuple[bytes, int, Header]]:
    """Every sound batch, as (the bytes of many batches, where it begins in them, its header)."""
    offset = log.start_offset
    while offset < log.end_offset:
        segments = log.segments
        number = segments.number_of(offset)
        following = segments[number + 1].base if number + 1 < len(segments) else log.end_offset
        with disk_errors(log.directory, "loading"):
            yield from _scan_segment(segments[number], offset, following, report)
        offset = following


def find(log: Log, offset: int, reason: str) -> SkippedStretch:
    """A report of a record that turned out to be damaged. StorageError."""
    segment = log.segments.starting_at(offset)[0]
    try:
        with disk_errors(log.directory, "loading"):
            position = segment.locate(offset)
    except BadBatch as bad:
        position = bad.position
    return SkippedStretch(segment.path(LOG), position, offset, reason)


def _scan_segment(segment: Segment, offset: int, following: int, report: Report) -> Iterator[tuple[bytes, int, Header]]:
    """The batches from the one that holds `offset` on, as far as the segment reaches now."""
    file, size = segment.file, segment.size  # held open, should the segment be deleted meanwhile
    position = _start(segment, offset)
    while position < size:
        try:
            for start, data, view, at, header in _batches(segment.files, file.fd, position, size):
                position = start + at
                first, last = header[BASE_OFFSET], header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
                if not segment.base <= first <= last < following:
                    raise BadBatch(position, f"a batch with offset {first} before {following}")
                if not crc_matches(view, at, header):
                    report(SkippedStretch(segment.path(LOG), position, first, "a batch that fails its checksum", True))
                elif last >= offset:
                    yield data, at, header
                    offset = last + 1
            position = size
        except BadBatch as bad:
            report(SkippedStretch(segment.path(LOG), bad.position, offset, bad.reason))
            position = _next_indexed(segment, bad.position, size)


def _batches(files: Files, fd: int, start: int, end: int) -> Iterator[tuple[int, bytes, memoryview, int, Header]]:
    """HOT. Every batch in [start, end), as (position of the bytes, bytes, a view of them, where it begins in them,
    header); BadBatch at the first byte that belongs to none."""
    wanted = _CHUNK
    while start < end:
        asked = min(wanted, end - start)
        data = files.pread(fd, asked, start)
        view = memoryview(data)
        at, there, left = 0, len(data), end - start
        wanted = _CHUNK
        while at + HEADER_SIZE <= there or at < there == left:
            try:
                header = header_at(data, at, left - at)
            except (ValueError, IndexError, struct.error) as error:
                raise BadBatch(start + at, str(error)) from None
            after = at + PREFIX_SIZE + header[LENGTH]
            if after > there:
                wanted = max(_CHUNK, after - at)  # the rest comes with the next bytes
                break
            yield start, data, view, at, header
            at = after
        if not at and there < asked:
            raise BadBatch(start, "the file ends inside a batch")
        start += at


def _start(segment: Segment, offset: int) -> int:
    if offset <= segment.base:
        return 0
    try:
        return segment.locate(offset)
    except BadBatch:
        return 0


def _next_indexed(segment: Segment, position: int, size: int) -> int:
    """The position of the next batch that the index names; the end when none of its entries leads to one."""
    try:
        offsets = segment.offsets
    except FileNotFoundError:  # compacted or deleted meanwhile
        return size
    for number in range(len(offsets)):
        offset, start = offsets.entry(number)
        if position < start < size:
            try:
                header = read_header(segment.files.pread, segment.file.fd, start, size)
            except BadBatch:
                continue
            if header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] == segment.base + offset:
                return start
    return size
