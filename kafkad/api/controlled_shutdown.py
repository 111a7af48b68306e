"""ControlledShutdown, 2 and 3: a broker asks the controller to move its leaderships before it stops."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


async def handle(context: Context, request: Request, message: ControlledShutdownRequest) -> ControlledShutdownResponse:
    left = await context.controller.controlled_shutdown(message.broker_id, message.broker_epoch)
    return ControlledShutdownResponse(
        remaining_partitions=[RemainingPartition(topic_name=tp.topic, partition_index=tp.partition) for tp in left]
    )
