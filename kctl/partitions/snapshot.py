"""A snapshot of brokers and partitions for the planner, from Metadata, DescribeLogDirs and ongoing reassignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkad.names import TopicPartition
from kctl.errors import KctlError
from kctl.partitions.cluster_model import Broker, Partition
from kctl.partitions.requests import Active, active_moves
from kctl.reach.log_dirs import LogDir, disks, known_sum, log_dirs, replica_sizes
from kctl.reach.session import Session

if TYPE_CHECKING:
    from kafkad.wire.messages.metadata import MetadataResponsePartition


class Snapshot(NamedTuple):
    """`partitions` have the replicas that they will have once the `active` moves are done."""

    brokers: list[Broker]
    partitions: list[Partition]
    active: dict[TopicPartition, Active]
    directories: list[LogDir]
    silent: list[KctlError]

    def alive(self) -> set[int]:
        return {broker.id for broker in self.brokers if broker.alive}

    def by_name(self) -> dict[TopicPartition, Partition]:
        return {partition.name: partition for partition in self.partitions}


def take(session: Session, asked: Mapping[str, Iterable[int]] | None = None) -> Snapshot:
    """A snapshot of these partitions of topics, or of all. Topics and partitions that do not exist are left out."""
    topics = [topic for topic in session.metadata(asked) if not topic.error_code]
    there = None if asked is None else {topic.name: list(asked[topic.name]) for topic in topics}
    directories, silent = log_dirs(session, partitions=there)
    sizes = replica_sizes(directories)
    active = active_moves(session, there)
    partitions = []
    for topic in topics:
        numbers = None if there is None else set(there[topic.name])
        for each in topic.partitions:
            if numbers is None or each.partition_index in numbers:
                name = TopicPartition(topic.name, each.partition_index)
                replicas = active[name].target if name in active else tuple(each.replica_nodes)
                leader = each.leader_id if each.leader_id >= 0 else None
                partitions.append(Partition(*name, replicas, leader, _size(name, leader, each, sizes)))
    brokers = _brokers(session, partitions, directories)
    return Snapshot(brokers, sorted(partitions, key=lambda each: each.name), active, directories, list(silent.values()))


def _size(
    name: TopicPartition,
    leader: int | None,
    metadata: MetadataResponsePartition,
    sizes: Mapping[tuple[TopicPartition, int], int],
) -> int:
    """The size of the leader's replica; if no leader tells it, the largest size that any replica has."""
    if leader is not None and (name, leader) in sizes:
        return sizes[name, leader]
    return max((sizes.get((name, broker), 0) for broker in metadata.replica_nodes), default=0)


def _brokers(session: Session, partitions: list[Partition], directories: list[LogDir]) -> list[Broker]:
    """Those that are there, and those that are only named as holding replicas."""
    known = session.cluster.brokers
    own: dict[int, list[LogDir]] = {}
    for directory in directories:
        if not directory.error:
            own.setdefault(directory.broker, []).append(directory)
    named = {broker for partition in partitions for broker in partition.replicas}
    return [
        Broker(broker, known[broker].rack, True, known_sum(disk.free for disk in disks(own.get(broker, ()), known)))
        if broker in known
        else Broker(broker, None, False, None)
        for broker in sorted(named | set(known))
    ]
