from __future__ import annotations

from kafkad.wire.schema import Request, array, int16, int32, message, nested, string


@nested
class OffsetDeleteRequestPartition:
    partition_index: int = int32()


@nested
class OffsetDeleteRequestTopic:
    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@message(key=47, versions="0")
class OffsetDeleteRequest(Request["OffsetDeleteResponse"]):
    """Deletes committed offsets of topics that the group no longer subscribes to."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@nested
class OffsetDeleteResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@nested
class OffsetDeleteResponseTopic:
    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@message(key=47, versions="0")
class OffsetDeleteResponse:
    """The fate of each offset."""

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
