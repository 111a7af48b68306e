"""The transaction index of a segment (`.txnindex`): the aborted transactions whose marker is in that segment.

34 bytes an entry, in the order of the markers. There is no file until a transaction is aborted, and nothing is read
until somebody asks.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from operator import le, lt
from typing import NamedTuple

from kafkad.log.files import Files, LogFile, as_far_as_there_is_room, disk_errors

SUFFIX = ".txnindex"

_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
_NUMBER = 8
"""Bytes of each of an entry's four numbers, which come behind its version."""
_BLOCK = 256


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


class Entries:
    """Those of one index, as a column for each of their numbers: a segment may have a hundred thousand, and to look at
    all of them one by one would take as long as many requests. They only ever grow."""

    __slots__ = ("_blocks", "_columns")

    def __init__(self, entries: Iterable[AbortedTransaction] = ()) -> None:
        self._columns = tuple(array("q") for _ in AbortedTransaction._fields)
        self._blocks: list[tuple[int, int]] = []
        """The least first offset and the largest last stable offset of each `_BLOCK` of them."""
        for entry in entries:
            self.append(entry)

    @classmethod
    def decode(cls, data: bytes) -> Entries:
        if len(data) % _ENTRY.size:
            raise BrokenTransactionIndexError(f"{len(data)} bytes are no whole number of entries")
        entries = cls()
        entries._columns = tuple(_column(data, at) for at in range(_ENTRY.size % _NUMBER, _ENTRY.size, _NUMBER))
        _, first, last, _ = entries._columns
        if any(data[:: _ENTRY.size]) or any(data[1 :: _ENTRY.size]) or not all(map(le, first, last)):
            raise BrokenTransactionIndexError(f"an entry has not version {_VERSION}, or ends before it begins")
        if (last and last[0] < 0) or not all(map(lt, last, last[1:])):
            raise BrokenTransactionIndexError("an entry is not after the one before")
        return entries

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, number: int) -> AbortedTransaction:
        return AbortedTransaction._make(column[number] for column in self._columns)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return map(AbortedTransaction._make, zip(*self._columns, strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entries) and self._columns == other._columns

    __hash__ = None  # type: ignore[assignment]

    def append(self, entry: AbortedTransaction) -> None:
        for column, number in zip(self._columns, entry, strict=True):
            column.append(number)

    def extend(self, other: Entries) -> None:
        for column, more in zip(self._columns, other._columns, strict=True):
            column.extend(more)

    def plus(self, other: Entries) -> Entries:
        together = self.before(sys.maxsize)
        together.extend(other)
        return together

    def before(self, offset: int) -> Entries:
        """Those whose marker is before `offset`."""
        found = Entries()
        number = bisect_left(self._columns[2], offset)
        found._columns = tuple(column[:number] for column in self._columns)
        return found

    def collect(self, start: int, upto: int) -> tuple[list[AbortedTransaction], bool]:
        """See `TransactionIndex.collect`."""
        _, firsts, lasts, stables = self._columns
        blocks = self._summarised()
        found = []
        number = bisect_left(lasts, start)
        while number < len(lasts):
            block = number // _BLOCK
            following = min((block + 1) * _BLOCK, len(lasts))
            if block < len(blocks) and blocks[block][0] >= upto > blocks[block][1]:
                number = following  # a long transaction holds back the stable offset, and these are behind the reader
                continue
            for each in range(number, following):
                if firsts[each] < upto:
                    found.append(self[each])
                if stables[each] >= upto:
                    return found, True
            number = following
        return found, False

    def _summarised(self) -> list[tuple[int, int]]:
        _, firsts, _, stables = self._columns
        blocks = self._blocks
        for first in range(len(blocks) * _BLOCK, len(firsts) - _BLOCK + 1, _BLOCK):
            blocks.append((min(firsts[first : first + _BLOCK]), max(stables[first : first + _BLOCK])))
        return blocks


def _column(data: bytes, at: int) -> array[int]:
    """The numbers at this place of each entry: byte by byte for all at once, which takes a quarter of the time."""
    column = bytearray(len(data) // _ENTRY.size * _NUMBER)
    for byte in range(_NUMBER):
        column[byte::_NUMBER] = data[at + byte :: _ENTRY.size]
    numbers = array("q", bytes(column))
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def decode(data: bytes) -> list[AbortedTransaction]:
    return list(Entries.decode(data))


def encode(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


class TransactionIndex:
    """One segment's. `exists` is what the caller's listing of the directory said; who reads while another process
    writes has a `limit`, the size of what there is for certain.

    What a full disk has no room for stays in memory, where readers find it, until `store`.
    """

    __slots__ = (
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
        self._known_stored: Entries | None = None if exists else Entries()
        self._unstored = Entries()
        self._is_stale = False
        """The file has something else, and all entries are unstored."""

    @property
    def entries(self) -> Entries:
        """BrokenTransactionIndexError when the file makes no sense."""
        return self._stored.plus(self._unstored) if self._unstored else self._stored

    @property
    def _stored(self) -> Entries:
        if self._known_stored is None:
            self._known_stored = Entries.decode(self._read())
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
        self._become(Entries(entries), durable=durable)

    def _become(self, wanted: Entries, *, durable: bool) -> None:
        with contextlib.suppress(BrokenTransactionIndexError), as_far_as_there_is_room():
            if self.is_stored and self._stored == wanted:
                return
        self._known_stored, self._unstored, self._is_stale = Entries(), wanted, True
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
            self._known_stored.extend(self._unstored)
        self._unstored = Entries()

    def collect(self, start: int, upto: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions with records in [start, upto), and whether later segments can have no more of them."""
        return self.entries.collect(start, upto)

    def truncate(self, offset: int) -> None:
        """Forget transactions whose marker is at or after `offset`, where the segment is cut: its next flush waits for
        the disk."""
        self._become(self.entries.before(offset), durable=False)

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
