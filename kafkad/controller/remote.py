"""The controller on another broker: what is asked of it, as requests over a link."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kafkad.controller.isr import IsrResult
from kafkad.controller.link import ClosableLink
from kafkad.controller.topics import Admit, NewTopic, TopicResult, admit_all
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.znodes import ProducerIdBlock
from kafkad.model import NO_EPOCH, PartitionState, WantedIsr
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


class TopicIds(Protocol):
    """Names and ids of topics, as `cluster.metadata` has them."""

    def id_of(self, name: str) -> TopicId | None: ...

    def name_of(self, topic_id: TopicId) -> str | None: ...


class RemoteController(ClosableLink):
    """Each request is sent once; what is not answered raises NOT_CONTROLLER."""

    def __init__(self, link: Link, broker: int, epoch: Callable[[], int], topics: TopicIds, timeout_ms: int) -> None:
        """`timeout_ms` is for the way there and back, besides what a request itself allows the controller."""
        self._link = link
        self._broker = broker
        self._epoch = epoch
        self._topics = topics
        self._timeout_ms = timeout_ms

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_ms: int, admit: Admit = admit_all
    ) -> list[TopicResult]:
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


def _raise(code: int) -> None:
    if code:
        raise KafkaError(ErrorCode.of(code))


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
        error = KafkaError(ErrorCode.of(result.error_code), result.error_message or "")
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
        return KafkaError(ErrorCode.of(partition.error_code))
    return PartitionState(
        leader=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        isr=tuple(partition.isr),
        controller_epoch=NO_EPOCH,
        partition_epoch=partition.partition_epoch,
        recovering=bool(partition.leader_recovery_state),
    )
