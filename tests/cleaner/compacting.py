"""A partition's directory without a Log: segments are written, compacted, and replaced as the broker would."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from kafkad.cleaner.compact import Compaction
from kafkad.clock import SystemClock
from kafkad.log.compaction import CLEANED, CompactionJob, CompactionResult, Offer, Replacement, SegmentToClean
from kafkad.log.files import Files
from kafkad.log.indexed import LOG
from kafkad.log.segment import SUFFIXES
from kafkad.log.txnindex import SUFFIX as TXN_INDEX
from kafkad.log.txnindex import AbortedTransaction, decode, encode
from kafkad.wire.records import BatchHeader, Record, crc_matches, iter_batches, iter_records

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


class Batch(NamedTuple):
    header: BatchHeader
    records: list[Record]


class Partition:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.offered: list[Replacement] = []
        """New segments that have not taken their places yet."""

    def path(self, base: int, suffix: str = LOG) -> Path:
        return self.directory / f"{base:020d}{suffix}"

    @property
    def bases(self) -> list[int]:
        return sorted(int(path.name[:20]) for path in self.directory.glob("*.log"))

    def write(self, base: int, *batches: bytes | bytearray, aborted: list[AbortedTransaction] | None = None) -> None:
        """A segment; its indexes are left to those who need them."""
        self.path(base).write_bytes(b"".join(batches))
        if aborted:
            self.path(base, TXN_INDEX).write_bytes(encode(aborted))

    def job(self, **changes: Any) -> CompactionJob:
        """All but the last segment, from the start."""
        upto = changes.pop("upto", self.bases[-1])
        segments = [SegmentToClean(base, self.path(base).stat().st_size) for base in self.bases if base < upto]
        later = [(base, self.path(base, TXN_INDEX)) for base in self.bases if base >= upto]
        job = CompactionJob(
            directory=str(self.directory),
            segments=tuple(segments),
            later_transactions=tuple((base, index.stat().st_size) for base, index in later if index.exists()),
            first_dirty=0,
            upto=upto,
            now_ms=NOW_MS,
            last_of_producer={},
            delete_retention_ms=DAY_MS,
            max_message_bytes=1 << 20,
            segment_bytes=4096,
            segment_index_bytes=10 << 20,
            index_interval_bytes=300,
            dedupe_buffer_bytes=1 << 20,
            load_factor=0.9,
            io_buffer_bytes=1 << 16,
            max_bytes_per_second=float("inf"),
        )
        return job._replace(**changes)

    def compact(self, **changes: Any) -> CompactionResult:
        """The job done, and the new segments in the places of the old ones."""
        result = run(self.job(**changes), self.offered.append)
        self.take()
        return result

    def take(self) -> None:
        for new in self.offered:
            for base in new.old:
                for suffix in SUFFIXES:
                    self.path(base, suffix).unlink(missing_ok=True)
            for suffix in SUFFIXES:
                path = self.path(new.base, suffix + CLEANED)
                if suffix != TXN_INDEX or path.exists():
                    path.rename(self.path(new.base, suffix))
        self.offered.clear()
        assert list(self.directory.glob("*" + CLEANED)) == []

    def batches(self, upto: int = 2**63) -> list[Batch]:
        return [
            batch
            for base in self.bases
            for batch in read_batches(self.path(base).read_bytes())
            if batch.header.last_offset < upto
        ]

    def records(self) -> list[Record]:
        return [record for batch in self.batches() if not batch.header.is_control for record in batch.records]

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def aborted(self) -> list[AbortedTransaction]:
        return [entry for path in sorted(self.directory.glob("*" + TXN_INDEX)) for entry in decode(path.read_bytes())]


class Unsynced(Files):
    """Nothing here has to survive the machine."""

    def sync(self, fd: int) -> None:  # type: ignore[override]
        pass


def run(job: CompactionJob, offer: Offer, files: Files | None = None) -> CompactionResult:
    return Compaction(job, files or Unsynced(), SystemClock(), lambda count: None, offer).run()


def read_batches(data: bytes) -> list[Batch]:
    view = memoryview(data)
    found = []
    for at, header in iter_batches(view):
        assert crc_matches(view, at, header)
        found.append(Batch(header, list(iter_records(view, at, header))))
    return found


def modified_ns(path: Path) -> int:
    return os.stat(path).st_mtime_ns
