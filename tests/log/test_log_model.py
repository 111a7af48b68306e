"""Random work on a log beside a model of it: lists of batches, from which every answer can be read off."""

from __future__ import annotations

import contextlib
import os
import random
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from kafkad.log.cleaning import put_in_place
from kafkad.log.deletion import delete_old_segments
from kafkad.log.log import Log
from kafkad.log.time_search import max_timestamp, offset_for_timestamp
from kafkad.log.truncation import truncate_to
from kafkad.wire.records import Record, build_batch
from tests.cleaner.cleaner import batches_of, clean
from tests.fakes import Died, MortalFiles
from tests.log.conftest import Home, append, records, remove_doomed, searched

KEYS = (b"a", b"b", b"c", b"d", b"e", b"f")


class Batch(NamedTuple):
    base: int
    last: int
    epoch: int
    records: list[Record]


@dataclass
class Model:
    start: int = 0
    end: int = 0
    batches: list[Batch] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """The first offset of each epoch, whatever was cleaned away since."""

    def append(self, keyed: list[Record], epoch: int) -> None:
        found = [record._replace(offset=self.end + i) for i, record in enumerate(keyed)]
        if not self.epochs or self.epochs[-1][0] != epoch:
            self.epochs.append((epoch, self.end))
        self.batches.append(Batch(self.end, self.end + len(found) - 1, epoch, found))
        self.end += len(found)

    def truncate(self, offset: int) -> None:
        if offset >= self.end:
            return
        self.end = offset
        while self.batches and self.batches[-1].last >= offset:
            self.end = min(self.end, self.batches.pop().base)
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start < self.end]
        self.start = min(self.start, self.end)

    def reopen(self, active_base: int) -> None:
        """Offsets whose records had been cleaned away before they became the end of the log are given anew."""
        last = self.batches[-1].last if self.batches else -1
        self.end = max(last + 1, active_base, self.start)
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start <= self.end]

    def keep(self, offsets: set[int]) -> None:
        """Leaves the records that compaction kept."""
        kept = [b._replace(records=[record for record in b.records if record.offset in offsets]) for b in self.batches]
        self.batches = [b for b in kept if b.records]

    def latest(self, upto: int) -> set[int]:
        """The records that compaction of everything before `upto` should leave, and everything from there on."""
        everything = [record for b in self.batches for record in b.records]
        last = {record.key: record.offset for record in everything if record.offset < upto}
        return {record.offset for record in everything if record.offset >= upto or last[record.key] == record.offset}

    def records(self) -> list[Record]:
        return [record for b in self.batches for record in b.records if record.offset >= self.start]

    def offset_for(self, timestamp: int) -> tuple[int, int] | None:
        return next(((r.timestamp, r.offset) for r in self.records() if r.timestamp >= timestamp), None)

    def epoch_end(self, epoch: int, first_kept: int) -> int | None:
        """The end of `epoch`, if batches of it and of a later one are there."""
        if not any(b.epoch == epoch for b in self.batches if b.base >= first_kept):
            return None
        return next((start for later, start in self.epochs if later > epoch), self.end)


