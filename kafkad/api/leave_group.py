"""LeaveGroup, 0 to 5: members leave; from 3 on several at a time, each with its own code, from 5 on with a reason."""

from __future__ import annotations

from functools import partial

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.events import Leaving
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Pieces, at_once, each
from kafkad.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse

_FIRST_WITH_MANY = 3


def handle(
    context: Context, request: Request, message: LeaveGroupRequest
) -> LeaveGroupResponse | Pieces[LeaveGroupResponse]:
    """A member that leaves need not wait until the group has been written without it."""
    if request.version < _FIRST_WITH_MANY:
        error = context.groups.leave(message.group_id, Leaving(message.member_id))
        return LeaveGroupResponse(error_code=error)
    left = _left(context, request, message)
    return left if len(message.members) > 1 else at_once(left)


def _left(context: Context, request: Request, message: LeaveGroupRequest) -> Pieces[LeaveGroupResponse]:
    context.groups.check_served(message.group_id)
    leave = partial(_leave, context, request, message.group_id)
    return LeaveGroupResponse(members=(yield from each(leave, message.members)))


def _leave(context: Context, request: Request, group: str, one: MemberIdentity) -> MemberResponse:
    """The right is asked for again: others are served between the members of a long request."""
    try:
        if not request.allows(Operation.READ, ResourceType.GROUP, group):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        error = context.groups.leave(group, Leaving(one.member_id, one.group_instance_id, one.reason))
    except KafkaError as refusal:
        error = refusal.code
    return MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=error)
