"""Frozen values that every floor may hold: who, where, and in which state."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import NamedTuple

TopicId = bytes
"""A topic's 16-byte id, raw: it is compared and looked up on the fetch path as it stands in the frame."""

NO_TOPIC_ID: TopicId = bytes(16)
NO_LEADER = -1
LEADER_DURING_DELETE = -2
NO_EPOCH = -1
GROUPS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUPS_TOPIC, TRANSACTIONS_TOPIC})
"""Where coordinators keep their state; clients are told, and may not delete records there."""


def id_text(raw: bytes) -> str:
    """A 16-byte id as Kafka writes it in znodes, files and tools: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def id_from_text(text: str) -> bytes:
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a 16-byte id in base64")
    return raw


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    listener: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = NO_EPOCH

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((e for e in self.endpoints if e.listener == listener), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """What `/brokers/topics/T/partitions/P/state` says; `partition_epoch` is that znode's version."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int = 0
    recovering: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAssignment:
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
