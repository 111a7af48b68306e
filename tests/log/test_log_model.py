"""Random work on a log beside a model of it: lists of batches, from which every answer can be read off."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import pytest

from kafkad.log.log import Log
from kafkad.wire.records import Record, build_batch
from tests.log.conftest import Home, append, records


@dataclass
class Model:
    start: int = 0
    end: int = 0
    batches: list[tuple[int, int, list[Record]]] = field(default_factory=list)
    """(base offset, epoch, records)"""

    def append(self, values: list[bytes], timestamps: list[int], epoch: int) -> None:
        found = [
            Record(self.end + i, timestamp, None, value)
            for i, (value, timestamp) in enumerate(zip(values, timestamps, strict=True))
        ]
        self.batches.append((self.end, epoch, found))
        self.end += len(values)

    def truncate(self, offset: int) -> None:
        if offset >= self.end:
            return
        while self.batches and self.batches[-1][2][-1].offset >= offset:
            base, _, _ = self.batches.pop()
            self.end = base
        self.end = min(self.end, offset)
        self.start = min(self.start, self.end)

    def records(self) -> list[Record]:
        return [record for _, _, found in self.batches for record in found if record.offset >= self.start]

    def offset_for(self, timestamp: int) -> tuple[int, int] | None:
        return next(((r.timestamp, r.offset) for r in self.records() if r.timestamp >= timestamp), None)

    def epoch_end(self, epoch: int, first_kept: int) -> int | None:
        """Where `epoch` ends, if batches of it and of a later one are there."""
        if not any(e == epoch for base, e, _ in self.batches if base >= first_kept):
            return None
        return next((base for base, e, _ in self.batches if e > epoch), self.end)


class Work:
    """One seeded run."""

    def __init__(self, home: Home, seed: int) -> None:
        self.home = home
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
        actions += [self.roll, self.flush, self.refill]
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
            found = log.offset_for_timestamp(timestamp)
            assert (found[:2] if found else None) == model.offset_for(timestamp)
        newest = max((r.timestamp for r in expected), default=None)
        if newest is not None:
            found = log.max_timestamp()
            assert found is not None and found[:2] == model.offset_for(newest)
        for epoch in range(self.epoch + 1):
            end = model.epoch_end(epoch, model.start)
            assert end is None or log.epochs.end_offset_for(epoch, log.end_offset) == (epoch, end)

    def append(self) -> None:
        count = self.random.randint(1, 4)
        values = [os.urandom(self.random.randrange(120)) for _ in range(count)]
        stamps = [self.random.randrange(4000) for _ in range(count)]
        if self.random.random() < 0.1:
            self.epoch += 1
        assert append(self.log, _stamped(values, stamps), self.epoch) == self.model.end
        self.model.append(values, stamps, self.epoch)

    def truncate(self) -> None:
        offset = self.random.randint(max(0, self.model.end - 20), self.model.end + 2)
        if offset < self.log.segments[0].base:
            return
        self.log.truncate_to(offset)
        self.model.truncate(offset)
        self.epoch += 1

    def delete_records(self) -> None:
        offset = self.random.randint(self.model.start, self.model.end)
        self.log.increment_start_offset(offset)
        self.model.start = offset

    def retain(self) -> None:
        self.log.delete_old_segments(self.home.clock.now_ms())
        assert len(self.log.segments) == 1 or self.log.segments[1].base > self.log.start_offset
        for path in self.log.take_doomed(self.home.clock.now_ms()):
            os.unlink(path)

    def refill(self) -> None:
        """What a follower does that is too far behind."""
        if self.random.random() < 0.1:
            offset = self.model.end + self.random.randrange(50)
            self.log.truncate_fully_at(offset)
            self.model = Model(start=offset, end=offset)
            self.epoch += 1

    def roll(self) -> None:
        self.log.roll()

    def flush(self) -> None:
        self.log.flush()

    def reopen(self) -> None:
        self.log = self.home.reopen(clean=True)

    def crash(self) -> None:
        """Everything reached the page cache, or the last write was torn; the indexes are as they were then."""
        active: Log = self.log
        active.close(clean=False)
        torn = self.random.random() < 0.5 and self.model.batches and active.segments[-1].size
        if torn and active.recovery_point < self.model.batches[-1][0]:
            path = active.segments[-1].path(".log")
            os.truncate(path, os.path.getsize(path) - self.random.randint(1, 60))
            self.model.truncate(self.model.end - 1)
            self.model.start = min(self.model.start, self.model.end)
            self.epoch += 1
        self.home.open(clean=False, start_offset=min(active.start_offset, self.model.end))
        assert self.home.log is not None
        self.log = self.home.log
        self.compare()


def _stamped(values: list[bytes], stamps: list[int]) -> bytearray:
    found = [Record(i, stamp, None, value) for i, (value, stamp) in enumerate(zip(values, stamps, strict=True))]
    return build_batch(found, base_offset=0, codec=1 if len(values) > 2 else 0)


@pytest.mark.parametrize("seed", range(40))
def test_random_work_gives_what_the_model_gives(home: Home, seed: int) -> None:
    Work(home, seed).run(80)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_more_random_work(home: Home, seed: int) -> None:
    Work(home, seed).run(250)
