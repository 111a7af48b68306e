"""States of partitions, written together where that can be, and each by itself where one is in the way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafkad.controller.active import ActiveController, ControllerParts
from kafkad.controller.requests import RequestBatch, Sender
from kafkad.controller.settings import ControllerSettings
from kafkad.controller.state import ClusterState, PartitionEntry, TopicEntry
from kafkad.meta.store import BadVersion, MultiFailed, NoNode, Operation, Stat
from kafkad.model import BrokerInfo, PartitionAssignment, PartitionState
from kafkad.names import TopicPartition
from tests.fakes import give_way_each_time
from tests.work import counting_turns


class Store:
    """Somebody else has written partition 0 and removed it, so that it cannot be read again."""

    async def multi(self, operations: Sequence[Operation]) -> list[Any]:
        for place, operation in enumerate(operations):
            if "/partitions/0/" in operation.path:
                raise MultiFailed(place, BadVersion(operation.path))
        return [None, *[Stat(0, 0, 0, 0, 1, 0, 0, 0)] * (len(operations) - 1)]

    async def get(self, path: str, watch: Any = None) -> Any:
        raise NoNode(path)


def leadership(store: Any, partitions: int) -> ActiveController:
    """Of one topic, whose partitions two brokers have."""
    active = ActiveController(
        ControllerParts(
            settings=ControllerSettings(broker=1, unclean=lambda topic: False),
            store=store,
            connect=None,  # type: ignore[arg-type]
            on_response=None,  # type: ignore[arg-type]
            sleep=None,  # type: ignore[arg-type]
            now_ms=None,  # type: ignore[arg-type]
        ),
        1,
        1,
    )
    topic = TopicEntry("t", bytes(16))
    for number in range(partitions):
        state = PartitionState(leader=1, leader_epoch=0, isr=(1, 2), controller_epoch=1)
        topic.partitions[number] = PartitionEntry(PartitionAssignment(replicas=(1, 2)), state)
    active.state.add_topic(topic)
    return active


def shrunk(tp: TopicPartition, entry: PartitionEntry) -> PartitionState:
    assert entry.state is not None
    return replace(entry.state, isr=(1,))


def test_one_that_cannot_be_read_again_keeps_back_no_other() -> None:
    active = leadership(Store(), 3)
    changed = asyncio.run(active.change([TopicPartition("t", number) for number in range(3)], shrunk))
    assert [state and state.isr for _, state in sorted(changed.items())] == [None, (1,), (1,)]


def test_a_hundred_are_decided_on_in_a_turn_and_the_next_ones_while_these_are_written() -> None:
    together, all_are_there = 10, asyncio.Event()

    class Slow(Store):
        writes = 0

        async def multi(self, operations: Sequence[Operation]) -> list[Any]:
            self.writes += 1
            if self.writes == together:
                all_are_there.set()
            await all_are_there.wait()
            return [None, *[Stat(0, 0, 0, 0, 1, 0, 0, 0)] * (len(operations) - 1)]

    active = leadership(Slow(), 100 * together)
    decided: Counter[int] = Counter()

    async def change(turn: Callable[[], int]) -> None:
        def counted(tp: TopicPartition, entry: PartitionEntry) -> PartitionState:
            decided[turn()] += 1
            return shrunk(tp, entry)

        changed = await active.change([tp for tp, _ in active.state.partitions()], counted)
        assert {state and state.isr for state in changed.values()} == {(1,)}
        assert len(changed) == 100 * together

    asyncio.run(asyncio.wait_for(counting_turns(change), 60))
    assert list(decided.values()) == [100] * together


def test_what_is_written_is_known_also_where_another_part_could_not_be_decided_on() -> None:
    active = leadership(Store(), 250)

    def fails(tp: TopicPartition, entry: PartitionEntry) -> PartitionState:
        if tp.partition == 120:
            raise ValueError("a bug")
        return shrunk(tp, entry)

    with pytest.raises(ValueError, match="a bug"):
        asyncio.run(active.change([tp for tp, _ in active.state.partitions()], fails))
    states = [entry.state for _, entry in active.state.partitions()]
    assert [state and state.isr for state in states] == [(1, 2), *[(1,)] * 99, *[(1, 2)] * 100, *[(1,)] * 50]


def test_requests_to_brokers_are_made_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    give_way_each_time(monkeypatch)
    active = leadership(Store(), 100)
    states = {tp: entry.state for tp, entry in active.state.partitions()}
    assert asyncio.run(counting_turns(lambda turn: active.tell_changed(active.batch(), states))) >= 100

    cluster = ClusterState()
    for broker in range(100):
        cluster.brokers[broker] = BrokerInfo(id=broker, endpoints=())
    batch = RequestBatch(cluster)
    batch.metadata([])
    sender = Sender(1, 1, None, {}, lambda broker, request, response: None)
    assert asyncio.run(counting_turns(lambda turn: batch.send(sender))) >= 100


def test_a_topic_that_is_removed_is_not_one_that_cannot_be_read_any_more() -> None:
    """Made again under its name it is told of like any other."""
    cluster = ClusterState()
    cluster.unreadable.add("a")
    cluster.remove_topic("a")
    assert not cluster.unreadable
