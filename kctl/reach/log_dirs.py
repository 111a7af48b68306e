"""DescribeLogDirs: what lies in the log directories of the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkad.names import TopicPartition
from kctl.errors import KctlError, failure

if TYPE_CHECKING:
    from kafkad.wire.messages.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
    from kctl.reach.session import Broker, Session


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


class Disk(NamedTuple):
    host: str
    total: int | None
    free: int | None


_WRITTEN_AT_ONCE = 64 << 20
"""Bytes that may be written, or freed, while a broker looks at one directory after another."""
_WRITTEN_MEANWHILE = 1 / 1000
"""The part of a disk that may fill, or be freed, while brokers are asked one after another."""


def disks(directories: Iterable[LogDir], brokers: Mapping[int, Broker]) -> list[Disk]:
    """What log directories lie on. Nobody says which of them share a disk: those of one broker with the same room do,
    and those of several brokers of a host, but for what is written while these are asked."""
    told: dict[int, set[Disk]] = {}
    for each in directories:
        told.setdefault(each.broker, set()).add(Disk(brokers[each.broker].host, each.total, each.free))
    found: list[Disk] = []
    for of_broker in map(_distinct, told.values()):
        new = []
        for disk in of_broker:
            meanwhile = (disk.total or 0) * _WRITTEN_MEANWHILE
            same = next((other for other in found if _may_be_one(other, disk, meanwhile)), None)
            if same is not None:
                found.remove(same)
            new.append(disk if same is None else min(same, disk, key=_by_room))
        found += new
    return sorted(found, key=_by_room)


def _distinct(told: Iterable[Disk]) -> list[Disk]:
    """Of one broker."""
    found: list[Disk] = []
    for disk in sorted(told, key=_by_room):
        if not found or not _may_be_one(found[-1], disk, _WRITTEN_AT_ONCE):
            found.append(disk)
    return found


def _by_room(disk: Disk) -> tuple[str, int, int]:
    return disk.host, disk.total or 0, disk.free or 0


def _may_be_one(one: Disk, other: Disk, written: float) -> bool:
    if one.free is None or other.free is None or one.total is None:
        return False
    return one[:2] == other[:2] and abs(one.free - other.free) <= written


def known_sum(parts: Iterable[int | None]) -> int | None:
    """The sum of those that are known; None if none is."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None
