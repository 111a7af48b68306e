"""Compaction: of the records with one key the last stays, in its place and with its offset (Kafka's log cleaner).

The first pass notes the last offset of every key in the dirty part, as far as the map has room. The second goes over
the log from its start and writes what stays into new segments. Runs in a process of its own: see `worker`.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kafkad.cleaner import old_formats
from kafkad.cleaner.cleaned import CleanedSegment
from kafkad.cleaner.keymap import KeyMap
from kafkad.cleaner.sieve import Kept, Sieve, body_of, check_crc, is_spent
from kafkad.cleaner.source import Source
from kafkad.cleaner.transactions import Transactions
from kafkad.clock import Clock
from kafkad.log.bodies import AT_ONCE, Keys, read_keys
from kafkad.log.compaction import (
    CompactionJob,
    CompactionResult,
    CompactionStats,
    Offer,
    Poison,
    Replacement,
    UncleanableError,
)
from kafkad.log.files import Files
from kafkad.log.indexed import INDEX, LARGEST_RELATIVE_OFFSET, LOG, TIME_INDEX, segment_path
from kafkad.log.names import base_of
from kafkad.log.txnindex import SUFFIX as TXN_INDEX
from kafkad.log.txnindex import AbortedTransaction, BrokenTransactionIndexError, TransactionIndex
from kafkad.wire.records import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL,
    LAST_OFFSET_DELTA,
    LENGTH,
    MAGIC,
    PREFIX_SIZE,
    RECORD_COUNT,
    TRANSACTIONAL,
    Header,
)

_MOST_OFFSETS = 1 << 24
"""That a batch may span: more records than any has."""
_MOST_NAMED = 100
_UNREADABLE = (IndexError, OverflowError, ValueError, struct.error)
"""Everything that reading malformed records may raise."""

MOST_IN_ONE = 64
"""Segments that become one: the broker renames their files in one turn of its event loop."""


class Extent(NamedTuple):
    """A segment to be cleaned, as far as grouping asks."""

    base: int
    size: int
    end: int
    """The base of the next one: no offset in this one reaches it."""
    index_size: int
    time_index_size: int


def grouped(extents: Sequence[Extent], segment_bytes: int, index_bytes: int) -> list[list[Extent]]:
    """Neighbours that fit into one new segment for certain, by their present sizes."""
    groups: list[list[Extent]] = []
    for extent in extents:
        group = groups[-1] if groups else []
        if (
            group
            and len(group) < MOST_IN_ONE
            and sum(member.size for member in group) + extent.size <= segment_bytes
            and sum(member.index_size for member in group) + extent.index_size <= index_bytes
            and sum(member.time_index_size for member in group) + extent.time_index_size <= index_bytes
            and (not extent.size or extent.end - 1 - group[0].base <= LARGEST_RELATIVE_OFFSET)
        ):
            group.append(extent)
        else:
            groups.append([extent])
    return groups


class Compaction:
    """One job. `spend` is called with all bytes read and written: it waits, to hold the rate, or raises to stop."""

    def __init__(
        self, job: CompactionJob, files: Files, clock: Clock, spend: Callable[[int], None], offer: Offer
    ) -> None:
        self._job = job
        self._offer = offer
        self._files = files
        self._clock = clock
        self._spend = spend
        self._step = max(job.io_buffer_bytes // 2, 1)
        closed: dict[int, int | None] = {
            base: None
            for name in sorted(files.list_files(job.directory))
            if name.endswith(TXN_INDEX) and (base := base_of(name)) is not None and base < job.upto
        }
        self._transaction_indexes = closed | dict(job.later_transactions)
        """Bases in their order, and how much is to be read of those that may grow."""
        self._counts: Counter[str] = Counter()
        self._poison: dict[int, Poison] = {}

    def run(self) -> CompactionResult:
        """UncleanableError when the log is damaged, OSError as the disk has it. Then `.cleaned` files may be left."""
        job = self._job
        started = self._clock.monotonic_ms()
        keys = KeyMap(job.dedupe_buffer_bytes, job.load_factor, job.first_dirty, job.upto)
        extents = self._extents()
        self._note_keys(extents, keys)
        mapped = self._clock.monotonic_ms()
        transactions = Transactions()
        sieve = Sieve(job, keys, transactions)
        groups = grouped(
            [extent for extent in extents if extent.base <= keys.latest], job.segment_bytes, job.segment_index_bytes
        )
        horizon_ms = self._old_horizon_ms(extents)
        for group in groups:
            self._rewrite(group, sieve, transactions, horizon_ms)
        stats = CompactionStats(
            **self._counts,
            records_written=sieve.records_kept,
            buffer_utilization=keys.utilization,
            map_seconds=(mapped - started) / 1000,
            seconds=(self._clock.monotonic_ms() - started) / 1000,
        )
        named = sorted(self._poison)[:_MOST_NAMED]
        return CompactionResult(keys.latest + 1, stats, tuple(self._poison[offset] for offset in named))

    def _extents(self) -> list[Extent]:
        segments = self._job.segments
        ends = [segment.base for segment in segments[1:]] + [self._job.upto]
        return [
            Extent(*segment, end, self._size(segment.base, INDEX), self._size(segment.base, TIME_INDEX))
            for segment, end in zip(segments, ends, strict=True)
        ]

    def _size(self, base: int, suffix: str) -> int:
        try:
            return self._files.size(segment_path(self._job.directory, base, suffix))
        except FileNotFoundError:
            return 0  # the log can do without its indexes

    def _source(self, extent: Extent) -> Source:
        path = segment_path(self._job.directory, extent.base, LOG)
        return Source(self._files, path, extent.size, extent.base, extent.end)

    # -- first pass -----------------------------------------------------------------------------------------------

    def _note_keys(self, extents: Sequence[Extent], keys: KeyMap) -> None:
        transactions = Transactions()
        transactions.expect(self._aborted(keys.first, self._job.upto))
        for extent in extents:
            if extent.end > keys.first:
                with self._source(extent) as source:
                    if not self._note_keys_of(source, keys, transactions):
                        return
                keys.latest = max(keys.latest, extent.end - 1)

    def _note_keys_of(self, source: Source, keys: KeyMap, transactions: Transactions) -> bool:
        """False when the map is full."""
        if source.base < keys.first:
            source.skip_to(keys.first)
        for some, last in self._keys_together(source, transactions):
            if not keys.put(*some):
                return False
            keys.latest = max(keys.latest, last)
        return True

    def _keys_together(self, source: Source, transactions: Transactions) -> Iterator[tuple[Keys, int]]:
        """The keys of many small batches at a time, or of a part of a large one; the end of the last whole batch."""
        keys: list[bytes | None] = []
        entries: list[int] = []
        last = -1
        for data, at, header in source.batches(self._step, self._spend):
            check_crc(data, at, header)
            for some, some_entries in self._keys_of(source, data, at, header, transactions):
                keys += some
                entries += some_entries
                if len(keys) >= AT_ONCE:
                    yield (keys, entries), last
                    keys, entries = [], []
            last = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        yield (keys, entries), last

    def _keys_of(
        self, source: Source, data: bytes, at: int, header: Header, transactions: Transactions
    ) -> Sequence[Keys]:
        """The keys of a whole batch, or none: where a part of it cannot be read, readers get none of it."""
        try:
            return _readable_keys(data, at, header, transactions)
        except _UNREADABLE as error:
            self._note_poison(source, header, error)
            return ()

    def _note_poison(self, source: Source, header: Header, error: Exception) -> None:
        offset = header[BASE_OFFSET]
        following = offset + header[LAST_OFFSET_DELTA] + 1
        self._poison.setdefault(offset, Poison(source.path, source.position, offset, following, str(error)))

    def _aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [start, end), as the indexes of all segments have them."""
        found: list[AbortedTransaction] = []
        first = max((segment.base for segment in self._job.segments if segment.base <= start), default=0)
        for base, limit in self._transaction_indexes.items():
            if base >= first:
                path = segment_path(self._job.directory, base, TXN_INDEX)
                try:
                    index = TransactionIndex(path, self._files, exists=True, limit=limit)
                    more, complete = index.collect(start, end)
                except BrokenTransactionIndexError as error:
                    raise UncleanableError(path, 0, str(error)) from error
                found += more
                if complete:
                    break
        return found

    # -- second pass ----------------------------------------------------------------------------------------------

    def _old_horizon_ms(self, extents: Sequence[Extent]) -> int:
        """A time: in segments last changed before it, tombstones of formats v0 and v1 have stayed long enough."""
        clean = [extent for extent in extents if extent.base < self._job.first_dirty]
        if not clean:
            return 0
        with self._source(clean[-1]) as source:
            return source.times_ns[1] // 1_000_000 - self._job.delete_retention_ms

    def _rewrite(self, group: Sequence[Extent], sieve: Sieve, transactions: Transactions, horizon_ms: int) -> None:
        job = self._job
        new = CleanedSegment(self._files, job.directory, group[0].base, job.index_interval_bytes, self._spend)
        for extent in group:
            transactions.expect(self._aborted(extent.base, extent.end))
            with self._source(extent) as source:
                times_ns = source.times_ns
                sieve.old_tombstones_stay = times_ns[1] // 1_000_000 > horizon_ms
                self._sift(source, sieve, new)
        new.finish(transactions.take_kept(), times_ns)
        self._counts["bytes_written"] += new.size
        self._offer(Replacement(new.base, new.size, tuple(extent.base for extent in group)))

    def _sift(self, source: Source, sieve: Sieve, new: CleanedSegment) -> None:
        records = 0
        for data, at, header in source.batches(self._step, self._spend):
            kept = self._kept(source, sieve, data, at, header)
            if header[BASE_OFFSET] not in self._poison:
                records += abs(header[RECORD_COUNT])
            if kept is not None:
                new.append(*kept)
                if new.waiting >= self._step:
                    new.write_out()
        self._counts["records_read"] += records
        self._counts["bytes_read"] += source.position

    def _kept(self, source: Source, sieve: Sieve, data: bytes, at: int, header: Header) -> Kept | None:
        """The part of a batch that is kept: all of one that cannot be read, as long as it is not damaged."""
        if header[BASE_OFFSET] not in self._poison:
            try:
                _check_span(header)
                return sieve.sift(data, at, header)
            except _UNREADABLE as error:
                check_crc(data, at, header)
                self._note_poison(source, header, error)
        check_crc(data, at, header)
        return header, data[at : at + PREFIX_SIZE + header[LENGTH]]


def _readable_keys(data: bytes, at: int, header: Header, transactions: Transactions) -> Sequence[Keys]:
    """The keys of the batch at data[at], unless a marker or aborted; one of _UNREADABLE if it makes no sense."""
    if header[MAGIC] < 2:
        return [old_formats.read_keys(data, at)]
    kind = header[ATTRIBUTES] & (CONTROL | TRANSACTIONAL)
    if kind & CONTROL:
        is_spent(data, at, header, transactions)
        return ()
    if kind and transactions.is_aborted(header):
        return ()
    _check_span(header)
    found = list(read_keys(body_of(data, at, header), header[BASE_OFFSET], header[RECORD_COUNT]))
    latest = -1
    for _, entries in found:
        if entries and (entries[0] <= latest or entries != sorted(entries)):
            raise ValueError("records that are not in the order of their offsets")
        latest = entries[-1] if entries else latest
    if latest >> 1 > header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]:
        raise ValueError(f"a record with offset {latest >> 1}, outside of its batch")
    return found


def _check_span(header: Header) -> None:
    if header[LAST_OFFSET_DELTA] >= _MOST_OFFSETS:
        raise ValueError(f"a batch that claims {header[LAST_OFFSET_DELTA] + 1} offsets")
