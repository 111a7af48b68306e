from __future__ import annotations

from kafkad.wire.schema import Request, array, int16, int32, message, nested, string, struct, uuid


@nested
class TopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Request["ConsumerGroupHeartbeatResponse"]):
    """KIP-848: a member joins, stays, reports what it owns, and leaves (epoch -1), all with this one request."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()  # 0: join, -1: leave, -2: leave for now, keeping a static member's place
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+", default=None)


@nested
class Assignment:
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    """The member's epoch and, when it changed, its assignment."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+", default=None)
