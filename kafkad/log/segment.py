"""One segment: a `.log` file of batches and the two indexes that find offsets and timestamps in it.

Only the last segment of a log is written to. It is made ready for that at the first append (`prepare`) and put to rest
when the log rolls or closes (`seal`); everything else opens its files at first use. The fast path of an append is in
`log.Log.append`, which does the same as `note` here.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kafkad.config import LogConfig
from kafkad.log.batches import (
    BASE_OFFSET,
    LAST_DELTA,
    LENGTH,
    MAX_TIMESTAMP,
    BadBatch,
    Header,
    read_header,
    walk,
)
from kafkad.log.files import Files, LogFile
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
from kafkad.log.txnindex import SUFFIX as TXN_INDEX
from kafkad.log.txnindex import TransactionIndex
from kafkad.wire.records import PREFIX_SIZE

LOG, INDEX, TIME_INDEX = ".log", ".index", ".timeindex"
SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
LARGEST_RELATIVE_OFFSET = 2**31 - 1
_UNKNOWN = -2
_NOT_READY = -2
_RESERVE_FROM = 1 << 20
_RESERVE_STEPS = (4 << 20, 64 << 20)


class Hole(NamedTuple):
    """A damaged stretch: bytes [start, end) that should have held the offsets [first, next)."""

    start: int
    end: int
    first: int
    next: int


class Segment:
    __slots__ = (
        "_file",
        "_offsets",
        "_rebuilt",
        "_times",
        "_transactions",
        "base",
        "created_ms",
        "directory",
        "entries_limit",
        "fd",
        "files",
        "first_timestamp",
        "has_transactions",
        "holes",
        "interval",
        "jitter_ms",
        "last_possible",
        "limit",
        "max_entries",
        "newest_timestamp",
        "newest_timestamp_offset",
        "reserved",
        "roll_after",
        "since_index",
        "size",
    )

    def __init__(self, files: Files, directory: str, base: int, size: int, interval: int, now_ms: int) -> None:
        self.files = files
        self.directory = directory
        self.base = base
        self.size = size
        self.interval = interval
        self.created_ms = now_ms
        self.jitter_ms = 0
        self.holes: tuple[Hole, ...] = ()
        self._file: LogFile | None = None
        self._offsets: OffsetIndex | StoredOffsetIndex | None = None
        self._times: TimeIndex | StoredTimeIndex | None = None
        self._rebuilt = False
        self.newest_timestamp = _UNKNOWN
        self.newest_timestamp_offset = base
        self.since_index = 0
        self.first_timestamp = _UNKNOWN
        self.reserved = 0
        self.max_entries = self.entries_limit = 0
        self.has_transactions = False
        self._transactions: TransactionIndex | None = None
        self.fd = _NOT_READY
        # What the fast path of an append compares with: beyond any of these it asks `log.Log` to make room first.
        self.limit = _NOT_READY
        self.roll_after = _NOT_READY
        self.last_possible = base + LARGEST_RELATIVE_OFFSET

    # -- files -----------------------------------------------------------------------------------------------------

    def path(self, suffix: str) -> str:
        return segment_path(self.directory, self.base, suffix)

    @property
    def file(self) -> LogFile:
        if self._file is None:
            self._file = self.files.open_log_file(self.path(LOG))
        return self._file

    def let_go(self) -> None:
        """Close the files if nothing is being written; whoever needs them next opens them again."""
        if not self.ready:
            self._file = None
            if not isinstance(self._times, TimeIndex):
                self._offsets = self._times = None

    @property
    def transactions(self) -> TransactionIndex:
        """The aborted transactions that end in this segment; there is a file only if there are any."""
        if self._transactions is None:
            self._transactions = TransactionIndex(self.path(TXN_INDEX), self.files, exists=self.has_transactions)
        return self._transactions

    def release(self) -> None:
        """Close the files; they open again at the next use."""
        self._file = self._offsets = self._times = self._transactions = None
        self.limit = self.roll_after = self.fd = _NOT_READY

    def move_to(self, directory: str) -> None:
        """The directory was renamed; files that are open stay so."""
        self.directory = directory
        self._transactions = None

    def create_files(self) -> None:
        self._file = self.files.open_log_file(self.path(LOG), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        for suffix in (INDEX, TIME_INDEX):
            self.files.open_log_file(self.path(suffix), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    # -- indexes ---------------------------------------------------------------------------------------------------

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

    def rebuild_indexes(self) -> None:
        """Make both indexes anew from the headers of the batches, as Kafka does, and store them."""
        self._rebuilt = True
        self.start_indexes()
        size = self.size
        try:
            for start, end in self.sound_stretches():
                self.size = start
                for _, header in walk(self.files.pread, self.file.fd, start, end):
                    self.note(header)
        except BadBatch:
            pass  # what comes after cannot be indexed; whoever reads there meets it again
        finally:
            self.size = size
        self.seal()

    def start_indexes(self) -> None:
        """Begin with empty indexes, in memory."""
        self._offsets = OffsetIndex()
        self._times = TimeIndex()
        self.newest_timestamp = -1
        self.newest_timestamp_offset = self.base
        self.since_index = 0

    def note(self, header: Header) -> None:
        """Account for a batch that stands at the end of the file."""
        last = header[BASE_OFFSET] + header[LAST_DELTA]
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
            self.limit = _NOT_READY

    @property
    def indexes_full(self) -> bool:
        """Kafka keeps one time entry free, for the one that `seal` adds."""
        return 0 < self.entries_limit <= len(self.offsets) and (
            len(self.offsets) >= self.max_entries or len(self.times) >= self.entries_limit
        )

    # -- writing ---------------------------------------------------------------------------------------------------

    def prepare(self, config: LogConfig) -> None:
        """Be ready to append: files open, indexes in memory, limits known."""
        self._load_indexes()
        self._load_max_timestamp()
        self.fd = self.file.fd
        if self.first_timestamp == _UNKNOWN and self.size:
            self.first_timestamp = self._read_first_timestamp()
        self.set_limits(config)

    def _load_indexes(self) -> None:
        """Have the indexes in memory."""
        if not isinstance(self._offsets, OffsetIndex):
            self._open_indexes()
            self._offsets = OffsetIndex(whole_entries(self.files.read(self.path(INDEX)), OFFSET_ENTRY_SIZE))
            self._times = TimeIndex(whole_entries(self.files.read(self.path(TIME_INDEX)), TIME_ENTRY_SIZE))

    @property
    def ready(self) -> bool:
        return self.fd != _NOT_READY

    def forget_readiness(self) -> None:
        """A write failed: the next append must go the slow way, and find out again what stands here."""
        self.limit = self.roll_after = _NOT_READY
        self.reserved = 0
        if not self.size:
            self.first_timestamp = _UNKNOWN

    def set_limits(self, config: LogConfig) -> None:
        self.interval = config.index_interval_bytes
        self.max_entries = config.segment_index_bytes // OFFSET_ENTRY_SIZE
        self.entries_limit = config.segment_index_bytes // TIME_ENTRY_SIZE - 1
        self.limit = config.segment_bytes if self.reserved < 0 else min(config.segment_bytes, self._reserve_limit)
        if self.indexes_full:
            self.limit = _NOT_READY
        if self.first_timestamp >= 0:
            self.roll_after = self.first_timestamp + config.segment_ms - self.jitter_ms
        else:
            self.roll_after = _NOT_READY

    @property
    def _reserve_limit(self) -> int:
        return max(self.reserved, _RESERVE_FROM)

    def reserve(self, config: LogConfig, wanted: int) -> None:
        """Have blocks allocated up to `wanted` and some more, so that single appends need not."""
        if config.preallocate:
            until = config.segment_bytes
        elif wanted <= _RESERVE_FROM:
            return
        else:
            least, most = _RESERVE_STEPS
            until = min(config.segment_bytes, wanted + min(max(wanted, least), most))
        if 0 <= self.reserved < until:
            done = self.files.allocate(self.file.fd, self.size, until - self.size)
            self.reserved = until if done else _UNKNOWN

    def should_roll(self, config: LogConfig, length: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Kafka's rule for a batch that is about to be appended."""
        if last_offset - self.base > LARGEST_RELATIVE_OFFSET:
            return True
        if not self.size:
            return False
        if self.size > config.segment_bytes - length or self.indexes_full:
            return True
        waited = max_timestamp - self.first_timestamp if self.first_timestamp >= 0 else now_ms - self.created_ms
        return waited > config.segment_ms - self.jitter_ms

    def _read_first_timestamp(self) -> int:
        try:
            _, header = next(walk(self.files.pread, self.file.fd, 0, self.size))
        except BadBatch:
            return -1
        return header[MAX_TIMESTAMP]

    def store_indexes(self) -> None:
        """Write what the index files do not have yet."""
        offsets, times = self._offsets, self._times
        if isinstance(offsets, OffsetIndex) and isinstance(times, TimeIndex):
            self._store(INDEX, offsets.unstored(), offsets.stored * OFFSET_ENTRY_SIZE)
            offsets.stored = len(offsets)
            self._store(TIME_INDEX, times.unstored(), times.stored * TIME_ENTRY_SIZE)
            times.stored = len(times)

    def _store(self, suffix: str, data: bytes, at: int) -> None:
        file = self.files.open_log_file(self.path(suffix), os.O_WRONLY | os.O_CREAT)
        if data:
            self.files.write_all(file.fd, data, at)
        self.files.truncate(file.fd, at + len(data))

    def seal(self) -> None:
        """Complete the files as Kafka leaves them when a segment is rolled or closed."""
        if isinstance(self._times, TimeIndex):
            self._times.maybe_append(self.newest_timestamp, self.newest_timestamp_offset - self.base)
            self.store_indexes()
            self._offsets = self._times = None
        if self.reserved > 0:
            self.files.truncate(self.file.fd, self.size)
        self.reserved = 0
        self.limit = self.roll_after = self.fd = _NOT_READY

    def truncate(self, offset: int) -> int:
        """Cut off the batch that holds `offset` and all after it; returns the end offset that is left."""
        position = self.locate(offset)
        end = offset
        if position < self.size:
            _, header = next(walk(self.files.pread, self.file.fd, position, self.size))
            end = min(offset, header[BASE_OFFSET])
        self.cut(position, end)
        return end

    def cut(self, position: int, offset: int) -> None:
        """Drop the bytes from `position` on, which begin with `offset`, and what the indexes say about them."""
        self._load_indexes()
        assert isinstance(self._offsets, OffsetIndex) and isinstance(self._times, TimeIndex)
        self._offsets.truncate(offset - self.base)
        self._times.truncate(offset - self.base)
        self.files.truncate(self.file.fd, position)
        self.size = position
        self.holes = tuple(hole for hole in self.holes if hole.end <= position)
        self.since_index = self.reserved = 0
        self.first_timestamp = _UNKNOWN
        self._find_max_timestamp()
        self.store_indexes()
        self.limit = self.roll_after = self.fd = _NOT_READY

    def _find_max_timestamp(self) -> None:
        """The largest timestamp left: the time index is silent about batches after its last entry."""
        assert self._times is not None
        self.newest_timestamp = _UNKNOWN
        self._load_max_timestamp()
        start = self.locate(self.newest_timestamp_offset)
        for _, header in walk(self.files.pread, self.file.fd, start, self.size):
            if header[MAX_TIMESTAMP] > self.newest_timestamp:
                self.newest_timestamp = header[MAX_TIMESTAMP]
                self.newest_timestamp_offset = header[BASE_OFFSET] + header[LAST_DELTA]

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of any record, -1 without one."""
        self._load_max_timestamp()
        return self.newest_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the first batch that has it."""
        self._load_max_timestamp()
        return self.newest_timestamp_offset

    def _load_max_timestamp(self) -> None:
        if self.newest_timestamp == _UNKNOWN:
            timestamp, offset = self._last_time_entry()
            if self.newest_timestamp == _UNKNOWN:  # not so if that had to rebuild the index
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

    @property
    def largest_timestamp_ms(self) -> int:
        """What retention by time goes by: a segment without timestamps is as old as its file."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return os.fstat(self.file.fd).st_mtime_ns // 1_000_000

    def sound_stretches(self, start: int = 0) -> Iterator[tuple[int, int]]:
        """The stretches [from, to) of the file after `start` that are not damaged."""
        for hole in self.holes:
            if hole.start > start:
                yield start, hole.start
            start = max(start, hole.end)
        if start < self.size:
            yield start, self.size

    def locate(self, offset: int) -> int:
        """Where the batch begins that holds `offset`, or the first one after it; the size when there is none.

        BadBatch when damage is in the way.
        """
        if self.holes:
            return self._locate_between_holes(offset)
        try:
            return self._locate_by_index(offset)
        except (BadBatch, struct.error):
            if self._rebuilt or isinstance(self._offsets, OffsetIndex):
                raise
            self.rebuild_indexes()
            return self._locate_by_index(offset)

    def _locate_by_index(self, offset: int) -> int:
        offsets = self.offsets
        number = offsets.at_or_after(offset - self.base)
        if number < len(offsets):  # a reader that goes on where its last read ended hits the beginning of an entry
            position = offsets.entry(number)[1]
            header = read_header(self.files.pread, self.file.fd, position, self.size)
            if header[BASE_OFFSET] <= offset <= header[BASE_OFFSET] + header[LAST_DELTA]:
                return position
        start = offsets.entry(number - 1)[1] if number else 0
        for position, header in walk(self.files.pread, self.file.fd, start, self.size):
            if position == start > 0 and header[BASE_OFFSET] > offset:
                raise BadBatch(start, "an index entry that points behind its offset")
            if header[BASE_OFFSET] + header[LAST_DELTA] >= offset:
                return position
        return self.size

    def _locate_between_holes(self, offset: int) -> int:
        for hole in self.holes:
            if hole.first <= offset < hole.next:
                raise BadBatch(hole.start, "damage found by recovery")
        for start, end in self.sound_stretches():
            for position, header in walk(self.files.pread, self.file.fd, start, end):
                if header[BASE_OFFSET] + header[LAST_DELTA] >= offset:
                    return position
        return self.size

    def end_of_read(self, start: int, stop: int, max_bytes: int) -> int:
        """Where to end a read of at most `max_bytes` from the batch at `start`: before a batch, but after that one."""
        for hole in self.holes:
            if start < hole.start < stop:
                stop = hole.start
        if stop - start <= max_bytes:
            return stop
        end = self.offsets.position_at_or_before(start + max_bytes)
        if end > start:
            return end
        end = start
        for position, header in walk(self.files.pread, self.file.fd, start, stop):
            after = position + PREFIX_SIZE + header[LENGTH]
            if after - start > max_bytes and end > start:
                break
            end = after
        return end

    def read_end_offset(self) -> int:
        """The offset after the last batch, found from the last index entry on."""
        if not self.size:
            return self.base
        offsets = self.offsets
        start = offsets.entry(len(offsets) - 1)[1] if len(offsets) else 0
        end = self.base
        for _, header in walk(self.files.pread, self.file.fd, start, self.size):
            end = header[BASE_OFFSET] + header[LAST_DELTA] + 1
        return end


def segment_path(directory: str, base: int, suffix: str) -> str:
    return f"{directory}/{base:020d}{suffix}"
