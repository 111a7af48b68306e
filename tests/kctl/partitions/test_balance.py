"""Balancing takes the same steps as if all partitions were looked at for each, in much less time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.partitions import balance
from kctl.partitions.cluster_model import BALANCES, Broker, ClusterModel, Goal, Partition
from kctl.partitions.offers import Offer, Offers
from kctl.partitions.placement import planned_moves
from tests.kctl.partitions.test_placement import clusters, goals
from tests.work import is_linear


class Searched:
    """Offers, found by a look at all partitions each time."""

    def __init__(
        self,
        model: ClusterModel,
        offers: Iterable[Offer],
        holders: object,
        allowed: Callable[[int, int, int], bool],
        keeps_even: Callable[[str, int, int], bool],
    ) -> None:
        self.model, self.offers, self.allowed, self.keeps_even = model, list(offers), allowed, keeps_even

    def best(self, giver: int, taker: int, twice: int = 0) -> Offer | None:
        found = [
            offer
            for offer in self.offers
            if self.allowed(offer.at, giver, taker)
            and self.keeps_even(offer.name.topic, giver, taker)
            and (taker in self.model.replicas[offer.at] or self.model.fits(offer.at, taker))
        ]
        return min(found, key=lambda offer: (abs(twice / 2 - offer.size), offer.name), default=None)

    def passed(self, at: int, giver: int, taker: int) -> None:
        pass


_free = st.none() | st.integers(0, 3000)


@given(clusters(), goals, st.sampled_from(BALANCES), st.lists(_free, min_size=6, max_size=6))
def test_no_search_finds_a_better_step(
    cluster: tuple[list[Broker], list[Partition]], goal: Goal, by: str, free: list[int | None]
) -> None:
    brokers, partitions = cluster
    brokers = [broker._replace(free=room) for broker, room in zip(brokers, free, strict=False)]
    goal = goal._replace(balance=by)
    planned = planned_moves(brokers, partitions, goal)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(balance, "Offers", Searched)
        assert planned_moves(brokers, partitions, goal) == planned


@given(clusters(), st.lists(_free, min_size=6, max_size=6), st.randoms(use_true_random=False))
def test_offers_are_the_ones_that_a_search_finds_whatever_was_passed_on(
    cluster: tuple[list[Broker], list[Partition]], free: list[int | None], random: Random
) -> None:
    brokers, partitions = cluster
    model = ClusterModel([broker._replace(free=room) for broker, room in zip(brokers, free, strict=False)], partitions)

    def allowed(at: int, giver: int, taker: int) -> bool:
        return giver in model.replicas[at] and taker not in model.replicas[at]

    def keeps_even(topic: str, giver: int, taker: int) -> bool:
        return model.topic_counts[topic][giver] > model.topic_counts[topic][taker]

    every = [Offer(each.size, each.name, at) for at, each in enumerate(partitions)]
    pairs = list(permutations(model.brokers, 2))
    kinds = (Offers, Searched)
    offers, searched = (kind(model, every, lambda at: model.replicas[at], allowed, keeps_even) for kind in kinds)
    for _ in range(12):
        for giver, taker in random.sample(pairs, len(pairs) // 2):
            twice = random.choice([0, random.randint(0, 2000)])
            assert offers.best(giver, taker, twice) == searched.best(giver, taker, twice)
        if steps := [(at, *pair) for at in range(len(partitions)) for pair in pairs if allowed(at, *pair)]:
            at, giver, taker = random.choice(steps)
            model.put(at, [taker if broker == giver else broker for broker in model.replicas[at]])
            offers.passed(at, giver, taker)


@pytest.mark.parametrize("by", BALANCES)
@pytest.mark.parametrize("topics", [1, 40])
def test_four_times_the_partitions_are_hardly_more_than_four_times_the_work(by: str, topics: int) -> None:
    def planning(count: int) -> Callable[[], object]:
        brokers = [Broker(broker, "abc"[broker % 3]) for broker in range(1, 7)]
        partitions = [
            Partition(f"t{at % topics}", at // topics, (1, 2, 3), 1, 1 + at * 7919 % 1009) for at in range(count)
        ]
        return lambda: planned_moves(brokers, partitions, Goal(balance=by))

    assert is_linear(planning, 120)
