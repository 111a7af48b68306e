"""One segment of a log: a file of batches with its indexes, to be written to, read from and closed.

Only the last segment of a log is written to. It is made ready for that at the first append (`prepare`) and completed
when the log rolls or closes (`seal`); everything else opens its files at first use. The hot path of an append is in
`Log.append`, which does the same as `IndexedFile.note`.
"""

from __future__ import annotations

import contextlib
import os
import struct

from kafkad.config import LogConfig
from kafkad.log.batches import BadBatch, read_header, walk
from kafkad.log.files import Files, as_far_as_there_is_room
from kafkad.log.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, OffsetIndex, TimeIndex
from kafkad.log.indexed import (
    ASK_FIRST,
    INDEX,
    LARGEST_RELATIVE_OFFSET,
    LOG,
    TIME_INDEX,
    UNKNOWN,
    IndexedFile,
)
from kafkad.log.txnindex import SUFFIX as TXN_INDEX
from kafkad.log.txnindex import TransactionIndex
from kafkad.wire.records import BASE_OFFSET, LAST_OFFSET_DELTA, LENGTH, MAX_TIMESTAMP, PREFIX_SIZE

SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
NOWHERE = 2**63 - 1
"""An offset that no batch has."""
_BEHIND = "an index entry that points behind its offset"
_NOT_OPEN = -1
_CANNOT_RESERVE = -1
_RESERVE_FROM = 1 << 20
_SMALL = 4096
"""Bytes that are sooner read than two indexes are opened."""
_RESERVE_STEPS = (4 << 20, 64 << 20)


