"""Partitions that a start finds in several log directories, and which of them is the replica.

Moves that were cut short leave several. Those that were replaced say so (`marks`). If all do, the one that was marked
last has not been replaced yet.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import NamedTuple

from kafkad.log import marks
from kafkad.log.directories import FoundPartition, LogDirectory
from kafkad.log.files import Files
from kafkad.log.indexed import LOG
from kafkad.log.names import Kind
from kafkad.log.partition_files import hold_a_partition, is_of_kafka, is_segment
from kafkad.names import TopicPartition, some


class DuplicatePartitionError(Exception):
    """Two log directories hold the same partition, and nothing says which is the one."""


class Place(NamedTuple):
    """One of several directories of a partition; `order` is that of `marks`."""

    order: float
    directory: LogDirectory
    found: FoundPartition
    names: list[str] | None
    """Of what is in it; None if it cannot be listed, and may have anything."""

    @property
    def has_segments(self) -> bool:
        return self.names is None or any(map(is_segment, self.names))

    @property
    def is_all_of_kafka(self) -> bool:
        return self.names is not None and all(map(is_of_kafka, self.names))

    @property
    def is_unmarked_rest(self) -> bool:
        return self.order == inf and (self.is_all_of_kafka or not hold_a_partition(self.names or ()))


def settle(found: Mapping[LogDirectory, Iterable[FoundPartition]], files: Files) -> tuple[list[Place], list[Place]]:
    """Those that were replaced; and those that are left over: beside one with segments, what a power cut has left of a
    copy, and somebody's own directories. DuplicatePartitionError; nothing is changed."""
    replaced: list[Place] = []
    left_over: list[Place] = []
    unsettled: list[list[Place]] = []
    for several in _several(found):
        places = sorted(
            (_place(directory, partition, files) for directory, partition in several), key=attrgetter("order")
        )
        others = _left_over(places)
        places = [place for place in places if place not in others]
        if len(places) > 1 and places[-1].order == places[-2].order:
            unsettled.append(places)
        left_over += others
        replaced += places[:-1]
    if unsettled:
        raise DuplicatePartitionError(_message(unsettled))
    return replaced, left_over


def _several(
    found: Mapping[LogDirectory, Iterable[FoundPartition]],
) -> Iterator[list[tuple[LogDirectory, FoundPartition]]]:
    seen: dict[TopicPartition, list[tuple[LogDirectory, FoundPartition]]] = defaultdict(list)
    for directory, partitions in found.items():
        for partition in partitions:
            if partition.name.kind is Kind.CURRENT:
                seen[partition.name.topic_partition].append((directory, partition))
    return (places for places in seen.values() if len(places) > 1)


def _place(directory: LogDirectory, found: FoundPartition, files: Files) -> Place:
    """DuplicatePartitionError where it was moved, and what says when cannot be read."""
    names: list[str] | None = None
    try:
        names = files.listdir(found.path)
    except OSError as error:
        if marks.was_moved(found.path):
            raise DuplicatePartitionError(
                f"{found.path} is not the only one of its partition, and cannot be listed: {error.strerror}. What is "
                "in it says which is the one to take. Have it readable, then start again."
            ) from error
    return Place(marks.order(names or ()), directory, found, names)


def _left_over(places: Sequence[Place]) -> list[Place]:
    """Beside one with segments, those without: what a power cut has left of a copy, and somebody's own."""
    if not any(place.has_segments for place in places):
        return []
    return [place for place in places if not place.has_segments and place.is_unmarked_rest]


def _message(unsettled: Iterable[Sequence[Place]]) -> str:
    named = [
        f"{places[0].found.name.topic_partition} in {' and in '.join(_size(place.found) for place in places)}"
        for places in unsettled
    ]
    return (
        f"partitions are in more than one log directory: {some(named)}. Either a log directory failed "
        "while they were being moved, or it was left out of log.dirs at a start, which then made them anew, empty. "
        "Move away the ones whose records you do not need, then start again."
    )


def _size(partition: FoundPartition) -> str:
    """Where it is, with the bytes of its records."""
    try:
        with os.scandir(partition.path) as entries:
            size = sum(entry.stat().st_size for entry in entries if entry.name.endswith(LOG))
    except OSError as error:
        return f"{partition.path} (not readable: {error.strerror})"
    return f"{partition.path} ({size} bytes)"
