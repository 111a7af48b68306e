from __future__ import annotations

from kafkad.wire.schema import Request, array, int16, int32, int64, message, nested, string, uuid


@nested
class OffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    commit_timestamp: int = int64("1", default=-1)
    committed_metadata: str | None = string(nullable="0+")


@nested
class OffsetCommitRequestTopic:
    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@message(key=8, versions="0-10", flexible="8+")
class OffsetCommitRequest(Request["OffsetCommitResponse"]):
    """A consumer writes down how far its group has read."""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)  # -1: not a member, a plain commit
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)  # -1: the broker's own setting
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@nested
class OffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@nested
class OffsetCommitResponseTopic:
    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@message(key=8, versions="0-10", flexible="8+")
class OffsetCommitResponse:
    """The fate of each committed offset."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
