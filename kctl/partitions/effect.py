"""The effect of a plan on each broker: replicas, leaders and bytes before and after. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kctl.partitions.cluster_model import Broker, ClusterModel, Partition
from kctl.partitions.placement import Move


class Effect(NamedTuple):
    """The effect on one broker: partitions, (preferred) leaders and bytes before and after, and bytes copied."""

    broker: int
    partitions: tuple[int, int]
    leaders: tuple[int, int]
    size: tuple[int, int]
    incoming: int
    outgoing: int
    free_after: int | None


def effects(brokers: Iterable[Broker], partitions: Sequence[Partition], moves: Iterable[Move]) -> list[Effect]:
    model = ClusterModel(brokers, partitions)
    before = model.counts.copy(), model.leaders.copy(), model.bytes.copy()
    incoming: Counter[int] = Counter()
    outgoing: Counter[int] = Counter()
    index = {partition.name: at for at, partition in enumerate(partitions)}
    for move in moves:
        if move.planned is not None:
            model.put(index[move.partition.name], move.planned)
        for copy in move.copies:
            incoming[copy.target] += copy.size
            outgoing[copy.source] += copy.size
    after = model.counts, model.leaders, model.bytes
    return [
        Effect(
            broker,
            (before[0][broker], after[0][broker]),
            (before[1][broker], after[1][broker]),
            (before[2][broker], after[2][broker]),
            incoming[broker],
            outgoing[broker],
            _free_after(known, after[2][broker] - before[2][broker]),
        )
        for broker, known in model.brokers.items()
    ]


def _free_after(broker: Broker, growth: int) -> int | None:
    return None if broker.free is None else broker.free - growth


def seconds(effects: Iterable[Effect], rate: int) -> float:
    """The time the copies take when each broker sends and receives at most `rate` bytes a second."""
    return max((max(each.incoming, each.outgoing) / rate for each in effects), default=0.0)


def rack_losses(brokers: Iterable[Broker], moves: Iterable[Move]) -> dict[str, tuple[int, int]]:
    """Topics whose partitions would be in fewer racks: in how many the worst of them is now, and would be."""
    model = ClusterModel(brokers, ())
    losses: dict[str, tuple[int, int]] = {}
    for move in moves:
        if move.planned is None or len(move.planned) < len(move.partition.replicas):
            continue
        now = len({model.rack(broker) for broker in move.partition.replicas})
        then = len({model.rack(broker) for broker in move.planned})
        topic = move.partition.topic
        if then < now and (topic not in losses or then < losses[topic][1]):
            losses[topic] = (now, then)
    return losses
