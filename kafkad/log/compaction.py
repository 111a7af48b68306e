"""Messages between the broker and the compaction process; the algorithm is in `cleaner.compact`.

The broker names closed segments and gets new ones to put in their places. Until then nothing changes for a reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

CLEANED = ".cleaned"
"""The suffix of new files until they are complete and the broker takes them over."""


class SegmentToClean(NamedTuple):
    base: int
    size: int
    """The size of the `.log` file that is read: what lies behind it is not."""


class LastOfProducer(NamedTuple):
    """The last batch of a producer that the partition remembers: it keeps the sequence, or failing that the epoch.

    It outlives its records, or a restart from the log alone would forget the producer.
    """

    offset: int
    """The last offset of its last batch of data; -1 when only markers are known."""
    epoch: int


class CompactionJob(NamedTuple):
    directory: str
    segments: tuple[SegmentToClean, ...]
    """Every closed one from the start of the log to the first that must not be cleaned, in order."""
    later_transactions: tuple[tuple[int, int], ...]
    """Of the segments behind them the bases and the sizes of transaction indexes. What comes to these meanwhile is of
    no transaction with records in front of `upto`, and may be half written."""
    first_dirty: int
    upto: int
    """The first offset that must not be cleaned: nothing from there on is looked at or moved."""
    now_ms: int
    last_of_producer: Mapping[int, LastOfProducer]
    delete_retention_ms: int
    max_message_bytes: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    dedupe_buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int
    max_bytes_per_second: float


class Replacement(NamedTuple):
    """New files: `.log.cleaned`, `.index.cleaned`, `.timeindex.cleaned`, and `.txnindex.cleaned` if it says anything.

    All are on the disk, to take the place of the segments `old`. The first of those has the same base.
    """

    base: int
    size: int
    old: tuple[int, ...]


Offer = Callable[[Replacement], None]
"""Called with each new segment as soon as it may take its place, from the start of the log on."""


class CompactionStats(NamedTuple):
    """`map_seconds` is the time of the first pass, over the dirty part; the rest is of the second, over the whole."""

    map_seconds: float = 0.0
    buffer_utilization: float = 0.0
    bytes_read: int = 0
    records_read: int = 0
    bytes_written: int = 0
    records_written: int = 0
    seconds: float = 0.0


class Poison(NamedTuple):
    """A batch with the right checksum whose records cannot be read: its keys are unknown, so it stays as it is."""

    path: str
    """The path of the segment in which it was found; after compaction it may be in another."""
    position: int
    offset: int
    following: int
    """The offset at which readers get on."""
    reason: str


class CompactionResult(NamedTuple):
    next_dirty: int
    """The offset at which the next compaction begins: `upto`, or less when the keys did not fit into the buffer."""
    stats: CompactionStats
    poison: tuple[Poison, ...] = ()
    """Unreadable batches that were left alone; only the first of very many."""


class UncleanableError(Exception):
    """The log cannot be compacted until it is repaired; segments offered before the damage are sound."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(path, position, reason)
        self.path = path
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path} at position {self.position}: {self.reason}"


class AbandonedError(Exception):
    """The process that compacts ended before its work did, as when it is told to stop: to be tried again."""


CompactionAnswer = CompactionResult | UncleanableError | OSError
"""The compaction process's answer to a job."""
