"""Placement of the replicas of new partitions. Pure; randomness is handed in.

Kafka's layout: leaders go round the brokers from a random start, followers follow at a distance that grows by one with
each round, and with racks the brokers are taken from each rack in turn and a replica goes to a rack without one while
there is such a rack. Broker order is by id, or by rack and id in turn. Unlike in Kafka, brokers of one host count as a
rack where no racks are set.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random
from typing import NamedTuple

from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import BrokerInfo


class Candidate(NamedTuple):
    broker: int
    rack: str | None = None


def candidates(brokers: Collection[BrokerInfo]) -> list[Candidate]:
    """Brokers of one host are one rack where no broker has a rack of its own and any host has several."""
    hosts = {broker.id: _host(broker) for broker in brokers}
    if any(broker.rack is not None for broker in brokers) or len(set(hosts.values())) == len(hosts):
        return [Candidate(broker.id, broker.rack) for broker in brokers]
    return [Candidate(broker.id, hosts[broker.id]) for broker in brokers]


def _host(broker: BrokerInfo) -> str:
    return broker.endpoints[0].host.lower() if broker.endpoints else f"broker {broker.id}"


class Layout(NamedTuple):
    """The place of the first partition's leader, and the distance of its first follower.

    A `fixed` distance stays the same for all partitions: then replica j of partition i is on broker (start + i + j).
    """

    start: int
    distance: int
    fixed: bool = False


def random_layout(brokers: int, random: Random) -> Layout:
    return Layout(random.randrange(brokers), random.randrange(brokers)) if brokers else Layout(0, 0)


def fixed_layout(start: int) -> Layout:
    return Layout(start, 0, True)


def place(
    candidates: Sequence[Candidate],
    partitions: int,
    replication_factor: int,
    layout: Layout,
    *,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Replicas of `partitions` partitions from `first_partition` on. The first replica is the preferred leader."""
    check_placement(candidates, partitions, replication_factor)
    racks = {c.broker: c.rack for c in candidates}
    brokers = _in_order(candidates)
    number_of_racks = len(set(racks.values()))
    distance = layout.distance
    placed = {}
    for partition in range(first_partition, first_partition + partitions):
        if not layout.fixed and partition > 0 and partition % len(brokers) == 0:
            distance += 1
        first = (partition + layout.start) % len(brokers)
        if number_of_racks == 1:
            ring = _followers(brokers, first, distance)
            placed[partition] = (brokers[first], *ring[: replication_factor - 1])
        else:
            ring = _followers(brokers, first, distance * number_of_racks)
            placed[partition] = _spread(brokers[first], ring, racks, replication_factor)
    return placed


def layout_for_more(candidates: Sequence[Candidate], first_leader: int) -> Layout:
    """For partitions added to a topic: as if the topic had been laid out from the leader of its partition 0."""
    ids = sorted(c.broker for c in candidates)
    start = next((index for index, broker in enumerate(ids) if broker >= first_leader), 0)
    return Layout(start, start)


def check_placement(candidates: Sequence[Candidate], partitions: int, replication_factor: int) -> None:
    """Raises KafkaError where `place` would."""
    if partitions <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(candidates):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {len(candidates)}.",
        )
    racks = [c.rack is not None for c in candidates]
    if any(racks) and not all(racks):
        without = ", ".join(str(c.broker) for c in candidates if c.rack is None)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Some brokers have a rack, but not {without}: set broker.rack on all or none"
        )


def _in_order(candidates: Sequence[Candidate]) -> list[int]:
    """The brokers by id; with racks, the first of each rack, then the second of each, ..."""
    by_rack: dict[str, list[int]] = {}
    for broker, rack in sorted(candidates, key=lambda c: c.broker):
        by_rack.setdefault(rack or "", []).append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, queues))
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


def _followers(brokers: list[int], first: int, distance: int) -> list[int]:
    """All other brokers, in the order in which they are asked to follow the one at `first`."""
    others = len(brokers) - 1
    return [brokers[(first + 1 + (distance + step) % others) % len(brokers)] for step in range(others)]


def _spread(leader: int, ring: list[int], racks: dict[int, str | None], replication_factor: int) -> tuple[int, ...]:
    """Goes round `ring`, at first only through racks that have no replica yet, then through all."""
    chosen = [leader]
    used = {racks[leader]}
    number_of_racks = len(set(racks.values()))
    step = 0
    while len(chosen) < replication_factor:
        broker = ring[step % len(ring)]
        step += 1
        if broker not in chosen and (racks[broker] not in used or len(used) == number_of_racks):
            chosen.append(broker)
            used.add(racks[broker])
    return tuple(chosen)
