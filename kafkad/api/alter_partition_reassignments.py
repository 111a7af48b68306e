"""AlterPartitionReassignments, 0 and 1: move partitions to other replicas, or call that off (KIP-455, KIP-860)."""

from __future__ import annotations

from collections.abc import Mapping

from kafkad.api.context import Context, Request
from kafkad.controller.reassignments import Target, origin
from kafkad.errors import ErrorCode, Guard, KafkaError
from kafkad.names import TopicPartition
from kafkad.security.authorizer import Operation
from kafkad.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

Outcomes = dict[TopicPartition, KafkaError | None]


async def handle(
    context: Context, request: Request, message: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """A partition that is named twice is answered once, and its last target counts."""
    targets: dict[TopicPartition, Target] = {
        TopicPartition(topic.name, asked.partition_index): None if asked.replicas is None else tuple(asked.replicas)
        for topic in message.topics
        for asked in topic.partitions
    }
    outcomes: Outcomes = dict.fromkeys(targets)
    guard = request.on_cluster(Operation.ALTER)
    if not message.allow_replication_factor_change:
        outcomes |= await _other_sizes(context, targets, guard)
    wanted = {tp: target for tp, target in targets.items() if outcomes[tp] is None}
    outcomes |= await context.controller.alter_partition_reassignments(wanted, guard)
    return _response(message, outcomes)


def refused(
    request: Request, message: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    outcomes = {
        TopicPartition(topic.name, asked.partition_index): error
        for topic in message.topics
        for asked in topic.partitions
    }
    response = _response(message, outcomes)
    response.error_code, response.error_message = error.code, error.message
    return response


def _response(
    message: AlterPartitionReassignmentsRequest, outcomes: Mapping[TopicPartition, KafkaError | None]
) -> AlterPartitionReassignmentsResponse:
    topics: dict[str, list[ReassignablePartitionResponse]] = {}
    for tp, error in outcomes.items():
        topics.setdefault(tp.topic, []).append(_result(tp.partition, error))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=message.allow_replication_factor_change,
        responses=[ReassignableTopicResponse(name=name, partitions=results) for name, results in topics.items()],
    )


async def _other_sizes(context: Context, targets: dict[TopicPartition, Target], guard: Guard) -> Outcomes:
    """The targets that would change a replication factor."""
    under_way = await context.controller.list_partition_reassignments(list(targets), guard)
    refused: Outcomes = {}
    for tp, target in targets.items():
        state = context.replicas.metadata.state_of(tp)
        if state is None or target is None:
            continue
        size = len(origin(under_way[tp])) if tp in under_way else len(state.replicas)
        if len(target) != size:
            refused[tp] = KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{tp} has {size} replicas, and the request forbids to make them {len(target)}",
            )
    return refused


def _result(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=index, error_message=None)
    return ReassignablePartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
