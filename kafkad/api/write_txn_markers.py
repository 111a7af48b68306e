"""WriteTxnMarkers, 0 to 2: a transaction has ended, and its partitions here are told how.

Sent by the coordinator of the transaction, and by tools that end one which nobody coordinates any more. A coordinator
sends the markers of many transactions together, and one request at a time: what is not committed soon is left to its
next try, so that the others are done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode, KafkaError
from kafkad.names import TopicPartition
from kafkad.replica.markers import Codes, Marker
from kafkad.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from kafkad.turns import Pieces, at_once
from kafkad.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_LONGEST_MS = 1_000
"""How long markers are waited for."""
_PIECE = 500
"""Partitions that are read, or answered, without giving way to other work."""


def handle(
    context: Context, request: Request, message: WriteTxnMarkersRequest
) -> Pieces[WriteTxnMarkersResponse | asyncio.Future[Pieces[WriteTxnMarkersResponse]]]:
    if not request.allows(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME) and not request.allowed(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "needs ALTER or CLUSTER_ACTION on the cluster")
    markers = yield from _markers(message)
    if request.connection.has_lost_client():
        # who asked may have asked again over another connection, and have been answered
        return (yield from _response(markers, _of_all(markers, ErrorCode.REQUEST_TIMED_OUT)))
    answer: asyncio.Future[Pieces[WriteTxnMarkersResponse]] = asyncio.get_running_loop().create_future()

    def done(codes: Codes) -> None:
        if not answer.done():
            answer.set_result(_response(markers, codes))

    codes = context.markers.append(markers, done)
    if answer.done():
        return (yield from answer.result())
    due_ms = context.clock.monotonic_ms() + min(_LONGEST_MS, context.config.int("request.timeout.ms") / 2)
    timer = context.timers.at(due_ms, lambda: done(codes))
    answer.add_done_callback(lambda _: timer.cancel())
    return answer


def refused(request: Request, message: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponse:
    """There is no place for it but at each partition."""
    markers = at_once(_markers(message))
    return at_once(_response(markers, _of_all(markers, error.code)))


def _of_all(markers: Sequence[Marker], code: ErrorCode) -> Codes:
    return [[code] * len(marker.partitions) for marker in markers]


def _markers(message: WriteTxnMarkersRequest) -> Pieces[list[Marker]]:
    markers = []
    for asked in message.markers:
        partitions: list[TopicPartition] = []
        for topic in asked.topics:
            yield
            for index in topic.partition_indexes:
                partitions.append(TopicPartition(topic.name, index))
                if not len(partitions) % _PIECE:
                    yield
        markers.append(
            Marker(
                producer_id=asked.producer_id,
                producer_epoch=asked.producer_epoch,
                commit=asked.transaction_result,
                coordinator_epoch=asked.coordinator_epoch,
                version=asked.transaction_version,
                partitions=partitions,
            )
        )
        yield
    return markers


def _response(markers: Sequence[Marker], codes: Codes) -> Pieces[WriteTxnMarkersResponse]:
    response = WriteTxnMarkersResponse()
    for marker, of_marker in zip(markers, codes, strict=True):
        topics: dict[str, WritableTxnMarkerTopicResult] = {}
        for number, ((topic, index), code) in enumerate(zip(marker.partitions, of_marker, strict=True), 1):
            answered = topics.get(topic)
            if answered is None:
                answered = topics[topic] = WritableTxnMarkerTopicResult(name=topic)
            answered.partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
            if not number % _PIECE:
                yield
        response.markers.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=list(topics.values())))
        yield
    return response
