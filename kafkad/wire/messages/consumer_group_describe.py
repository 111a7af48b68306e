from __future__ import annotations

from kafkad.wire.schema import Request, array, boolean, int8, int16, int32, message, nested, string, struct, uuid


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Request["ConsumerGroupDescribeResponse"]):
    """Asks for the state of KIP-848 consumer groups."""

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
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    member_type: int = int8("1+", default=-1, ignorable=True)


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


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    """State, members and assignments of each group."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
