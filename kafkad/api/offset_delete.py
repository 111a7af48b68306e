"""OffsetDelete, 0: forget what a group committed to topics that it does not read any more."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Sequence
from functools import partial

from kafkad.api.context import Context, Request
from kafkad.api.permissions import by_present_rights
from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.committing import DELETED_AT_ONCE, Codes
from kafkad.group.offsets import Position
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Pieces, Turns, in_turns
from kafkad.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

Answers = dict[str, list[OffsetDeleteResponsePartition]]
OfGroup = dict[Position, OffsetDeleteResponsePartition]
SortedOut = tuple[Answers, OfGroup]


def handle(
    context: Context, request: Request, message: OffsetDeleteRequest
) -> Pieces[Coroutine[None, None, OffsetDeleteResponse]]:
    """Asks the group even when there is nothing to delete: whether it exists is an answer too."""
    sort_out = partial(_prepared, context, request, message)
    answers, of_group = yield from by_present_rights(request, sort_out, partial(_may_still, request, message.group_id))
    first = context.offsets.delete(message.group_id, list(of_group)[:DELETED_AT_ONCE])
    return _answered(context, request, message.group_id, answers, of_group, first)


def _may_still(request: Request, group: str, sorted_out: SortedOut) -> bool:
    request.check(Operation.DELETE, ResourceType.GROUP, group)
    _, of_group = sorted_out
    return all(request.allowed(Operation.READ, ResourceType.TOPIC, name) for name in {name for name, _ in of_group})


def _prepared(context: Context, request: Request, message: OffsetDeleteRequest) -> Pieces[SortedOut]:
    sorted_out = yield from _sorted_out(context, request, message)
    yield from context.offsets.prepare_to_delete(message.group_id)
    return sorted_out


async def _answered(
    context: Context, request: Request, group: str, answers: Answers, of_group: OfGroup, first: Awaitable[Codes]
) -> OffsetDeleteResponse:
    """When all are deleted: after the first of them, some in each turn."""
    positions = list(of_group)
    turns = Turns()
    codes = await first
    while len(codes) < len(positions):
        await turns.give_way()
        codes += await _deleted(context, request, group, positions[len(codes) : len(codes) + DELETED_AT_ONCE])
    for answer, code in zip(of_group.values(), codes, strict=True):
        answer.error_code = code
    return OffsetDeleteResponse(
        topics=[OffsetDeleteResponseTopic(name=name, partitions=partitions) for name, partitions in answers.items()]
    )


async def _deleted(context: Context, request: Request, group: str, positions: Sequence[Position]) -> Codes:
    """Others have had their turn: the rights are asked for again, and the group may have members by now. It may also
    have ended with its last offset."""
    try:
        await in_turns(context.offsets.prepare_to_delete(group))
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return [ErrorCode.NONE] * len(positions)
    if not request.allows(Operation.DELETE, ResourceType.GROUP, group):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    topics = {topic for topic, _ in positions}
    allowed = {topic for topic in topics if request.allows(Operation.READ, ResourceType.TOPIC, topic)}
    codes = iter(await context.offsets.delete(group, [position for position in positions if position[0] in allowed]))
    return [next(codes) if topic in allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED for topic, _ in positions]


def _sorted_out(context: Context, request: Request, message: OffsetDeleteRequest) -> Pieces[SortedOut]:
    """The answers by topic, and of them those that the group has to give: one for each partition, named twice or not.

    What does not exist has its answer. A topic that is named without partitions is not answered.
    """
    known = context.replicas.metadata.topics
    answers: Answers = {}
    of_group: OfGroup = {}
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
