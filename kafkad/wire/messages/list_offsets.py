from __future__ import annotations

from kafkad.wire.schema import Request, array, int8, int16, int32, int64, message, nested, string


@nested
class ListOffsetsPartition:
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()  # -1 latest, -2 earliest, -3 of the largest timestamp, -4 earliest local, -5 latest tiered
    max_num_offsets: int = int32("0", default=1)


@nested
class ListOffsetsTopic:
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@message(key=2, versions="0-11", flexible="6+")
class ListOffsetsRequest(Request["ListOffsetsResponse"]):
    """Asks for partitions' offsets at a timestamp; negative timestamps are special (earliest, latest, ...)."""

    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+", ignorable=True)


@nested
class ListOffsetsPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: list[int] = array(int64, "0")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


@nested
class ListOffsetsTopicResponse:
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@message(key=2, versions="0-11", flexible="6+")
class ListOffsetsResponse:
    """The offset and timestamp found per partition."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
