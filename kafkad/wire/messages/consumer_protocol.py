"""The contents of the opaque bytes in JoinGroup and SyncGroup of classic consumers.
Two bytes with the version go before each."""

from __future__ import annotations

from kafkad.wire.schema import array, bytes_, int32, message, nested, string


@nested
class SubscriptionTopicPartition:
    topic: str = string("1+")
    partitions: list[int] = array(int32, "1+")


@message(versions="0-3")
class ConsumerProtocolSubscription:
    """The topics a consumer wants, and what it owns."""

    topics: list[str] = array(string)
    user_data: bytes | None = bytes_(nullable="0+", default=None)
    owned_partitions: list[SubscriptionTopicPartition] = array(SubscriptionTopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


@nested
class AssignmentTopicPartition:
    topic: str = string()
    partitions: list[int] = array(int32)


@message(versions="0-3")
class ConsumerProtocolAssignment:
    """The partitions a consumer got."""

    assigned_partitions: list[AssignmentTopicPartition] = array(AssignmentTopicPartition)
    user_data: bytes | None = bytes_(nullable="0+", default=None)
