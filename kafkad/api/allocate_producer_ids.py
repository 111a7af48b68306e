"""AllocateProducerIds, 0: a broker asks the controller for a block of producer ids."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


async def handle(
    context: Context, request: Request, message: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    block = await context.controller.allocate_producer_ids(message.broker_id, message.broker_epoch)
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.last - block.first + 1)
