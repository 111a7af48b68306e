from __future__ import annotations

from kafkad.wire.schema import Request, array, int8, int16, int32, message, nested, string


@nested
class TopicPartitions:
    topic: str = string()
    partitions: list[int] = array(int32)


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest(Request["ElectLeadersResponse"]):
    """Has partitions elect their preferred (0) or an unclean (1) leader; no partitions means all."""

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")  # null: all partitions
    timeout_ms: int = int32(default=60000)


@nested
class PartitionResult:
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@nested
class ReplicaElectionResult:
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    """The result of each election."""

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
