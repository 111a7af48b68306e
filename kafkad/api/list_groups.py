"""ListGroups, 0 to 5: the groups that this broker coordinates; from 4 on by state (KIP-518), from 5 on by type."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode
from kafkad.group.coordinator import CLASSIC
from kafkad.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from kafkad.turns import Pieces
from kafkad.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

_AT_ONCE = 10


def handle(context: Context, request: Request, message: ListGroupsRequest) -> Pieces[ListGroupsResponse]:
    """While some are still being loaded, those that are not are listed with an error."""
    groups = context.groups
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if groups.loading else ErrorCode.NONE
    sees_all = request.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    found: list[ListedGroup] = []
    for number, group in enumerate(groups.groups(message.states_filter, message.types_filter)):
        if not number % _AT_ONCE:
            yield
        if group is not None and (sees_all or request.allows(Operation.DESCRIBE, ResourceType.GROUP, group.name)):
            found.append(
                ListedGroup(
                    group_id=group.name,
                    protocol_type=group.protocol_type,
                    group_state=group.state.value,
                    group_type=CLASSIC,
                )
            )
    return ListGroupsResponse(error_code=error, groups=found)
