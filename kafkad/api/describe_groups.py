"""DescribeGroups, 0 to 6: state and members of classic groups. Before 6 one that is not there is Dead (KIP-1043)."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.api.operations import NOT_ASKED_FOR, ON_GROUP
from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.events import Description, State
from kafkad.turns import Pieces, each
from kafkad.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_FIRST_WITH_NOT_FOUND = 6


def handle(context: Context, request: Request, message: DescribeGroupsRequest) -> Pieces[DescribeGroupsResponse]:
    operations = ON_GROUP if message.include_authorized_operations else NOT_ASKED_FOR
    groups = yield from each(lambda group: _describe(context, group, request.version, operations), message.groups)
    return DescribeGroupsResponse(groups=groups)


def _describe(context: Context, group: str, version: int, operations: int) -> DescribedGroup:
    try:
        found = context.groups.describe(group)
    except KafkaError as error:
        return DescribedGroup(error_code=error.code, group_id=group)
    if found is None and version >= _FIRST_WITH_NOT_FOUND:
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group} not found.",
            group_id=group,
            group_state=State.DEAD.value,
        )
    described = _described(group, found or Description(State.DEAD))
    described.authorized_operations = operations
    return described


def _described(group: str, found: Description) -> DescribedGroup:
    return DescribedGroup(
        group_id=group,
        group_state=found.state.value,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in found.members
        ],
    )
