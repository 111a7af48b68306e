"""DescribeProducers, 0: the producers of a partition, idempotent or transactional, as any replica of it knows them
(KIP-664)."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.controller.topics import check_name
from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.producers import ProducerDescription
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Pieces
from kafkad.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

_AT_ONCE = 100


def handle(context: Context, request: Request, message: DescribeProducersRequest) -> Pieces[DescribeProducersResponse]:
    """A partition that is named twice is answered once: its producers may be many times what the request is."""
    asked: dict[str, dict[int, None]] = {}
    for topic in message.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        yield
    topics = []
    for name, indexes in asked.items():
        yield  # one may have no partitions
        partitions = []
        for index in indexes:
            answer = yield from _describe(context, request, name, index)
            partitions.append(answer)
        topics.append(TopicResponse(name=name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


def _describe(context: Context, request: Request, topic: str, index: int) -> Pieces[PartitionResponse]:
    yield
    try:
        request.check(Operation.READ, ResourceType.TOPIC, topic)
        check_name(topic)
        log = context.replicas.get(topic, index).log
    except KafkaError as error:
        said = error.message
        if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            said = None  # as Kafka: its clients say in their own words that the broker has no replica
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=said)
    producers: list[ProducerState] = []
    for number, row in enumerate(log.producers.describe()):
        if not number % _AT_ONCE:
            yield
        producers.append(_state(row))
    return PartitionResponse(partition_index=index, active_producers=producers)


def _state(row: ProducerDescription) -> ProducerState:
    return ProducerState(
        producer_id=row.producer_id,
        producer_epoch=row.epoch,
        last_sequence=row.last_sequence,
        last_timestamp=row.last_timestamp,
        coordinator_epoch=row.coordinator_epoch,
        current_txn_start_offset=row.txn_start,
    )
