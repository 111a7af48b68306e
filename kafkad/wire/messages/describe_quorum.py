from __future__ import annotations

from kafkad.wire.schema import Request, array, int16, int32, int64, message, nested, string, uint16, uuid


@nested
class RequestPartitionData:
    partition_index: int = int32()


@nested
class RequestTopicData:
    topic_name: str = string()
    partitions: list[RequestPartitionData] = array(RequestPartitionData)


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest(Request["DescribeQuorumResponse"]):
    """Asks for the state of a KRaft quorum."""

    topics: list[RequestTopicData] = array(RequestTopicData)


@nested
class ReplicaState:
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


@nested
class ResponsePartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


@nested
class ResponseTopicData:
    topic_name: str = string()
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData)


@nested
class Listener:
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


@nested
class Node:
    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    """Leader, voters and observers of the quorum."""

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: list[ResponseTopicData] = array(ResponseTopicData)
    nodes: list[Node] = array(Node, "2+")
