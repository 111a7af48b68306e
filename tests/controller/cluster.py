"""Controllers of several brokers over one embedded store, with brokers that only remember what they are told."""

from __future__ import annotations

import asyncio
import functools
import tempfile
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from kafkad.broker.loop_timers import LoopTimers
from kafkad.clock import SystemClock
from kafkad.config import load, validate_topic_configs
from kafkad.controller.channel import Channel, LocalChannel, Request, Response
from kafkad.controller.controller import Controller
from kafkad.controller.registration import prepare, register
from kafkad.controller.settings import ControllerSettings, KnownTopic, TopicDefaults
from kafkad.controller.topics import NewTopic
from kafkad.errors import ErrorCode
from kafkad.meta.embedded import EmbeddedSession, EmbeddedStore
from kafkad.meta.znodes import Broker, Partition
from kafkad.model import ALL_TOPICS, BrokerInfo, Endpoint, PartitionState
from kafkad.names import TopicPartition
from kafkad.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from kafkad.wire.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from kafkad.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from tests.fakes import turns

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class FakeBroker:
    """Keeps replicas and metadata as a broker would, and all requests. `failed` replicas are on a broken disk."""

    def __init__(self, broker: int) -> None:
        self.id = broker
        self.requests: list[Request] = []
        self.violations: list[str] = []
        self.replicas: dict[TopicPartition, LeaderAndIsrPartitionState] = {}
        self.metadata: dict[TopicPartition, UpdateMetadataPartitionState] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.live: set[int] = set()
        self.failed: set[TopicPartition] = set()
        self.undeletable: set[TopicPartition] = set()
        self.reachable = asyncio.Event()
        self.reachable.set()

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        await self._receive(request)
        topics = []
        for topic in request.topic_states:
            errors = []
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                errors.append(
                    LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=self._take(tp, state))
                )
            topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        return LeaderAndIsrResponse(topics=topics)

    def _take(self, tp: TopicPartition, state: LeaderAndIsrPartitionState) -> int:
        if self.id not in state.replicas:
            self.violations.append(f"{tp} is not of broker {self.id}")
        if state.leader not in (-1, *self.live):
            self.violations.append(f"broker {self.id} has not heard of {state.leader}, the leader of {tp}")
        if tp in self.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if tp in self.replicas and self.replicas[tp].leader_epoch >= state.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.replicas[tp] = state
        return ErrorCode.NONE

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        await self._receive(request)
        self.live = {broker.id for broker in request.live_brokers}
        if request.type == ALL_TOPICS:
            named = {topic.topic_name for topic in request.topic_states}
            self.metadata = {tp: state for tp, state in self.metadata.items() if tp.topic in named}
        for topic in request.topic_states:
            self.topic_ids[topic.topic_name] = topic.topic_id
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                if state.leader == -2:
                    self.metadata.pop(tp, None)
                else:
                    self.metadata[tp] = state
        return UpdateMetadataResponse()

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        await self._receive(request)
        errors = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                code = self._stop(tp, state.leader_epoch)
                if not code:
                    self.replicas.pop(tp, None)
                errors.append(
                    StopReplicaPartitionError(topic_name=tp.topic, partition_index=tp.partition, error_code=code)
                )
        return StopReplicaResponse(partition_errors=errors)

    def _stop(self, tp: TopicPartition, leader_epoch: int) -> int:
        if tp in self.replicas and 0 <= leader_epoch < self.replicas[tp].leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.KAFKA_STORAGE_ERROR if tp in self.undeletable else ErrorCode.NONE

    async def _receive(self, request: Request) -> None:
        await self.reachable.wait()
        self.requests.append(request)


