from __future__ import annotations

from kafkad.wire.schema import Request, array, int16, int32, int64, message, nested, records_, string, struct, uuid


@nested
class PartitionProduceData:
    index: int = int32()
    records: bytes | None = records_(nullable="0+")


@nested
class TopicProduceData:
    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@message(key=0, versions="0-13", flexible="9+")
class ProduceRequest(Request["ProduceResponse"]):
    """Record batches to append, by topic and partition."""

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()  # -1: all in-sync replicas, 0: no answer at all, 1: the leader alone
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@nested
class BatchIndexAndErrorMessage:
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


@nested
class LeaderIdAndEpoch:
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


@nested
class PartitionProduceResponse:
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", ignorable=True)
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0)


@nested
class TopicProduceResponse:
    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@nested
class NodeEndpoint:
    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


@message(key=0, versions="0-13", flexible="9+")
class ProduceResponse:
    """The base offset of each partition's batch, or the error that refused it."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
