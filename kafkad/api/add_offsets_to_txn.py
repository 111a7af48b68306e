"""AddOffsetsToTxn, 0 to 4: the offsets of a group are to be committed in a transaction. From 2 on PRODUCER_FENCED is
known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial

from kafkad.api.context import Context, Request
from kafkad.api.end_txn import as_known
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.txn.transaction import Answer
from kafkad.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


def handle(
    context: Context, request: Request, message: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    if context.group_coordination.topic not in context.replicas.metadata.topics:
        return _when_there_is_a_topic(context, request, message)
    added = _add(context, request, message)
    return added.result() if added.done() else added


async def _when_there_is_a_topic(
    context: Context, request: Request, message: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Clients look for the group's coordinator, which makes the topic as well, only behind this. The rights may have
    been taken away while the topic was made."""
    await context.group_coordination.prepare()
    request.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id)
    request.check(Operation.READ, ResourceType.GROUP, message.group_id)
    return await _add(context, request, message)


def _add(
    context: Context, request: Request, message: AddOffsetsToTxnRequest
) -> asyncio.Future[AddOffsetsToTxnResponse]:
    added: asyncio.Future[AddOffsetsToTxnResponse] = asyncio.get_running_loop().create_future()
    context.transactions().add_offsets(
        message.transactional_id,
        message.producer_id,
        message.producer_epoch,
        message.group_id,
        partial(_added, added, request.version),
        request.client_text,
    )
    return added


def _added(added: asyncio.Future[AddOffsetsToTxnResponse], version: int, answer: Answer) -> None:
    if not added.done():
        added.set_result(AddOffsetsToTxnResponse(error_code=as_known(answer.error, version)))
