"""EndTxn, 0 to 5: a producer commits or aborts its transaction.

- 2: knows PRODUCER_FENCED
- 5: is told the producer id and the epoch to go on with (KIP-890)
"""

from __future__ import annotations

import asyncio
from functools import partial

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode
from kafkad.txn.transaction import Answer
from kafkad.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

FIRST_WITH_PRODUCER_FENCED = 2
_FIRST_WITH_NEXT_EPOCH = 5


def handle(
    context: Context, request: Request, message: EndTxnRequest
) -> EndTxnResponse | asyncio.Future[EndTxnResponse]:
    ended: asyncio.Future[EndTxnResponse] = asyncio.get_running_loop().create_future()
    context.transactions().end(
        message.transactional_id,
        message.producer_id,
        message.producer_epoch,
        message.committed,
        request.version >= _FIRST_WITH_NEXT_EPOCH,
        partial(_end, ended, request.version),
        request.client_text,
    )
    return ended.result() if ended.done() else ended


def _end(ended: asyncio.Future[EndTxnResponse], version: int, answer: Answer) -> None:
    if not ended.done():
        error = as_known(answer.error, version)
        ended.set_result(EndTxnResponse(error_code=error, producer_id=answer.producer_id, producer_epoch=answer.epoch))


def as_known(error: ErrorCode, version: int) -> ErrorCode:
    """Clients of the versions before 2 of the requests about a transaction do not know PRODUCER_FENCED."""
    if version < FIRST_WITH_PRODUCER_FENCED and error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
