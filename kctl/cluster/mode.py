"""The mode of a cluster, ZooKeeper or KRaft quorum, told by the APIs it serves. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_LEADER_AND_ISR = 4
"""A request that only a controller on ZooKeeper sends to brokers."""
_DESCRIBE_QUORUM = 55


def mode(versions: Mapping[int, tuple[int, int]]) -> str:
    if _DESCRIBE_QUORUM in versions:
        return "kraft"
    return "zookeeper" if _LEADER_AND_ISR in versions else "embedded"
