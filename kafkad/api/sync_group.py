"""SyncGroup, 0 to 5: the leader hands in the assignment, and every member gets its part when that is written.

From 5 on, members say which protocol they think was chosen (KIP-559).
"""

from __future__ import annotations

import asyncio
from functools import partial

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.events import Sync, Synced
from kafkad.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_FIRST_WITH_PROTOCOL = 5


def handle(context: Context, request: Request, message: SyncGroupRequest) -> asyncio.Future[SyncGroupResponse]:
    answer: asyncio.Future[SyncGroupResponse] = asyncio.get_running_loop().create_future()
    respond = partial(_answer, answer)
    sync = Sync(
        respond=respond,
        member_id=message.member_id,
        instance_id=message.group_instance_id,
        generation=message.generation_id,
        protocol_type=message.protocol_type,
        protocol=message.protocol_name,
        assignments={one.member_id: one.assignment for one in message.assignments},
    )
    if request.version >= _FIRST_WITH_PROTOCOL and None in (sync.protocol_type, sync.protocol):
        respond(Synced(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return answer
    try:
        context.groups.sync(message.group_id, sync)
    except KafkaError as error:
        respond(Synced(error.code))
    return answer


def _answer(answer: asyncio.Future[SyncGroupResponse], synced: Synced) -> None:
    if not answer.done():
        answer.set_result(
            SyncGroupResponse(
                error_code=synced.error,
                protocol_type=synced.protocol_type,
                protocol_name=synced.protocol,
                assignment=synced.assignment,
            )
        )
