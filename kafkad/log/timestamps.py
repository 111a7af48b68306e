"""The largest timestamps of a log's segments, by which a search for a timestamp finds the segment to look into.

Timestamps come from clients and are in no order, but the largest one up to the end of each segment grows with the
segments: it is found once, and then a search costs the same with one segment and with a thousand.
"""

from __future__ import annotations

from bisect import bisect_left

from kafkad.log.segment import Segment


class Timestamps:
    """`segments` is the log's own list, which grows at its end while this is in use."""

    __slots__ = ("_largest_until", "_segments")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._largest_until: list[int] = []
        """For each segment but the last, the largest timestamp in it and those before it."""

    def learn_one(self) -> bool:
        """Look at one more segment before any search; False when there was none left."""
        known = self._largest_until
        if len(known) >= len(self._segments) - 1:
            return False
        known.append(max(self._segments[len(known)].max_timestamp, known[-1] if known else -1))
        return True

    def first_that_may_hold(self, timestamp: int, number: int) -> int | None:
        """The number of the first segment, from this one on, with a record that is not older."""
        for each in range(max(number, bisect_left(self._largest_until, timestamp)), len(self._segments)):
            if self._segments[each].max_timestamp >= timestamp:
                return each
        return None

    def first_with_largest(self) -> Segment:
        known = self._largest_until
        if not known or self._segments[-1].max_timestamp > known[-1]:
            return self._segments[-1]
        return self._segments[bisect_left(known, known[-1])]
