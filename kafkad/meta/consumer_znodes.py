"""Nodes of consumers that live in the metadata store (before Kafka 0.9), so that their groups can be found and moved.

Such a group is whoever has a node under `/consumers`. Who of it lives, and what it owns, are ephemeral nodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from kafkad.meta.nodetext import json_fields, json_text

GROUPS = "/consumers"
"""Its children are the groups, by name."""

_NOT_IN_A_PATH = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


class Consumer(NamedTuple):
    """One member. `pattern` is static, white_list or black_list; of the latter two, `subscription` names a pattern
    instead of topics. The numbers are how many threads read."""

    subscription: Mapping[str, int]
    pattern: str
    timestamp_ms: int

    @staticmethod
    def parent(group: str) -> str:
        """Its children are the ids of the members: group, host, time and a part of a UUID."""
        return f"{GROUPS}/{group}/ids"

    @staticmethod
    def path(group: str, consumer: str) -> str:
        return f"{GROUPS}/{group}/ids/{consumer}"

    def encode(self) -> bytes:
        return json_text(
            {
                "version": 1,
                "subscription": dict(self.subscription),
                "pattern": self.pattern,
                "timestamp": str(self.timestamp_ms),
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Consumer:
        """The first versions wrote no time, and not everybody else wrote a pattern."""
        value = json_fields(data)
        subscription = {str(topic): int(threads) for topic, threads in value["subscription"].items()}
        return cls(subscription, str(value.get("pattern", "static")), int(value.get("timestamp", -1)))


class Owner:
    """The thread of the member that reads a partition."""

    @staticmethod
    def parent(group: str, topic: str | None = None) -> str:
        """Its children are topics, or the partitions of one."""
        return f"{GROUPS}/{group}/owners" if topic is None else f"{GROUPS}/{group}/owners/{topic}"

    @staticmethod
    def path(group: str, topic: str, partition: int) -> str:
        return f"{GROUPS}/{group}/owners/{topic}/{partition}"

    @staticmethod
    def encode(consumer: str, thread: int) -> bytes:
        return f"{consumer}-{thread}".encode()

    @staticmethod
    def decode(data: bytes) -> tuple[str, int]:
        """The member's id, and the number of its thread."""
        consumer, _, thread = data.decode().rpartition("-")
        return consumer, int(thread)


class ConsumerOffset:
    """An offset that OffsetCommit version 0 wrote."""

    @staticmethod
    def parent(group: str, topic: str | None = None) -> str:
        """Its children are topics, or the partitions of one."""
        return f"{GROUPS}/{group}/offsets" if topic is None else f"{GROUPS}/{group}/offsets/{topic}"

    @staticmethod
    def path(group: str, topic: str, partition: int) -> str:
        """ValueError for a group whose name ZooKeeper takes for no path: read or written, it has no node."""
        if _NOT_IN_A_PATH.search(group) or not {"", ".", ".."}.isdisjoint(group.split("/")):
            raise ValueError(f"a group with the name {group!r} has no node")
        return f"{GROUPS}/{group}/offsets/{topic}/{partition}"

    @staticmethod
    def encode(offset: int) -> bytes:
        return str(offset).encode()

    @staticmethod
    def decode(data: bytes) -> int:
        return int(data)
