from __future__ import annotations

from kafkad.wire.schema import Request, array, boolean, int8, int16, int32, message, nested, string


@nested
class AlterableConfig:
    name: str = string()
    value: str | None = string(nullable="0+")


@nested
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest(Request["AlterConfigsResponse"]):
    """Replaces the whole configuration of resources; what is not named goes back to its default."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@nested
class AlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    """The result for each resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
