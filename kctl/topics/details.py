"""The details of topics, from all brokers that know a part of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkad.names import TopicPartition, id_text
from kctl.brokers.release import caps_min_isr
from kctl.configs.of_topics import topic_settings
from kctl.configs.resources import Entry
from kctl.errors import KctlError
from kctl.reach.log_dirs import log_dirs, replica_sizes
from kctl.reach.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetAt, offsets_at
from kctl.reach.session import silent_brokers
from kctl.topics.health import MOVING, Needed, TopicHealthFacts, partition_health, replication

if TYPE_CHECKING:
    from kafkad.wire.messages.metadata import MetadataResponsePartition
    from kctl.reach.session import Session, Topic

_WORTH_NAMING = 100
"""For more topics than these, the directories are read whole."""


class PartitionDetails(NamedTuple):
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: list[int]
    isr: list[int]
    offline: list[int]
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None
    replicated_bytes: int | None
    last_timestamp: int | None
    health: list[str]

    @property
    def preferred_leader(self) -> int | None:
        return self.replicas[0] if self.replicas else None

    @property
    def out(self) -> list[int]:
        return [broker for broker in self.replicas if broker not in self.isr]

    @property
    def records(self) -> int | None:
        if self.start_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.start_offset


class TopicDetails(NamedTuple):
    name: str
    topic_id: str | None
    internal: bool
    replication: int
    min_isr: int | None
    needed: int | None
    """Replicas that have to be in sync for acks=all: brokers since 3.7 ask for no more than there are."""
    partitions: list[PartitionDetails]
    configs: list[Entry]

    @property
    def is_moving(self) -> bool:
        return any(MOVING in partition.health for partition in self.partitions)

    @property
    def size_bytes(self) -> int | None:
        return total(partition.size_bytes for partition in self.partitions)

    @property
    def replicated_bytes(self) -> int | None:
        return total(partition.replicated_bytes for partition in self.partitions)

    @property
    def records(self) -> int | None:
        return total(partition.records for partition in self.partitions)

    @property
    def last_write(self) -> int | None:
        return max((p.last_timestamp for p in self.partitions if p.last_timestamp is not None), default=None)


def total(parts: Any) -> int | None:
    """The sum of what is known of all; None if it is not."""
    known = list(parts)
    return None if None in known else sum(known)


class Found(NamedTuple):
    topics: list[TopicDetails]
    notes: list[str]
    """Facts that are not known, each once with the reason."""
    silent: frozenset[int]
    """The brokers that do not answer."""
    unseen: list[KctlError]
    """Why topics have no settings here: a broker tells all of a topic, or none to who may not see them."""


def topic_details(
    session: Session,
    topics: Mapping[str, Topic],
    keys: Sequence[str] | None = None,
    *,
    with_offsets: bool = True,
) -> Found:
    """The details of topics in a Metadata response; of their settings only `keys`. What a topic that is deleted would
    have said is not known."""
    from kctl.partitions.requests import active_moves

    notes: dict[str, None] = {}
    everything = {name: [p.partition_index for p in topic.partitions] for name, topic in topics.items()}
    configs, refused = topic_settings(session, topics, keys)
    notes |= dict.fromkeys(f"settings are incomplete: {error.with_code}" for error in refused)
    directories, silent = log_dirs(session, partitions=everything if len(topics) < _WORTH_NAMING else None)
    notes |= dict.fromkeys(f"sizes are incomplete: {error.with_code}" for error in silent.values())
    notes |= dict.fromkeys(f"sizes are incomplete: {d.error.with_code}" for d in directories if d.error)
    sizes: dict[TopicPartition, dict[int, int]] = {}
    for (where, broker), size in replica_sizes(directories).items():
        sizes.setdefault(where, {})[broker] = size
    offsets = _offsets(session, topics) if with_offsets else {}
    moving: dict[str, dict[int, Sequence[int]]] = {}
    try:
        for where, move in active_moves(session, everything).items():
            moving.setdefault(where.topic, {})[where.partition] = move.adding
    except KctlError as error:
        notes[f"moves under way are not known: {error.with_code}"] = None
    capped = caps_min_isr(session.connection().versions)
    brokers = session.cluster.brokers.values()
    racks = {broker.id: broker.rack for broker in brokers}
    hosts = {broker.id: broker.host for broker in brokers}
    deaf = silent_brokers(silent)
    found = []
    for name, topic in topics.items():
        entries = configs.get(name, [])
        min_isr = min_isr_of(entries)
        needed = Needed(min_isr, capped)
        facts = TopicHealthFacts(needed, racks, moving.get(name, {}), hosts, deaf)
        partitions = [
            _partition(name, partition, sizes, offsets, facts)
            for partition in sorted(topic.partitions, key=lambda p: p.partition_index)
        ]
        topic_id = id_text(topic.topic_id) if any(topic.topic_id) else None
        least = needed.of(replication(topic.partitions))  # brokers count those that a move is adding
        replicas = replication(topic.partitions, facts.moving)
        found.append(TopicDetails(name, topic_id, topic.is_internal, replicas, min_isr, least, partitions, entries))
    return Found(found, list(notes), deaf, refused)


def min_isr_of(entries: Sequence[Entry]) -> int | None:
    return next((int(e.value) for e in entries if e.name == "min.insync.replicas" and e.value is not None), None)


Offsets = dict[TopicPartition, tuple[OffsetAt | None, OffsetAt | None, OffsetAt | None]]
"""The first, the end, and the record with the newest time."""


def _offsets(session: Session, topics: Mapping[str, Topic]) -> Offsets:
    led = [
        TopicPartition(name, partition.partition_index)
        for name, topic in topics.items()
        for partition in topic.partitions
        if partition.leader_id in session.cluster.brokers
    ]
    firsts, ends, newest = (offsets_at(session, dict.fromkeys(led, time)) for time in (EARLIEST, LATEST, MAX_TIMESTAMP))
    return {where: (_known(firsts[where]), _known(ends[where]), _known(newest[where])) for where in led}


def _known(answer: OffsetAt | KctlError) -> OffsetAt | None:
    return None if isinstance(answer, KctlError) else answer


def _partition(
    topic: str,
    partition: MetadataResponsePartition,
    sizes: Mapping[TopicPartition, Mapping[int, int]],
    offsets: Offsets,
    facts: TopicHealthFacts,
) -> PartitionDetails:
    where = TopicPartition(topic, partition.partition_index)
    first, end, newest = offsets.get(where, (None, None, None))
    own = sizes.get(where, {})
    leader = partition.leader_id if partition.leader_id >= 0 else None
    return PartitionDetails(
        partition=partition.partition_index,
        leader=leader,
        leader_epoch=partition.leader_epoch if partition.leader_epoch >= 0 else None,
        replicas=list(partition.replica_nodes),
        isr=list(partition.isr_nodes),
        offline=list(partition.offline_replicas),
        start_offset=first.offset if first else None,
        end_offset=end.offset if end else None,
        size_bytes=own.get(partition.leader_id),
        replicated_bytes=total(own.get(broker) for broker in partition.replica_nodes),
        last_timestamp=newest.timestamp if newest and newest.timestamp >= 0 else None,
        health=partition_health(partition, facts),
    )
