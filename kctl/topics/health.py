"""The health of partitions, from Metadata. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kctl.reach.session import leader_trouble

if TYPE_CHECKING:
    from kafkad.wire.messages.metadata import MetadataResponsePartition

MOVING = "moving"


class TopicHealth(NamedTuple):
    """Numbers of a topic's partitions by trouble; `under_min_isr` is None if the setting was not asked for."""

    offline: int
    under_replicated: int
    single_replica: bool
    under_min_isr: int | None = None
    unreachable: int = 0

    @property
    def word(self) -> str:
        """The worst of it in a few words."""
        if self.offline:
            return f"{self.offline} offline"
        if self.unreachable:
            return f"{self.unreachable} unreachable"
        if self.under_min_isr:
            return f"{self.under_min_isr} under-min-isr"
        if self.under_replicated:
            return f"{self.under_replicated} under-replicated"
        return "single-replica" if self.single_replica else "ok"


class Needed(NamedTuple):
    """The in-sync replicas that min.insync.replicas asks for; None: not known. Brokers since 3.7 are `capped`:
    they never ask for more in sync than there are replicas."""

    min_isr: int | None
    capped: bool

    def of(self, replicas: int) -> int | None:
        return min(self.min_isr, replicas) if self.min_isr is not None and self.capped else self.min_isr


def topic_health(
    partitions: Sequence[MetadataResponsePartition], needed: Needed, silent: Collection[int] = ()
) -> TopicHealth:
    """The health of a topic with these partitions of a Metadata response, while these brokers do not answer."""
    offline = unreachable = under = below = 0
    single = bool(partitions)
    for partition in partitions:
        in_sync, replicas = len(partition.isr_nodes), len(partition.replica_nodes)
        trouble = leader_trouble(partition.leader_id, silent)
        offline += trouble == "offline"
        unreachable += trouble == "unreachable"
        under += in_sync < replicas
        single = single and replicas == 1
        below += in_sync < (needed.of(replicas) or 0)
    return TopicHealth(offline, under, single, None if needed.min_isr is None else below, unreachable)


class TopicHealthFacts(NamedTuple):
    """Everything that a partition's health depends on, beside the partition itself."""

    needed: Needed
    racks: Mapping[int, str | None]
    """The rack of each broker that is there."""
    moving: Mapping[int, Collection[int]] = {}
    """The topic's partitions that are on their way to other brokers, with the replicas that are being added."""
    hosts: Mapping[int, str | None] = {}
    """The host of each broker, as clients reach it."""
    silent: frozenset[int] = frozenset()
    """The brokers that do not answer."""


def partition_health(partition: MetadataResponsePartition, facts: TopicHealthFacts) -> list[str]:
    """The words for a partition's health, the worst first; `ok` if nothing is wrong."""
    replicas = partition.replica_nodes
    lasting = settled(replicas, facts.moving.get(partition.partition_index, ()))
    in_sync, is_lagging = len(partition.isr_nodes), not set(lasting) <= set(partition.isr_nodes)
    trouble = leader_trouble(partition.leader_id, facts.silent)
    words = [] if trouble is None else [trouble]
    needed = facts.needed.of(len(replicas))
    if needed is not None and in_sync < needed:
        words.append("under-min-isr")
    elif in_sync == needed and is_lagging:
        words.append("at-min-isr")
    if is_lagging:
        words.append("under-replicated")
    if partition.leader_id >= 0 and partition.leader_id != replicas[0]:
        words.append("not-preferred")
    if partition.partition_index in facts.moving:
        words.append(MOVING)
    if share_needlessly(replicas, facts.racks):
        words.append("rack-unaware")
    if share_needlessly(replicas, facts.hosts):
        words.append("same-host")
    return words or ["ok"]


def settled(replicas: Sequence[int], adding: Collection[int]) -> list[int]:
    """The replicas but for those that a move is adding: nobody expects these to be in sync yet. Brokers count them
    nevertheless where they ask for no more in sync than there are replicas."""
    return [broker for broker in replicas if broker not in adding]


def share_needlessly(replicas: Sequence[int], places: Mapping[int, str | None]) -> bool:
    """True if replicas share a rack, or a host, although there are enough; False if the place of some is unknown."""
    if len(replicas) < 2 or None in places.values() or any(broker not in places for broker in replicas):
        return False
    return len({places[broker] for broker in replicas}) < min(len(replicas), len(set(places.values())))


def replication(
    partitions: Iterable[MetadataResponsePartition], moving: Mapping[int, Collection[int]] = MappingProxyType({})
) -> int:
    """The replication factor, without the replicas that moves are adding; of a topic in the middle of a change the
    largest there is."""
    return max((len(settled(p.replica_nodes, moving.get(p.partition_index, ()))) for p in partitions), default=0)
