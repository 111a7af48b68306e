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

from kafkad.log.files import Files, LogFile, as_far_as_there_is_room, disk_errors

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
    """One segment's. `exists` is what the caller's listing of the directory said; who reads while another process
    writes has a `limit`, the size of what there is for certain.

    What a full disk has no room for stays in memory, where readers find it, until `store`.
    """

    __slots__ = (
        "_blocks",
        "_blocks_of",
        "_file",
        "_files",
        "_is_stale",
        "_known_stored",
        "_limit",
        "_unstored",
        "path",
    )

    def __init__(self, path: str, files: Files, *, exists: bool, limit: int | None = None) -> None:
        self.path = path
        self._limit = limit
        self._files = files
        self._file: LogFile | None = None
        self._known_stored: list[AbortedTransaction] | None = None if exists else []
        self._unstored: list[AbortedTransaction] = []
        self._is_stale = False
        """The file has something else, and all entries are unstored."""
        self._blocks: list[tuple[int, int]] = []
        """The least first offset and the largest last stable offset of each `_BLOCK` entries of `_blocks_of`."""
        self._blocks_of: list[AbortedTransaction] = []

    @property
    def entries(self) -> list[AbortedTransaction]:
        """BrokenTransactionIndexError when the file makes no sense."""
        return [*self._stored, *self._unstored] if self._unstored else self._stored

    @property
    def _stored(self) -> list[AbortedTransaction]:
        if self._known_stored is None:
            self._known_stored = decode(self._read())
        return self._known_stored

    @property
    def is_stored(self) -> bool:
        """True if the file has all entries and no others."""
        return not self._unstored and not self._is_stale

    def append(self, entry: AbortedTransaction) -> None:
        """Take an entry that follows from what is in the log already; only a broken disk refuses it."""
        known = self._unstored or self._known_stored
        if known and entry.last_offset <= known[-1].last_offset:
            raise ValueError(f"{entry} is not after {known[-1]} in {self.path}")
        self._unstored.append(entry)
        with as_far_as_there_is_room():
            self.store()

    def replace(self, entries: Iterable[AbortedTransaction], *, durable: bool = True) -> None:
        """Have just these entries, whatever the file has; that changes in one step. Not `durable` is for a segment that
        is read again after a crash, as long as it was not flushed."""
        wanted = list(entries)
        with contextlib.suppress(BrokenTransactionIndexError), as_far_as_there_is_room():
            if self.is_stored and self._stored == wanted:
                return
        self._known_stored, self._unstored, self._is_stale = [], wanted, True
        with as_far_as_there_is_room():
            self.store(durable=durable)

    def store(self, *, durable: bool = True) -> None:
        """Write what the file lacks; StorageError.

        A broken file stays as it is: whoever reads it has it made anew from the log, which has all of these entries.
        """
        if self.is_stored:
            return
        with self._disk_errors("writing"):
            if self._is_stale:
                self._file = None
                self._files.write_file(self.path, encode(self._unstored), durable=durable)
                self._is_stale = False
            else:
                with contextlib.suppress(BrokenTransactionIndexError):
                    at = len(self._stored) * _ENTRY.size
                    self._files.write_all(self._open().fd, encode(self._unstored), at)
        if self._known_stored is not None:
            self._known_stored += self._unstored
        self._unstored = []

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
        """Forget transactions whose marker is at or after `offset`, where the segment is cut: its next flush waits for
        the disk."""
        self.replace((entry for entry in self.entries if entry.last_offset < offset), durable=False)

    def flush(self) -> None:
        """Store all, and wait for the disk."""
        self.store()
        file = self._file
        if file is not None:
            with self._disk_errors("flushing"):
                self._files.sync(file.fd)

    def close(self) -> None:
        self._file = None

    def _read(self) -> bytes:
        with self._disk_errors("reading"), contextlib.suppress(FileNotFoundError):
            return self._files.read(self.path)[: self._limit]
        return b""

    def _open(self) -> LogFile:
        if self._file is None:
            self._file = self._files.open_log_file(self.path, os.O_RDWR | os.O_CREAT)
        return self._file

    def _disk_errors(self, doing: str) -> AbstractContextManager[None]:
        directory, name = os.path.split(self.path)
        return disk_errors(directory, f"{doing} {name}")
