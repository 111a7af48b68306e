from __future__ import annotations

from kafkad.wire.schema import (
    Request,
    array,
    boolean,
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
class AcknowledgementBatch:
    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(int8)


@nested
class FetchPartition:
    partition_index: int = int32()
    partition_max_bytes: int = int32("0")
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@nested
class FetchTopic:
    topic_id: bytes = uuid()
    partitions: list[FetchPartition] = array(FetchPartition)


@nested
class ForgottenTopic:
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(key=78, versions="0-2", flexible="0+")
class ShareFetchRequest(Request["ShareFetchResponse"]):
    """Acquires records for a share group, and acknowledges earlier ones on the way."""

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFFFFFF)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    share_acquire_mode: int = int8("2+", ignorable=True)
    is_renew_ack: bool = boolean("2+")
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


@nested
class LeaderIdAndEpoch:
    leader_id: int = int32()
    leader_epoch: int = int32()


@nested
class AcquiredRecords:
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


@nested
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)
    records: bytes | None = records_(nullable="0")
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


@nested
class ShareFetchableTopicResponse:
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@nested
class NodeEndpoint:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


@message(key=78, versions="0-2", flexible="0+")
class ShareFetchResponse:
    """Records and which of them were acquired."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("1+")
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
