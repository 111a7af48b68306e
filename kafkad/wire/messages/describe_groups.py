from __future__ import annotations

from kafkad.wire.schema import Request, array, boolean, bytes_, int16, int32, message, nested, string


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest(Request["DescribeGroupsResponse"]):
    """Asks for state and members of classic groups."""

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+")


@nested
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = bytes_()
    member_assignment: bytes = bytes_()


@nested
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-0x80000000)


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """State, members and assignments of each group."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
