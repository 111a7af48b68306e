"""A segment's `.log` file and the two indexes that find offsets and timestamps in it."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kafkad.log.batches import BadBatch, walk
from kafkad.log.files import Files, LogFile, as_far_as_there_is_room
from kafkad.log.index import (
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    OffsetEntries,
    OffsetIndex,
    StoredOffsetIndex,
    StoredTimeIndex,
    TimeEntries,
    TimeIndex,
    whole_entries,
)
from kafkad.turns import Pieces, at_once
from kafkad.wire.records import BASE_OFFSET, LAST_OFFSET_DELTA, LENGTH, MAX_TIMESTAMP, PREFIX_SIZE, Header

LOG, INDEX, TIME_INDEX = ".log", ".index", ".timeindex"
LARGEST_RELATIVE_OFFSET = 2**31 - 1
_BATCHES_A_PIECE = 1_000
UNKNOWN = -2
ASK_FIRST = -2


class Hole(NamedTuple):
    """A damaged stretch: bytes [start, end) that should have held the offsets [first, next).

    With `lost` there are fewer bytes than there were: the disk had not taken the end of the file.
    """

    start: int
    end: int
    first: int
    next: int
    lost: bool = False


class IndexedFile:
    """The indexes are in memory while they are made, and searched in their files when they are complete.

    They are no truth: what is missing or makes no sense is made anew from the batches (`rebuild_indexes`).
    """

    __slots__ = (
        "_file",
        "_offsets",
        "_rebuilt",
        "_times",
        "base",
        "directory",
        "entries_limit",
        "files",
        "holes",
        "interval",
        "limit",
        "max_entries",
        "newest_timestamp",
        "newest_timestamp_offset",
        "since_index",
        "size",
        "used",
    )

    def __init__(self, files: Files, directory: str, base: int, size: int, interval: int) -> None:
        self.files = files
        self.directory = directory
        self.base = base
        self.size = size
        self.interval = interval
        self.holes: tuple[Hole, ...] = ()
        self.newest_timestamp = UNKNOWN
        self.newest_timestamp_offset = base
        self.since_index = 0
        self.max_entries = self.entries_limit = 0
        self.limit = ASK_FIRST
        """The size up to which an append may go on without asking whether there is room."""
        self._file: LogFile | None = None
        self._offsets: OffsetIndex | StoredOffsetIndex | None = None
        self._times: TimeIndex | StoredTimeIndex | None = None
        self._rebuilt = False
        self.used = 0
        """Its files' last use, as the value of `Files.opens` at that time."""

    def path(self, suffix: str) -> str:
        return segment_path(self.directory, self.base, suffix)

    @property
    def file(self) -> LogFile:
        if self._file is None:
            self._file = self.files.open_log_file(self.path(LOG))
            self.files.opened(self)
        self.used = self.files.opens
        return self._file

    @property
    def offsets(self) -> OffsetEntries:
        if self._offsets is None:
            self._open_indexes()
        assert self._offsets is not None
        return self._offsets

    @property
    def times(self) -> TimeEntries:
        if self._times is None:
            self._open_indexes()
        assert self._times is not None
        return self._times

    def _open_indexes(self) -> None:
        """Trust what is in the files if their ends make sense; otherwise the log has it all."""
        if not self._open_plausible():
            self.rebuild_indexes()
            if self._offsets is None:
                self._open_plausible()

    def _open_plausible(self) -> bool:
        try:
            offsets = StoredOffsetIndex(self.files, *self._open_index(INDEX, OFFSET_ENTRY_SIZE))
            times = StoredTimeIndex(self.files, *self._open_index(TIME_INDEX, TIME_ENTRY_SIZE))
            plausible = self._plausible(offsets, times)
        except (FileNotFoundError, ValueError, struct.error):
            return False
        if plausible:
            self._offsets, self._times = offsets, times
            self.files.opened(self)
            self.files.opened(self)
        return plausible

    def _open_index(self, suffix: str, entry_size: int) -> tuple[LogFile, int]:
        file = self.files.open_log_file(self.path(suffix), os.O_RDONLY)
        size = file.size
        if size % entry_size:
            raise ValueError(f"{self.path(suffix)} ends inside an entry")
        return file, size

    def _plausible(self, offsets: OffsetEntries, times: TimeEntries) -> bool:
        if len(offsets):
            offset, position = offsets.entry(len(offsets) - 1)
            if offset < 0 or not 0 <= position < self.size:
                return False
        if len(times):
            timestamp, offset = times.entry(len(times) - 1)
            before = times.entry(len(times) - 2) if len(times) > 1 else (-1, -1)
            if timestamp <= before[0] or offset <= before[1]:
                return False
        return True

    def _load_indexes(self) -> None:
        """Have the indexes in memory."""
        if not isinstance(self._offsets, OffsetIndex):
            self._open_indexes()
        if not isinstance(self._offsets, OffsetIndex):  # a full disk has no room for what had to be rebuilt
            offsets = OffsetIndex(whole_entries(self.files.read(self.path(INDEX)), OFFSET_ENTRY_SIZE))
            times = TimeIndex(whole_entries(self.files.read(self.path(TIME_INDEX)), TIME_ENTRY_SIZE))
            self._offsets, self._times = offsets, times

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the headers of the batches, as Kafka does, and store them."""
        _ = self.file  # one file too many is refused before anything is forgotten
        self._rebuilt = True
        self.take_indexes(at_once(self.indexing(self.holes)))
        self.complete_indexes()

    def indexing(self, holes: tuple[Hole, ...]) -> Pieces[IndexedFile]:
        """Make both indexes anew, for a file with just these holes; what is appended meanwhile is in them."""
        made = IndexedFile(self.files, self.directory, self.base, 0, self.interval)
        made.start_indexes()
        file, done = self.file, 0
        with contextlib.suppress(BadBatch):  # what follows cannot be indexed; readers will get the error themselves
            while done < self.size:
                until = self.size
                for start, end in _between(holes, done, until):
                    made.size = start
                    for count, (position, header) in enumerate(walk(self.files.pread, file.fd, start, end), start=1):
                        if not self.may_hold(header):
                            raise BadBatch(position, f"a batch with offset {header[BASE_OFFSET]} in {self.base}")
                        made.note(header)
                        if count % _BATCHES_A_PIECE == 0:
                            yield
                done = until
        return made

    def take_indexes(self, made: IndexedFile) -> None:
        """Those that `indexing` has made; the files do not have them yet."""
        self._offsets, self._times = made._offsets, made._times
        self.newest_timestamp, self.newest_timestamp_offset = made.newest_timestamp, made.newest_timestamp_offset
        self.since_index = made.since_index

    def start_indexes(self) -> None:
        """Begin with empty indexes, in memory."""
        self._offsets = OffsetIndex()
        self._times = TimeIndex()
        self.newest_timestamp = -1
        self.newest_timestamp_offset = self.base
        self.since_index = 0

    def may_hold(self, header: Header) -> bool:
        """True if the offsets of a batch, which no checksum protects, are such as the indexes can name."""
        first = header[BASE_OFFSET] - self.base
        return 0 <= first <= first + header[LAST_OFFSET_DELTA] <= LARGEST_RELATIVE_OFFSET

    def note(self, header: Header) -> None:
        """Account for a batch that stands at the end of the file."""
        last = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        if header[MAX_TIMESTAMP] > self.newest_timestamp:
            self.newest_timestamp = header[MAX_TIMESTAMP]
            self.newest_timestamp_offset = last
        if self.since_index > self.interval:
            self.add_entry(last)
        length = header[LENGTH] + PREFIX_SIZE
        self.since_index += length
        self.size += length

    def add_entry(self, last_offset: int) -> None:
        """Index the batch that begins at the present end and ends with `last_offset`. Hot: every batch over 4 KiB."""
        offsets, times = self._offsets, self._times
        if TYPE_CHECKING:
            assert isinstance(offsets, OffsetIndex) and isinstance(times, TimeIndex)
        base = self.base
        offsets.offsets.append(last_offset - base)
        offsets.positions.append(self.size)
        timestamps = times.timestamps
        if self.newest_timestamp > (timestamps[-1] if timestamps else -1):
            timestamps.append(self.newest_timestamp)
            times.offsets.append(self.newest_timestamp_offset - base)
        self.since_index = 0
        if len(offsets.offsets) >= self.entries_limit and self.indexes_full:
            self.limit = ASK_FIRST

    @property
    def indexes_full(self) -> bool:
        """Kafka keeps one time entry free, for the one that `seal` adds."""
        return 0 < self.entries_limit <= len(self.offsets) and (
            len(self.offsets) >= self.max_entries or len(self.times) >= self.entries_limit
        )

    def store_indexes(self) -> None:
        """Write what the index files do not have yet."""
        offsets, times = self._offsets, self._times
        if isinstance(offsets, OffsetIndex) and isinstance(times, TimeIndex):
            self._store(INDEX, offsets.unstored(), offsets.stored * OFFSET_ENTRY_SIZE)
            offsets.stored = len(offsets)
            self._store(TIME_INDEX, times.unstored(), times.stored * TIME_ENTRY_SIZE)
            times.stored = len(times)

    @property
    def indexes_are_stored(self) -> bool:
        offsets, times = self._offsets, self._times
        if isinstance(offsets, OffsetIndex) and isinstance(times, TimeIndex):
            return offsets.stored == len(offsets) and times.stored == len(times)
        return True

    def _store(self, suffix: str, data: bytes, at: int) -> None:
        if not at and not data and self.files.is_empty(self.path(suffix)):
            return
        file = self.files.open_log_file(self.path(suffix), os.O_WRONLY | os.O_CREAT)
        if data:
            self.files.write_all(file.fd, data, at)
        self.files.truncate(file.fd, at + len(data))

    def complete_indexes(self) -> None:
        """As `write_indexes`; what a full disk has no room for stays in memory."""
        with as_far_as_there_is_room():
            self.write_indexes()

    def write_indexes(self) -> None:
        """Leave the index files as Kafka leaves them, and the entries to them."""
        if isinstance(self._times, TimeIndex):
            self._times.maybe_append(self.newest_timestamp, self.newest_timestamp_offset - self.base)
            self.store_indexes()
            self._offsets = self._times = None

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of any record, -1 without one."""
        self._load_max_timestamp()
        return self.newest_timestamp

    def _load_max_timestamp(self) -> None:
        if self.newest_timestamp == UNKNOWN:
            timestamp, offset = self._last_time_entry()
            if self.newest_timestamp == UNKNOWN:  # not so if that had to rebuild the index
                self.newest_timestamp, self.newest_timestamp_offset = timestamp, self.base + offset

    def _last_time_entry(self) -> tuple[int, int]:
        """Without keeping the file open: the manager asks every segment of every log."""
        if self._times is None:
            try:
                file, size = self._open_index(TIME_INDEX, TIME_ENTRY_SIZE)
                stored = StoredTimeIndex(self.files, file, size)
                return stored.entry(len(stored) - 1) if len(stored) else (-1, 0)
            except (FileNotFoundError, ValueError, struct.error):
                self.rebuild_indexes()
        times = self.times
        return times.entry(len(times) - 1) if len(times) else (-1, 0)

    def sound_stretches(self, start: int = 0) -> Iterator[tuple[int, int]]:
        """The stretches [from, to) of the file after `start` that are not damaged."""
        return _between(self.holes, start, self.size)


def _between(holes: tuple[Hole, ...], start: int, end: int) -> Iterator[tuple[int, int]]:
    for hole in holes:
        if hole.start > start:
            yield start, hole.start
        start = max(start, hole.end)
    if start < end:
        yield start, end


def segment_path(directory: str, base: int, suffix: str) -> str:
    return f"{directory}/{base:020d}{suffix}"
