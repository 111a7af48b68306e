from __future__ import annotations

from kafkad.wire.schema import Request, array, boolean, int8, int16, int32, message, nested, string


@nested
class AlterableConfig:
    name: str = string()
    config_operation: int = int8()  # 0 set, 1 delete, 2 append, 3 subtract
    value: str | None = string(nullable="0+")


@nested
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Request["IncrementalAlterConfigsResponse"]):
    """Changes single settings of resources: set, delete, append, subtract."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@nested
class AlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """The result for each resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
