from __future__ import annotations

from kafkad.wire.schema import Request, int16, int32, message, string


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest(Request["HeartbeatResponse"]):
    """A member tells its coordinator that it lives."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    """True if the member may go on, or has to join again."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
