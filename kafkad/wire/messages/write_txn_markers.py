from __future__ import annotations

from kafkad.wire.schema import Request, array, boolean, int8, int16, int32, int64, message, nested, string


@nested
class WritableTxnMarkerTopic:
    name: str = string()
    partition_indexes: list[int] = array(int32)


@nested
class WritableTxnMarker:
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()  # false: abort
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+", ignorable=True)


@message(key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"]):
    """The transaction coordinator has commit or abort markers written by partition leaders."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@nested
class WritableTxnMarkerPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@nested
class WritableTxnMarkerTopicResult:
    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@nested
class WritableTxnMarkerResult:
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@message(key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersResponse:
    """The result of each marker."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
