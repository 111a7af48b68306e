"""ApiVersions, 0 to 4: what this broker answers, and the features of the cluster (KIP-511, KIP-584)."""

from __future__ import annotations

import re
from functools import cache

from kafkad.api.context import Context, Request
from kafkad.api.routes import ROUTES, Route
from kafkad.cluster.features import LAST_TRANSACTION_VERSION, TRANSACTION_VERSION
from kafkad.errors import ErrorCode, KafkaError
from kafkad.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_FIRST_WITH_SOFTWARE = 3
_FIRST_WITH_LEVEL_0 = 4
"""Before, a feature that is supported from level 0 on is left out: clients may refuse to read it (KIP-1022)."""
_LONGEST_KEPT = 255
"""Characters of a name or version. Kafka takes any number of them; they are kept for each connection, and
shown to whoever asks for metrics."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handle(context: Context, request: Request, message: ApiVersionsRequest) -> ApiVersionsResponse:
    if request.version >= _FIRST_WITH_SOFTWARE:
        software = (message.client_software_name, message.client_software_version)
        for text in software:
            if not _SOFTWARE.fullmatch(text):
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text!r} cannot be the name or version of a client")
        name, version = software
        request.peer.software = name[:_LONGEST_KEPT], version[:_LONGEST_KEPT]
    features = context.features
    levels = {**features.levels, TRANSACTION_VERSION: features.transaction_version}
    return ApiVersionsResponse(
        api_keys=_ranges(context.between_brokers),
        supported_features=[
            SupportedFeatureKey(name=TRANSACTION_VERSION, min_version=0, max_version=LAST_TRANSACTION_VERSION)
        ]
        if request.version >= _FIRST_WITH_LEVEL_0
        else [],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in levels.items()
            if level
        ],
    )


def unsupported(route: Route) -> ApiVersionsResponse:
    """For a version of ApiVersions that this broker does not know: which one to try instead."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_range(route)])


@cache
def _ranges(between_brokers: tuple[Route, ...]) -> list[ApiVersion]:
    """Of all routes: half of the work for an answer, and each new connection asks."""
    return [_range(route) for route in (*ROUTES, *between_brokers)]


def _range(route: Route) -> ApiVersion:
    first, last = route.advertised
    return ApiVersion(api_key=route.key, min_version=first, max_version=last)
