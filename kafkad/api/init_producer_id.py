"""InitProducerId, 0 to 5: an id for an idempotent producer (KIP-98). There are no transactions yet."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode, KafkaError
from kafkad.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NONE = -1


async def handle(context: Context, request: Request, message: InitProducerIdRequest) -> InitProducerIdResponse:
    """A producer without transactions gets a new id each time it asks; epochs it raises by itself (KIP-360)."""
    try:
        _check(message)
        producer_id = await context.producer_ids.take()
    except KafkaError as error:
        return InitProducerIdResponse(error_code=_for_clients(error.code), producer_epoch=_NONE)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _check(message: InitProducerIdRequest) -> None:
    if message.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id cannot be empty")
    if (message.producer_id == _NONE) != (message.producer_epoch == _NONE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id goes with an epoch")
    if message.transactional_id is not None:
        # Not a code that clients try again on: they would until the application gives up on them.
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "this broker does not coordinate transactions")


def _for_clients(code: ErrorCode) -> ErrorCode:
    """While no controller can be asked, clients are to try again: a retriable error all of them know here."""
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code.retriable else code
