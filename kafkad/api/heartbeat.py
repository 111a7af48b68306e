"""Heartbeat, 0 to 4: a member lives; from 3 on with the id of its instance (KIP-345)."""

from __future__ import annotations

from functools import cache

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode
from kafkad.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(context: Context, request: Request, message: HeartbeatRequest) -> HeartbeatResponse:
    """HOT."""
    return _response(
        context.groups.heartbeat(message.group_id, message.member_id, message.group_instance_id, message.generation_id)
    )


@cache
def _response(error: ErrorCode) -> HeartbeatResponse:
    """A response shared by all requests with this error: it is never changed."""
    return HeartbeatResponse(error_code=error)
