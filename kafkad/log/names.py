"""The names of partition directories and of the files in them, as Kafka gives them.

A directory is `topic-0`, and three more that a partition may go through:
`topic-0.<id>-delete` waits to be removed, `topic-0.<id>-future` is a copy under way to another log directory, and
`topic-0.<id>-stray` was put aside by a Kafka that did not know the partition.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kafkad.names import TopicPartition

LONGEST_NAME = 255
_DIGITS = 20
LARGEST_BASE = 2**63 - 2**32
"""A segment that began later would run out of numbers: no log has one."""


class Kind(Enum):
    CURRENT = ""
    DELETED = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


_MARKS = tuple(kind.value for kind in Kind if kind is not Kind.CURRENT)


class PartitionName(NamedTuple):
    """For a deleted one the topic may be cut short."""

    topic_partition: TopicPartition
    kind: Kind


def current_name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


def future_name(topic_partition: TopicPartition) -> str:
    return f"{current_name(topic_partition)}.{_fresh_id()}{Kind.FUTURE.value}"


def deleted_name(topic_partition: TopicPartition) -> str:
    """Cut to what a file system allows, at the expense of the topic."""
    suffix = f"-{topic_partition.partition}.{_fresh_id()}{Kind.DELETED.value}"
    return topic_partition.topic[: LONGEST_NAME - len(suffix)] + suffix


def _fresh_id() -> str:
    from uuid import uuid4  # a tool that only reads names need not wait for its import

    return uuid4().hex


def parse_name(name: str) -> PartitionName | None:
    """None for what is no partition's: `lost+found`, an operator's own directories."""
    kind = Kind.CURRENT
    if name.endswith(_MARKS):
        before, dot, mark = name.rpartition(".")
        if dot:
            kind, name = Kind("-" + mark.rpartition("-")[2]), before
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdigit()):
        return None
    return PartitionName(TopicPartition(topic, int(partition)), kind)


def base_of(name: str) -> int | None:
    """The offset that the name of a segment's file (or of a snapshot) begins with."""
    digits = name[:_DIGITS]
    if len(digits) < _DIGITS or not (digits.isascii() and digits.isdecimal()) or name[_DIGITS : _DIGITS + 1] != ".":
        return None
    base = int(digits)
    return base if base <= LARGEST_BASE else None
