"""DescribeLogDirs: what lies in the log directories of the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkad.names import TopicPartition
from kctl.errors import KctlError, failure

if TYPE_CHECKING:
    from kafkad.wire.messages.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
    from kctl.reach.session import Session


class ReplicaSize(NamedTuple):
    broker: int
    directory: str
    topic: str
    partition: int
    size: int
    lag: int
    """Lag: of a follower behind its high watermark, of a future replica behind the one it will replace."""
    future: bool


class LogDir(NamedTuple):
    broker: int
    path: str
    total: int | None
    free: int | None
    error: KctlError | None
    replicas: tuple[ReplicaSize, ...]


def log_dirs(
    session: Session, brokers: Iterable[int] | None = None, partitions: Mapping[str, Iterable[int]] | None = None
) -> tuple[list[LogDir], dict[int, KctlError]]:
    """The directories of these brokers (all), with the replicas of these topics (all); and why others are not told, by
    broker."""
    answers = log_dirs_of(session, session.cluster.brokers if brokers is None else brokers, partitions)
    found = [directory for own in answers.values() if not isinstance(own, KctlError) for directory in own]
    return found, {broker: error for broker, error in answers.items() if isinstance(error, KctlError)}


def log_dirs_of(
    session: Session, brokers: Iterable[int], partitions: Mapping[str, Iterable[int]] | None = None
) -> dict[int, list[LogDir] | KctlError]:
    """The same by broker."""
    from kafkad.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

    topics = None
    if partitions is not None:
        topics = [DescribableLogDirTopic(topic=name, partitions=list(which)) for name, which in partitions.items()]
    request = DescribeLogDirsRequest(topics=topics)
    answers = session.call_each(dict.fromkeys(brokers, request))
    return {broker: _directories(broker, response) for broker, response in answers.items()}


def _directories(broker: int, response: DescribeLogDirsResponse | KctlError) -> list[LogDir] | KctlError:
    if isinstance(response, KctlError):
        return response
    if response.error_code:
        return failure(response.error_code, f"log directories of broker {broker} cannot be seen")
    return [_directory(broker, result) for result in response.results]


def _directory(broker: int, result: DescribeLogDirsResult) -> LogDir:
    path = result.log_dir
    replicas = tuple(
        ReplicaSize(broker, path, topic.name, p.partition_index, p.partition_size, p.offset_lag, p.is_future_key)
        for topic in result.topics
        for p in topic.partitions
    )
    error = failure(result.error_code, f"log directory {path} of broker {broker}") if result.error_code else None
    total, free = (size if size >= 0 else None for size in (result.total_bytes, result.usable_bytes))
    return LogDir(broker, path, total, free, error, replicas)


def replica_sizes(directories: Iterable[LogDir]) -> dict[tuple[TopicPartition, int], int]:
    """Bytes of each partition on each broker; those of replicas that are still being moved in do not count."""
    return {
        (TopicPartition(replica.topic, replica.partition), replica.broker): replica.size
        for directory in directories
        for replica in directory.replicas
        if not replica.future
    }
