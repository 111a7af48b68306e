"""CreatePartitions, 0 to 3: topics grow, with given replicas or placed ones."""

from __future__ import annotations

from collections.abc import Sequence

from kafkad.api.context import Context, Request
from kafkad.api.throttling import MutationQuota
from kafkad.controller.topics import Admit, MorePartitions, TopicResult
from kafkad.errors import ErrorCode, KafkaError
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Turns
from kafkad.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

_FIRST_WITH_QUOTAS = 3


async def handle(context: Context, request: Request, message: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """A topic that the request names twice is refused once."""

    quota = MutationQuota(request.throttle, strict=request.version >= _FIRST_WITH_QUOTAS)

    def admit(topic: str, partitions: int) -> None:
        """The right may have been taken away while the request waited for the controller."""
        if not request.allowed(Operation.ALTER, ResourceType.TOPIC, topic):
            raise _forbidden()
        quota.admit(partitions)

    turns = Turns()
    may: dict[str, bool] = {}
    for topic in message.topics:
        await turns.give_way()
        may[topic.name] = request.allowed(Operation.ALTER, ResourceType.TOPIC, topic.name)
    wanted = [topic for topic in message.topics if may[topic.name]]
    results = {result.name: result for result in await _add(context, message, wanted, admit)}
    for name in may:
        await turns.give_way()
        if not may[name]:
            results[name] = TopicResult(name=name, error=_forbidden())
    response = CreatePartitionsResponse()
    for result in results.values():
        await turns.give_way()
        response.results.append(_result(result))
    quota.say(response)
    return response


async def _add(
    context: Context, message: CreatePartitionsRequest, topics: Sequence[CreatePartitionsTopic], admit: Admit
) -> Sequence[TopicResult]:
    try:
        return await context.controller.create_partitions(
            [_more(topic) for topic in topics],
            timeout_ms=message.timeout_ms,
            validate_only=message.validate_only,
            admit=admit,
        )
    except KafkaError as error:
        return [TopicResult(name=topic.name, error=error) for topic in topics]


def _forbidden() -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The topic authorization is failed.")


def _more(topic: CreatePartitionsTopic) -> MorePartitions:
    assignment = None
    if topic.assignments is not None:
        assignment = [tuple(assigned.broker_ids) for assigned in topic.assignments]
    return MorePartitions(name=topic.name, count=topic.count, assignment=assignment)


def _result(result: TopicResult) -> CreatePartitionsTopicResult:
    if result.error is None:
        return CreatePartitionsTopicResult(name=result.name)
    return CreatePartitionsTopicResult(
        name=result.name, error_code=result.error.code, error_message=result.error.message
    )
