"""Random logs, compacted again and again, against a plain model: of each key the last value stays, as it was."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafkad.cleaner.keymap import ENTRY_SIZE
from kafkad.log.compaction import LastOfProducer
from kafkad.log.txnindex import AbortedTransaction
from kafkad.wire.control import ControlRecord, build_marker
from kafkad.wire.records import Record, build_batch
from tests.cleaner.compacting import NOW_MS, Partition
from tests.log.consistency import check

KEYS = [None, b"", b"a", b"b", b"key", b"k" * 70, b"l" * 9000]
RETENTION_MS = 1000


@dataclass
class Open:
    first_offset: int
    records: list[Record] = field(default_factory=list)


class Work:
    """Writes random batches and knows what a reader of committed records must find."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.partition = Partition(directory)
        self.now_ms = NOW_MS
        self.end = self.base = self.dirty = 0
        self.segment: list[bytearray] = []
        self.aborted: list[AbortedTransaction] = []
        self.committed: dict[int, Record] = {}
        """By offset, all that was ever written."""
        self.open: dict[int, Open] = {}
        self.last_of_producer: dict[int, LastOfProducer] = {}
        self.producers = self.random.random() < 0.7

    def batch(self, keys: Sequence[bytes | None] = KEYS) -> None:
        count = self.random.choice((1, 1, 2, 5, 20, 90))
        start = self.now_ms - self.random.randrange(10_000)
        records = [
            Record(
                self.end + i,
                start + self.random.randrange(-100, 20_000) * self.random.randrange(2),
                self.random.choice(keys),
                None if self.random.random() < 0.2 else self.random.randbytes(self.random.choice((0, 1, 60, 300))),
                ((("h", b"v"), ("", None)) if self.random.random() < 0.1 else ()),
            )
            for i in range(count)
        ]
        append_time = self.now_ms if self.random.random() < 0.1 else None
        if append_time is not None:
            records = [record._replace(timestamp=append_time) for record in records]
        producer_id = self.random.choice((-1, 1, 2, 3)) if self.producers else -1
        transactional = producer_id > 1
        self.segment.append(
            build_batch(
                records,
                codec=self.random.choice((0, 0, 0, 1, 2, 3, 4)),
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=self.end if producer_id >= 0 else -1,
                transactional=transactional,
                append_time=append_time,
            )
        )
        if transactional:
            self.open.setdefault(producer_id, Open(self.end)).records += records
        else:
            self.committed |= {record.offset: record for record in records}
        self.end += count
        if producer_id >= 0:
            self.last_of_producer[producer_id] = LastOfProducer(self.end - 1, 0)

    def marker(self) -> None:
        if not self.open:
            return
        producer_id = self.random.choice(list(self.open))
        transaction = self.open.pop(producer_id)
        commit = self.random.random() < 0.5
        marker = ControlRecord(commit, 0)
        self.segment.append(
            build_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=self.now_ms, base_offset=self.end)
        )
        if commit:
            self.committed |= {record.offset: record for record in transaction.records}
        else:
            stable = min((other.first_offset for other in self.open.values()), default=self.end + 1)
            self.aborted.append(AbortedTransaction(producer_id, transaction.first_offset, self.end, stable))
        self.end += 1

    def roll(self) -> None:
        self.store()
        self.base, self.segment, self.aborted = self.end, [], []

    def store(self) -> None:
        self.partition.write(self.base, *self.segment, aborted=self.aborted)

    def forget_producer(self) -> None:
        if self.last_of_producer:
            del self.last_of_producer[self.random.choice(list(self.last_of_producer))]

    def wait(self) -> None:
        self.now_ms += self.random.choice((1, RETENTION_MS))

    def compact(self) -> None:
        self.store()
        stable = min((transaction.first_offset for transaction in self.open.values()), default=self.end)
        cleanable = [base for base in self.partition.bases if base <= stable]
        upto = cleanable[-1]
        if upto <= self.dirty:
            return
        slots = self.random.choice((8, 1000))
        result = self.partition.compact(
            first_dirty=self.dirty,
            upto=upto,
            now_ms=self.now_ms,
            delete_retention_ms=RETENTION_MS,
            last_of_producer=self.last_of_producer,
            dedupe_buffer_bytes=slots * ENTRY_SIZE,
            segment_bytes=self.random.choice((1000, 1 << 20)),
            io_buffer_bytes=self.random.choice((100, 1 << 20)),
        )
        assert self.dirty < result.next_dirty <= upto
        assert slots < 1000 or result.next_dirty == upto
        self.dirty = result.next_dirty
        self.compare()

    def compare(self) -> None:
        everything = {record.offset: record for record in self.readable()}
        assert everything.items() <= self.committed.items()
        assert final(everything) == final(self.committed)
        assert not self.superseded(everything)
        self.check_producers()
        problems = check(str(self.partition.directory))  # segments not compacted yet have no indexes here
        assert [problem for problem in problems if Path(problem.path).exists()] == []

    def readable(self) -> Iterator[Record]:
        """The records that a reader of committed records gets, by the transaction indexes."""
        aborted = self.partition.aborted()
        expected = 0
        for header, records in self.partition.batches():
            assert header.base_offset >= expected
            expected = header.last_offset + 1
            hidden = header.is_control or (
                header.is_transactional
                and (
                    any(
                        one.producer_id == header.producer_id
                        and one.first_offset <= header.base_offset < one.last_offset
                        for one in aborted
                    )
                    or (
                        header.producer_id in self.open
                        and header.base_offset >= self.open[header.producer_id].first_offset
                    )
                )
            )
            assert not records or header.base_offset <= records[0].offset <= records[-1].offset <= header.last_offset
            assert header.record_count == len(records)
            if header.timestamp_type == "CreateTime" and records:
                assert header.max_timestamp == max(record.timestamp for record in records)
            if not hidden:
                yield from records

    def superseded(self, everything: dict[int, Record]) -> list[int]:
        """Records of the compacted part that should have gone: without a key, or with a later one of the same."""
        last = {record.key: offset for offset, record in sorted(everything.items()) if offset < self.dirty}
        return [
            offset
            for offset, record in everything.items()
            if offset < self.dirty and (record.key is None or last[record.key] != offset)
        ]

    def check_producers(self) -> None:
        """The last batch of each producer that is remembered is there, and the marker of each transaction with data."""
        ends = {batch.header.last_offset: batch.header for batch in self.partition.batches()}
        for producer_id, last in self.last_of_producer.items():
            assert ends[last.offset].producer_id == producer_id
            assert ends[last.offset].base_sequence >= 0
        unfinished = set()
        for header in ends.values():
            if header.is_control:
                unfinished.discard(header.producer_id)
            elif header.is_transactional:
                unfinished.add(header.producer_id)
        assert unfinished <= self.open.keys()


def final(records: dict[int, Record]) -> dict[bytes | None, bytes | None]:
    """The last value of each key, for a reader of everything."""
    state = {record.key: record.value for _, record in sorted(records.items()) if record.key is not None}
    return {key: value for key, value in state.items() if value is not None}


@contextmanager
def work(seed: int) -> Iterator[Work]:
    with tempfile.TemporaryDirectory() as directory:
        yield Work(Path(directory), seed)


MORE_SEEDS = [pytest.param(n, marks=pytest.mark.slow if n < 45 else pytest.mark.long) for n in range(25, 400)]


@pytest.mark.parametrize("seed", [*range(25), *MORE_SEEDS])
def test_random_logs_end_up_as_the_model_says(seed: int) -> None:
    with work(seed) as work_:
        actions = [work_.batch] * 12 + [work_.marker] * 3 + [work_.roll] * 3
        actions += [work_.wait, work_.compact, work_.compact, work_.forget_producer]
        for _ in range(120):
            work_.random.choice(actions)()
        work_.roll()
        for _ in range(40):  # small maps take many rounds
            work_.compact()
