"""ListOffsets, 1 to 11: the offset a partition has at a time, or at one of its ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.batch_workers import BatchWorkers
from kafkad.log.record_search import RecordSearch, look_through
from kafkad.log.time_search import Search, TimestampedOffset, max_timestamp, offset_for_timestamp
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import Partition
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Pieces
from kafkad.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, LARGEST_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_NOT_TIERED = -4, -5, -6

_FIRST_VERSION_OF = {
    LATEST: 1,
    EARLIEST: 1,
    LARGEST_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_NOT_TIERED: 11,
}
_FIRST_WITH_EPOCHS = 4
_FIRST_WITH_OFFSET_NOT_AVAILABLE = 5
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_CONSUMER = -1
_ANY_REPLICA = -2
"""A replica id of debugging tools: the broker that is asked answers, leader or not."""

_NOTHING: TimestampedOffset = (-1, -1, -1)


def handle(context: Context, request: Request, message: ListOffsetsRequest) -> Pieces[Any]:
    search = _search(context.replicas, request, message)
    return _go_on(search, partial(next, search), context.batch_workers)


def _go_on(
    search: Search[ListOffsetsResponse], resume: Callable[[], RecordSearch | None], batch_workers: BatchWorkers
) -> Pieces[Any]:
    """The response; or what to wait for when a batch takes long to look through, and to go on with after that."""
    try:
        while (batch := resume()) is None:
            yield
            resume = partial(next, search)
    except StopIteration as end:
        return end.value
    return _look_through(search, batch, batch_workers)


async def _look_through(
    search: Search[ListOffsetsResponse], batch: RecordSearch, batch_workers: BatchWorkers
) -> Pieces[Any]:
    try:
        found = await asyncio.wrap_future(
            batch_workers.submit(partial(look_through, batch), batch.most_records, search)
        )
        resume = partial(search.send, found)
    except KafkaError as error:
        resume = partial(search.throw, error)
    return _go_on(search, resume, batch_workers)


def _search(replicas: ReplicaManager, request: Request, message: ListOffsetsRequest) -> Search[ListOffsetsResponse]:
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic in message.topics:
        for one in topic.partitions:
            key = topic.name, one.partition_index
            (repeated if key in seen else seen).add(key)
            yield None
    answer = _Answer(replicas, message, request.version, repeated)
    topics = []
    for topic in message.topics:
        yield None
        may = request.allowed(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        partitions = []
        for asked in topic.partitions:
            partitions.append((yield from answer.partition(topic.name, asked)) if may else _forbidden(asked))
            yield None
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def _forbidden(asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )


class _Answer:
    __slots__ = ("_message", "_repeated", "_replicas", "_version")

    def __init__(
        self, replicas: ReplicaManager, message: ListOffsetsRequest, version: int, repeated: set[tuple[str, int]]
    ) -> None:
        self._replicas = replicas
        self._message = message
        self._version = version
        self._repeated = repeated

    def partition(self, topic: str, asked: ListOffsetsPartition) -> Search[ListOffsetsPartitionResponse]:
        code = ErrorCode.NONE
        timestamp, offset, epoch = _NOTHING
        try:
            timestamp, offset, epoch = yield from self._find(topic, asked)
        except StorageError as error:
            self._replicas.directory_failed(error)
            code = error.code
        except KafkaError as error:
            code = error.code
            if code == ErrorCode.OFFSET_NOT_AVAILABLE and self._version < _FIRST_WITH_OFFSET_NOT_AVAILABLE:
                code = ErrorCode.LEADER_NOT_AVAILABLE  # on which older clients ask again
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            error_code=code,
            timestamp=timestamp,
            offset=offset,
            leader_epoch=epoch if self._version >= _FIRST_WITH_EPOCHS else -1,
        )

    def _find(self, topic: str, asked: ListOffsetsPartition) -> Search[TimestampedOffset]:
        if (topic, asked.partition_index) in self._repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the request names {topic}-{asked.partition_index} twice")
        if asked.timestamp < 0 and self._version < _FIRST_VERSION_OF.get(asked.timestamp, self._version + 1):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"no offset {asked.timestamp} in version {self._version}")
        partition = self._replicas.get(topic, asked.partition_index)
        self._check_leader(partition, asked)
        end = self._end(partition)
        if asked.timestamp == LATEST:
            self._check_end(partition)
            return (-1, end, partition.leader_epoch)
        if asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
            start = partition.log.start_offset
            epoch = partition.log.epochs.epoch_at(start)
            return (-1, start, -1 if epoch is None else epoch)
        if asked.timestamp in (LATEST_TIERED, EARLIEST_NOT_TIERED):
            return _NOTHING  # without tiered storage
        log = partition.log
        found = yield from (
            max_timestamp(log) if asked.timestamp == LARGEST_TIMESTAMP else offset_for_timestamp(log, asked.timestamp)
        )
        self._check_leader(partition, asked)  # it may have taken a while
        if found is not None and found[1] < end:
            return found
        self._check_end(partition)
        return _NOTHING

    def _check_leader(self, partition: Partition, asked: ListOffsetsPartition) -> None:
        if self._message.replica_id != _ANY_REPLICA:
            partition.check_leader(asked.current_leader_epoch)

    def _end(self, partition: Partition) -> int:
        """The end of the log for this reader."""
        if self._message.replica_id != _CONSUMER:
            return partition.log.end_offset
        level = self._message.isolation_level
        if level not in (_READ_UNCOMMITTED, _READ_COMMITTED):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no isolation level {level}")
        return partition.visible(level == _READ_COMMITTED)[2]

    def _check_end(self, partition: Partition) -> None:
        """A consumer is not told of an end that may be before what it has read."""
        if self._message.replica_id == _CONSUMER:
            partition.check_high_watermark()
