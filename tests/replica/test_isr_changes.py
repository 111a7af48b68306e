"""What leaders want of the controller is asked for until it is settled, whatever goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkad.broker.loop_timers import LoopTimers
from kafkad.clock import SystemClock
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.store import NoNode
from kafkad.model import PartitionState, WantedIsr
from kafkad.names import TopicPartition
from kafkad.replica import isr_changes
from kafkad.replica.isr_changes import AlterIsr, IsrChanges
from kafkad.replica.leading import IsrChange
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import Partition
from tests.fakes import give_way_each_time

Results = dict[TopicPartition, PartitionState | KafkaError]

SHRINK = IsrChange((1,), before=(1, 2), leader_epoch=3, partition_epoch=4)
SHRUNK = PartitionState(leader=1, leader_epoch=3, isr=(1,), controller_epoch=1, partition_epoch=5)


class FakePartition:
    """A partition led here that wants to be alone in sync."""

    def __init__(self, number: int, *, broken: bool = False) -> None:
        self.tp = TopicPartition("t", number)
        self.leader_epoch = SHRINK.leader_epoch
        self.leading = SimpleNamespace(proposed=SHRINK.isr)
        self.role = SimpleNamespace(isr=SHRINK.before)
        self.looked_at = 0
        self._broken = broken

    def isr_altered(self, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int) -> None:
        self.leading.proposed = None

    def isr_kept(self, change: IsrChange) -> bool:
        self.leading.proposed = None
        return True

    def expel_laggards(self) -> None:
        self.looked_at += 1
        if self._broken:
            raise RuntimeError("broken")


class FakeReplicas:
    broker_id = 1
    broker_epoch = 5
    isr_shrinks = isr_expands = isr_failures = 0
    parts = SimpleNamespace(lag=SimpleNamespace(ms=2))

    def __init__(self, *partitions: FakePartition) -> None:
        self._partitions = partitions

    def __iter__(self) -> Iterator[FakePartition]:
        return iter(self._partitions)


def run(replicas: FakeReplicas, alter: AlterIsr, scenario: Callable[[IsrChanges], Awaitable[None]]) -> None:
    async def whole() -> None:
        clock = SystemClock()
        timers = LoopTimers(asyncio.get_running_loop(), clock).timers
        changes = IsrChanges(cast(ReplicaManager, replicas), alter, clock, timers)
        try:
            async with asyncio.timeout(10):
                await scenario(changes)
        finally:
            await changes.stop()

    asyncio.run(whole())


@pytest.mark.parametrize(
    "failure",
    [KafkaError(ErrorCode.NOT_CONTROLLER), NoNode("/brokers/topics/t"), RuntimeError("broken"), None],
    ids=["refused", "store", "bug", "nothing said"],
)
def test_a_change_is_asked_for_again_whatever_goes_wrong(
    failure: Exception | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(isr_changes, "_RETRY_MS", 1)
    partitions = FakePartition(0), FakePartition(1)
    asked: list[list[int]] = []

    async def alter(wanted: Mapping[TopicPartition, WantedIsr]) -> Results:
        asked.append([tp.partition for tp in wanted])
        if failure is not None and len(asked) < 3:
            raise failure
        return {tp: SHRUNK for tp in wanted if tp.partition == 0 or len(asked) > 2}

    async def scenario(changes: IsrChanges) -> None:
        for partition in partitions:
            assert changes.want(cast(Partition, partition), SHRINK)
        while any(partition.leading.proposed for partition in partitions):
            await asyncio.sleep(0.001)

    run(FakeReplicas(*partitions), alter, scenario)
    assert asked == ([[0, 1]] * 3 if failure is not None else [[0, 1], [1], [1]])
    lines = [record for record in caplog.records if "cannot change the ISR" in record.message]
    assert len(lines) == 1
    assert bool(lines[0].exc_info) is not isinstance(failure, KafkaError)


def test_a_partition_that_the_controller_does_not_know_yet_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No LeaderAndIsr has to come of it, for the controller may still be reading the topics."""
    caplog.set_level("INFO", isr_changes.__name__)
    monkeypatch.setattr(isr_changes, "_RETRY_MS", 1)
    partitions = FakePartition(0), FakePartition(1)
    codes = [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER]

    async def alter(wanted: Mapping[TopicPartition, WantedIsr]) -> Results:
        code = codes.pop(0) if codes else None
        return {tp: SHRUNK if code is None else KafkaError(code) for tp in wanted}

    async def scenario(changes: IsrChanges) -> None:
        for partition in partitions:
            assert changes.want(cast(Partition, partition), SHRINK)
        while any(partition.leading.proposed for partition in partitions):
            await asyncio.sleep(0.001)

    run(FakeReplicas(*partitions), alter, scenario)
    told = [message for message in caplog.messages if "does not make [1] the ISR" in message]
    line = "the controller does not make [1] the ISR of t-0, t-1"
    assert told == [
        f"{line}: it does not know the topic (UNKNOWN_TOPIC_ID)",
        f"{line}: it has not read as late a state as this broker has (NOT_CONTROLLER)",
    ]


