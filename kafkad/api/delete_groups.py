"""DeleteGroups, 0 to 2: groups that have no members, with all their offsets; each by itself.

A deletion that takes longer than `offsets.commit.timeout.ms` is answered with REQUEST_TIMED_OUT, and goes on: nobody
can use the group until that is committed, or cannot be any more.
"""

from __future__ import annotations

import asyncio
from functools import partial

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode, KafkaError
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Turns
from kafkad.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


async def handle(context: Context, request: Request, message: DeleteGroupsRequest) -> DeleteGroupsResponse:
    turns = Turns()
    deletions: list[asyncio.Future[DeletableGroupResult]] = []
    for group in dict.fromkeys(message.groups_names):
        deletions.append(_delete(context, request, group))
        await turns.give_way()
    return DeleteGroupsResponse(results=[await deletion for deletion in deletions])


def _delete(context: Context, request: Request, group: str) -> asyncio.Future[DeletableGroupResult]:
    end: asyncio.Future[DeletableGroupResult] = asyncio.get_running_loop().create_future()
    try:
        if not request.allowed(Operation.DELETE, ResourceType.GROUP, group):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        context.groups.delete(group, partial(_end, end, group))
    except KafkaError as error:
        _end(end, group, error)
    if not end.done():
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the deletion is written, but not committed yet")
        due_ms = context.clock.monotonic_ms() + context.config.int("offsets.commit.timeout.ms")
        timer = context.timers.at(due_ms, partial(_end, end, group, late))
        end.add_done_callback(lambda _: timer.cancel())
    return end


def _end(end: asyncio.Future[DeletableGroupResult], group: str, error: KafkaError | None) -> None:
    result = DeletableGroupResult(group_id=group)
    if error is not None:
        result.error_code, result.error_message = error.code, error.message
    if not end.done():
        end.set_result(result)
