"""LeaveGroup, 0 to 5: members leave; from 3 on several at a time, each with its own code, from 5 on with a reason."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.group.events import Leaving
from kafkad.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

_FIRST_WITH_MANY = 3


def handle(context: Context, request: Request, message: LeaveGroupRequest) -> LeaveGroupResponse:
    """A member that leaves need not wait until the group has been written without it."""
    if request.version < _FIRST_WITH_MANY:
        [error] = context.groups.leave(message.group_id, [Leaving(message.member_id)])
        return LeaveGroupResponse(error_code=error)
    leaving = [Leaving(one.member_id, one.group_instance_id, one.reason) for one in message.members]
    errors = context.groups.leave(message.group_id, leaving)
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=one.member_id, group_instance_id=one.instance_id, error_code=error)
            for one, error in zip(leaving, errors, strict=True)
        ]
    )
