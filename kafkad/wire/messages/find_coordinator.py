from __future__ import annotations

from kafkad.wire.schema import Request, array, int8, int16, int32, message, nested, string


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Request["FindCoordinatorResponse"]):
    """Asks which broker coordinates a group or a transactional id."""

    key: str = string("0-3")
    key_type: int = int8("1+")  # 0: group, 1: transactional id, 2: share group partition
    coordinator_keys: list[str] = array(string, "4+")


@nested
class Coordinator:
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", ignorable=True)


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """The coordinator: one up to v3, one per asked key from v4."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
