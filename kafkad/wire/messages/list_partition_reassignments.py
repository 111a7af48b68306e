from __future__ import annotations

from kafkad.wire.schema import Request, array, int16, int32, message, nested, string


@nested
class ListPartitionReassignmentsTopics:
    name: str = string()
    partition_indexes: list[int] = array(int32)


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Request["ListPartitionReassignmentsResponse"]):
    """Asks for the moves under way; no topics means all."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


@nested
class OngoingPartitionReassignment:
    partition_index: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)


@nested
class OngoingTopicReassignment:
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """Partitions on the move, with the replicas they gain and lose."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
