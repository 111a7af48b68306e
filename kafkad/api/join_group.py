"""JoinGroup, 0 to 9: a member enters its group, and hears of the generation when that has come together.

- 0: the session timeout is also the time to rejoin
- 4: somebody new first gets its id (KIP-394)
- 5: static members (KIP-345)
- 9: a static leader may hear that there is nothing to assign (KIP-814)
"""

from __future__ import annotations

import asyncio
from functools import partial
from uuid import uuid4

from kafkad.api.context import Context, Request
from kafkad.api.java import address_text
from kafkad.errors import KafkaError
from kafkad.group.events import Join, Joined
from kafkad.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

_FIRST_WITH_REBALANCE_TIMEOUT = 1
_FIRST_WITH_ID_REQUIRED = 4
_FIRST_WITH_NULL_PROTOCOL = 7
_FIRST_THAT_CAN_SKIP = 9
_LONGEST_ID_START = 32_000
"""Bytes of a client id that begin a member id, which must still fit into a string of the protocol."""


def handle(context: Context, request: Request, message: JoinGroupRequest) -> asyncio.Future[JoinGroupResponse]:
    answer: asyncio.Future[JoinGroupResponse] = asyncio.get_running_loop().create_future()
    respond = partial(_answer, answer, request.version)
    try:
        context.groups.join(message.group_id, _join(request, message, respond))
    except KafkaError as error:
        respond(Joined(error.code, message.member_id))
    return answer


def refused(request: Request, message: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    protocol = None if request.version >= _FIRST_WITH_NULL_PROTOCOL else ""
    return JoinGroupResponse(error_code=error.code, protocol_name=protocol)


def _join(request: Request, message: JoinGroupRequest, respond: partial[None]) -> Join:
    version, client_id, instance_id = request.version, request.header.client_id or "", message.group_instance_id
    rebalance_timeout_ms = message.rebalance_timeout_ms
    if version < _FIRST_WITH_REBALANCE_TIMEOUT:
        rebalance_timeout_ms = message.session_timeout_ms
    return Join(
        respond=respond,
        member_id=message.member_id,
        new_id="" if message.member_id else _new_id(client_id if instance_id is None else instance_id),
        instance_id=instance_id,
        client_id=client_id,
        client_host=address_text(request.connection.host),
        session_timeout_ms=message.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=message.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in message.protocols),
        needs_id=version >= _FIRST_WITH_ID_REQUIRED and instance_id is None,
        may_skip=version >= _FIRST_THAT_CAN_SKIP,
        reason=message.reason,
    )


def _new_id(start: str) -> str:
    return f"{start.encode()[:_LONGEST_ID_START].decode(errors='ignore')}-{uuid4()}"


def _answer(answer: asyncio.Future[JoinGroupResponse], version: int, joined: Joined) -> None:
    if answer.done():
        return
    protocol = joined.protocol
    if version < _FIRST_WITH_NULL_PROTOCOL:
        protocol = protocol or ""
    answer.set_result(
        JoinGroupResponse(
            error_code=joined.error,
            generation_id=joined.generation,
            protocol_type=joined.protocol_type,
            protocol_name=protocol,
            leader=joined.leader,
            skip_assignment=joined.skip_assignment,
            member_id=joined.member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=one.member_id, group_instance_id=one.instance_id, metadata=one.metadata
                )
                for one in joined.members
            ],
        )
    )
