"""Loads that a disk refuses or memory is too short for are tried again."""

from __future__ import annotations

import errno
import gc
import logging
import os
from collections.abc import Callable, Iterator

import pytest

from kafkad.errors import ErrorCode, StorageError
from kafkad.log.log import Log
from kafkad.log.scan import SkippedStretch, scan
from kafkad.shard import Shard, coordination, loading
from kafkad.timers import Timer
from kafkad.wire.records import Record
from tests.one_broker import OneBroker
from tests.shard.coordinator import TOPIC, Coordinator
from tests.shard.pairs import Pairs


class _Refusing:
    """Too many files are open: so many loads of partition 0 are refused."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    def scan(self, log: Log, report: Callable[[SkippedStretch], None]) -> Iterator[object]:
        if self.refusals and log.topic_partition.partition == 0:
            self.refusals -= 1
            cause = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            raise StorageError(os.path.dirname(log.directory), f"loading in {log.directory}: {cause}") from cause
        yield from scan(log, report)


def test_a_load_that_is_refused_for_a_while_is_tried_again(
    broker: OneBroker, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = _Refusing(9)
    broker.create(TOPIC, 2)
    broker.settle()  # the broker's own coordinator has loaded it
    monkeypatch.setattr(loading, "scan", refusing.scan)
    broker.run(coordinator.start())
    broker.settle()
    for pause_ms in (100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000):
        broker.work(coordinator.clock, coordinator.timers, pause_ms - 1)
        assert [shard.index for shard in coordinator.coordination.shards()] == [1]
        assert coordinator.coordination.loading
        broker.work(coordinator.clock, coordinator.timers, 1)
    assert [shard.index for shard in coordinator.coordination.shards()] == [1, 0]
    assert not coordinator.coordination.loading
    assert broker.replicas.logs.live == broker.replicas.logs.directories


def test_a_load_that_memory_is_too_short_for_is_tried_again_however_little_is_left(
    broker: OneBroker, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = ["for its records", "for an empty one", "for the words"]
    held: list[int] = []

    def pairs(shard: Shard[Pairs]) -> Pairs:
        coordinator.machines.clear()
        gc.collect()
        held.append(len([each for each in gc.get_objects() if type(each) is Pairs and each.shard is shard]))
        if len(held) == 2 and short:
            raise MemoryError(short.pop(0))
        return Pairs(shard)

    def scanned(log: Log, report: Callable[[SkippedStretch], None]) -> Iterator[object]:
        for number, batch in enumerate(scan(log, report)):
            if number and len(short) == 3:
                raise MemoryError(short.pop(0))
            yield batch

    def warn(*words: object) -> None:
        if len(short) == 1:
            raise MemoryError(short.pop(0))

    coordinator.fill(3_000)
    broker.settle()
    monkeypatch.setattr(coordinator, "make", pairs)
    monkeypatch.setattr(loading, "scan", scanned)
    monkeypatch.setattr(logging.getLogger("kafkad.shard.coordination"), "warning", warn)
    broker.run(coordinator.start())
    broker.settle()
    for pause_ms in (100, 200):
        assert coordinator.coordination.loading
        broker.work(coordinator.clock, coordinator.timers, pause_ms)
    assert len(coordinator.coordination.shard("a").machine.pairs) == 3_000
    assert (short, held) == ([], [0, 0, 0])


@pytest.mark.parametrize("short_of", ["its records", "another shard", "the timer"])
def test_a_load_that_memory_is_too_short_for_twice_is_tried_again(
    broker: OneBroker, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, short_of: str
) -> None:
    short = ["its records", short_of]
    at = coordinator.timers.at

    def run_out(of: str) -> None:
        if short and short[0] == of:
            raise MemoryError(short.pop(0))

    def scanned(log: Log, report: Callable[[SkippedStretch], None]) -> Iterator[object]:
        run_out("its records")
        yield from scan(log, report)

    def made(*parts: object) -> Shard[Pairs]:
        run_out("another shard")
        return Shard(*parts)  # type: ignore[arg-type]

    def timer(deadline_ms: float, action: Callable[[], None]) -> Timer:
        run_out("the timer")
        return at(deadline_ms, action)

    coordinator.fill(3)
    broker.settle()
    monkeypatch.setattr(loading, "scan", scanned)
    monkeypatch.setattr(coordination, "Shard", made)
    monkeypatch.setattr(coordinator.timers, "at", timer)
    broker.run(coordinator.start())
    for pause_ms in (0, 100, 200):
        broker.settle()
        broker.work(coordinator.clock, coordinator.timers, pause_ms)
    assert not short
    assert len(coordinator.coordination.shard("key 0").machine.pairs) == 1_000


class _ShortForTheWait:
    """Memory is too short for the timer of a partition that waits until what was loaded is committed."""

    def __init__(self, broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.coordinator = Coordinator(broker, serves_committed_only=True)
        broker.create(TOPIC, 1)
        broker.lead(TOPIC, 0, leader=1, isr=[1, 2])
        for number in range(3):
            broker.append(TOPIC, 0, Record(0, 1, b"key %d" % number, b"v"))
        self._at, self._short = self.coordinator.timers.at, [True]
        monkeypatch.setattr(self.coordinator.timers, "at", self._timer)
        broker.run(self.coordinator.start())
        broker.settle()

    def _timer(self, deadline_ms: float, action: Callable[[], None]) -> Timer:
        if self._short:
            self._short.pop()
            raise MemoryError
        return self._at(deadline_ms, action)


def test_what_is_committed_while_its_load_is_to_be_repeated_is_served_when_that_is_done(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = _ShortForTheWait(broker, monkeypatch).coordinator
    assert coordinator.coordination.loading
    broker.replicas.get(TOPIC, 0).fetched_by(2, 3, 0)
    broker.settle()
    broker.work(coordinator.clock, coordinator.timers, 100)
    assert len(coordinator.coordination.shard("key 0").machine.pairs) == 3
    coordinator.stop()


def test_what_is_committed_while_its_load_is_repeated_is_not_served_by_halves(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = _ShortForTheWait(broker, monkeypatch).coordinator
    served: list[int] = []

    def scanned(log: Log, report: Callable[[SkippedStretch], None]) -> Iterator[object]:
        for number, batch in enumerate(scan(log, report)):
            if number == 2:
                broker.replicas.get(TOPIC, 0).fetched_by(2, 3, 0)
                served.extend(shard.index for shard in coordinator.coordination.shards())
            yield batch

    monkeypatch.setattr(loading, "scan", scanned)
    broker.work(coordinator.clock, coordinator.timers, 100)
    assert not served
    assert len(coordinator.coordination.shard("key 0").machine.pairs) == 3
    coordinator.stop()


def test_a_refused_load_is_not_tried_again_by_who_does_not_lead(
    broker: OneBroker, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = _Refusing(2)
    broker.create(TOPIC, 1)
    broker.settle()
    monkeypatch.setattr(loading, "scan", refusing.scan)
    broker.run(coordinator.start())
    broker.settle()
    broker.lead(TOPIC, 0, leader=2)
    assert coordinator.refusal("a") == ErrorCode.NOT_COORDINATOR
    broker.work(coordinator.clock, coordinator.timers, 60_000)
    assert refusing.refusals == 1
    broker.lead(TOPIC, 0, leader=1)
    broker.settle()
    broker.work(coordinator.clock, coordinator.timers, 100)
    assert coordinator.coordination.shard("a").machine.pairs == {}


def test_a_load_that_is_refused_by_a_disk_for_good_takes_it_offline(
    broker: OneBroker, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(log: Log, report: Callable[[SkippedStretch], None]) -> Iterator[object]:
        raise StorageError(os.path.dirname(log.directory), "Input/output error")

    broker.create(TOPIC, 1)
    broker.settle()
    monkeypatch.setattr(loading, "scan", refuse)
    broker.run(coordinator.start())
    broker.settle()
    assert coordinator.refusal("a") == ErrorCode.NOT_COORDINATOR
    assert not coordinator.coordination.loading
    assert len(broker.replicas.logs.live) == 1
    assert coordinator.timers.next_deadline_ms() is None


def test_a_disk_that_cannot_be_waited_for_is_taken_offline(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that cannot be opened for its fsync is told only to those who wait for that."""
    careful = Coordinator(broker, serves_committed_only=True)
    broker.create(TOPIC, 1, {"kafkad.acks.fsync": "true"})
    broker.settle()
    broker.append(TOPIC, 0, Record(0, 1, b"a", b"1"))

    def refuse(log: Log, on_done: Callable[[StorageError | None], None]) -> None:
        on_done(StorageError(os.path.dirname(log.directory), "Input/output error"))

    monkeypatch.setattr(broker.durable, "sync", refuse)
    broker.run(careful.start())
    broker.settle()
    assert careful.refusal("a") == ErrorCode.NOT_COORDINATOR
    assert not careful.coordination.loading
    assert len(broker.replicas.logs.live) == 1
    assert careful.timers.next_deadline_ms() is None
    careful.stop()
