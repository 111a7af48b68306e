"""ElectLeaders, 0 to 2: put leaders back where the assignment wants them, or elect one at the price of records."""

from __future__ import annotations

from collections.abc import Mapping

from kafkad.api.context import Context, Request
from kafkad.controller.elect_leaders import ElectionKind
from kafkad.errors import ErrorCode, KafkaError
from kafkad.names import TopicPartition
from kafkad.security.authorizer import Operation
from kafkad.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_FIRST_WITH_ONE_ERROR = 1


async def handle(context: Context, request: Request, message: ElectLeadersRequest) -> ElectLeadersResponse:
    """Without a list all partitions are meant; those that need no election are then left out of the answer."""
    kind = _kind(message.election_type)
    outcomes = await context.controller.elect_leaders(
        kind, _asked(message), timeout_ms=message.timeout_ms, guard=request.on_cluster(Operation.ALTER)
    )
    return _response(outcomes)


def refused(request: Request, message: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    response = _response(dict.fromkeys(_asked(message) or (), KafkaError(error.code)))
    if request.version >= _FIRST_WITH_ONE_ERROR:
        response.error_code = error.code
    return response


def _asked(message: ElectLeadersRequest) -> list[TopicPartition] | None:
    if message.topic_partitions is None:
        return None
    return [TopicPartition(topic.topic, index) for topic in message.topic_partitions for index in topic.partitions]


def _kind(number: int) -> ElectionKind:
    try:
        return ElectionKind(number)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no election type {number}") from None


def _response(outcomes: Mapping[TopicPartition, KafkaError | None]) -> ElectLeadersResponse:
    topics: dict[str, list[PartitionResult]] = {}
    for tp, error in outcomes.items():
        result = PartitionResult(partition_id=tp.partition, error_message=None)
        if error is not None:
            result.error_code, result.error_message = error.code, error.message
        topics.setdefault(tp.topic, []).append(result)
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=results) for topic, results in topics.items()
        ]
    )
