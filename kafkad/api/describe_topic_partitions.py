"""DescribeTopicPartitions, 0: topics in pages of a bounded number of partitions (KIP-966)."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.api.operations import authorized_operations
from kafkad.api.replicas import Reachable
from kafkad.cluster.metadata import TopicMetadata
from kafkad.controller.topics import check_name
from kafkad.errors import ErrorCode, KafkaError
from kafkad.names import INTERNAL_TOPICS
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Pieces
from kafkad.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(
    context: Context, request: Request, message: DescribeTopicPartitionsRequest
) -> Pieces[DescribeTopicPartitionsResponse]:
    """Topics come in the order of their names; without topics in the request, all of them."""
    start = message.cursor or Cursor(topic_name="", partition_index=0)
    if start.partition_index < 0:
        return _refused(message)
    topics = context.replicas.metadata.topics
    wanted = {topic.name for topic in message.topics} or topics
    left = max(min(message.response_partition_limit, context.config.int("max.request.partition.size.limit")), 1)
    answer = _Answer(request, Reachable(context.replicas.metadata, request.listener))
    response = DescribeTopicPartitionsResponse()
    hidden = []
    for name in sorted(name for name in wanted if name >= start.topic_name):
        yield
        if wanted is topics:
            if name not in topics or not request.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
                continue
        elif not request.allowed(Operation.DESCRIBE, ResourceType.TOPIC, name):
            hidden.append(_hidden(name))
            continue
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = topics.get(name)
        if topic is None:
            response.topics.append(answer.unknown(name))
            continue
        first = start.partition_index if name == start.topic_name else 0
        indexes = sorted(index for index in topic.partitions if index >= first)
        response.topics.append(answer.known(topic, indexes[:left]))
        if len(indexes) > left:
            response.next_cursor = Cursor(topic_name=name, partition_index=indexes[left])
            break
        left -= len(indexes)
    response.topics += hidden
    return response


def _refused(message: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """The answer has no place for an error but its topics."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
            for topic in message.topics
        ]
    )


def _hidden(name: str) -> DescribeTopicPartitionsResponseTopic:
    """The same for a topic that does not exist."""
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)


class _Answer:
    """What the topics of one response have in common."""

    def __init__(self, request: Request, reachable: Reachable) -> None:
        self._request = request
        self._reachable = reachable

    def unknown(self, name: str) -> DescribeTopicPartitionsResponseTopic:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            check_name(name)
        except KafkaError as error:
            code = error.code
        return DescribeTopicPartitionsResponseTopic(
            error_code=code,
            name=name,
            is_internal=name in INTERNAL_TOPICS,
            topic_authorized_operations=self._operations(name),
        )

    def known(self, topic: TopicMetadata, indexes: list[int]) -> DescribeTopicPartitionsResponseTopic:
        partitions = []
        for index in indexes:
            state = topic.partitions[index]
            leader, code = self._reachable.leader(state)
            partitions.append(
                DescribeTopicPartitionsResponsePartition(
                    error_code=code,
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=state.leader_epoch,
                    replica_nodes=state.replicas,
                    isr_nodes=state.isr,
                    eligible_leader_replicas=[],
                    last_known_elr=[],
                    offline_replicas=state.offline_replicas,
                )
            )
        return DescribeTopicPartitionsResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions,
            topic_authorized_operations=self._operations(topic.name),
        )

    def _operations(self, name: str) -> int:
        return authorized_operations(self._request, ResourceType.TOPIC, name)