class Work:
    """One seeded run."""

    def __init__(self, home: Home, seed: int) -> None:
        self.home = home
        home.was_compacted = True
        self.random = random.Random(seed)
        self.model = Model()
        self.epoch = 0
        self.log = home.open(
            segment_bytes=self.random.choice([600, 2000, 9000]),
            index_interval_bytes=self.random.choice([0, 100, 512, 4096]),
            segment_index_bytes=self.random.choice([60, 1 << 16]),
            segment_ms=self.random.choice([500, 1 << 40]),
            file_delete_delay_ms=0,
            retention_ms=-1,
        )

    def run(self, steps: int) -> None:
        actions = [self.append] * 12 + [self.truncate, self.delete_records, self.retain, self.reopen, self.crash]
        actions += [self.roll, self.flush, self.refill, self.compact, self.compact, self.die_compacting]
        for _ in range(steps):
            self.random.choice(actions)()
            self.home.clock.advance(self.random.randrange(100))
            assert (self.log.start_offset, self.log.end_offset) == (self.model.start, self.model.end)
        self.compare()

    def compare(self) -> None:
        log, model = self.log, self.model
        expected = model.records()
        assert records(log, max_bytes=self.random.choice([1, 500, 5000])) == expected
        for _ in range(10):
            offset = self.random.randint(model.start, model.end)
            assert records(log, offset, max_bytes=700)[:1] == [r for r in expected if r.offset >= offset][:1]
            timestamp = self.random.randrange(4000)
            found = searched(offset_for_timestamp(log, timestamp))
            assert (found[:2] if found else None) == model.offset_for(timestamp)
        newest = max((r.timestamp for r in expected), default=None)
        if newest is not None:
            found = searched(max_timestamp(log))
            assert found is not None and found[:2] == model.offset_for(newest)
        for epoch in range(self.epoch + 1):
            end = model.epoch_end(epoch, model.start)
            assert end is None or log.epochs.end_offset_for(epoch, log.end_offset) == (epoch, end)

    def append(self) -> None:
        count = self.random.randint(1, 4)
        keyed = [
            Record(
                i,
                self.random.randrange(4000),
                self.random.choice(KEYS),
                self.random.randbytes(self.random.randrange(120)),
            )
            for i in range(count)
        ]
        if self.random.random() < 0.1:
            self.epoch += 1
        data = build_batch(keyed, base_offset=0, codec=1 if count > 2 else 0)
        assert append(self.log, data, self.epoch) == self.model.end
        self.model.append(keyed, self.epoch)

    def truncate(self) -> None:
        offset = self.random.randint(max(0, self.model.end - 20), self.model.end + 2)
        if offset < self.log.segments[0].base:
            return
        truncate_to(self.log, offset)
        self.model.truncate(offset)
        self.epoch += 1

    def delete_records(self) -> None:
        offset = self.random.randint(self.model.start, self.model.end)
        self.log.increment_start_offset(offset)
        self.model.start = offset

    def retain(self) -> None:
        delete_old_segments(self.log, self.home.clock.now_ms())
        assert len(self.log.segments) == 1 or self.log.segments[1].base > self.log.start_offset
        remove_doomed(self.log, self.home.clock.now_ms())

    def refill(self) -> None:
        """Starts the log again at another offset, as a follower does that is too far behind."""
        if self.random.random() < 0.1:
            offset = self.model.end + self.random.randrange(50)
            self.log.truncate_fully_at(offset)
            self.model = Model(start=offset, end=offset)
            self.epoch += 1

    def compact(self) -> None:
        expected = self.model.latest(self.log.segments[-1].base)
        at = 0
        while at < len(self.log.segments) - 1:
            group = self.log.segments[at : min(at + self.random.randint(1, 4), len(self.log.segments) - 1)]
            assert put_in_place(self.log, clean(self.log, group))
            at += 1
        self.model.keep(expected)
        self.compare()

    def die_compacting(self) -> None:
        """Of each key the latest is there, and nothing that was not; how far compaction got is another matter."""
        if len(self.log.segments) == 1:
            return
        expected, before = self.model.latest(self.log.segments[-1].base), self.model.latest(0)
        self.log.close(clean=False)
        mortal = Log.open(
            str(self.home.directory),
            self.home.config,
            MortalFiles(1 << 30),
            self.home.clock,
            topic_partition=self.log.topic_partition,
            start_offset=self.log.start_offset,
            recovery_point=self.log.durability.recovery_point,
            clean=False,
            was_compacted=True,
        )
        new = clean(mortal, mortal.segments[: self.random.randint(1, len(mortal.segments) - 1)])
        mortal.files.lives = self.random.randrange(20)  # type: ignore[attr-defined]
        with contextlib.suppress(Died):
            put_in_place(mortal, new)
        mortal.close(clean=False)
        self.log = self.home.open(clean=False)
        there = {record.offset for _, found in batches_of(self.log.segments) for record in found}
        assert {offset for offset in expected if offset >= self.log.segments[0].base} <= there <= before
        self.model.keep(there)
        self.model.reopen(self.log.segments[-1].base)
        self.compare()

    def roll(self) -> None:
        self.log.roll()

    def flush(self) -> None:
        self.log.flush()

    def reopen(self) -> None:
        self.log = self.home.reopen(clean=True)
        self.model.reopen(self.log.segments[-1].base)

    def crash(self) -> None:
        """Everything reached the page cache, or the last write was torn; the indexes are as they were then."""
        active: Log = self.log
        active.close(clean=False)
        torn = self.random.random() < 0.5 and self.model.batches and active.segments[-1].size
        if torn and active.durability.recovery_point < self.model.batches[-1].base:
            path = active.segments[-1].path(".log")
            os.truncate(path, os.path.getsize(path) - self.random.randint(1, 60))
            self.model.truncate(self.model.end - 1)
            self.model.start = min(self.model.start, self.model.end)
            self.epoch += 1
        self.home.open(clean=False, start_offset=min(active.start_offset, self.model.end))
        assert self.home.log is not None
        self.log = self.home.log
        self.model.reopen(self.log.segments[-1].base)
        self.compare()


@pytest.mark.parametrize("seed", range(40))
def test_random_work_gives_what_the_model_gives(home: Home, seed: int) -> None:
    Work(home, seed).run(80)


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=pytest.mark.slow if seed < 1008 else pytest.mark.long) for seed in range(1000, 1100)],
)
def test_more_random_work(home: Home, seed: int) -> None:
    Work(home, seed).run(250)
