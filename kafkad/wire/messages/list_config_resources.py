from __future__ import annotations

from kafkad.wire.schema import Request, array, int8, int16, int32, message, nested, string


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"]):
    """Asks for the names of resources that have a configuration; v0 knows client metrics only."""

    resource_types: list[int] = array(int8, "1+")


@nested
class ConfigResource:
    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    """The resources found."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
