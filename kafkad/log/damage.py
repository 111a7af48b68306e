"""Damage found in a log, described for operators: where, how much, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafkad.names import TopicPartition

UNKNOWN_END = -1


class Damage(NamedTuple):
    """Bytes of a segment's file that are no batches. `next` is the offset that follows what they should have held."""

    path: str
    position: int
    size: int
    first: int
    next: int
    reason: str
    was_cut: bool
    """It was the tail of the log, and is gone; otherwise it is kept, and readers of these offsets are refused."""

    def text(self, tp: TopicPartition) -> str:
        size = "" if self.size == UNKNOWN_END else f", {self.size} bytes"
        where = f"{tp}: {self.path}, from byte {self.position} on{size}"
        if self.was_cut:
            return (
                f"{where}: no whole batch ({self.reason}). A crash broke off what was being written there: it was cut "
                f"off, and the log ends with offset {self.first}. With kafkad.acks.fsync nothing answered was in it"
            )
        remedy = "Restore the file from a copy while kafkad is stopped"
        if self.next == UNKNOWN_END:
            return f"{where}: damaged ({self.reason}). It is kept; readers get CORRUPT_MESSAGE there. {remedy}"
        return (
            f"{where}: damaged ({self.reason}). It is kept; readers of offsets {self.first} to {self.next - 1} get "
            f"CORRUPT_MESSAGE. {remedy}, or have consumers go on at offset {self.next}; kctl check-log shows more"
        )


class Damages:
    """All damage found since the start, each place once. A thread may add while the loop reads."""

    def __init__(self) -> None:
        self._found: dict[TopicPartition, dict[tuple[str, int], Damage]] = {}
        self._partitions: dict[str, TopicPartition] = {}
        """By the path of a file with damage."""

    def add(self, tp: TopicPartition, damage: Damage) -> bool:
        """True if it is news."""
        found = self._found.setdefault(tp, {})
        place = damage.path, damage.position
        if place in found:
            return False
        self._partitions[damage.path] = tp
        found[place] = damage
        return True

    def mended(self, path: str, start: int, end: int) -> None:
        """The bytes from `start` to `end` of that file are sound again."""
        tp = self._partitions.get(path)
        if tp is not None:
            self._keep(tp, lambda damage: damage.path != path or not start <= damage.position < end)

    def cut_off(self, tp: TopicPartition, offset: int) -> None:
        """The partition's log ends with `offset` now: no damage is left behind it."""
        self._keep(tp, lambda damage: damage.was_cut or damage.first < offset)

    def forget(self, tp: TopicPartition) -> None:
        """The partition was deleted, or has another log."""
        for path, _ in self._found.pop(tp, {}):
            self._partitions.pop(path, None)

    def kept(self) -> Iterator[tuple[TopicPartition, Damage]]:
        return ((tp, damage) for tp, damage in self._all() if not damage.was_cut)

    def cut(self) -> Iterator[tuple[TopicPartition, Damage]]:
        return ((tp, damage) for tp, damage in self._all() if damage.was_cut)

    def _keep(self, tp: TopicPartition, is_left: Callable[[Damage], bool]) -> None:
        found = self._found.get(tp, {})
        for place, damage in list(found.items()):
            if not is_left(damage):
                del found[place]

    def _all(self) -> Iterator[tuple[TopicPartition, Damage]]:
        for tp, found in list(self._found.items()):
            for damage in list(found.values()):
                yield tp, damage
