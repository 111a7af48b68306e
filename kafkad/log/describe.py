"""Descriptions of the log directories of a broker, for DescribeLogDirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafkad.log.directories import LogDirectory
from kafkad.log.manager import LogManager
from kafkad.names import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDescription:
    """`offset_lag`: of a future replica behind the current one, of a current one behind the high watermark."""

    topic_partition: TopicPartition
    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryDescription:
    """Bytes are -1 when they are not known; `failure` is why the directory is offline."""

    path: str
    failure: str | None
    total_bytes: int
    usable_bytes: int
    replicas: tuple[ReplicaDescription, ...]


def describe(
    manager: LogManager,
    high_watermark: Callable[[TopicPartition], int],
    wanted: Callable[[TopicPartition], bool] = lambda topic_partition: True,
) -> list[DirectoryDescription]:
    return [_describe(manager, directory, high_watermark, wanted) for directory in manager.directories]


def _describe(
    manager: LogManager,
    directory: LogDirectory,
    high_watermark: Callable[[TopicPartition], int],
    wanted: Callable[[TopicPartition], bool],
) -> DirectoryDescription:
    replicas = [
        ReplicaDescription(
            topic_partition=topic_partition,
            size=log.size,
            offset_lag=max(high_watermark(topic_partition) - log.end_offset, 0),
            is_future=False,
        )
        for topic_partition, log in directory.logs.items()
        if wanted(topic_partition)
    ]
    for topic_partition, log in directory.futures.items():
        current = manager.get(topic_partition)
        if wanted(topic_partition):
            lag = 0 if current is None else max(current.end_offset - log.end_offset, 0)
            future = ReplicaDescription(topic_partition=topic_partition, size=log.size, offset_lag=lag, is_future=True)
            replicas.append(future)
    total, usable = directory.space() if directory.failure is None else (-1, -1)
    return DirectoryDescription(
        path=directory.path,
        failure=directory.failure,
        total_bytes=total,
        usable_bytes=usable,
        replicas=tuple(replicas),
    )
