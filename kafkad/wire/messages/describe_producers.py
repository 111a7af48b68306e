from __future__ import annotations

from kafkad.wire.schema import Request, array, int16, int32, int64, message, nested, string


@nested
class TopicRequest(Request["TopicResponse"]):
    name: str = string()
    partition_indexes: list[int] = array(int32)


@message(key=61, versions="0", flexible="0+")
class DescribeProducersRequest(Request["DescribeProducersResponse"]):
    """Asks who writes to partitions."""

    topics: list[TopicRequest] = array(TopicRequest)


@nested
class ProducerState:
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@nested
class PartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: list[ProducerState] = array(ProducerState)


@nested
class TopicResponse:
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


@message(key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    """Active producers of each partition, with open transactions."""

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
