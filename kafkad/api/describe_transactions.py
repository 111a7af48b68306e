"""DescribeTransactions, 0: state, producer and partitions of transactional ids (KIP-664); of a transaction that is
being ended, the partitions that still lack its marker."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from kafkad.api.context import Context, Request
from kafkad.api.in_order import in_order
from kafkad.errors import ErrorCode, KafkaError
from kafkad.names import TopicPartition
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Pieces
from kafkad.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

_AT_ONCE = 32


def handle(
    context: Context, request: Request, message: DescribeTransactionsRequest
) -> Pieces[DescribeTransactionsResponse]:
    states = []
    for name in dict.fromkeys(message.transactional_ids):
        described = yield from _describe(context, request, name)
        states.append(described)
        yield
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(context: Context, request: Request, name: str) -> Pieces[TransactionState]:
    if not request.allowed(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
        return TransactionState(
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, transactional_id=name, transaction_state=""
        )
    try:
        known, partitions = context.transactions().describe(name)
    except KafkaError as error:
        return TransactionState(error_code=error.code, transactional_id=name, transaction_state="")
    return TransactionState(
        transactional_id=name,
        transaction_state=known.state.label,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=(yield from _topics(request, partitions)),
    )


def _topics(request: Request, partitions: Iterable[TopicPartition]) -> Pieces[list[TopicData]]:
    """Those that the sender may see."""
    topics: dict[str, TopicData] = {}
    for number, (topic, partition) in enumerate((yield from in_order(partitions, itemgetter(0, 1))), 1):
        if not number % _AT_ONCE:
            yield
        if request.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            topics.setdefault(topic, TopicData(topic=topic)).partitions.append(partition)
    return list(topics.values())
