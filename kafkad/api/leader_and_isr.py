"""LeaderAndIsr, 5 to 7: the controller says which partitions this broker leads and follows."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse


async def handle(context: Context, request: Request, message: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    return await context.replicas.leader_and_isr(message)
