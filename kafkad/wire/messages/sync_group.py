from __future__ import annotations

from kafkad.wire.schema import Request, array, bytes_, int16, int32, message, nested, string


@nested
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: bytes = bytes_()


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest(Request["SyncGroupResponse"]):
    """The leader hands in the assignment, the others ask for their share."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)  # only from the leader


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    """The member's part of the assignment."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = bytes_()
