from __future__ import annotations

from kafkad.wire.schema import Request, array, int16, int32, message, nested, string


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest(Request["ListGroupsResponse"]):
    """Asks a coordinator for all its groups, filtered by state and type."""

    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


@nested
class ListedGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    """The groups of the answering coordinator."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
