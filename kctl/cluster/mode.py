"""Whether a cluster keeps its metadata in ZooKeeper or in a KRaft quorum, by the APIs it serves. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_LEADER_AND_ISR = 4
"""What a controller that stands on ZooKeeper sends to brokers."""
_DESCRIBE_QUORUM = 55


def mode(versions: Mapping[int, tuple[int, int]]) -> str:
    if _DESCRIBE_QUORUM in versions:
        return "kraft"
    return "zookeeper" if _LEADER_AND_ISR in versions else "embedded"
