"""A model of the cluster in which a plan is made: brokers, partitions, and where replicas would be."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafkad.names import TopicPartition


class Broker(NamedTuple):
    """`free` bytes are None where the broker does not tell."""

    id: int
    rack: str | None = None
    alive: bool = True
    free: int | None = None


class Partition(NamedTuple):
    """`replicas` in the order of the assignment; `leader` is None while nobody leads."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    leader: int | None
    size: int = 0

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


BALANCES = ("leaders", "count", "bytes")
RACKS = ("strict", "prefer", "off")


class Goal(NamedTuple):
    """The goal for the partitions of `topics` (None: of all).

    `rf`: how many replicas; with `drain` and all topics the most for partitions that leave a broker.
    `to`: the only brokers that receive; with nothing else asked, those that hold every replica in the end.
    `repair_racks`: replicas that share a rack move although nothing else asks for it.
    """

    drain: frozenset[int] = frozenset()
    to: frozenset[int] = frozenset()
    rf: int | None = None
    balance: str | None = None
    racks: str = "prefer"
    repair_racks: bool = False
    topics: frozenset[str] | None = None

    @property
    def repairs_racks(self) -> bool:
        """True if racks are repaired. With racks off, replicas would move again and again to no better place."""
        return self.repair_racks and self.racks != "off"

    @property
    def exclusive(self) -> bool:
        return bool(self.to) and not self.drain and self.rf is None and self.balance is None


class ClusterModel:
    """Replicas by partition, and the sums over brokers and topics that decisions are made from."""

    def __init__(self, brokers: Iterable[Broker], partitions: Sequence[Partition]) -> None:
        self.brokers = {broker.id: broker for broker in brokers}
        self._racks = {broker.id: f"rack {broker.rack}" for broker in self.brokers.values() if broker.rack is not None}
        self._rack_count = len({self.rack(broker) for broker in self.brokers})
        self.partitions = partitions
        self.replicas: list[tuple[int, ...]] = [()] * len(partitions)
        self.counts: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        self.topic_counts: dict[str, Counter[int]] = defaultdict(Counter)
        self.topic_leaders: dict[str, Counter[int]] = defaultdict(Counter)
        self._arriving: Counter[int] = Counter()
        for at, partition in enumerate(partitions):
            self.put(at, partition.replicas)

    def put(self, at: int, replicas: Sequence[int]) -> None:
        self._count(at, -1)
        self.replicas[at] = tuple(replicas)
        self._count(at, +1)

    def _count(self, at: int, sign: int) -> None:
        topic, _, was, _, size = self.partitions[at]
        replicas = self.replicas[at]
        for broker in replicas:
            self.counts[broker] += sign
            self.bytes[broker] += sign * size
            self.topic_counts[topic][broker] += sign
            if broker not in was:
                self._arriving[broker] += sign * size
        if replicas:
            self.leaders[replicas[0]] += sign
            self.topic_leaders[topic][replicas[0]] += sign

    def room(self, broker: int) -> int | None:
        """Bytes free on a broker once all that was put there has arrived; what leaves it is deleted only later."""
        free = self.brokers[broker].free
        return None if free is None else free - self._arriving[broker]

    def fits(self, at: int, broker: int) -> bool:
        if broker in self.partitions[at].replicas:
            return True
        room = self.room(broker)
        return room is None or self.partitions[at].size <= room

    def rack(self, broker: int) -> str:
        """The broker's rack; a broker without one counts as a rack of its own."""
        return self._racks.get(broker) or f"broker {broker}"

    def alive(self, broker: int) -> bool:
        return broker in self.brokers and self.brokers[broker].alive

    def receivers(self, goal: Goal) -> list[int]:
        """Brokers that may get replicas."""
        able = [broker for broker in sorted(self.brokers) if self.alive(broker) and broker not in goal.drain]
        return [broker for broker in able if not goal.to or broker in goal.to]

    def rack_limit(self, replicas: int) -> int:
        """The most replicas of one partition in a rack when they are spread as well as the cluster allows."""
        return -(-replicas // max(self._rack_count, 1))
