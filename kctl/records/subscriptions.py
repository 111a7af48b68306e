"""The bytes in which members tell each other what they want and get: Kafka's consumer protocol."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from kafkad.names import TopicPartition
from kafkad.wire.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
)
from kafkad.wire.primitives import MalformedError
from kafkad.wire.schema import encode, read
from kctl.errors import KctlError
from kctl.records.assignors import Partition, Subscription

_VERSION = struct.Struct(">h")
_GENERATION = struct.Struct(">i")
_WRITTEN = 2
"""The version of subscriptions that we write: with what we have, and since which generation."""
_NEWEST = 3


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def write_subscription(assignor: str, topics: Sequence[str], owned: Sequence[Partition], generation: int) -> bytes:
    """Java's sticky assignor looks for what members had in bytes of its own; the others do not look, or in the list."""
    data = None
    if assignor == "sticky" and owned:
        data = _sticky_data(owned, generation)
    elif assignor == "cooperative-sticky":
        data = _GENERATION.pack(generation)
    subscription = ConsumerProtocolSubscription(
        topics=list(topics),
        user_data=data,
        owned_partitions=[
            SubscriptionTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in _by_topic(owned).items()
        ],
        generation_id=generation,
    )
    return _VERSION.pack(_WRITTEN) + encode(subscription, _WRITTEN)


def read_subscription(assignor: str, data: bytes, instance: str | None) -> Subscription:
    try:
        (version,) = _VERSION.unpack_from(data)
        said, _ = read(ConsumerProtocolSubscription, min(version, _NEWEST), data, _VERSION.size)
        owned = [(each.topic, partition) for each in said.owned_partitions for partition in each.partitions]
        generation = said.generation_id
        if assignor == "sticky" and said.user_data:
            owned, generation = _read_sticky_data(said.user_data)
        elif assignor == "cooperative-sticky" and said.user_data and generation < 0:
            (generation,) = _GENERATION.unpack_from(said.user_data)
    except (MalformedError, struct.error, UnicodeDecodeError) as error:
        raise KctlError(f"a member of the group sent a malformed subscription: {error}") from error
    return Subscription(tuple(said.topics), tuple(owned), generation, instance)


def write_assignment(partitions: Sequence[Partition]) -> bytes:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignmentTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in _by_topic(partitions).items()
        ]
    )
    return _VERSION.pack(1) + encode(assignment, 1)


def read_assignment(data: bytes) -> list[TopicPartition]:
    if not data:  # a member that the leader has left out
        return []
    try:
        (version,) = _VERSION.unpack_from(data)
        said, _ = read(ConsumerProtocolAssignment, min(version, _NEWEST), data, _VERSION.size)
    except (MalformedError, struct.error) as error:
        raise KctlError(f"the group's leader sent a malformed assignment: {error}") from error
    return [TopicPartition(each.topic, number) for each in said.assigned_partitions for number in each.partitions]


def _sticky_data(owned: Sequence[Partition], generation: int) -> bytes:
    out = bytearray(struct.pack(">i", len(_by_topic(owned))))
    for topic, numbers in _by_topic(owned).items():
        name = topic.encode()
        out += struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers)
    return bytes(out) + _GENERATION.pack(generation)


def _read_sticky_data(data: bytes) -> tuple[list[Partition], int]:
    (topics,) = struct.unpack_from(">i", data)
    at = 4
    owned: list[Partition] = []
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", data, at)
        name = data[at + 2 : at + 2 + size].decode()
        at += 2 + size
        (count,) = struct.unpack_from(">i", data, at)
        if not 0 <= count <= len(data):
            raise MalformedError(f"{count} partitions")
        owned += [(name, number) for number in struct.unpack_from(f">{count}i", data, at + 4)]
        at += 4 + 4 * count
    generation = _GENERATION.unpack_from(data, at)[0] if len(data) >= at + 4 else -1
    return owned, generation
