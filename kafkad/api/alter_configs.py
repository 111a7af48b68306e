"""AlterConfigs, 0 to 2: replace everything that a topic or a broker sets for itself."""

from __future__ import annotations

from kafkad.api.config_resources import alter_each, stored_kind
from kafkad.api.context import Context, Request
from kafkad.controller.configs import ConfigEntry
from kafkad.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(context: Context, request: Request, message: AlterConfigsRequest) -> AlterConfigsResponse:
    async def alter(resource: AlterConfigsResource) -> None:
        await context.alterer.replace(
            stored_kind(resource.resource_type),
            resource.resource_name,
            [ConfigEntry(name=config.name, value=config.value) for config in resource.configs],
            validate_only=message.validate_only,
        )

    return AlterConfigsResponse(
        responses=await alter_each(context, request, message.resources, alter, AlterConfigsResourceResponse)
    )
