"""Readers of the batches in a segment file: headers alone, or whole batches.

Every format's header is a `wire.records.Header`; a message of format v0 or v1 is a batch whose
base and last offset are the message's own (of one that wraps others: the last one's).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from kafkad.log.files import Files
from kafkad.wire.crc import crc32c
from kafkad.wire.records import (
    BASE_OFFSET,
    BATCH_HEADER,
    CRC,
    CRC_FROM,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LENGTH,
    MAGIC,
    MAGIC_AT,
    PREFIX_SIZE,
    SMALLEST_BATCH,
    Header,
)

_LONGEST_HEADER = HEADER_SIZE
_BLOCK = 4096
_CHUNK = 1 << 20


class BadBatch(Exception):
    """The bytes at `position` of a segment are no batch, or not the one that belongs there."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason} at position {position}")
        self.position = position
        self.reason = reason


def header_at(data: bytes | bytearray | memoryview, at: int, left: int) -> Header:
    """The header at `at`, of which min(left, 61) bytes are there; ValueError when `left` bytes hold no such batch."""
    if left < SMALLEST_BATCH:
        raise ValueError(f"{left} bytes, which is no whole batch")
    magic = data[at + MAGIC_AT]
    if magic == 2:
        if left < HEADER_SIZE:
            raise ValueError(f"{left} bytes, which is no whole batch header")
        header: Header = BATCH_HEADER.unpack_from(data, at)
        smallest = HEADER_SIZE - PREFIX_SIZE
        if header[LAST_OFFSET_DELTA] < 0:
            raise ValueError(f"a batch with last offset delta {header[LAST_OFFSET_DELTA]}")
    elif magic < 2:
        from kafkad.wire.legacy import smallest_length, unpack_message_header

        header = unpack_message_header(data, at)
        smallest = smallest_length(magic)
    else:
        raise ValueError(f"magic {magic}, which is no format known")
    if not smallest <= header[LENGTH] <= left - PREFIX_SIZE:
        raise ValueError(f"a batch of length {header[LENGTH]} where {left - PREFIX_SIZE} bytes are left")
    if header[BASE_OFFSET] < 0:
        raise ValueError(f"a batch with base offset {header[BASE_OFFSET]}")
    return header


def read_header(pread: Callable[[int, int, int], bytes], fd: int, position: int, end: int) -> Header:
    """The header of the batch at `position`; BadBatch when there is none."""
    try:
        return header_at(pread(fd, _LONGEST_HEADER, position), 0, end - position)
    except (ValueError, IndexError, struct.error) as error:
        raise BadBatch(position, str(error)) from None


def walk(pread: Callable[[int, int, int], bytes], fd: int, position: int, end: int) -> Iterator[tuple[int, Header]]:
    """(position, header) of every batch in [position, end); BadBatch at the first byte that belongs to none.

    Small batches are read many at a time, of large ones only the header.
    """
    start = position
    data = b""
    while position < end:
        at = position - start
        if at + _LONGEST_HEADER > len(data):
            start = position
            data = pread(fd, min(_BLOCK, end - start), start)
            at = 0
        try:
            header = header_at(data, at, end - position)
        except (ValueError, IndexError, struct.error) as error:
            raise BadBatch(position, str(error)) from None
        yield position, header
        position += PREFIX_SIZE + header[LENGTH]


def read_whole(files: Files, fd: int, position: int, end: int) -> Iterator[tuple[memoryview, int, Header]]:
    """Every batch in [position, end) with its bytes: (view, where it begins in the view, header).

    All views are of one buffer, which the next step overwrites. BadBatch at the first byte that belongs to no batch.
    """
    view = memoryview(bytearray(min(_CHUNK, max(end - position, HEADER_SIZE))))
    start, filled = position, 0
    while position < end:
        at = position - start
        if filled - at < HEADER_SIZE and start + filled < end:
            start, filled, at = position, _fill(files, fd, view, position, end), 0
        try:
            header = header_at(view, at, end - position)
        except (ValueError, IndexError, struct.error) as error:
            raise BadBatch(position, str(error)) from None
        length = header[LENGTH] + PREFIX_SIZE
        if length > filled - at:
            if length > len(view):
                view = memoryview(bytearray(length))
            start, filled, at = position, _fill(files, fd, view, position, end), 0
            if filled < length:
                raise BadBatch(position, "the file ends inside a batch")
        yield view, at, header
        position += length


def sound_headers(files: Files, fd: int, position: int, end: int) -> Iterator[tuple[list[Header], int]]:
    """HOT. The headers of many batches at a time, and where the last of them ends, while they follow one another in
    format v2, whole and with the right checksum. What is no such batch is left to `read_whole`.
    """
    view = memoryview(bytearray(min(_CHUNK, max(end - position, HEADER_SIZE))))
    unpack, smallest = BATCH_HEADER.unpack_from, HEADER_SIZE - PREFIX_SIZE
    while (filled := _fill(files, fd, view, position, end)) >= HEADER_SIZE:
        headers: list[Header] = []
        at = following = 0
        while filled - at >= HEADER_SIZE:
            header = unpack(view, at)
            if (
                header[MAGIC] != 2
                or header[LENGTH] < smallest
                or header[LAST_OFFSET_DELTA] < 0
                or header[BASE_OFFSET] < 0
            ):
                break
            following = at + PREFIX_SIZE + header[LENGTH]
            if following > filled or crc32c(view[at + CRC_FROM : following]) != header[CRC]:
                break
            headers.append(header)
            at = following
        if headers:
            position += at
            yield headers, position
        elif len(view) < following <= end - position:
            view = memoryview(bytearray(following))
        else:
            return


def _fill(files: Files, fd: int, view: memoryview, position: int, end: int) -> int:
    return files.preadv(fd, [view[: end - position]], position)
