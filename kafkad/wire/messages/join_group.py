from __future__ import annotations

from kafkad.wire.schema import Request, array, boolean, bytes_, int16, int32, message, nested, string


@nested
class JoinGroupRequestProtocol:
    name: str = string()
    metadata: bytes = bytes_()


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest(Request["JoinGroupResponse"]):
    """A member enters its group, or enters again when the group rebalances."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)  # v0 has the session timeout for both
    member_id: str = string()  # empty at first: the coordinator gives one
    group_instance_id: str | None = string("5+", nullable="5+", default=None)  # a static member (KIP-345)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


@nested
class JoinGroupResponseMember:
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = bytes_()


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    """The generation joined; the leader also gets the members to assign partitions to."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")  # the leader is to keep the assignment there is (KIP-814)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)  # only for the leader
