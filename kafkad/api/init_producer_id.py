"""InitProducerId, 0 to 5: an id and an epoch for an idempotent producer, or for the next one of a transactional id.

- 3: with the id and epoch that the producer has, to go on after an error (KIP-360)
- 4: knows PRODUCER_FENCED
"""

from __future__ import annotations

import asyncio

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode, KafkaError
from kafkad.security.authorizer import CLUSTER_NAME, REFUSALS, Operation, ResourceType
from kafkad.txn.transaction import NONE, Answer
from kafkad.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FIRST_WITH_PRODUCER_FENCED = 4


async def handle(context: Context, request: Request, message: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        _check(request, message)
        if message.transactional_id is None:
            return await _without_transactions(context)
    except KafkaError as error:
        return InitProducerIdResponse(error_code=_for_clients(error.code), producer_epoch=NONE)
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    context.transactions().init_producer(
        message.transactional_id,
        message.transaction_timeout_ms,
        message.producer_id,
        message.producer_epoch,
        lambda given: None if answer.done() else answer.set_result(given),
        request.client_text,
    )
    code, producer_id, epoch = await answer
    if code is ErrorCode.PRODUCER_FENCED and request.version < _FIRST_WITH_PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)


async def _without_transactions(context: Context) -> InitProducerIdResponse:
    """A producer without transactions gets a new id each time it asks; epochs it raises by itself (KIP-360)."""
    return InitProducerIdResponse(producer_id=await context.producer_ids.take(), producer_epoch=0)


def _check(request: Request, message: InitProducerIdRequest) -> None:
    name = message.transactional_id
    if name is not None and not request.allowed(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        raise KafkaError(*REFUSALS[ResourceType.TRANSACTIONAL_ID])
    if name is None and not _may_produce(request):
        raise KafkaError(*REFUSALS[ResourceType.CLUSTER])
    if name == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id cannot be empty")
    if (message.producer_id == NONE) != (message.producer_epoch == NONE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id goes with an epoch")


def _may_produce(request: Request) -> bool:
    """A producer without transactions needs no right on the cluster if there is any topic that it may write to."""
    identity = request.peer.identity
    return (
        not identity.restricted
        or identity.allows(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
        or identity.writes_any(ResourceType.TOPIC)
        or request.allowed(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
    )


def _for_clients(code: ErrorCode) -> ErrorCode:
    """While no controller can be asked, clients are to try again: a retriable error all of them know here."""
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code.retriable else code
