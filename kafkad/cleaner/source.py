"""Reads a segment to be compacted batch by batch, in large steps, and says where it is damaged."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from types import TracebackType

from kafkad.log.batches import BadBatch, header_at, walk
from kafkad.log.compaction import UncleanableError
from kafkad.log.files import Files, LogFile
from kafkad.wire.records import BASE_OFFSET, HEADER_SIZE, LAST_OFFSET_DELTA, LENGTH, PREFIX_SIZE, Header

_DAMAGE = (BadBatch, IndexError, OverflowError, ValueError, struct.error)
"""Everything that reading malformed bytes may raise."""


class Source:
    """A `.log` file up to `size`, whose offsets are those of [base, end).

    As a context it turns what its batches make their reader raise into an UncleanableError that says where.
    """

    def __init__(self, files: Files, path: str, size: int, base: int, end: int) -> None:
        self.path = path
        self.size = size
        self.base = base
        self.end = end
        self.position = 0
        """The position of the batch read last; when all are read, the size."""
        self._files = files
        self._file: LogFile | None = None

    def __enter__(self) -> Source:
        self._file = self._files.open_log_file(self.path, os.O_RDONLY)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file = None
        if isinstance(error, BadBatch):
            raise UncleanableError(self.path, error.position, error.reason) from error
        if isinstance(error, _DAMAGE):
            raise UncleanableError(self.path, self.position, str(error)) from error

    @property
    def times_ns(self) -> tuple[int, int]:
        """The times at which the file was last read and changed."""
        assert self._file is not None
        status = os.fstat(self._file.fd)
        return status.st_atime_ns, status.st_mtime_ns

    def skip_to(self, offset: int) -> None:
        """Begin with the batch that holds `offset`."""
        assert self._file is not None
        for position, header in walk(self._files.pread, self._file.fd, 0, self.size):
            self.position = position
            if header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] >= offset:
                return
        self.position = self.size

    def batches(self, step: int, spend: Callable[[int], None]) -> Iterator[tuple[bytes, int, Header]]:
        """(bytes, where in them the batch begins, header), reading `step` bytes at a time, more for larger batches."""
        assert self._file is not None
        position, size = self.position, self.size
        expected = self.base
        while position < size:
            data = self._files.read_in_pieces(self._file.fd, min(step, size - position), position)
            spend(len(data))
            at, start, got = 0, position, len(data)
            while (left := size - position) and (got - at >= HEADER_SIZE or got - at >= left):
                self.position = position
                header = header_at(data, at, left)
                length = header[LENGTH] + PREFIX_SIZE
                if length > got - at:
                    break
                if not expected <= header[BASE_OFFSET] <= header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] < self.end:
                    raise BadBatch(position, f"a batch with offset {header[BASE_OFFSET]} does not belong there")
                expected = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
                yield data, at, header
                at += length
                position += length
            if position == start:
                step = self._larger(step, len(data), position)
        self.position = size

    def _larger(self, step: int, got: int, position: int) -> int:
        """A step that reads the batch at `position` whole."""
        assert self._file is not None
        if got < min(step, self.size - position):
            raise BadBatch(position, "the file ends inside a batch")
        header = header_at(self._files.pread(self._file.fd, HEADER_SIZE, position), 0, self.size - position)
        return header[LENGTH] + PREFIX_SIZE
