"""The segments of one log, and the search for the one that holds an offset."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import overload

from kafkad.log.indexed import Hole
from kafkad.log.segment import NOWHERE, Segment
from kafkad.log.timestamps import Timestamps


class Segments:
    """A log's segments in the order of their offsets, at least one; the last is active, the only one written to."""

    __slots__ = ("_bases", "active", "all", "damaged_from", "timestamps")

    def __init__(self, segments: list[Segment]) -> None:
        self.become(segments)

    def become(self, segments: list[Segment]) -> None:
        """Have these from now on: some of them are others than before, or were cut or mended."""
        self.all = segments
        self._bases = [segment.base for segment in segments]
        self.active = segments[-1]
        self.timestamps = Timestamps(segments)
        self.damaged_from = min([segment.base for segment in segments if segment.holes], default=NOWHERE)
        """The base of the first segment with damage; past any offset if there is none."""

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.all)

    @overload
    def __getitem__(self, place: int) -> Segment: ...

    @overload
    def __getitem__(self, place: slice) -> list[Segment]: ...

    def __getitem__(self, place: int | slice) -> Segment | list[Segment]:
        return self.all[place]

    @property
    def first_base(self) -> int:
        return self._bases[0]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.all)

    @property
    def holes(self) -> list[tuple[Segment, Hole]]:
        return [(segment, hole) for segment in self.all for hole in segment.holes]

    def add(self, segment: Segment) -> None:
        """Append a new segment, which becomes the active one."""
        self.all.append(segment)
        self._bases.append(segment.base)
        self.active = segment

    def number_of(self, offset: int) -> int:
        """The position in `all` of the segment that holds `offset`, or of the first when it lies before that."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def starting_at(self, offset: int) -> list[Segment]:
        """The segment that holds `offset`, and all after it."""
        return self.all[self.number_of(offset) :]

    def closed_between(self, start: int, end: int) -> list[Segment]:
        """The closed segments with offsets from `start` on that begin before `end`."""
        return self.all[self.number_of(start) : min(bisect_left(self._bases, end), len(self.all) - 1)]

    def end_before(self, offset: int, segment: Segment) -> int:
        """The position in `segment` where a reader that may not see `offset` must stop. BadBatch if damage is in the
        way."""
        following = bisect_right(self._bases, segment.base)
        if following < len(self._bases) and self._bases[following] <= offset:
            return segment.size
        return segment.last_position if segment.last_base == offset else segment.locate_end(offset)

    def closed_run(self, bases: tuple[int, ...]) -> slice | None:
        """The place in `all` of neighbours with exactly these bases; None if there are none, or one is active."""
        first = bisect_left(self._bases, bases[0])
        until = first + len(bases)
        if until >= len(self._bases) or tuple(self._bases[first:until]) != bases:
            return None
        return slice(first, until)
