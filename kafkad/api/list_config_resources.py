"""ListConfigResources, 0 and 1: what has settings (KIP-714, KIP-1142). There are no client metrics here."""

from __future__ import annotations

from functools import partial

from kafkad.api.config_resources import ResourceType
from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode, KafkaError
from kafkad.turns import Pieces, each
from kafkad.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_ONLY_CLIENT_METRICS = 0


def handle(
    context: Context, request: Request, message: ListConfigResourcesRequest
) -> Pieces[ListConfigResourcesResponse]:
    """Without types all of them are listed."""
    types = message.resource_types or list(ResourceType)
    if request.version == _ONLY_CLIENT_METRICS:
        types = [ResourceType.CLIENT_METRICS]
    metadata = context.replicas.metadata
    brokers = [str(broker) for broker in metadata.brokers]
    names: dict[int, list[str]] = {
        ResourceType.TOPIC: list(metadata.topics),
        ResourceType.BROKER: brokers,
        ResourceType.BROKER_LOGGER: brokers,
        ResourceType.CLIENT_METRICS: [],
        ResourceType.GROUP: [],
    }
    unknown = [kind for kind in types if kind not in names]
    if unknown:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there is no resource type {unknown[0]}")
    resources = []
    for kind in dict.fromkeys(types):
        resources += yield from each(partial(_resource, kind), names[kind])
    return ListConfigResourcesResponse(config_resources=resources)


def _resource(kind: int, name: str) -> ConfigResource:
    return ConfigResource(resource_name=name, resource_type=kind)
