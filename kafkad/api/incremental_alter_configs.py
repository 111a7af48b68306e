"""IncrementalAlterConfigs, 0 and 1: change single settings of topics, brokers and loggers (KIP-339, KIP-412)."""

from __future__ import annotations

from kafkad import loggers
from kafkad.api.config_resources import ResourceType, alter_each, stored_kind
from kafkad.api.context import Context, Request
from kafkad.controller.configs import Alteration, ConfigEntry, check_own_broker
from kafkad.errors import ErrorCode, KafkaError
from kafkad.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    context: Context, request: Request, message: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    async def alter(resource: AlterConfigsResource) -> None:
        entries = [_entry(config) for config in resource.configs]
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            check_own_broker(context.broker_id, resource.resource_name)
            _set_levels(entries, message.validate_only)
            return
        await context.alterer.alter(
            stored_kind(resource.resource_type), resource.resource_name, entries, validate_only=message.validate_only
        )

    return IncrementalAlterConfigsResponse(
        responses=await alter_each(context, request, message.resources, alter, AlterConfigsResourceResponse)
    )


def _entry(config: AlterableConfig) -> ConfigEntry:
    try:
        alteration = Alteration(config.config_operation)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{config.name}: there is no operation {config.config_operation}"
        ) from None
    return ConfigEntry(name=config.name, value=config.value, alteration=alteration)


def _set_levels(entries: list[ConfigEntry], validate_only: bool) -> None:
    """All of them or none."""
    levels: dict[str, str | None] = {}
    for entry in entries:
        if entry.alteration not in (Alteration.SET, Alteration.DELETE):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{entry.alteration.name} operation is not allowed for the BROKER_LOGGER resource",
            )
        if entry.alteration is Alteration.SET and entry.value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{entry.name}: no level is given")
        levels[entry.name] = entry.value if entry.alteration is Alteration.SET else None
        loggers.check_level(entry.name, levels[entry.name])
    if not validate_only:
        for name, level in levels.items():
            loggers.set_level(name, level)
