"""Damage found in a log, described for operators: where, how much, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
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
        self._found: dict[tuple[str, int], tuple[TopicPartition, Damage]] = {}

    def add(self, tp: TopicPartition, damage: Damage) -> bool:
        """True if it is news."""
        place = damage.path, damage.position
        if place in self._found:
            return False
        self._found[place] = tp, damage
        return True

    def mended(self, path: str, start: int, end: int) -> None:
        """The bytes from `start` to `end` of that file are sound again."""
        self._found = {
            place: found for place, found in self._found.items() if place[0] != path or not start <= place[1] < end
        }

    def cut_off(self, tp: TopicPartition, offset: int) -> None:
        """The partition's log ends with `offset` now: no damage is left behind it."""
        self._found = {
            place: found
            for place, found in self._found.items()
            if found[0] != tp or found[1].was_cut or found[1].first < offset
        }

    def forget(self, tp: TopicPartition) -> None:
        """The partition was deleted, or has another log."""
        self._found = {place: found for place, found in self._found.items() if found[0] != tp}

    def kept(self) -> Iterator[tuple[TopicPartition, Damage]]:
        return (found for found in list(self._found.values()) if not found[1].was_cut)

    def cut(self) -> Iterator[tuple[TopicPartition, Damage]]:
        return (found for found in list(self._found.values()) if found[1].was_cut)
