"""Keys and values in `__consumer_offsets`, as KIP-848 consumer groups write them.
A key's version is the kind of record."""

from __future__ import annotations

from kafkad.wire.schema import array, bytes_, int8, int32, int64, message, nested, string, struct, uuid


@message(versions="3")
class ConsumerGroupMetadataKey:
    """The group's id."""

    group_id: str = string("3")


@message(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """The epoch of a group."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


@message(versions="4")
class ConsumerGroupPartitionMetadataKey:
    """The group's id."""

    group_id: str = string("4")


@nested
class PartitionMetadata:
    partition: int = int32()
    racks: list[str] = array(string)


@nested
class TopicMetadata:
    topic_id: bytes = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


@message(versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    """The subscribed topics as the last assignment saw them (up to Kafka 4.0)."""

    topics: list[TopicMetadata] = array(TopicMetadata)


@message(versions="5")
class ConsumerGroupMemberMetadataKey:
    """The group's id and the member's."""

    group_id: str = string("5")
    member_id: str = string("5")


@nested
class ClassicProtocol:
    name: str = string()
    metadata: bytes = bytes_()


@nested
class ClassicMemberMetadata:
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


@message(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """A member's subscription, as it told it."""

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(ClassicMemberMetadata, nullable="0+", tag=0)


@message(versions="6")
class ConsumerGroupTargetAssignmentMetadataKey:
    """The group's id."""

    group_id: str = string("6")


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """The epoch of the assignment that members move towards."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


@message(versions="7")
class ConsumerGroupTargetAssignmentMemberKey:
    """The group's id and the member's."""

    group_id: str = string("7")
    member_id: str = string("7")


@nested
class TopicPartition:
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """The target assignment of a member."""

    topic_partitions: list[TopicPartition] = array(TopicPartition)


@message(versions="8")
class ConsumerGroupCurrentMemberAssignmentKey:
    """The group's id and the member's."""

    group_id: str = string("8")
    member_id: str = string("8")


@nested
class TopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, nullable="0+", default=None, tag=0)


@message(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """The current assignment of a member, and the partitions it has still to give up."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


@message(versions="16")
class ConsumerGroupRegularExpressionKey:
    """The group's id and the pattern (from Kafka 4.0)."""

    group_id: str = string("16")
    regular_expression: str = string("16")


@message(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics that a pattern matched."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()
