"""Partitions as people name them: 0,3-5; and of topics: orders, orders:0,1 or orders:0-3. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from kafkad.errors import ErrorCode
from kctl.errors import Exit, KctlError

_MOST_PARTITIONS = 1_000_000
"""A range of more is a slip of the finger, and would only fill the memory."""


class Scope(NamedTuple):
    """None: all partitions of the topic."""

    topic: str
    partitions: tuple[int, ...] | None = None


def parse_numbers(text: str) -> list[int]:
    """`0,3-5` as [0, 3, 4, 5], each once."""
    numbers: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,10})(?:-(\d{1,10}))?\s*", part, re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < first + _MOST_PARTITIONS:
            raise KctlError(f'"{text}" is not a list of partitions such as 0,3-5', exit_code=Exit.USAGE)
        numbers |= dict.fromkeys(range(first, last + 1))
    return list(numbers)


def parse_scope(text: str) -> Scope:
    """orders, orders:0,1 or orders:0-3."""
    topic, colon, numbers = text.partition(":")
    try:
        if topic:
            return Scope(topic, tuple(parse_numbers(numbers)) if colon else None)
    except KctlError:
        pass  # said below with the topic in front
    hint = "write it as orders, orders:0,1 or orders:0-3"
    raise KctlError(f'"{text}" is not a topic with partitions', exit_code=Exit.USAGE, hints=(hint,))


def not_there(topic: str, wanted: Iterable[int], there: Collection[int]) -> Iterator[KctlError]:
    """An error for each partition that is wanted and that the topic does not have."""
    for partition in wanted:
        if partition not in there:
            yield KctlError(
                f'topic "{topic}" has no partition {partition}',
                exit_code=Exit.NOT_FOUND,
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name,
                hints=(f"it has {len(there)}, from 0 to {len(there) - 1}",),
            )
