from __future__ import annotations

from kafkad.wire.schema import Request, array, int16, int32, int64, message, nested, string


@nested
class OffsetForLeaderPartition:
    partition: int = int32()
    # What the asker thinks it is, to fence those behind.
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32()  # the epoch whose end is asked for


@nested
class OffsetForLeaderTopic:
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@message(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    """Asks where a leader epoch ended, to find the point at which two logs part."""

    replica_id: int = int32("3+", default=-2, ignorable=True)  # -2: a consumer from before this field
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@nested
class EpochEndOffset:
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64(default=-1)


@nested
class OffsetForLeaderTopicResult:
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@message(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """The end offset of the epoch asked for, or of the largest one below it."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
