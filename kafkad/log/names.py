"""The names of partition directories, as Kafka gives them: `topic-0`, and three that a partition may go through.

`topic-0.<id>-delete` waits to be removed, `topic-0.<id>-future` is a copy under way to another log directory, and
`topic-0.<id>-stray` was put aside by a Kafka that did not know the partition.
"""

from __future__ import annotations

import uuid
from enum import Enum
from typing import NamedTuple

from kafkad.names import TopicPartition

_LONGEST_NAME = 255


class Kind(Enum):
    CURRENT = ""
    DELETED = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


class PartitionName(NamedTuple):
    """For a deleted one the topic may be cut short."""

    topic_partition: TopicPartition
    kind: Kind


def current_name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


def future_name(topic_partition: TopicPartition) -> str:
    return f"{current_name(topic_partition)}.{uuid.uuid4().hex}{Kind.FUTURE.value}"


def deleted_name(topic_partition: TopicPartition) -> str:
    """Cut to what a file system allows, at the expense of the topic."""
    suffix = f"-{topic_partition.partition}.{uuid.uuid4().hex}{Kind.DELETED.value}"
    return topic_partition.topic[: _LONGEST_NAME - len(suffix)] + suffix


def parse_name(name: str) -> PartitionName | None:
    """None for what is no partition's: `lost+found`, an operator's own directories."""
    kind = Kind.CURRENT
    for candidate in (Kind.DELETED, Kind.FUTURE, Kind.STRAY):
        before, dot, _ = name.removesuffix(candidate.value).rpartition(".")
        if name.endswith(candidate.value) and dot:
            kind, name = candidate, before
            break
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdigit()):
        return None
    return PartitionName(TopicPartition(topic, int(partition)), kind)
