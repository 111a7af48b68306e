"""AddPartitionsToTxn, 0 to 5: partitions that a transaction is about to write to.

- 2: knows PRODUCER_FENCED
- 4: asked by brokers, for many transactions: adds their partitions, or only says whether they are there (KIP-890). All
  that a broker asks comes over one connection, so that nobody is held back there for markers of another's transaction
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from kafkad.api.add_partitions_repeat import RepeatedAdding
from kafkad.api.answering import LARGE_FRAME
from kafkad.api.context import Context, Request
from kafkad.api.end_txn import as_known
from kafkad.api.permissions import by_present_rights
from kafkad.api.routes import ADD_PARTITIONS_TO_TXN
from kafkad.errors import ErrorCode, KafkaError
from kafkad.names import INTERNAL_TOPICS, TopicPartition
from kafkad.security.authorizer import CLUSTER_NAME, REFUSALS, Operation, ResourceType
from kafkad.turns import LONG, Pieces, at_once
from kafkad.txn.transaction import AddPartitions
from kafkad.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

_FIRST_OF_BROKERS = 4
_OF_CLIENTS, _OF_BROKERS = 0, 2
"""Transaction versions: a broker that adds partitions does so for a client that does not."""

Codes = dict[TopicPartition, ErrorCode]
OnCodes = Callable[[Codes], None]


Response = AddPartitionsToTxnResponse | asyncio.Future[AddPartitionsToTxnResponse]


def handle(context: Context, request: Request, message: AddPartitionsToTxnRequest) -> Response | Pieces[Response]:
    if request.version >= _FIRST_OF_BROKERS:
        return _of_brokers(context, request, message)
    added = _of_client(context, request, message)
    return added if len(request.frame) > LARGE_FRAME else at_once(added)


def _of_client(context: Context, request: Request, message: AddPartitionsToTxnRequest) -> Pieces[Response]:
    answer: asyncio.Future[AddPartitionsToTxnResponse] = asyncio.get_running_loop().create_future()

    def done(codes: Codes) -> None:
        if not answer.done():
            if any(codes.values()):
                codes = {tp: as_known(code, request.version) for tp, code in codes.items()}
            answer.set_result(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(codes)))

    asked = AddPartitionsToTxnTransaction(
        transactional_id=message.v3_and_below_transactional_id,
        producer_id=message.v3_and_below_producer_id,
        producer_epoch=message.v3_and_below_producer_epoch,
        topics=message.v3_and_below_topics,
    )
    if len(request.frame) > LARGE_FRAME:
        sort_out = partial(_refusals_of_many, context, request, asked)
        refusals = yield from by_present_rights(request, sort_out, partial(_may_still, request, asked))
    else:
        refusals = yield from _refusals(context, request, asked, by_broker=False)
    _add(context, request, asked, refusals, done)
    if not answer.done():
        return answer
    response = answer.result()
    _remember(context, request, message, response)
    return response


def _remember(
    context: Context, request: Request, message: AddPartitionsToTxnRequest, response: AddPartitionsToTxnResponse
) -> None:
    """What added partitions of one topic: prepared answers rest on that."""
    topics = message.v3_and_below_topics
    if len(topics) != 1 or any(one.partition_error_code for one in _of_first(response)):
        return
    peer, version = request.peer, request.version
    repeated = peer.prepared.get(ADD_PARTITIONS_TO_TXN)
    if not isinstance(repeated, RepeatedAdding) or repeated.version != version:
        repeated = RepeatedAdding(context, version)
    asked = AddPartitions(
        message.v3_and_below_producer_id, message.v3_and_below_producer_epoch, _partitions(topics), _OF_CLIENTS
    )
    if repeated.remember(request, message, asked, response):
        peer.prepare(ADD_PARTITIONS_TO_TXN, repeated, topics[0].name)


def _of_first(response: AddPartitionsToTxnResponse) -> Sequence[AddPartitionsToTxnPartitionResult]:
    topics = response.results_by_topic_v3_and_below
    return topics[0].results_by_partition if topics else ()


def refused(request: Request, message: AddPartitionsToTxnRequest, error: KafkaError) -> AddPartitionsToTxnResponse:
    if request.version >= _FIRST_OF_BROKERS:
        return AddPartitionsToTxnResponse(error_code=error.code)
    codes = dict.fromkeys(_partitions(message.v3_and_below_topics), error.code)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(codes))


def _of_brokers(context: Context, request: Request, message: AddPartitionsToTxnRequest) -> Response:
    if not request.allowed(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(*REFUSALS[ResourceType.CLUSTER])
    answer: asyncio.Future[AddPartitionsToTxnResponse] = asyncio.get_running_loop().create_future()
    results: list[Codes | None] = [None] * len(message.transactions)

    def done(number: int, codes: Codes) -> None:
        results[number] = codes
        if None not in results and not answer.done():
            answer.set_result(_response(message.transactions, [each or {} for each in results]))

    for number, asked in enumerate(message.transactions):
        refusals = at_once(_refusals(context, request, asked, by_broker=True))
        _add(context, request, asked, refusals, partial(done, number))
    if not results:
        return AddPartitionsToTxnResponse()
    return answer.result() if answer.done() else answer


def _add(
    context: Context, request: Request, asked: AddPartitionsToTxnTransaction, refusals: Codes, done: OnCodes
) -> None:
    """All of the partitions, or none."""
    partitions = _partitions(asked.topics)
    if refusals:
        done({tp: refusals.get(tp, ErrorCode.OPERATION_NOT_ATTEMPTED) for tp in partitions})
        return
    by_broker = request.version >= _FIRST_OF_BROKERS
    context.transactions().add_partitions(
        asked.transactional_id,
        asked.producer_id,
        asked.producer_epoch,
        partitions,
        verify_only=asked.verify_only,
        version=_OF_BROKERS if by_broker else _OF_CLIENTS,
        done=done,
        client=request.client_text,
        waits_for_markers=not by_broker,
    )


def _refusals(
    context: Context, request: Request, asked: AddPartitionsToTxnTransaction, *, by_broker: bool
) -> Pieces[Codes]:
    name = asked.transactional_id
    if not by_broker and not request.allowed(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return dict.fromkeys(_partitions(asked.topics), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refusals: Codes = {}
    for topic in filter(lambda each: each.partitions, asked.topics):
        yield
        if not by_broker and not _may_write(request, topic.name):
            refused, error = topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        else:
            known = context.replicas.metadata.topics.get(topic.name)
            there = known.partitions if known is not None else {}
            refused = [partition for partition in topic.partitions if partition not in there]
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for partition in refused:
            refusals[TopicPartition(topic.name, partition)] = error
    return refusals


def _refusals_of_many(context: Context, request: Request, asked: AddPartitionsToTxnTransaction) -> Pieces[Codes]:
    yield LONG
    refusals = yield from _refusals(context, request, asked, by_broker=False)
    yield LONG
    return refusals


def _may_still(request: Request, asked: AddPartitionsToTxnTransaction, refusals: Codes) -> bool:
    """Where something is refused, nothing is added: no right is made use of."""
    return bool(refusals) or (
        request.allowed(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, asked.transactional_id)
        and all(_may_write(request, topic.name) for topic in asked.topics if topic.partitions)
    )


def _may_write(request: Request, topic: str) -> bool:
    return topic not in INTERNAL_TOPICS and request.allowed(Operation.WRITE, ResourceType.TOPIC, topic)


def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions]


def _response(asked: Sequence[AddPartitionsToTxnTransaction], codes: Sequence[Codes]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=_results(found))
            for each, found in zip(asked, codes, strict=True)
        ]
    )


def _results(codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (topic, partition), code in codes.items():
        result = topics.get(topic)
        if result is None:
            result = topics[topic] = AddPartitionsToTxnTopicResult(name=topic)
        result.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(partition_index=partition, partition_error_code=code)
        )
    return list(topics.values())
