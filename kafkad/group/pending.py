"""Ids that a group has given to clients that are to join with them, until they do."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

_FEW: Final = 50


class PendingIds:
    """Each with the time until which it may be used. The next to end is found without looking at all of them: there
    may be many that nobody uses."""

    __slots__ = ("_by_deadline", "_until_ms")

    def __init__(self) -> None:
        self._until_ms: dict[str, float] = {}
        self._by_deadline: list[tuple[float, str]] = []
        """A heap. An id that was used or given up meanwhile stays in it for a while."""

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._until_ms

    def __len__(self) -> int:
        return len(self._until_ms)

    def add(self, member_id: str, until_ms: float) -> None:
        self._until_ms[member_id] = until_ms
        heappush(self._by_deadline, (until_ms, member_id))

    def drop(self, member_id: str) -> None:
        self._until_ms.pop(member_id, None)
        if len(self._by_deadline) > 2 * len(self._until_ms) + _FEW:
            self._by_deadline = [(until_ms, member_id) for member_id, until_ms in self._until_ms.items()]
            heapify(self._by_deadline)

    @property
    def next_ms(self) -> float:
        """When the next of them ends; infinity if there is none."""
        while self._by_deadline:
            until_ms, member_id = self._by_deadline[0]
            if self._until_ms.get(member_id) == until_ms:
                return until_ms
            heappop(self._by_deadline)
        return inf

    @property
    def first(self) -> str:
        """The one that ends next, as `next_ms` has found it."""
        return self._by_deadline[0][1]
