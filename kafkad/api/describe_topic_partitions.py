"""DescribeTopicPartitions, 0: topics in pages of a bounded number of partitions (KIP-966)."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.api.operations import ON_TOPIC
from kafkad.api.replicas import Reachable
from kafkad.cluster.metadata import TopicMetadata
from kafkad.controller.topics import check_name
from kafkad.errors import ErrorCode, KafkaError
from kafkad.names import INTERNAL_TOPICS
from kafkad.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(
    context: Context, request: Request, message: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Topics come in the order of their names; without topics in the request, all of them."""
    start = message.cursor or Cursor(topic_name="", partition_index=0)
    if start.partition_index < 0:
        return _refused(message)
    topics = context.replicas.metadata.topics
    wanted = {topic.name for topic in message.topics} or topics
    left = max(min(message.response_partition_limit, context.config.int("max.request.partition.size.limit")), 1)
    reachable = Reachable(context.replicas.metadata, request.listener)
    response = DescribeTopicPartitionsResponse()
    for name in sorted(name for name in wanted if name >= start.topic_name):
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        first = start.partition_index if name == start.topic_name else 0
        indexes = sorted(index for index in topic.partitions if index >= first)
        response.topics.append(_topic(topic, indexes[:left], reachable))
        if len(indexes) > left:
            response.next_cursor = Cursor(topic_name=name, partition_index=indexes[left])
            break
        left -= len(indexes)
    return response


def _refused(message: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """The answer has no place for an error but its topics."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
            for topic in message.topics
        ]
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except KafkaError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, is_internal=name in INTERNAL_TOPICS, topic_authorized_operations=ON_TOPIC
    )


def _topic(topic: TopicMetadata, indexes: list[int], reachable: Reachable) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for index in indexes:
        state = topic.partitions[index]
        leader, code = reachable.leader(state)
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
        topic_authorized_operations=ON_TOPIC,
    )
