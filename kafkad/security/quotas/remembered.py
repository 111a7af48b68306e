"""What is remembered of many who come and go, some of whom choose their names themselves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

_MOST: Final = 10_000
_BETWEEN: Final = 250
"""So many more may come until room is made again: nobody waits for that each time that somebody comes."""


class _Used(Protocol):
    def is_idle(self, now_ms: float) -> bool:
        """What it remembers does not matter any more."""


K = TypeVar("K")
V = TypeVar("V", bound=_Used)


class Remembered(Generic[K, V]):
    """Once there are too many, those that are idle are forgotten, and the oldest of those that may go although they are
    not."""

    def __init__(self, may_go: Callable[[K], bool], most: int = _MOST, between: int = _BETWEEN) -> None:
        self._may_go = may_go
        self._most = self._room_for = most
        self._between = between
        self._all: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._all)

    def get(self, key: K) -> V | None:
        return self._all.get(key)

    def values(self) -> Iterator[V]:
        yield from self._all.values()

    def clear(self) -> None:
        self._all.clear()
        self._room_for = self._most

    def put(self, key: K, value: V) -> None:
        self._all[key] = value

    def make_room(self, now_ms: float) -> bool:
        """Before one more is put. True if some were forgotten, which nobody may use any more then."""
        before = len(self._all)
        if before < self._room_for:
            return False
        for _ in range(min(2 * self._between, before)):  # the oldest; those that stay are the newest then
            key, value = self._all.popitem(last=False)
            if not value.is_idle(now_ms) and not self._may_go(key):
                self._all[key] = value
        self._room_for = max(self._most, len(self._all) + self._between)
        return len(self._all) < before
