from __future__ import annotations

from kafkad.wire.schema import (
    Request,
    array,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    records_,
    string,
    struct,
    uuid,
)


@nested
class ReplicaState:
    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


@nested
class FetchPartition:
    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)  # lets the leader notice that the logs part (KIP-595)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)  # a follower's own; consumers leave it at -1
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid("17+", tag=0, ignorable=True)
    # As the follower knows it (KIP-1166).
    high_watermark: int = int64("18+", default=0x7FFF_FFFF_FFFF_FFFF, tag=1, ignorable=True)


@nested
class FetchTopic:
    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


@nested
class ForgottenTopic:
    topic: str = string("7-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[int] = array(int32, "7+")


@message(key=1, versions="0-18", flexible="12+")
class FetchRequest(Request["FetchResponse"]):
    """Asks for record batches from given offsets; consumers and followers alike."""

    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0, ignorable=True)
    replica_id: int = int32("0-14", default=-1)  # -1 for a consumer; from v15 in replica_state
    replica_state: ReplicaState = struct(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = int8("4+", ignorable=True)  # 1: only up to the last stable offset
    session_id: int = int32("7+", ignorable=True)
    # -1: no session, 0: a new one, else the next of the session (KIP-227).
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    # What an incremental request drops from its session.
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)


@nested
class EpochEndOffset:
    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


@nested
class LeaderIdAndEpoch:
    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


@nested
class SnapshotId:
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@nested
class AbortedTransaction:
    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


@nested
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64("4+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, "12+", tag=0)  # set when the follower has to truncate
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = struct(SnapshotId, "12+", tag=2)
    # Null: not asked for.
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = int32("11+", default=-1)  # -1: stay here (KIP-392)
    records: bytes | memoryview | None = records_(nullable="0+")


@nested
class FetchableTopicResponse:
    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


@nested
class NodeEndpoint:
    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", nullable="16+", default=None)


@message(key=1, versions="0-18", flexible="12+")
class FetchResponse:
    """Record batches, and how far the partition goes."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
