"""DescribeGroups, 0 to 6: state and members of classic groups. Before 6 one that is not there is Dead (KIP-1043)."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.api.operations import NOT_ASKED_FOR, authorized_operations
from kafkad.errors import ErrorCode, KafkaError, shortened
from kafkad.group.events import DescribedMember, Description, State
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Pieces, each
from kafkad.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_FIRST_WITH_NOT_FOUND = 6


def handle(context: Context, request: Request, message: DescribeGroupsRequest) -> Pieces[DescribeGroupsResponse]:
    """A group that is named twice is answered once: its members may be many times what the request is."""
    wants_operations = message.include_authorized_operations
    groups = []
    for group in dict.fromkeys(message.groups):
        described = yield from _describe(context, request, group, wants_operations)
        groups.append(described)
        yield
    return DescribeGroupsResponse(groups=groups)


def _describe(context: Context, request: Request, group: str, wants_operations: bool) -> Pieces[DescribedGroup]:
    if not request.allowed(Operation.DESCRIBE, ResourceType.GROUP, group):
        return DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group)
    try:
        found = context.groups.describe(group)
    except KafkaError as error:
        return DescribedGroup(error_code=error.code, group_id=group)
    if found is None and request.version >= _FIRST_WITH_NOT_FOUND:
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=shortened(f"Group {group} not found."),
            group_id=group,
            group_state=State.DEAD.value,
        )
    described = yield from _described(group, found or Description(State.DEAD))
    described.authorized_operations = (
        authorized_operations(request, ResourceType.GROUP, group) if wants_operations else NOT_ASKED_FOR
    )
    return described


def _described(group: str, found: Description) -> Pieces[DescribedGroup]:
    return DescribedGroup(
        group_id=group,
        group_state=found.state.value,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol,
        members=(yield from each(_member, found.members)),
    )


def _member(member: DescribedMember) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )
