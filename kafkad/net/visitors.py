"""Who is connected to the HTTP listener: not too many, and not all of one address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

_SILENT_S = 1.0
"""One younger than this makes no room for another address."""

V = TypeVar("V")


class Visitors(Generic[V]):
    """`most` at a time, and `most_of_host` of one address. Those that kafkad waits for make room for the next, the one
    that has been silent for longest first. Those of one address do that among themselves, and however short that is:
    whoever floods from there keeps nobody away who is elsewhere. Nor do a few addresses that never are silent for
    long: the one that has most makes room for one that has fewer.
    """

    def __init__(self, most: int, most_of_host: int, clock: Callable[[], float] = monotonic) -> None:
        self.most = most
        self.most_of_host = most_of_host
        self._clock = clock
        self._hosts: dict[V, str] = {}
        self._of_host: Counter[str] = Counter()
        self._silent: dict[V, float] = {}
        """Since when; the one that has waited longest is the first."""

    def __len__(self) -> int:
        return len(self._hosts)

    def all(self) -> list[V]:
        return list(self._hosts)

    def has_room_for(self, host: str) -> bool:
        return len(self._hosts) < self.most and self._of_host[host] < self.most_of_host

    def who_makes_room_for(self, host: str) -> V | None:
        """None if nobody does. To be asked again until there is room."""
        if self._of_host[host] >= self.most_of_host:
            return next((visitor for visitor in self._silent if self._hosts[visitor] == host), None)
        oldest = next(iter(self._silent), None)
        if oldest is None or self._silent[oldest] <= self._clock() - _SILENT_S:
            return oldest
        [(crowd, size)] = self._of_host.most_common(1)
        if size <= self._of_host[host] + 1:
            return None
        return next((visitor for visitor in self._silent if self._hosts[visitor] == crowd), None)

    def enter(self, visitor: V, host: str) -> None:
        self._hosts[visitor] = host
        self._of_host[host] += 1
        self.is_silent(visitor)

    def leave(self, visitor: V) -> None:
        self._silent.pop(visitor, None)
        host = self._hosts.pop(visitor)
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]

    def is_silent(self, visitor: V) -> None:
        """It waits for its peer from now on."""
        self._silent[visitor] = self._clock()

    def is_answered(self, visitor: V) -> None:
        """Something is being done for it: it makes no room."""
        del self._silent[visitor]

    @property
    def at_work(self) -> int:
        return len(self._hosts) - len(self._silent)
