"""Names and ids of topics and partitions, how a text names many, and the metadata's file. Apart from `model`, so that
wire clients import nothing else."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import NamedTuple

TopicId = bytes
"""A topic's 16-byte id, raw: it is compared and looked up on the fetch path as it stands in the frame."""

NO_TOPIC_ID: TopicId = bytes(16)
GROUPS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUPS_TOPIC, TRANSACTIONS_TOPIC})
"""The topics in which coordinators keep their state; clients are told, and may not delete records there."""
MAX_TOPIC_NAME = 249
MAX_PARTITION = 2**31 - 1
METADATA_FILE = "kafkad-metadata.journal"
"""The embedded store. A plain file, so that a real Kafka started on the same log directory passes over it."""
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(topic: str) -> str | None:
    """Why no topic can have this name, in Kafka's words; None if one can. It is a part of the names of directories."""
    if not topic:
        return "the empty string is not allowed"
    if topic in (".", ".."):
        return f"{topic!r} is not allowed"
    if len(topic) > MAX_TOPIC_NAME:
        return f"the length of '{topic}' is longer than the max allowed length {MAX_TOPIC_NAME}"
    if not _TOPIC_NAME.fullmatch(topic):
        return f"'{topic}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def is_another_topic(known: TopicId, topic_id: TopicId) -> bool:
    """True if these are the ids of two topics. What is left from Kafka below 2.8 has none, and may be of any."""
    return known != topic_id and NO_TOPIC_ID not in (known, topic_id)


def id_text(raw: bytes) -> str:
    """A 16-byte id as Kafka writes it in znodes, files and tools: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def id_from_text(text: str) -> bytes:
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a 16-byte id in base64")
    return raw


def java_hash(text: str) -> int:
    """The 32 bits of Java's String.hashCode, by which Kafka sorts names into places."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value


def home_partition(key: str, count: int) -> int:
    """The partition of a coordinator's topic with `count` partitions that is home to this group or transactional id.

    By the absolute value of its hash, which Kafka takes to be 0 for the smallest number.
    """
    value = java_hash(key)
    if value >= 1 << 31:
        value = (1 << 32) - value
    return (0 if value == 1 << 31 else value) % count


def some(things: Sequence[object], *, most: int = 5, of: int = 0) -> str:
    """The first of many names, and how many more there are. `of`: of how many `things` are the first already."""
    named, more = ", ".join(map(str, things[:most])), (of or len(things)) - most
    return named if more <= 0 else f"{named} and {more} more"


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
