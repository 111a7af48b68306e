"""WriteTxnMarkers, 0 to 2: a transaction has ended, and its partitions here are told how.

Sent by the coordinator of the transaction, and by tools that end one which nobody coordinates any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode, KafkaError
from kafkad.names import TopicPartition
from kafkad.replica.markers import Codes, Marker
from kafkad.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from kafkad.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def handle(
    context: Context, request: Request, message: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | asyncio.Future[WriteTxnMarkersResponse]:
    if not request.allows(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME) and not request.allowed(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "needs ALTER or CLUSTER_ACTION on the cluster")
    markers = [_marker(asked) for asked in message.markers]
    answer: asyncio.Future[WriteTxnMarkersResponse] = asyncio.get_running_loop().create_future()

    def done(codes: Codes) -> None:
        if not answer.done():
            answer.set_result(_response(markers, codes))

    context.markers.append(markers, done)
    if answer.done():
        return answer.result()
    due_ms = context.clock.monotonic_ms() + context.config.int("request.timeout.ms")
    timer = context.timers.at(due_ms, partial(done, _of_all(markers, ErrorCode.REQUEST_TIMED_OUT)))
    answer.add_done_callback(lambda _: timer.cancel())
    return answer


def refused(request: Request, message: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponse:
    """There is no place for it but at each partition."""
    markers = [_marker(asked) for asked in message.markers]
    return _response(markers, _of_all(markers, error.code))


def _of_all(markers: Sequence[Marker], code: ErrorCode) -> Codes:
    return [[code] * len(marker.partitions) for marker in markers]


def _marker(asked: WritableTxnMarker) -> Marker:
    return Marker(
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        commit=asked.transaction_result,
        coordinator_epoch=asked.coordinator_epoch,
        version=asked.transaction_version,
        partitions=[TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partition_indexes],
    )


def _response(markers: Sequence[Marker], codes: Codes) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[_result(*each) for each in zip(markers, codes, strict=True)])


def _result(marker: Marker, codes: Sequence[ErrorCode]) -> WritableTxnMarkerResult:
    topics: dict[str, WritableTxnMarkerTopicResult] = {}
    for (topic, index), code in zip(marker.partitions, codes, strict=True):
        answered = topics.setdefault(topic, WritableTxnMarkerTopicResult(name=topic))
        answered.partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=list(topics.values()))
