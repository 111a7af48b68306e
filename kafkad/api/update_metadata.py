"""UpdateMetadata, 7 and 8: the controller says what this broker tells clients."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


async def handle(context: Context, request: Request, message: UpdateMetadataRequest) -> UpdateMetadataResponse:
    return await context.replicas.update_metadata(message)
