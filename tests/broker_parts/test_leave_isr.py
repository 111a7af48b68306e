"""The ISRs that a broker leaves before it registers, because its replicas have lost records."""

from __future__ import annotations

import asyncio

import pytest

from kafkad.broker.leave_isr import leave_isrs
from kafkad.clock import SystemClock
from kafkad.controller.registration import prepare
from kafkad.controller.topics import new_partition
from kafkad.meta.embedded import EmbeddedSession, EmbeddedStore
from kafkad.meta.store import Create
from kafkad.meta.znodes import Broker, IsrChange, Partition, Topic
from kafkad.model import BrokerInfo, PartitionAssignment, PartitionState
from kafkad.names import TopicPartition

A0 = TopicPartition("a", 0)
ID, OTHER_ID = b"i" * 16, b"o" * 16


async def with_topic(leader: int, *isr: int) -> EmbeddedSession:
    session = EmbeddedStore.in_memory(SystemClock()).session()
    await prepare(session)
    topic = Topic(ID, {0: PartitionAssignment(replicas=(1, 2, 3))})
    state = PartitionState(leader=leader, leader_epoch=4, isr=isr, controller_epoch=1)
    await session.multi(
        [Create(Topic.path("a"), topic.encode()), Create(Topic.partitions_path("a")), *new_partition("a", 0, state)]
    )
    registered = Broker(broker=BrokerInfo(id=2, endpoints=()), timestamp_ms=1)
    await session.create(Broker.path(2), registered.encode(), ephemeral=True)
    return session


@pytest.mark.parametrize(
    ("leader", "isr", "topic_id", "left"),
    [
        (1, (1, 3), ID, (3,)),
        (-1, (3, 1), ID, (3,)),
        (3, (3, 1), ID, (3,)),  # the leader is down
        (2, (2, 1), ID, (2, 1)),  # the leader is there: the ISR is its own
        (1, (1,), ID, (1,)),
        (1, (3, 2), ID, (3, 2)),
        (1, (1, 3), OTHER_ID, (1, 3)),  # the log is that of an earlier topic of this name
    ],
)
def test_which_isrs_are_left(leader: int, isr: tuple[int, ...], topic_id: bytes, left: tuple[int, ...]) -> None:
    async def scenario() -> None:
        session = await with_topic(leader, *isr)
        await leave_isrs(session, 1, {A0: topic_id, TopicPartition("gone", 0): ID})
        data, stat = await session.get(Partition.path(*A0))
        state = Partition.decode(data, stat.version)
        assert (state.isr, state.leader, state.leader_epoch) == (left, leader, 4)
        notes = [
            IsrChange.decode((await session.get(f"{IsrChange.PARENT}/{name}"))[0])
            for name in await session.children(IsrChange.PARENT)
        ]
        assert notes == ([[A0]] if left != isr else [])

    asyncio.run(scenario())
