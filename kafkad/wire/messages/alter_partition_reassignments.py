from __future__ import annotations

from kafkad.wire.schema import Request, array, boolean, int16, int32, message, nested, string


@nested
class ReassignablePartition:
    partition_index: int = int32()
    replicas: list[int] | None = array(int32, nullable="0+", default=None)  # null: cancel the move


@nested
class ReassignableTopic:
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest(Request["AlterPartitionReassignmentsResponse"]):
    """Starts moving partitions to other replicas, or (replicas null) cancels that."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@nested
class ReassignablePartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@nested
class ReassignableTopicResponse:
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    """The result of each move."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
