"""What topics and partitions are called. Apart from `model`, so that a client of the wire pays for nothing else."""

from __future__ import annotations

import base64
from typing import NamedTuple

TopicId = bytes
"""A topic's 16-byte id, raw: it is compared and looked up on the fetch path as it stands in the frame."""

NO_TOPIC_ID: TopicId = bytes(16)
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
