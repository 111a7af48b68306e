"""The transaction index of a segment (`.txnindex`): the aborted transactions whose marker is in that segment.

34 bytes an entry, in the order of the markers. There is no file until a transaction is aborted, and nothing is read
until somebody asks.
"""

from __future__ import annotations

import contextlib
import os
import struct
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import NamedTuple

from kafkad.log.files import Files, LogFile, disk_errors

SUFFIX = ".txnindex"

_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
_BLOCK = 256
_first_offset, _last_offset = attrgetter("first_offset"), attrgetter("last_offset")
_last_stable_offset = attrgetter("last_stable_offset")


class AbortedTransaction(NamedTuple):
    """A stretch that `read_committed` readers must skip: the records of this producer between the two offsets.

    `last_stable_offset` is that of the moment the marker was written: no transaction that ends later starts below it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class BrokenTransactionIndexError(ValueError):
    """Not the bytes of a transaction index; it is rebuilt from the log."""


def decode(data: bytes) -> list[AbortedTransaction]:
    if len(data) % _ENTRY.size:
        raise BrokenTransactionIndexError(f"{len(data)} bytes are no whole number of entries")
    entries: list[AbortedTransaction] = []
    last = -1
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedTransaction._make(fields)
        if version != _VERSION or entry.last_offset <= last or entry.first_offset > entry.last_offset:
            raise BrokenTransactionIndexError(f"entry {len(entries)} is impossible: version {version}, {entry}")
        last = entry.last_offset
        entries.append(entry)
    return entries


def encode(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


class TransactionIndex:
    """One segment's. `exists` is what the caller's listing of the directory said."""

    __slots__ = ("_blocks", "_blocks_of", "_entries", "_file", "_files", "path")

    def __init__(self, path: str, files: Files, *, exists: bool) -> None:
        self.path = path
        self._files = files
        self._file: LogFile | None = None
        self._entries: list[AbortedTransaction] | None = None if exists else []
        self._blocks: list[tuple[int, int]] = []
        """The least first offset and the largest last stable offset of each `_BLOCK` entries of `_blocks_of`."""
        self._blocks_of: list[AbortedTransaction] = []

    @property
    def entries(self) -> list[AbortedTransaction]:
        """BrokenTransactionIndexError when the file makes no sense."""
        if self._entries is None:
            self._entries = decode(self._read())
        return self._entries

    def append(self, entry: AbortedTransaction) -> None:
        entries = self.entries
        if entries and entry.last_offset <= entries[-1].last_offset:
            raise ValueError(f"{entry} is not after {entries[-1]} in {self.path}")
        with self._disk_errors("writing"):
            self._files.write_all(self._open().fd, encode((entry,)), len(entries) * _ENTRY.size)
        entries.append(entry)

    def collect(self, start: int, upto: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions with records in [start, upto), and whether later segments can have no more of them."""
        entries = self.entries
        blocks = self._summarised(entries)
        found = []
        number = bisect_left(entries, start, key=_last_offset)
        while number < len(entries):
            block = number // _BLOCK
            following = (block + 1) * _BLOCK
            if block < len(blocks) and blocks[block][0] >= upto > blocks[block][1]:
                number = following  # a long transaction holds back the stable offset, and these are behind the reader
                continue
            for entry in entries[number:following]:
                if entry.first_offset < upto:
                    found.append(entry)
                if entry.last_stable_offset >= upto:
                    return found, True
            number = following
        return found, False

    def _summarised(self, entries: list[AbortedTransaction]) -> list[tuple[int, int]]:
        """The blocks of a list that only ever grows."""
        if self._blocks_of is not entries:
            self._blocks_of, self._blocks = entries, []
        blocks = self._blocks
        for first in range(len(blocks) * _BLOCK, len(entries) - _BLOCK + 1, _BLOCK):
            some = entries[first : first + _BLOCK]
            blocks.append((min(map(_first_offset, some)), max(map(_last_stable_offset, some))))
        return blocks

    def truncate(self, offset: int) -> None:
        """Forget transactions whose marker is at or after `offset`."""
        entries = self.entries
        kept = bisect_left(entries, offset, key=_last_offset)
        if kept < len(entries):
            self._cut(kept)
            self._entries = entries[:kept]

    def reset(self) -> None:
        """Drop the contents of the file before a rebuild."""
        if self._entries != []:
            self._cut(0)
            self._entries = []

    def flush(self) -> None:
        """Wait for the disk. Thread-safe."""
        file = self._file
        if file is not None:
            with self._disk_errors("flushing"):
                self._files.sync(file.fd)

    def close(self) -> None:
        self._file = None

    def _read(self) -> bytes:
        with self._disk_errors("reading"), contextlib.suppress(FileNotFoundError):
            return self._files.read(self.path)
        return b""

    def _cut(self, kept: int) -> None:
        with self._disk_errors("truncating"):
            self._files.truncate(self._open().fd, kept * _ENTRY.size)

    def _open(self) -> LogFile:
        if self._file is None:
            self._file = self._files.open_log_file(self.path, os.O_RDWR | os.O_CREAT)
        return self._file

    def _disk_errors(self, doing: str) -> AbstractContextManager[None]:
        directory, name = os.path.split(self.path)
        return disk_errors(directory, f"{doing} {name}")
