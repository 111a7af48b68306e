from __future__ import annotations

from kafkad.wire.schema import Request, array, int16, int32, message, nested, string, uuid


@nested
class DeleteTopicState:
    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: bytes = uuid("6+")


@message(key=20, versions="0-6", flexible="4+")
class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    """Topics to delete, by name or (from v6) by id."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5", ignorable=True)
    timeout_ms: int = int32()


@nested
class DeletableTopicResult:
    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


@message(key=20, versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    """The result for each topic."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
