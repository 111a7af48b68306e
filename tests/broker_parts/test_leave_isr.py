"""The ISRs that a broker leaves before it registers, because its replicas have lost records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kafkad.broker.leave_isr import OtherBrokers, leave_isrs
from kafkad.controller.registration import prepare
from kafkad.controller.topics import new_partition
from kafkad.meta.embedded import EmbeddedStore
from kafkad.meta.store import Create
from kafkad.meta.znodes import Broker, IsrChange, Partition, Topic, TopicDeletion
from kafkad.model import NO_LEADER, BrokerInfo, Endpoint, PartitionAssignment, PartitionState
from kafkad.names import TopicPartition
from kafkad.net.client import LinkError
from kafkad.timers import Timers
from tests.fakes import FakeClock

A0 = TopicPartition("a", 0)
ID, OTHER_ID = b"i" * 16, b"o" * 16


PATIENCE_MS = 18_000


class Links:
    """To other brokers. It counts how often they were asked; `answers` is for broker 2, 3 always does."""

    asked = 0
    answers = True
    _broker = 0

    def __call__(self, broker: BrokerInfo) -> Links:
        self._broker = broker.id
        return self

    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        self.asked += 1
        if self._broker == 2 and not self.answers:
            raise LinkError("broker 2 cannot be reached")

    def close(self) -> None:
        pass


class Scene:
    """Broker 2 is registered; broker 1 has a replica without its end."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timers = Timers()
        self.link = Links()
        self.gone: dict[TopicPartition, bytes] = {}
        store = EmbeddedStore.in_memory(self.clock)
        self.session, self.session_of_2 = store.session(), store.session()

    async def leave(self) -> None:
        leaders = OtherBrokers(self.session, self.link, clock=self.clock, timers=self.timers, patience_ms=PATIENCE_MS)
        await leave_isrs(self.session, 1, {A0: ID, TopicPartition("unknown", 0): ID}, self.gone, leaders)

    async def wait(self, until: Callable[[], bool]) -> None:
        while not until():
            await asyncio.sleep(0)
            self.clock.advance(10)
            self.timers.expire(self.clock.monotonic_ms())

    async def state(self) -> PartitionState:
        data, stat = await self.session.get(Partition.path(*A0))
        return Partition.decode(data, stat.version)

    async def make_topic(self, leader: int, *isr: int, topic_id: bytes = ID, stayed: tuple[int, ...] = ()) -> None:
        """Broker 2 registers later than the ISR is written; those that `stayed` have before."""
        await prepare(self.session)
        for broker in stayed:
            await self.register(broker)
        topic = Topic(topic_id, {0: PartitionAssignment(replicas=(1, 2, 3))})
        state = PartitionState(leader=leader, leader_epoch=4, isr=isr, controller_epoch=1)
        made = [Create(Topic.path("a"), topic.encode()), Create(Topic.partitions_path("a"))]
        await self.session.multi([*made, *new_partition("a", 0, state)])
        if 2 not in stayed:
            await self.register(2)

    async def register(self, broker: int) -> None:
        endpoint = Endpoint(listener="PLAINTEXT", host="h", port=1)
        registered = Broker(broker=BrokerInfo(id=broker, endpoints=(endpoint,)), timestamp_ms=1)
        session = self.session_of_2 if broker == 2 else self.session
        await session.create(Broker.path(broker), registered.encode(), ephemeral=True)


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
        scene = Scene()
        await scene.make_topic(leader, *isr, topic_id=topic_id)
        await scene.leave()
        state = await scene.state()
        assert (state.isr, state.leader, state.leader_epoch) == (left, leader, 4)
        notes = [
            IsrChange.decode((await scene.session.get(f"{IsrChange.PARENT}/{name}"))[0])
            for name in await scene.session.children(IsrChange.PARENT)
        ]
        assert notes == ([[A0]] if left != isr else [])

    asyncio.run(scenario())


@pytest.mark.parametrize("is_gone", [False, True])
def test_the_log_says_what_became_of_the_replica(is_gone: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.gone = {A0: ID} if is_gone else {}
        await scene.make_topic(1, 1, 3)
        await scene.leave()

    asyncio.run(scenario())
    what = "is in no log directory" if is_gone else "has lost committed records"
    assert caplog.messages == [f"the log of a-0 {what}: broker 1 is not in sync until it has all records"]


def test_isrs_of_topics_that_are_being_deleted_are_not_left() -> None:
    async def scenario() -> None:
        scene = Scene()
        await scene.make_topic(1, 1, 3)
        await scene.session.create(TopicDeletion.path("a"))
        await scene.leave()
        assert (await scene.state()).isr == (1, 3)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("stayed", "left"),
    [
        ((3,), (3,)),  # 2 came back without anybody's notice: after this write nobody could tell
        ((2, 3), (2, 3)),
        ((2,), (2,)),  # 3 may be back by the time this is written
        ((), (2, 3)),
    ],
)
def test_members_that_came_back_leave_with_it_if_others_stayed(stayed: tuple[int, ...], left: tuple[int, ...]) -> None:
    async def scenario() -> None:
        scene = Scene()
        await scene.make_topic(1, 1, 2, 3, stayed=stayed)
        await scene.leave()
        assert (await scene.state()).isr == left

    asyncio.run(scenario())


