"""DescribeLogDirs, 0 to 5: the log directories of this broker, and the replicas in them (KIP-113, KIP-827)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import attrgetter

from kafkad.api.context import Context, Request
from kafkad.api.in_order import in_order
from kafkad.errors import ErrorCode
from kafkad.log.describe import DirectoryDescription, ReplicaDescription, describe
from kafkad.names import TopicPartition
from kafkad.turns import Pieces, each
from kafkad.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(context: Context, request: Request, message: DescribeLogDirsRequest) -> Pieces[DescribeLogDirsResponse]:
    replicas = context.replicas

    def high_watermark(tp: TopicPartition) -> int:
        partition = replicas.find(tp.topic, tp.partition)
        return partition.high_watermark if partition is not None else -1

    results = []
    for directory in (yield from describe(replicas.logs, high_watermark, _wanted(message.topics))):
        result = yield from _directory(directory)
        results.append(result)
    return DescribeLogDirsResponse(results=results)


def _wanted(topics: list[DescribableLogDirTopic] | None) -> Callable[[TopicPartition], bool]:
    """No list means all replicas, an empty one none."""
    if topics is None:
        return lambda tp: True
    asked: dict[str, set[int]] = {}
    for topic in topics:
        asked.setdefault(topic.topic, set()).update(topic.partitions)
    return lambda tp: tp.partition in asked.get(tp.topic, ())


def _directory(directory: DirectoryDescription) -> Pieces[DescribeLogDirsResult]:
    if directory.failure is not None:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path)
    replicas = yield from in_order(directory.replicas, attrgetter("topic_partition"))
    topics = []
    for topic, rows in groupby(replicas, key=lambda replica: replica.topic_partition.topic):
        topics.append(DescribeLogDirsTopic(name=topic, partitions=(yield from each(_partition, rows))))
    return DescribeLogDirsResult(
        log_dir=directory.path,
        topics=topics,
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )


def _partition(replica: ReplicaDescription) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=replica.topic_partition.partition,
        partition_size=replica.size,
        offset_lag=replica.offset_lag,
        is_future_key=replica.is_future,
    )
