"""Balances replicas and leaders over brokers: each topic on its own first, then all together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from kctl.partitions.cluster_model import ClusterModel, Goal

_CLOSE_ENOUGH = 0.05
"""Bytes are even when the fullest and the emptiest broker differ by no more than this share of the mean."""


def even_replicas(model: ClusterModel, movable: Sequence[int], receivers: Sequence[int], goal: Goal) -> None:
    """Moves replicas until no single move makes brokers more even.

    Every step lowers the sum of squares of what is evened out (of the topics' counts, or with those as they are of
    all counts), so this ends.
    """
    giving = [broker for broker in sorted(model.brokers) if model.alive(broker) and broker not in goal.drain]
    if goal.balance == "bytes":
        while _step(model, movable, giving, receivers, _Bytes(model, giving), goal):
            pass
        return
    topics = _by_topic(model, movable)
    changed = True
    while changed:
        changed = False
        for topic, group in topics.items():
            while _step(model, group, giving, receivers, _TopicCounts(model, topic), goal):
                changed = True
        while _step(model, movable, giving, receivers, _Counts(model), goal):
            changed = True


class _TopicCounts:
    """The measure of a topic by itself: how many of its replicas a broker has."""

    def __init__(self, model: ClusterModel, topic: str) -> None:
        self.model = model
        self.counts = model.topic_counts[topic]

    def load(self, broker: int) -> tuple[int, int]:
        return self.counts[broker], self.model.counts[broker]

    def gain(self, at: int, giver: int, taker: int) -> tuple[int, ...] | None:
        """A sort key for replicas that might move, the best being the least; None if it would even out nothing."""
        return (self.model.partitions[at].size,) if self.counts[giver] - self.counts[taker] >= 2 else None


class _Counts:
    """Over all topics; no topic may become less even for it."""

    def __init__(self, model: ClusterModel) -> None:
        self.model = model

    def load(self, broker: int) -> tuple[int, int]:
        return self.model.counts[broker], self.model.bytes[broker]

    def gain(self, at: int, giver: int, taker: int) -> tuple[int, ...] | None:
        partition = self.model.partitions[at]
        counts = self.model.topic_counts[partition.topic]
        even = self.model.counts[giver] - self.model.counts[taker] < 2
        return None if even or counts[giver] <= counts[taker] else (partition.size,)


class _Bytes:
    def __init__(self, model: ClusterModel, brokers: Sequence[int]) -> None:
        self.model = model
        mean = sum(model.bytes[broker] for broker in brokers) / max(len(brokers), 1)
        self.tolerance = mean * _CLOSE_ENOUGH

    def load(self, broker: int) -> tuple[int, int]:
        return self.model.bytes[broker], self.model.counts[broker]

    def gain(self, at: int, giver: int, taker: int) -> tuple[int, ...] | None:
        """The nearest to half of the difference: few moves, and none that only turns it round."""
        difference = self.model.bytes[giver] - self.model.bytes[taker]
        size = self.model.partitions[at].size
        return (abs(difference - 2 * size),) if 0 < size < difference and difference > self.tolerance else None


def _step(
    model: ClusterModel,
    movable: Sequence[int],
    giving: Sequence[int],
    receivers: Sequence[int],
    measure: _TopicCounts | _Counts | _Bytes,
    goal: Goal,
) -> bool:
    """One move from as full a broker as possible to as empty a one as possible."""
    held: dict[int, list[int]] = defaultdict(list)
    for at in movable:
        for broker in model.replicas[at]:
            held[broker].append(at)
    for giver in sorted(giving, key=lambda broker: (*measure.load(broker), -broker), reverse=True):
        for taker in sorted(receivers, key=lambda broker: (*measure.load(broker), broker)):
            if measure.load(giver)[0] <= measure.load(taker)[0]:
                break
            choices = [
                (gain, model.partitions[at].name, at)
                for at in held[giver]
                if (gain := measure.gain(at, giver, taker)) is not None and _allowed(model, at, giver, taker, goal)
            ]
            if choices:
                at = min(choices)[2]
                model.put(at, [taker if broker == giver else broker for broker in model.replicas[at]])
                return True
    return False


def _allowed(model: ClusterModel, at: int, giver: int, taker: int, goal: Goal) -> bool:
    replicas = model.replicas[at]
    if taker in replicas or model.partitions[at].leader is None or not model.fits(at, taker):
        return False
    if goal.racks == "off" or model.rack(taker) == model.rack(giver):
        return True
    held = Counter(model.rack(broker) for broker in replicas if broker != giver)
    return held[model.rack(taker)] < model.rack_limit(len(replicas))


def _by_topic(model: ClusterModel, movable: Sequence[int]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for at in sorted(movable, key=lambda at: model.partitions[at].name):
        topics[model.partitions[at].topic].append(at)
    return topics


# --- leaders


def even_leaders(model: ClusterModel, movable: Sequence[int], brokers: Sequence[int]) -> None:
    """Has other replicas lead until no chain of such changes makes brokers more even.

    A chain, since the one that has too much and the one that has too little may share no partition. What is on
    `brokers` alone takes part: one that is down neither gives nor takes.
    """
    ordered = sorted(movable, key=lambda at: model.partitions[at].name)
    for topic, group in _by_topic(model, ordered).items():
        while _pass_on(model, group, brokers, model.topic_leaders[topic], lambda at, giver, taker: True):
            pass

    def keeps_topic_even(at: int, giver: int, taker: int) -> bool:
        leaders = model.topic_leaders[model.partitions[at].topic]
        return leaders[giver] > leaders[taker]

    while _pass_on(model, ordered, brokers, model.leaders, keeps_topic_even):
        pass


def _pass_on(
    model: ClusterModel,
    movable: Sequence[int],
    brokers: Sequence[int],
    loads: Mapping[int, int],
    allowed: Callable[[int, int, int], bool],
) -> bool:
    """Chains from brokers that lead too much to ones that lead at least two fewer; False: there is none."""
    able = set(brokers)
    edges: dict[int, dict[int, int]] = defaultdict(dict)
    for at in movable:
        giver, *others = model.replicas[at]
        for taker in others:
            if giver in able and taker in able and taker not in edges[giver] and allowed(at, giver, taker):
                edges[giver][taker] = at
    touched: set[int] = set()  # what was found out about these brokers is out of date
    for source in sorted(brokers, key=lambda broker: (-loads[broker], broker)):
        chain = _chain(edges, source, loads)
        on_the_way = {source, *(leader for _, leader in chain)}
        if chain and not on_the_way & touched:
            touched |= on_the_way
            for at, leader in chain:
                replicas = list(model.replicas[at])
                position = replicas.index(leader)
                replicas[0], replicas[position] = leader, replicas[0]
                model.put(at, replicas)
    return bool(touched)


def _chain(edges: Mapping[int, Mapping[int, int]], source: int, loads: Mapping[int, int]) -> list[tuple[int, int]]:
    """The partitions, each with its new leader, of the shortest chain to a broker that leads two fewer."""
    came: dict[int, int] = {source: source}
    reached = [source]
    for giver in reached:
        for taker in sorted(edges.get(giver, ()), key=lambda broker: (loads[broker], broker)):
            if taker in came:
                continue
            came[taker] = giver
            reached.append(taker)
            if loads[source] - loads[taker] >= 2:
                chain = []
                while taker != source:
                    chain.append((edges[came[taker]][taker], taker))
                    taker = came[taker]
                return chain
    return []