@pytest.mark.parametrize("leader", [1, NO_LEADER])
def test_a_member_that_died_a_moment_ago_is_not_taken_for_one_that_stayed(leader: int) -> None:
    """Its session outlives it. Alone in the ISR it would keep out 3, which is down and may be the only one whole."""

    async def scenario() -> None:
        scene = Scene()
        scene.link.answers = False
        await scene.make_topic(leader, 3, 2, 1, stayed=(2,))
        leaving = asyncio.ensure_future(scene.leave())
        await scene.wait(lambda: scene.link.asked > 3)
        assert (await scene.state()).isr == (3, 2, 1)
        await scene.session_of_2.close()
        await scene.wait(leaving.done)
        assert (await scene.state()).isr == (3, 2)

    asyncio.run(scenario())


def test_a_leader_stays_in_the_isr_that_another_member_leaves() -> None:
    """It is dead; that another one leads, only a controller may write."""

    async def scenario() -> None:
        scene = Scene()
        await scene.make_topic(2, 2, 3, 1, stayed=(2, 3))
        await scene.session_of_2.close()
        await scene.leave()
        assert (await scene.state()).isr == (2, 3)

    asyncio.run(scenario())


def test_a_leader_that_died_a_moment_ago_is_waited_for() -> None:
    """Its session outlives it. Registered before that, this broker would be elected, and be the ISR alone."""

    async def scenario() -> None:
        scene = Scene()
        scene.link.answers = False
        await scene.make_topic(2, 2, 1)
        leaving = asyncio.ensure_future(scene.leave())
        await scene.wait(lambda: scene.link.asked > 3)
        assert (await scene.state()).isr == (2, 1)
        await scene.session_of_2.close()
        await scene.wait(leaving.done)
        assert (await scene.state()).isr == (2,)

    asyncio.run(scenario())


def test_a_leader_of_many_is_asked_once() -> None:
    async def scenario() -> None:
        scene = Scene()
        await scene.make_topic(2, 2, 1)
        leaders = OtherBrokers(
            scene.session, scene.link, clock=scene.clock, timers=scene.timers, patience_ms=PATIENCE_MS
        )
        assert [await leaders.lives(2) for _ in range(100)] == [True] * 100
        assert scene.link.asked == 1
        scene.clock.advance(1_000)
        assert await leaders.lives(2)
        assert scene.link.asked == 2, "it may have died since"

    asyncio.run(scenario())


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_leader_keeps_the_isr_if_it_answers_late_or_only_others(comes_back: bool) -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.link.answers = False
        await scene.make_topic(2, 2, 1)
        before_ms = scene.clock.monotonic_ms()
        leaving = asyncio.ensure_future(scene.leave())
        await scene.wait(lambda: scene.link.asked > 3)
        scene.link.answers = comes_back
        await scene.wait(leaving.done)
        assert (await scene.state()).isr == (2, 1)
        waited_ms = scene.clock.monotonic_ms() - before_ms
        assert waited_ms < 1_000 if comes_back else PATIENCE_MS <= waited_ms < PATIENCE_MS + 200

    asyncio.run(scenario())


def test_a_leader_that_comes_back_may_have_lost_the_partition_meanwhile() -> None:
    """To this broker, whose last session was not over yet: what was read before says nothing any more."""

    async def scenario() -> None:
        scene = Scene()
        scene.link.answers = False
        await scene.make_topic(2, 2, 1, 3)
        leaving = asyncio.ensure_future(scene.leave())
        await scene.wait(lambda: scene.link.asked > 3)
        state = await scene.state()
        elected = PartitionState(leader=1, leader_epoch=5, isr=(1, 3), controller_epoch=2)
        await scene.session.set(Partition.path(*A0), Partition.encode(elected), state.partition_epoch)
        scene.link.answers = True
        await scene.wait(leaving.done)
        assert (await scene.state()).isr == (3,)

    asyncio.run(scenario())
