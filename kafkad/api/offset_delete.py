"""OffsetDelete, 0: forget what a group committed to topics that it does not read any more."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode
from kafkad.group.committing import Codes
from kafkad.group.offsets import Position
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Pieces
from kafkad.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(
    context: Context, request: Request, message: OffsetDeleteRequest
) -> Pieces[Coroutine[None, None, OffsetDeleteResponse]]:
    """Asks the group even when there is nothing to delete: whether it exists is an answer too."""
    answers, of_group = yield from _sorted_out(context, request, message)
    if request.restricted:
        _ask_again(request, message, of_group)
    deletion = yield from context.offsets.delete(message.group_id, list(of_group))
    return _answered(deletion, answers, of_group)


async def _answered(
    deletion: Awaitable[Codes],
    answers: dict[str, list[OffsetDeleteResponsePartition]],
    of_group: dict[Position, OffsetDeleteResponsePartition],
) -> OffsetDeleteResponse:
    for answer, code in zip(of_group.values(), await deletion, strict=True):
        answer.error_code = code
    return OffsetDeleteResponse(
        topics=[OffsetDeleteResponseTopic(name=name, partitions=partitions) for name, partitions in answers.items()]
    )


def _ask_again(
    request: Request, message: OffsetDeleteRequest, of_group: dict[Position, OffsetDeleteResponsePartition]
) -> None:
    """Rights may have been taken away while the request was sorted out."""
    request.check(Operation.DELETE, ResourceType.GROUP, message.group_id)
    topics = dict.fromkeys(topic for topic, _ in of_group)
    hidden = {name for name in topics if not request.allowed(Operation.READ, ResourceType.TOPIC, name)}
    for position in [position for position in of_group if position[0] in hidden]:
        of_group.pop(position).error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _sorted_out(
    context: Context, request: Request, message: OffsetDeleteRequest
) -> Pieces[tuple[dict[str, list[OffsetDeleteResponsePartition]], dict[Position, OffsetDeleteResponsePartition]]]:
    """The answers by topic, and of them those that the group has to give: one for each partition, named twice or not.

    What does not exist has its answer. A topic that is named without partitions is not answered.
    """
    known = context.replicas.metadata.topics
    answers: dict[str, list[OffsetDeleteResponsePartition]] = {}
    of_group: dict[Position, OffsetDeleteResponsePartition] = {}
    for topic in message.topics:
        yield
        may = request.allowed(Operation.READ, ResourceType.TOPIC, topic.name)
        for asked in topic.partitions:
            index = asked.partition_index
            position = topic.name, index
            if position in of_group:
                continue
            answer = OffsetDeleteResponsePartition(partition_index=index)
            if not may:
                answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic.name in known and index in known[topic.name].partitions:
                of_group[position] = answer
            else:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.setdefault(topic.name, []).append(answer)
    return answers, of_group
