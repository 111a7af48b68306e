"""DeleteRecords, 0 to 2: forget everything before an offset.

As in Kafka the answer waits until all live replicas have forgotten it: what one of them still has would be there again
after an election. Its low watermark is the offset before which none of them has anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.names import INTERNAL_TOPICS
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import OnDeleted, Partition
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Pieces, Turns, each
from kafkad.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


def handle(context: Context, request: Request, message: DeleteRecordsRequest) -> Pieces[Any]:
    """The response; or what to wait for, where followers have to be waited for. Of a partition that is named twice the
    last offset counts, as in Kafka."""
    asked: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in message.topics:
        named = asked.setdefault(topic.name, {})
        yield
        for partition in topic.partitions:
            named[partition.partition_index] = partition
            yield
    topics = []
    begun: list[_Deletion] = []
    for name, wanted in asked.items():
        yield  # one may have no partitions
        may = request.allowed(Operation.DELETE, ResourceType.TOPIC, name)
        delete = partial(_delete, context, request, begun, name) if may else _forbidden
        partitions = yield from each(delete, wanted.values())
        topics.append(DeleteRecordsTopicResult(name=name, partitions=partitions))
    response = DeleteRecordsResponse(topics=topics)
    return _response_after(begun, context, request, message.timeout_ms, response) if begun else response


class _Deletion(NamedTuple):
    """One that followers have to carry out yet."""

    partition: Partition
    offset: int
    result: DeleteRecordsPartitionResult


def _delete(
    context: Context, request: Request, begun: list[_Deletion], topic: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    """The right is asked for again: others are served between the partitions of a long request."""
    if not request.allows(Operation.DELETE, ResourceType.TOPIC, topic):
        return _forbidden(asked)
    replicas = context.replicas
    result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
    try:
        partition = _cuttable(replicas, topic, asked.partition_index)
        offset = partition.delete_records(asked.offset)
    except KafkaError as error:
        if isinstance(error, StorageError):
            replicas.directory_failed(error)
        result.error_code = error.code
    else:
        result.low_watermark = partition.low_watermark
        if result.low_watermark < offset:
            result.error_code = ErrorCode.REQUEST_TIMED_OUT  # unless it is known in time how it has ended
            begun.append(_Deletion(partition, offset, result))
    return result


def _forbidden(asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=-1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )


def _cuttable(replicas: ReplicaManager, topic: str, index: int) -> Partition:
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is kept by the brokers; its records stay")
    partition = replicas.leader(topic, index)
    if "delete" not in partition.log.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} is compacted; its records go when newer ones come")
    return partition


async def _response_after(
    begun: Sequence[_Deletion], context: Context, request: Request, timeout_ms: int, response: DeleteRecordsResponse
) -> DeleteRecordsResponse:
    """When all of these have ended, the time is up, or the client has gone."""
    over = asyncio.Event()
    waiting: dict[OnDeleted, Partition] = {}
    left = len(begun)

    def ended(deletion: _Deletion, error: KafkaError | None) -> None:
        nonlocal left
        deletion.result.error_code = ErrorCode.NONE if error is None else error.code
        deletion.result.low_watermark = deletion.partition.low_watermark if error is None else -1
        left -= 1
        if not left:
            over.set()

    timer = context.timers.at(context.clock.monotonic_ms() + timeout_ms, over.set)
    request.peer.on_close = over.set
    turns = Turns()
    try:
        for deletion in begun:
            on_deleted: OnDeleted = partial(ended, deletion)
            waiting[on_deleted] = deletion.partition
            deletion.partition.when_deleted(deletion.offset, on_deleted)
            await turns.give_way()
        await over.wait()
    finally:
        timer.cancel()
        request.peer.on_close = None
        for on_deleted, partition in waiting.items():
            partition.forget_deletion(on_deleted)
    return response
