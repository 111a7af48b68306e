"""What brokers may pass on to each other, a replica or the lead of partitions, and which of it first."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from math import inf
from operator import itemgetter
from typing import NamedTuple

from kafkad.names import TopicPartition
from kctl.partitions.cluster_model import ClusterModel


class Offer(NamedTuple):
    """A partition: its size as far as that matters, its name, and where it is in the model."""

    size: int
    name: TopicPartition
    at: int

    def preference(self, twice: int) -> tuple[int, TopicPartition, int]:
        """The less the better: twice the distance to the size that would be best, then the name."""
        return abs(twice - 2 * self.size), self.name, self.at


_size = itemgetter(0)


class Offers:
    """For each two brokers, a giver and a taker, the partitions that may be passed on, sorted by size and name.

    The lists are kept up to date, as to look at all partitions for each step takes too long. They are made when they
    are asked for, and what may not be passed on is taken off when it would be the best. What comes to be possible is
    put on by `passed`: `allowed` depends on a partition's own replicas alone, and `keeps_even` on how many of its
    topic each of the two has.
    """

    def __init__(
        self,
        model: ClusterModel,
        offers: Iterable[Offer],
        holders: Callable[[int], Iterable[int]],
        allowed: Callable[[int, int, int], bool],
        keeps_even: Callable[[str, int, int], bool],
    ) -> None:
        self._model = model
        self._offers = {offer.at: offer for offer in offers}
        self._holders = holders
        self._allowed = allowed
        self._keeps_even = keeps_even
        self._held: dict[int, set[int]] = defaultdict(set)
        for at in self._offers:
            for broker in holders(at):
                self._held[broker].add(at)
        self._lists: dict[tuple[int, int, bool], list[Offer]] = {}
        """By giver, taker, and whether the taker needs room for it."""
        self._waiting: dict[tuple[int, int, str], list[Offer]] = defaultdict(list)
        """What is left out of a list because of its topic."""

    def best(self, giver: int, taker: int, twice: int = 0) -> Offer | None:
        """The one whose size is nearest to half of `twice`, for which the taker has room."""
        room = self._model.room(taker)
        limits = ((False, inf), (True, inf if room is None else room))
        found = [self._nearest(giver, taker, new, twice, limit) for new, limit in limits]
        return min(filter(None, found), key=lambda offer: offer.preference(twice), default=None)

    def _nearest(self, giver: int, taker: int, new: bool, twice: int, limit: float) -> Offer | None:
        offers = self._list(giver, taker, new)
        while True:
            end = bisect_right(offers, limit, key=_size)
            middle = bisect_left(offers, (twice + 1) // 2, 0, end, key=_size)
            near = offers[middle : min(middle + 1, end)]
            if middle:
                near.append(offers[bisect_left(offers, offers[middle - 1].size, key=_size)])
            if not near:
                return None
            offer = min(near, key=lambda offer: offer.preference(twice))
            allowed = self._allowed(offer.at, giver, taker)
            if allowed and self._keeps_even(offer.name.topic, giver, taker):
                return offer
            del offers[bisect_left(offers, offer)]
            if allowed:
                self._waiting[giver, taker, offer.name.topic].append(offer)

    def _list(self, giver: int, taker: int, new: bool) -> list[Offer]:
        if (giver, taker, new) not in self._lists:
            lists: tuple[list[Offer], list[Offer]] = [], []
            for at in self._held[giver]:
                if self._allowed(at, giver, taker):
                    lists[self._needs_room(at, taker)].append(self._offers[at])
            for each, offers in enumerate(lists):
                self._lists[giver, taker, bool(each)] = sorted(offers)
        return self._lists[giver, taker, new]

    def _needs_room(self, at: int, taker: int) -> bool:
        return taker not in self._model.partitions[at].replicas and taker not in self._model.replicas[at]

    def passed(self, at: int, giver: int, taker: int) -> None:
        """Has to be called after a giver has passed something on."""
        topic = self._offers[at].name.topic
        self._held[giver].remove(at)
        self._held[taker].add(at)
        for holder in self._holders(at):
            for other in self._model.brokers:
                self._add(self._offers[at], holder, other)
        for other in self._model.brokers:
            for pair in ((taker, other), (other, giver)):
                if (*pair, topic) in self._waiting and self._keeps_even(topic, *pair):
                    for offer in self._waiting.pop((*pair, topic)):
                        self._add(offer, *pair)

    def _add(self, offer: Offer, giver: int, taker: int) -> None:
        offers = self._lists.get((giver, taker, self._needs_room(offer.at, taker)))
        if offers is not None and self._allowed(offer.at, giver, taker):
            position = bisect_left(offers, offer)
            if offers[position : position + 1] != [offer]:
                offers.insert(position, offer)
