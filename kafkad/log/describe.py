"""Descriptions of the log directories of a broker, for DescribeLogDirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafkad.log.directories import LogDirectory
from kafkad.log.manager import LogManager
from kafkad.names import TopicPartition
from kafkad.turns import Pieces


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
) -> Pieces[list[DirectoryDescription]]:
    """A replica that is removed meanwhile may still be in it."""
    found = []
    for directory in manager.directories:
        described = yield from _describe(manager, directory, high_watermark, wanted)
        found.append(described)
    return found


def _describe(
    manager: LogManager,
    directory: LogDirectory,
    high_watermark: Callable[[TopicPartition], int],
    wanted: Callable[[TopicPartition], bool],
) -> Pieces[DirectoryDescription]:
    replicas = []
    for topic_partition in list(directory.logs):
        yield
        log = directory.logs.get(topic_partition)
        if log is not None and wanted(topic_partition):
            lag = max(high_watermark(topic_partition) - log.end_offset, 0)
            replica = ReplicaDescription(
                topic_partition=topic_partition, size=log.size, offset_lag=lag, is_future=False
            )
            replicas.append(replica)
    for topic_partition in list(directory.futures):
        yield
        log = directory.futures.get(topic_partition)
        if log is not None and wanted(topic_partition):
            current = manager.get(topic_partition)
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
