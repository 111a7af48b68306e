"""ListPartitionReassignments, 0: partitions on the move, with the replicas they gain and lose (KIP-455)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from operator import attrgetter

from kafkad.api.context import Context, Request
from kafkad.api.in_order import in_order
from kafkad.model import PartitionAssignment
from kafkad.names import TopicPartition
from kafkad.security.authorizer import Operation
from kafkad.turns import Pieces, each
from kafkad.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


async def handle(
    context: Context, request: Request, message: ListPartitionReassignmentsRequest
) -> Pieces[ListPartitionReassignmentsResponse]:
    """Without a list all of them."""
    asked = None
    if message.topics is not None:
        asked = [TopicPartition(topic.name, index) for topic in message.topics for index in topic.partition_indexes]
    guard = request.on_cluster(Operation.DESCRIBE)
    return _answer(await context.controller.list_partition_reassignments(asked, guard))


def _answer(under_way: Mapping[TopicPartition, PartitionAssignment]) -> Pieces[ListPartitionReassignmentsResponse]:
    topics = []
    for topic, rows in groupby((yield from in_order(under_way, tuple)), key=attrgetter("topic")):
        partitions = yield from each(lambda tp: _partition(tp, under_way[tp]), rows)
        topics.append(OngoingTopicReassignment(name=topic, partitions=partitions))
    return ListPartitionReassignmentsResponse(topics=topics)


def _partition(tp: TopicPartition, assignment: PartitionAssignment) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=tp.partition,
        replicas=list(assignment.replicas),
        adding_replicas=list(assignment.adding),
        removing_replicas=list(assignment.removing),
    )
