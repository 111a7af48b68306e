"""StopReplica, 3 and 4: the controller takes replicas away from this broker."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


async def handle(context: Context, request: Request, message: StopReplicaRequest) -> StopReplicaResponse:
    return await context.replicas.stop_replica(message)
