"""The segment that compaction writes, under the names that end with `.cleaned`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence

from kafkad.log.compaction import CLEANED
from kafkad.log.files import Files
from kafkad.log.indexed import INDEX, LOG, TIME_INDEX, IndexedFile, segment_path
from kafkad.log.txnindex import SUFFIX as TXN_INDEX
from kafkad.log.txnindex import AbortedTransaction, TransactionIndex
from kafkad.wire.records import Header

_LARGEST = 2**31 - 1


class CleanedSegment(IndexedFile):
    """Batches are gathered and written many at a time."""

    __slots__ = ("_parts", "_spend", "_written")

    def __init__(self, files: Files, directory: str, base: int, interval: int, spend: Callable[[int], None]) -> None:
        super().__init__(files, directory, base, 0, interval)
        for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):  # of an attempt that was broken off
            with contextlib.suppress(FileNotFoundError):
                files.unlink(self.path(suffix))
        self._file = files.open_log_file(self.path(LOG), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._parts: list[bytes | bytearray | memoryview] = []
        self._written = 0
        self._spend = spend
        self.start_indexes()

    def path(self, suffix: str) -> str:
        return segment_path(self.directory, self.base, suffix) + CLEANED

    def append(self, header: Header, batch: bytes | bytearray | memoryview) -> None:
        """One whole batch, whose header is this one. OverflowError when a segment cannot be so large."""
        if self.size + len(batch) > _LARGEST:
            raise OverflowError(f"with longer timestamps a segment would grow over {_LARGEST} bytes")
        self.note(header)
        self._parts.append(batch)

    @property
    def waiting(self) -> int:
        """Bytes that were appended and not written yet."""
        return self.size - self._written

    def write_out(self) -> None:
        """Writes out everything appended so far, so that it need not stay in memory."""
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self.files.write_in_pieces(self.file.fd, data, self._written)
            self._written += len(data)
            self._spend(len(data))

    def finish(self, aborted: Sequence[AbortedTransaction], times_ns: tuple[int, int]) -> None:
        """Complete, on the disk, and as old as what it was made from: retention goes by that."""
        self.write_out()
        self.write_indexes()
        if aborted:
            transactions = TransactionIndex(self.path(TXN_INDEX), self.files, exists=False)
            for entry in aborted:
                transactions.append(entry)
            transactions.flush()
        for suffix in (INDEX, TIME_INDEX):
            self.files.begin_to_write_out(self.path(suffix))
        self.files.sync(self.file.fd)
        for suffix in (INDEX, TIME_INDEX):
            index = self.files.open_log_file(self.path(suffix), os.O_RDONLY)
            self.files.sync(index.fd)
        for suffix in (LOG, INDEX, TIME_INDEX):
            self.files.set_times(self.path(suffix), times_ns)
        self._file = None