class FailingOnce(Channel):
    """A connection that breaks at every other request."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._break = False

    async def send(self, request: Request) -> Response:
        self._break = not self._break
        if self._break:
            raise ConnectionResetError("broken")
        return await self._channel.send(request)

    async def close(self) -> None:
        await self._channel.close()


class DeadEnd(Channel):
    """To a process that is gone."""

    async def send(self, request: Request) -> Response:
        raise ConnectionRefusedError("nobody is there")

    async def greet(self, timeout_ms: float) -> None:
        raise ConnectionRefusedError("nobody is there")


class Member:
    """One broker with its session, its controller and its fake replicas."""

    def __init__(self, broker: int, session: EmbeddedSession, controller: Controller, fake: FakeBroker) -> None:
        self.id = broker
        self.session = session
        self.controller = controller
        self.fake = fake
        self.epoch = -1


class Cluster:
    def __init__(self, store: EmbeddedStore, **topics: Any) -> None:
        self.store = store
        self.client = store.session()
        self.members: dict[int, Member] = {}
        self.fakes: list[FakeBroker] = []
        self.unclean: set[str] = set()
        self.fewest_leaders = False
        self.deletes_topics = True
        self.ghosts: set[int] = set()
        """Brokers whose registrations outlive their processes."""
        self.left_alone: dict[str, str] = {}
        self.known_topic: KnownTopic = lambda name, node: None
        self.defaults = TopicDefaults(**topics)

    @property
    def controller(self) -> Controller:
        return next(m.controller for m in self.members.values() if m.controller.active)

    def __getitem__(self, broker: int) -> FakeBroker:
        return self.members[broker].fake

    async def start(self, broker: int, rack: str | None = None) -> Member:
        """A broker with an empty memory, as after a restart."""
        session = self.store.session()
        fake = FakeBroker(broker)
        self.fakes.append(fake)
        settings = ControllerSettings(
            broker=broker,
            unclean=lambda topic: topic in self.unclean,
            topics=lambda: self.defaults,
            fewest_leaders=lambda: self.fewest_leaders,
            deletes_topics=lambda: self.deletes_topics,
            left_alone=self.left_alone,
            known_topic=self.known_topic,
        )
        clock = SystemClock()
        controller = Controller(
            session,
            settings,
            connect=lambda info: DeadEnd() if info.id in self.ghosts else LocalChannel(self.members[info.id].fake),
            check_config=functools.partial(validate_topic_configs, config=load(None, [], {})),
            clock=clock,
            timers=LoopTimers(asyncio.get_running_loop(), clock).timers,
            random=Random(broker),
        )
        member = self.members[broker] = Member(broker, session, controller, fake)
        await prepare(session)
        epoch = await register(session, registration(broker, rack))
        assert isinstance(epoch, int), epoch
        member.epoch = epoch
        await controller.start()
        await self.settle()
        return member

    @property
    def violations(self) -> list[str]:
        """Messages to brokers that no controller may send."""
        return [violation for fake in self.fakes for violation in fake.violations]

    async def kill(self, broker: int) -> None:
        """As a crash: only the end of the session tells the others."""
        member = self.members.pop(broker)
        await member.session.expire()
        await member.controller.stop()
        await self.settle()

    async def stop(self) -> None:
        for member in self.members.values():
            await member.controller.stop()
        await self.store.close()

    async def settle(self) -> None:
        """Until nothing has happened for many turns of the loop; there is nothing to wait for but the loop itself."""
        await turns(200)

    async def create(self, name: str, *assignment: tuple[int, ...], **more: Any) -> bytes:
        topic = NewTopic(name=name, assignment=dict(enumerate(assignment)), **more)
        (result,) = await self.controller.create_topics([topic], timeout_ms=1000)
        assert result.error is None, result.error
        return result.topic_id

    async def state(self, topic: str, partition: int = 0) -> PartitionState:
        data, stat = await self.client.get(Partition.path(topic, partition))
        return Partition.decode(data, stat.version)


def registration(broker: int, rack: str | None = None) -> Broker:
    endpoint = Endpoint(listener="PLAINTEXT", host=f"host{broker}", port=9092)
    return Broker(broker=BrokerInfo(id=broker, endpoints=(endpoint,), rack=rack), timestamp_ms=1)


def with_brokers(*brokers: int, **topics: Any) -> Callable[[Callable[[Cluster], Awaitable[None]]], Callable[[], None]]:
    """A test that runs in a loop of its own with a cluster of `brokers`, started in this order."""

    def decorate(test: Callable[[Cluster], Awaitable[None]]) -> Callable[[], None]:
        @functools.wraps(test)
        def run() -> None:
            async def whole() -> None:
                cluster = Cluster(EmbeddedStore.in_memory(SystemClock()), **topics)
                for broker in brokers:
                    await cluster.start(broker)
                try:
                    await test(cluster)
                finally:
                    await cluster.stop()
                assert cluster.violations == []

            asyncio.run(whole())

        del run.__wrapped__  # pytest would take the test's parameter for a fixture
        return run

    return decorate


Reopen = Callable[[], Awaitable[EmbeddedStore]]


def on_disk(test: Callable[[EmbeddedStore, Reopen], Awaitable[None]]) -> None:
    """Runs `test` with a journalled store and a way to reopen it, as after a restart of the process."""

    async def whole() -> None:
        with tempfile.TemporaryDirectory() as directory:
            store = EmbeddedStore.open(directory, SystemClock())

            async def reopen() -> EmbeddedStore:
                await store.close()
                return EmbeddedStore.open(directory, SystemClock())

            await test(store, reopen)

    asyncio.run(whole())
