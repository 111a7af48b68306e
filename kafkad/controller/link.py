"""The controller as every broker sees it: asked in this process where it is this broker, else over the network.

All of these requests may be made again when it is not known what became of them: a topic that is there already, an ISR
that is as wanted and a second block of producer ids do no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kafkad.controller.controller import Controller
from kafkad.controller.isr import IsrResult
from kafkad.controller.topics import NewTopic, TopicResult
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.znodes import ProducerIdBlock
from kafkad.model import NO_EPOCH, BrokerInfo, PartitionState, WantedIsr
from kafkad.names import NO_TOPIC_ID, TopicId, TopicPartition
from kafkad.net.client import Link, LinkError
from kafkad.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kafkad.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from kafkad.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from kafkad.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

LinkFactory = Callable[[BrokerInfo], Link]


class ControllerLink(Protocol):
    """Every method raises KafkaError: what the controller answers, or NOT_CONTROLLER when none can be asked."""

    async def create_topics(self, topics: Sequence[NewTopic], *, timeout_ms: int) -> list[TopicResult]:
        """Results in the order of `topics`. This broker may hear of a topic a moment later."""

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        """A block of ids that nobody else has or gets."""

    async def alter_isr(self, wanted: Mapping[TopicPartition, WantedIsr]) -> dict[TopicPartition, IsrResult]:
        """The state of each partition as it is now, or why it was not changed."""

    async def controlled_shutdown(self) -> list[TopicPartition]:
        """What this broker still leads because nobody else can."""


class TopicIds(Protocol):
    """Names and ids of topics, as `cluster.metadata` has them."""

    def id_of(self, name: str) -> TopicId | None: ...

    def name_of(self, topic_id: TopicId) -> str | None: ...


class LocalController:
    """The controller in this process."""

    def __init__(self, controller: Controller, broker: int, epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._broker = broker
        self._epoch = epoch

    async def create_topics(self, topics: Sequence[NewTopic], *, timeout_ms: int) -> list[TopicResult]:
        return await self._controller.create_topics(topics, timeout_ms=timeout_ms)

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        return await self._controller.allocate_producer_ids(self._broker, self._epoch())

    async def alter_isr(self, wanted: Mapping[TopicPartition, WantedIsr]) -> dict[TopicPartition, IsrResult]:
        return await self._controller.alter_isr(self._broker, self._epoch(), wanted)

    async def controlled_shutdown(self) -> list[TopicPartition]:
        return await self._controller.controlled_shutdown(self._broker, self._epoch())


class RemoteController:
    """The controller at the other end of a link."""

    def __init__(self, link: Link, broker: int, epoch: Callable[[], int], topics: TopicIds, timeout_ms: int) -> None:
        """`timeout_ms` is for the way there and back, besides what a request itself allows the controller."""
        self._link = link
        self._broker = broker
        self._epoch = epoch
        self._topics = topics
        self._timeout_ms = timeout_ms

    async def create_topics(self, topics: Sequence[NewTopic], *, timeout_ms: int) -> list[TopicResult]:
        request = CreateTopicsRequest(topics=[_creatable(topic) for topic in topics], timeout_ms=timeout_ms)
        response: CreateTopicsResponse = await self._call(request, timeout_ms)
        results = {result.name: _topic_result(result) for result in response.topics}
        return [results[topic.name] for topic in topics]

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        request = AllocateProducerIdsRequest(broker_id=self._broker, broker_epoch=self._epoch())
        response: AllocateProducerIdsResponse = await self._call(request)
        _raise(response.error_code)
        first = response.producer_id_start
        return ProducerIdBlock(self._broker, first, first + response.producer_id_len - 1)

    async def alter_isr(self, wanted: Mapping[TopicPartition, WantedIsr]) -> dict[TopicPartition, IsrResult]:
        """Partitions that the controller says nothing of are those of topics that one of the two does not know."""
        topics: dict[str, RequestTopicData] = {}
        for tp, isr in wanted.items():
            topic_id = self._topics.id_of(tp.topic) or NO_TOPIC_ID
            topic = topics.setdefault(tp.topic, RequestTopicData(topic_name=tp.topic, topic_id=topic_id))
            topic.partitions.append(_wanted(tp.partition, isr))
        request = AlterPartitionRequest(
            broker_id=self._broker, broker_epoch=self._epoch(), topics=list(topics.values())
        )
        response: AlterPartitionResponse = await self._call(request)
        _raise(response.error_code)
        unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "The controller does not know the topic by this id")
        outcomes: dict[TopicPartition, IsrResult] = dict.fromkeys(wanted, unknown)
        for answered in response.topics:
            name = self._topics.name_of(answered.topic_id) or answered.topic_name
            for partition in answered.partitions:
                tp = TopicPartition(name, partition.partition_index)
                if tp in outcomes:
                    outcomes[tp] = _isr_outcome(partition)
        return outcomes

    async def controlled_shutdown(self) -> list[TopicPartition]:
        request = ControlledShutdownRequest(broker_id=self._broker, broker_epoch=self._epoch())
        response: ControlledShutdownResponse = await self._call(request)
        _raise(response.error_code)
        return [TopicPartition(left.topic_name, left.partition_index) for left in response.remaining_partitions]

    def close(self) -> None:
        self._link.close()

    async def _call(self, request: Any, more_ms: int = 0) -> Any:
        try:
            return await self._link.call(request, timeout_ms=self._timeout_ms + more_ms)
        except LinkError as error:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"The controller does not answer: {error}") from error


class CurrentController:
    """Whoever is the controller when it is asked; one link is kept, to the last one that was another broker."""

    def __init__(
        self,
        controller: Controller,
        local: LocalController,
        brokers: Callable[[int], BrokerInfo | None],
        remote: Callable[[BrokerInfo], RemoteController] | None,
    ) -> None:
        """`remote` is None where this broker is the only one there can be."""
        self._controller = controller
        self._local = local
        self._brokers = brokers
        self._connect = remote
        self._remote: RemoteController | None = None
        self._remote_broker: BrokerInfo | None = None

    async def create_topics(self, topics: Sequence[NewTopic], *, timeout_ms: int) -> list[TopicResult]:
        return await self._now().create_topics(topics, timeout_ms=timeout_ms)

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        return await self._now().allocate_producer_ids()

    async def alter_isr(self, wanted: Mapping[TopicPartition, WantedIsr]) -> dict[TopicPartition, IsrResult]:
        return await self._now().alter_isr(wanted)

    async def controlled_shutdown(self) -> list[TopicPartition]:
        return await self._now().controlled_shutdown()

    def close(self) -> None:
        if self._remote is not None:
            self._remote.close()

    def _now(self) -> ControllerLink:
        if self._controller.active or self._connect is None:
            return self._local
        active = self._controller.controller_id
        broker = None if active is None else self._brokers(active)
        if broker is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "No controller is known to this broker")
        if self._remote is None or broker != self._remote_broker:
            self.close()
            self._remote, self._remote_broker = self._connect(broker), broker
        return self._remote


def _raise(code: int) -> None:
    if code:
        raise KafkaError(ErrorCode(code))


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in topic.assignment.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _topic_result(result: CreatableTopicResult) -> TopicResult:
    if result.error_code:
        error = KafkaError(ErrorCode(result.error_code), result.error_message or "")
        return TopicResult(name=result.name, error=error)
    return TopicResult(
        name=result.name,
        topic_id=result.topic_id,
        partitions=result.num_partitions,
        replication_factor=result.replication_factor,
    )


def _wanted(index: int, isr: WantedIsr) -> RequestPartitionData:
    return RequestPartitionData(
        partition_index=index,
        leader_epoch=isr.leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=id_, broker_epoch=epoch) for id_, epoch in isr.members.items()],
        leader_recovery_state=int(isr.recovering),
        partition_epoch=isr.partition_epoch,
    )


def _isr_outcome(partition: ResponsePartitionData) -> IsrResult:
    if partition.error_code:
        return KafkaError(ErrorCode(partition.error_code))
    return PartitionState(
        leader=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        isr=tuple(partition.isr),
        controller_epoch=NO_EPOCH,
        partition_epoch=partition.partition_epoch,
        recovering=bool(partition.leader_recovery_state),
    )
