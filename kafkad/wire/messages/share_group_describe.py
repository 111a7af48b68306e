from __future__ import annotations

from kafkad.wire.schema import Request, array, boolean, int16, int32, message, nested, string, struct, uuid


@message(key=77, versions="0-1", flexible="0+")
class ShareGroupDescribeRequest(Request["ShareGroupDescribeResponse"]):
    """Asks for the state of share groups."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


@nested
class TopicPartitions:
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


@nested
class Assignment:
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@nested
class Member:
    member_id: str = string()
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    assignment: Assignment = struct(Assignment)


@nested
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-0x80000000)


@message(key=77, versions="0-1", flexible="0+")
class ShareGroupDescribeResponse:
    """State, members and assignments of each group."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
