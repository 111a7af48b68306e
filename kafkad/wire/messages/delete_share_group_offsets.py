from __future__ import annotations

from kafkad.wire.schema import Request, array, int16, int32, message, nested, string, uuid


@nested
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = string()


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest(Request["DeleteShareGroupOffsetsResponse"]):
    """Makes a share group forget topics."""

    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


@nested
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = string()
    topic_id: bytes = uuid()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    """The fate of each topic."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(DeleteShareGroupOffsetsResponseTopic)
