"""Keys and values in `__consumer_offsets`, as share groups (KIP-932) write them from Kafka 4.1 on.
A key's version is the kind of record."""

from __future__ import annotations

from kafkad.wire.log_records.consumer_groups import TopicPartition
from kafkad.wire.schema import array, int8, int32, int64, message, nested, string, uuid


@message(versions="10")
class ShareGroupMemberMetadataKey:
    """The group's id and the member's."""

    group_id: str = string("10")
    member_id: str = string("10")


@message(versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """A member's subscription, as it told it."""

    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


@message(versions="11")
class ShareGroupMetadataKey:
    """The group's id."""

    group_id: str = string("11")


@message(versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """The epoch of a group, and a hash of its topics as the group saw them then."""

    epoch: int = int32()
    metadata_hash: int = int64()


@message(versions="12")
class ShareGroupTargetAssignmentMetadataKey:
    """The group's id."""

    group_id: str = string("12")


@message(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """The epoch of the assignment that members move towards."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


@message(versions="13")
class ShareGroupTargetAssignmentMemberKey:
    """The group's id and the member's."""

    group_id: str = string("13")
    member_id: str = string("13")


@message(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """The target assignment of a member."""

    topic_partitions: list[TopicPartition] = array(TopicPartition)


@message(versions="14")
class ShareGroupCurrentMemberAssignmentKey:
    """The group's id and the member's."""

    group_id: str = string("14")
    member_id: str = string("14")


@message(versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """The current assignment of a member."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartition] = array(TopicPartition)


@message(versions="15")
class ShareGroupStatePartitionMetadataKey:
    """The group's id."""

    group_id: str = string("15")


@nested
class TopicPartitionsInfo:
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


@nested
class TopicInfo:
    topic_id: bytes = uuid()
    topic_name: str = string()


@message(versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """The partitions for which the share coordinators keep state for a group."""

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)