def test_a_follower_that_shuts_down_is_told_of_once_for_all_partitions(caplog: pytest.LogCaptureFixture) -> None:
    """It fetches, and so its leader believes again and again that it could join."""
    caplog.set_level("INFO", isr_changes.__name__)
    partitions = [FakePartition(number) for number in range(5)]
    change = IsrChange((1, 2), before=(1,), leader_epoch=3, partition_epoch=4)
    outcome: list[PartitionState | KafkaError] = [KafkaError(ErrorCode.INELIGIBLE_REPLICA)]

    async def alter(wanted: Mapping[TopicPartition, WantedIsr]) -> Results:
        return dict.fromkeys(wanted, outcome[0])

    async def scenario(changes: IsrChanges) -> None:
        async def ask(change: IsrChange) -> None:
            for partition in partitions:
                partition.leading.proposed = change.isr
                assert changes.want(cast(Partition, partition), change)
            while any(partition.leading.proposed for partition in partitions):
                await asyncio.sleep(0)

        for _ in range(3):
            await ask(change)
        outcome[0] = SHRUNK
        await ask(SHRINK)
        outcome[0] = KafkaError(ErrorCode.INELIGIBLE_REPLICA)
        await ask(change)

    run(FakeReplicas(*partitions), alter, scenario)
    told = [message for message in caplog.messages if "does not make" in message]
    why = "a follower that would join shuts down, has just started, or has its disk offline (INELIGIBLE_REPLICA)"
    line = f"the controller does not make [1, 2] the ISR of t-0, t-1, t-2 and 2 more: {why}"
    assert told == [line, line], "again when the ISR has changed"


def test_who_joins_is_named_with_its_registration() -> None:
    partition = FakePartition(0)
    partition.leading.proposed = (1, 2, 3)
    change = IsrChange((1, 2, 3), before=(1, 2), leader_epoch=3, partition_epoch=4, joining=((3, 70),))
    asked: list[WantedIsr] = []

    async def alter(wanted: Mapping[TopicPartition, WantedIsr]) -> Results:
        asked.extend(wanted.values())
        return dict.fromkeys(wanted, SHRUNK)

    async def scenario(changes: IsrChanges) -> None:
        assert changes.want(cast(Partition, partition), change)
        while partition.leading.proposed:
            await asyncio.sleep(0.001)

    run(FakeReplicas(partition), alter, scenario)
    assert asked == [WantedIsr(members={1: 5, 2: -1, 3: 70}, leader_epoch=3, partition_epoch=4)]


def test_many_changes_are_asked_for_some_at_a_time_and_settled_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    give_way_each_time(monkeypatch)
    monkeypatch.setattr(isr_changes, "_MOST_AT_ONCE", 20)
    partitions = [FakePartition(number) for number in range(50)]
    asked: list[list[int]] = []
    settled = [0]

    async def alter(wanted: Mapping[TopicPartition, WantedIsr]) -> Results:
        asked.append([tp.partition for tp in wanted])
        return dict.fromkeys(wanted, SHRUNK)

    async def scenario(changes: IsrChanges) -> None:
        for partition in partitions:
            assert changes.want(cast(Partition, partition), SHRINK)
        while settled[-1] < len(partitions):
            await asyncio.sleep(0)
            settled.append(sum(partition.leading.proposed is None for partition in partitions))

    run(FakeReplicas(*partitions), alter, scenario)
    assert asked == [[*range(20)], [*range(20, 40)], [*range(40, 50)]]
    assert max(after - before for before, after in pairwise(settled)) == 1


def test_a_change_counts_also_where_the_controller_tells_of_it_before_it_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    partition = FakePartition(0)
    caplog.set_level("INFO", isr_changes.__name__)
    replicas = FakeReplicas(partition)

    async def alter(wanted: Mapping[TopicPartition, WantedIsr]) -> Results:
        partition.role.isr = SHRUNK.isr
        return dict.fromkeys(wanted, SHRUNK)

    async def scenario(changes: IsrChanges) -> None:
        assert changes.want(cast(Partition, partition), SHRINK)
        while partition.leading.proposed:
            await asyncio.sleep(0.001)

    run(replicas, alter, scenario)
    assert (replicas.isr_shrinks, replicas.isr_expands) == (1, 0)
    assert "ISR of t-0 is [1] now, was [1, 2]" in caplog.messages


def test_a_partition_that_cannot_be_looked_at_keeps_no_other_from_it() -> None:
    partitions = FakePartition(0, broken=True), FakePartition(1)

    async def alter(wanted: Mapping[TopicPartition, WantedIsr]) -> Any:
        raise AssertionError("nobody wants anything")

    async def scenario(changes: IsrChanges) -> None:
        while partitions[1].looked_at < 2:
            await asyncio.sleep(0.001)

    run(FakeReplicas(*partitions), alter, scenario)
    assert partitions[0].looked_at >= 2
