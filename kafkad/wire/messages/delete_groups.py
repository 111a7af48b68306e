from __future__ import annotations

from kafkad.wire.schema import Request, array, int16, int32, message, nested, string


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsRequest(Request["DeleteGroupsResponse"]):
    """Deletes groups that have no members."""

    groups_names: list[str] = array(string)


@nested
class DeletableGroupResult:
    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string("3+", nullable="3+", default=None, ignorable=True)


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    """The result for each group."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
