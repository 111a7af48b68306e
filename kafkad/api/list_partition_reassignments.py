"""ListPartitionReassignments, 0: partitions on the move, with the replicas they gain and lose (KIP-455)."""

from __future__ import annotations

from itertools import groupby

from kafkad.api.context import Context, Request
from kafkad.names import TopicPartition
from kafkad.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


async def handle(
    context: Context, request: Request, message: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Without a list all of them."""
    asked = None
    if message.topics is not None:
        asked = [TopicPartition(topic.name, index) for topic in message.topics for index in topic.partition_indexes]
    under_way = await context.controller.list_partition_reassignments(asked)
    return ListPartitionReassignmentsResponse(
        topics=[
            OngoingTopicReassignment(
                name=topic,
                partitions=[
                    OngoingPartitionReassignment(
                        partition_index=tp.partition,
                        replicas=list(assignment.replicas),
                        adding_replicas=list(assignment.adding),
                        removing_replicas=list(assignment.removing),
                    )
                    for tp, assignment in rows
                ],
            )
            for topic, rows in groupby(sorted(under_way.items()), key=lambda row: row[0].topic)
        ]
    )
