from __future__ import annotations

from kafkad.wire.schema import Request, array, int16, int32, message, nested, string, struct, uuid


@message(key=76, versions="0-1", flexible="0+")
class ShareGroupHeartbeatRequest(Request["ShareGroupHeartbeatResponse"]):
    """KIP-932: a member of a share group joins, stays and leaves."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)


@nested
class TopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@nested
class Assignment:
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@message(key=76, versions="0-1", flexible="0+")
class ShareGroupHeartbeatResponse:
    """The member's epoch and, when it changed, its assignment."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+", default=None)