class Segment(IndexedFile):
    __slots__ = (
        "_transactions",
        "created_ms",
        "fd",
        "first_timestamp",
        "has_transactions",
        "jitter_ms",
        "last_base",
        "last_position",
        "last_possible",
        "reserved",
        "roll_after",
    )

    def __init__(self, files: Files, directory: str, base: int, size: int, interval: int, now_ms: int) -> None:
        super().__init__(files, directory, base, size, interval)
        self.created_ms = now_ms
        self.jitter_ms = 0
        self.first_timestamp = UNKNOWN
        self.reserved = 0
        self.has_transactions = False
        self._transactions: TransactionIndex | None = None
        self.fd = _NOT_OPEN
        self.last_base = NOWHERE
        """The base offset of the batch that was appended last, which stands at `last_position`."""
        self.last_position = 0
        # Beside `limit`, what the fast path of an append compares with:
        self.roll_after = ASK_FIRST
        self.last_possible = base + LARGEST_RELATIVE_OFFSET

    @property
    def transactions(self) -> TransactionIndex:
        """The aborted transactions that end in this segment; there is a file only if there are any."""
        if self._transactions is None:
            self._transactions = TransactionIndex(self.path(TXN_INDEX), self.files, exists=self.has_transactions)
            self.files.opened(self)
        return self._transactions

    @property
    def is_complete(self) -> bool:
        """True if the files of its indexes have all that is known, and nothing waits in memory for room on the disk."""
        return self.indexes_are_stored and (self._transactions is None or self._transactions.is_stored)

    def store_indexes(self) -> None:
        super().store_indexes()
        self.store_transactions()

    def store_transactions(self) -> None:
        """Write the aborted transactions that a full disk had no room for."""
        if self._transactions is not None:
            self._transactions.store()

    def let_go(self) -> None:
        """Close the files if nothing is being written; they open again at the next use."""
        if not self.ready:
            self._file = None
            if not isinstance(self._times, TimeIndex):
                self._offsets = self._times = None

    @property
    def open_files(self) -> int:
        """The most files that may be open: those of indexes and of transactions may not be open yet, or no longer."""
        indexes = (self._offsets, self._times)
        kept = sum(index is not None and not isinstance(index, OffsetIndex | TimeIndex) for index in indexes)
        return kept + (self._file is not None) + (self._transactions is not None)

    def give_up_files(self) -> None:
        """Close them until the next use, also in the middle of being written; not if the indexes cannot be stored."""
        self.complete_indexes()
        if self.is_complete:
            self.release()

    def release(self) -> None:
        """Close the files; they open again at the next use."""
        self.files.closing(self)
        self._file = self._offsets = self._times = self._transactions = None
        self.limit = self.roll_after = ASK_FIRST
        self.fd = _NOT_OPEN

    def move_to(self, directory: str) -> None:
        """The directory was renamed; files that are open stay so."""
        self.directory = directory
        if self._transactions is not None:
            self._transactions.path = self.path(TXN_INDEX)

    def create_files(self) -> None:
        """All of them or, when the disk refuses one, none: an empty `.log` would be the end of the log at a start."""
        try:
            self._file = self.files.open_log_file(self.path(LOG), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            for suffix in (INDEX, TIME_INDEX):
                self.files.open_log_file(self.path(suffix), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        except OSError:
            self._file = None
            for suffix in (LOG, INDEX, TIME_INDEX):
                with contextlib.suppress(FileNotFoundError):
                    self.files.unlink(self.path(suffix))
            raise
        self.files.opened(self)

    # -- writing ------------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return self.fd != _NOT_OPEN

    def prepare(self, config: LogConfig) -> None:
        """Be ready to append: files open, indexes in memory, limits known."""
        self._load_indexes()
        self._load_max_timestamp()
        self.fd = self.file.fd
        _ = self.oldest_timestamp_ms
        self.set_limits(config)

    def forget_readiness(self) -> None:
        """A write failed: the next append must go the slow way, and find out again what stands here."""
        self.limit = self.roll_after = ASK_FIRST
        self.reserved = 0
        if not self.size:
            self.first_timestamp = UNKNOWN

    def set_limits(self, config: LogConfig) -> None:
        self.interval = config.index_interval
        self.max_entries = config.segment_index_bytes // OFFSET_ENTRY_SIZE
        self.entries_limit = config.segment_index_bytes // TIME_ENTRY_SIZE - 1
        self.limit = config.segment_bytes if self.reserved < 0 else min(config.segment_bytes, self._reserve_limit)
        if self.indexes_full:
            self.limit = ASK_FIRST
        if self.first_timestamp >= 0:
            self.roll_after = self.first_timestamp + config.roll_ms - self.jitter_ms
        else:
            self.roll_after = ASK_FIRST

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
            self.reserved = until if done else _CANNOT_RESERVE

    def should_roll(self, config: LogConfig, length: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Kafka's rule for a batch that is about to be appended."""
        if last_offset - self.base > LARGEST_RELATIVE_OFFSET:
            return True
        if not self.size:
            return False
        if self.size > config.segment_bytes - length or self.indexes_full:
            return True
        waited = max_timestamp - self.first_timestamp if self.first_timestamp >= 0 else now_ms - self.created_ms
        return waited > config.roll_ms - self.jitter_ms

    def _read_first_timestamp(self) -> int:
        try:
            _, header = next(walk(self.files.pread, self.file.fd, 0, self.size))
        except BadBatch:
            return -1
        return header[MAX_TIMESTAMP]

    def seal(self) -> None:
        """Complete the files as Kafka leaves them when a segment is rolled or closed."""
        self.limit = self.roll_after = ASK_FIRST
        self.fd = _NOT_OPEN
        self.complete_indexes()
        if self.reserved > 0:
            self.files.truncate(self.file.fd, self.size)
        self.reserved = 0

    def place_of_cut(self, offset: int) -> tuple[int, int]:
        """The position of the batch that holds `offset`, and the end offset that is left when it goes and all after it.

        Damage that should have held it goes as a whole. BadBatch when other damage is in the way.
        """
        for hole in self.holes:
            if hole.first <= offset < hole.next:
                return hole.start, hole.first
        position = self.locate(offset)
        end = offset
        if position < self.size:
            _, header = next(walk(self.files.pread, self.file.fd, position, self.size))
            end = min(offset, header[BASE_OFFSET])
        return position, end

    def open_for_cut(self) -> None:
        """Open the files that `cut` needs: it cannot be taken back if one is refused then."""
        self._load_indexes()
        self._load_max_timestamp()
        _ = self.file

    def cut(self, position: int, offset: int) -> None:
        """Drop the bytes from `position` on, which begin with `offset`, and what the indexes say about them."""
        assert isinstance(self._offsets, OffsetIndex) and isinstance(self._times, TimeIndex)
        self._offsets.truncate(offset - self.base)
        self._times.truncate(offset - self.base)
        self.files.truncate(self.file.fd, position)
        self.size = position
        self.holes = tuple(hole for hole in self.holes if hole.next <= offset)
        self.since_index = self.reserved = 0
        self.first_timestamp = UNKNOWN
        self.last_base = NOWHERE
        if self.newest_timestamp_offset >= offset:
            with contextlib.suppress(BadBatch):  # the largest timestamp before the damage
                self._find_max_timestamp()
        with as_far_as_there_is_room():
            self.store_indexes()
        self.limit = self.roll_after = ASK_FIRST
        self.fd = _NOT_OPEN

    def _find_max_timestamp(self) -> None:
        """The largest timestamp left: the time index is silent about batches after its last entry."""
        assert self._times is not None
        self.newest_timestamp = UNKNOWN
        self._load_max_timestamp()
        start = self.locate(self.newest_timestamp_offset) if self.newest_timestamp >= 0 else 0
        for begin, end in self.sound_stretches(start):
            for _, header in walk(self.files.pread, self.file.fd, begin, end):
                if header[MAX_TIMESTAMP] > self.newest_timestamp:
                    self.newest_timestamp = header[MAX_TIMESTAMP]
                    self.newest_timestamp_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def largest_timestamp_ms(self) -> int:
        """The timestamp for retention by time: a segment without timestamps is as old as its file."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return os.fstat(self.file.fd).st_mtime_ns // 1_000_000

    @property
    def oldest_timestamp_ms(self) -> int:
        """The timestamp for `max.compaction.lag.ms`: the first batch's; -1 when it has none, or there is no batch."""
        if self.first_timestamp == UNKNOWN and self.size:
            self.first_timestamp = self._read_first_timestamp()
        return max(self.first_timestamp, -1)

    def locate(self, offset: int) -> int:
        """The position of the batch that holds `offset`, or of the first after it; the size when there is none.

        BadBatch when damage is in the way.
        """
        for hole in self.holes:
            if hole.first <= offset < hole.next:
                raise BadBatch(hole.start, "damage found by recovery")
        locate = self._locate_between_holes if self.holes else self._locate_by_index
        try:
            return locate(offset)
        except (BadBatch, struct.error):
            if self._rebuilt or isinstance(self._offsets, OffsetIndex):
                raise
            self.rebuild_indexes()
            return locate(offset)

    def locate_end(self, offset: int) -> int:
        """The same for who reads up to there: damage that should have held `offset` is not in the way."""
        for hole in self.holes:
            if hole.first <= offset < hole.next:
                return hole.start
        return self.locate(offset)

    def _locate_by_index(self, offset: int) -> int:
        offsets = self.offsets
        number = offsets.at_or_after(offset - self.base)
        if number < len(offsets):  # a reader that goes on where its last read ended hits the beginning of an entry
            position = offsets.entry(number)[1]
            header = read_header(self.files.pread, self.file.fd, position, self.size)
            if header[BASE_OFFSET] <= offset <= header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]:
                return position
        start = offsets.entry(number - 1)[1] if number else 0
        for position, header in walk(self.files.pread, self.file.fd, start, self.size):
            if position == start > 0 and header[BASE_OFFSET] > offset:
                raise BadBatch(start, _BEHIND)
            if header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] >= offset:
                return position
        return self.size

    def _locate_between_holes(self, offset: int) -> int:
        offsets = self.offsets
        number = offsets.at_or_after(offset - self.base)
        indexed = offsets.entry(number - 1)[1] if number else 0
        first = max(indexed, max((hole.end for hole in self.holes if hole.next <= offset), default=0))
        for start, end in self.sound_stretches(first):
            for position, header in walk(self.files.pread, self.file.fd, start, end):
                if position == indexed > 0 and header[BASE_OFFSET] > offset:
                    raise BadBatch(position, _BEHIND)
                if header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] >= offset:
                    return position
        return self.size

    def end_of_read(self, start: int, stop: int, max_bytes: int) -> int:
        """The end of a read of at most `max_bytes` from the batch at `start`: before a batch, but after that one."""
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
        end = self.base
        for _, header in walk(self.files.pread, self.file.fd, self.position_near_end(), self.size):
            end = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        return end

    def position_near_end(self) -> int:
        """The position of the batch that the last index entry names; 0 if all is soon read."""
        if self.size <= _SMALL:
            return 0
        offsets = self.offsets
        return offsets.entry(len(offsets) - 1)[1] if len(offsets) else 0
