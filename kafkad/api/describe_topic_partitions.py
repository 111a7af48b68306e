"""DescribeTopicPartitions, 0: topics in pages of a bounded number of partitions (KIP-966)."""

from __future__ import annotations

from operator import attrgetter

from kafkad.api.context import Context, Request
from kafkad.api.in_order import in_order
from kafkad.api.operations import authorized_operations
from kafkad.api.reachable_brokers import ReachableBrokers
from kafkad.cluster.metadata import TopicMetadata
from kafkad.controller.topics import check_name
from kafkad.errors import ErrorCode, KafkaError
from kafkad.names import INTERNAL_TOPICS
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Pieces, each
from kafkad.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from kafkad.wire.messages.update_metadata import UpdateMetadataPartitionState

_AT_ONCE = 16
_NONE: list[int] = []


def handle(
    context: Context, request: Request, message: DescribeTopicPartitionsRequest
) -> Pieces[DescribeTopicPartitionsResponse]:
    """Topics come in the order of their names; without topics in the request, all of them. A cursor is at one of those
    that are asked for."""
    start = message.cursor or Cursor(topic_name="", partition_index=0)
    asked = dict.fromkeys([topic.name for topic in message.topics])
    is_elsewhere = message.cursor is not None and bool(asked) and start.topic_name not in asked
    if start.partition_index < 0 or is_elsewhere:
        return DescribeTopicPartitionsResponse(topics=(yield from each(_refused, message.topics)))
    topics = context.replicas.metadata.topics
    names = asked or topics
    left = max(min(message.response_partition_limit, context.config.int("max.request.partition.size.limit")), 1)
    answer = _Answer(request, ReachableBrokers(context.replicas.metadata, request.listener))
    response = DescribeTopicPartitionsResponse()
    hidden = []
    for name in (yield from in_order(names, str)):
        yield
        if name < start.topic_name:
            continue
        if names is topics:
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
        known, following = yield from answer.known(topic, first, left)
        response.topics.append(known)
        if following is not None:
            response.next_cursor = Cursor(topic_name=name, partition_index=following)
            break
        left -= len(known.partitions)
    response.topics += hidden
    return response


def _refused(topic: TopicRequest) -> DescribeTopicPartitionsResponseTopic:
    """The answer has no place for an error but its topics."""
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)


def _hidden(name: str) -> DescribeTopicPartitionsResponseTopic:
    """The same for a topic that does not exist."""
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)


class _Answer:
    """What the topics of one response have in common."""

    def __init__(self, request: Request, reachable: ReachableBrokers) -> None:
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

    def known(
        self, topic: TopicMetadata, first: int, most: int
    ) -> Pieces[tuple[DescribeTopicPartitionsResponseTopic, int | None]]:
        """So many of its partitions as they are now, from the first on, and the index of the one after them."""
        partitions: list[DescribeTopicPartitionsResponsePartition] = []
        following = None
        states = yield from in_order(topic.partitions.values(), attrgetter("partition_index"))
        for number, state in enumerate(states, 1):
            if not number % _AT_ONCE:
                yield
            if state.partition_index < first:
                continue
            if len(partitions) == most:
                following = state.partition_index
                break
            partitions.append(self._partition(state))
        described = DescribeTopicPartitionsResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions,
            topic_authorized_operations=self._operations(topic.name),
        )
        return described, following

    def _partition(self, state: UpdateMetadataPartitionState) -> DescribeTopicPartitionsResponsePartition:
        leader, code = self._reachable.leader(state)
        return DescribeTopicPartitionsResponsePartition(
            error_code=code,
            partition_index=state.partition_index,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=state.replicas,
            isr_nodes=state.isr,
            eligible_leader_replicas=_NONE,
            last_known_elr=_NONE,
            offline_replicas=state.offline_replicas,
        )

    def _operations(self, name: str) -> int:
        return authorized_operations(self._request, ResourceType.TOPIC, name)
