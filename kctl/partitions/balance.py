"""Balances replicas and leaders over brokers: each topic on its own first, then all together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from kctl.partitions.cluster_model import ClusterModel, Goal
from kctl.partitions.offers import Offer, Offers

_CLOSE_ENOUGH = 0.05
"""Bytes are even when the fullest and the emptiest broker differ by no more than this share of the mean."""


def even_replicas(model: ClusterModel, movable: Sequence[int], receivers: Sequence[int], goal: Goal) -> None:
    """Moves replicas until no single move makes brokers more even.

    Every step lowers the sum of squares of what is evened out (of the topics' counts, or with those as they are of
    all counts), so this ends.
    """
    giving = [broker for broker in sorted(model.brokers) if model.alive(broker) and broker not in goal.drain]

    def even_out(group: Sequence[int], measure: _TopicCounts | _Counts | _Bytes) -> bool:
        moves = _Moves(model, group, giving, receivers, measure, goal)
        moved = False
        while moves.make_one():
            moved = True
        return moved

    if goal.balance == "bytes":
        even_out(movable, _Bytes(model, giving))
        return
    topics = _by_topic(model, movable)
    changed = True
    while changed:
        by_topic = [even_out(group, _TopicCounts(model, topic)) for topic, group in topics.items()]
        changed = even_out(movable, _Counts(model)) or any(by_topic)


class _TopicCounts:
    """The measure of a topic by itself: how many of its replicas a broker has."""

    def __init__(self, model: ClusterModel, topic: str) -> None:
        self.model = model
        self.counts = model.topic_counts[topic]

    def load(self, broker: int) -> tuple[int, int]:
        return self.counts[broker], self.model.counts[broker]

    def excess(self, giver: int, taker: int) -> int | None:
        """The bytes of which a move should take half; 0: as few as possible; None: it would even out nothing."""
        return 0 if self.counts[giver] - self.counts[taker] >= 2 else None

    def keeps_even(self, topic: str, giver: int, taker: int) -> bool:
        return True


class _Counts:
    """Over all topics; no topic may become less even for it."""

    def __init__(self, model: ClusterModel) -> None:
        self.model = model

    def load(self, broker: int) -> tuple[int, int]:
        return self.model.counts[broker], self.model.bytes[broker]

    def excess(self, giver: int, taker: int) -> int | None:
        return 0 if self.model.counts[giver] - self.model.counts[taker] >= 2 else None

    def keeps_even(self, topic: str, giver: int, taker: int) -> bool:
        counts = self.model.topic_counts[topic]
        return counts[giver] > counts[taker]


class _Bytes:
    """Half of the difference is the best to move: few moves, and none that only turns it round."""

    def __init__(self, model: ClusterModel, brokers: Sequence[int]) -> None:
        self.model = model
        mean = sum(model.bytes[broker] for broker in brokers) / max(len(brokers), 1)
        self.tolerance = mean * _CLOSE_ENOUGH

    def load(self, broker: int) -> tuple[int, int]:
        return self.model.bytes[broker], self.model.counts[broker]

    def excess(self, giver: int, taker: int) -> int | None:
        difference = self.model.bytes[giver] - self.model.bytes[taker]
        return difference if difference > self.tolerance else None

    def keeps_even(self, topic: str, giver: int, taker: int) -> bool:
        return True


class _Moves:
    """Moves of replicas by one measure."""

    def __init__(
        self,
        model: ClusterModel,
        movable: Sequence[int],
        giving: Sequence[int],
        receivers: Sequence[int],
        measure: _TopicCounts | _Counts | _Bytes,
        goal: Goal,
    ) -> None:
        self._model = model
        self._giving = giving
        self._receivers = receivers
        self._measure = measure
        self._goal = goal
        offers = (Offer(model.partitions[at].size, model.partitions[at].name, at) for at in movable)
        self._offers = Offers(model, offers, lambda at: model.replicas[at], self._allowed, measure.keeps_even)

    def make_one(self) -> bool:
        """One move from as full a broker as possible to as empty a one as possible; False: there is none."""
        load = self._measure.load
        takers = sorted(self._receivers, key=lambda broker: (*load(broker), broker))
        for giver in sorted(self._giving, key=lambda broker: (*load(broker), -broker), reverse=True):
            for taker in takers:
                excess = self._measure.excess(giver, taker)
                if excess is None:
                    break  # the takers that follow have more
                best = self._offers.best(giver, taker, excess)
                if best and (excess == 0 or 0 < best.size < excess):
                    self._move(best.at, giver, taker)
                    return True
        return False

    def _move(self, at: int, giver: int, taker: int) -> None:
        self._model.put(at, [taker if broker == giver else broker for broker in self._model.replicas[at]])
        self._offers.passed(at, giver, taker)

    def _allowed(self, at: int, giver: int, taker: int) -> bool:
        model, replicas = self._model, self._model.replicas[at]
        if giver not in replicas or taker in replicas or model.partitions[at].leader is None:
            return False
        rack = model.rack(taker)
        if self._goal.racks == "off" or rack == model.rack(giver):
            return True
        held = sum(model.rack(broker) == rack for broker in replicas if broker != giver)
        return held < model.rack_limit(len(replicas))


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
    for topic, group in _by_topic(model, movable).items():
        _pass_on(model, group, brokers, model.topic_leaders[topic], lambda topic, giver, taker: True)

    def keeps_even(topic: str, giver: int, taker: int) -> bool:
        leaders = model.topic_leaders[topic]
        return leaders[giver] > leaders[taker]

    _pass_on(model, movable, brokers, model.leaders, keeps_even)


def _pass_on(
    model: ClusterModel,
    movable: Sequence[int],
    brokers: Sequence[int],
    loads: Mapping[int, int],
    keeps_even: Callable[[str, int, int], bool],
) -> None:
    """Makes chains from brokers that lead too much to ones that lead at least two fewer until there are none."""

    def allowed(at: int, giver: int, taker: int) -> bool:
        leader, *others = model.replicas[at]
        return giver == leader and taker in others

    names = (Offer(0, model.partitions[at].name, at) for at in movable)
    offers = Offers(model, names, lambda at: model.replicas[at][:1], allowed, keeps_even)
    neighbours = _neighbours(model, movable, brokers)
    edges: dict[int, dict[int, int]] = defaultdict(dict)
    touched = set(brokers)  # what was found out about these brokers is out of date
    while touched and (sources := _too_full(brokers, loads)):
        for broker in touched:
            for other in neighbours[broker]:
                _look_again(edges, offers, broker, other)
                _look_again(edges, offers, other, broker)
        touched = set()
        for source in sources:
            chain = _chain(edges, source, loads)
            on_the_way = {source, *(leader for _, leader in chain)}
            if chain and not on_the_way & touched:
                touched |= on_the_way
                for at, leader in chain:
                    _lead(model, offers, at, leader)


def _too_full(brokers: Sequence[int], loads: Mapping[int, int]) -> list[int]:
    """Those that lead at least two more than the one that leads least, the fullest first."""
    least = min((loads[broker] for broker in brokers), default=0)
    full = [broker for broker in brokers if loads[broker] - least >= 2]
    return sorted(full, key=lambda broker: (-loads[broker], broker))


def _neighbours(model: ClusterModel, movable: Sequence[int], brokers: Sequence[int]) -> dict[int, set[int]]:
    """The brokers that share partitions with each of them."""
    neighbours: dict[int, set[int]] = {broker: set() for broker in brokers}
    for at in movable:
        replicas = neighbours.keys() & set(model.replicas[at])
        for broker in replicas:
            neighbours[broker] |= replicas - {broker}
    return neighbours


def _look_again(edges: dict[int, dict[int, int]], offers: Offers, giver: int, taker: int) -> None:
    edges[giver].pop(taker, None)
    if best := offers.best(giver, taker):
        edges[giver][taker] = best.at


def _lead(model: ClusterModel, offers: Offers, at: int, leader: int) -> None:
    replicas = list(model.replicas[at])
    position = replicas.index(leader)
    replicas[0], replicas[position] = leader, replicas[0]
    model.put(at, replicas)
    offers.passed(at, replicas[position], leader)


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
