"""AlterConfigs, 0 to 2: replace everything that a topic or a broker sets for itself."""

from __future__ import annotations

from kafkad.api.config_resources import alter_each
from kafkad.api.context import Context, Request
from kafkad.controller.configs import ConfigEntry, ResourceKind
from kafkad.errors import ErrorCode, KafkaError
from kafkad.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(context: Context, request: Request, message: AlterConfigsRequest) -> AlterConfigsResponse:
    async def alter(resource: AlterConfigsResource) -> None:
        await context.alterer.replace(
            _kind(resource.resource_type),
            resource.resource_name,
            [ConfigEntry(name=config.name, value=config.value) for config in resource.configs],
            validate_only=message.validate_only,
        )

    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, error in await alter_each(context, message.resources, alter)
        ]
    )


def _kind(resource_type: int) -> ResourceKind:
    try:
        return ResourceKind(resource_type)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"topics and brokers can be altered so, not resource type {resource_type}"
        ) from None
