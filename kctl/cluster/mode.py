"""The mode of a cluster, ZooKeeper or KRaft quorum, told by what its brokers say. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kctl.reach.connection import is_kraft

_LEADER_AND_ISR = 4
"""A request that controllers on ZooKeeper send to brokers, and those of several kafkads without one."""


def mode(versions: Mapping[int, tuple[int, int]], zookeeper: str | None) -> str:
    """By the APIs that are served, unless a kafkad tells its setting zookeeper.connect, which is empty without one."""
    if zookeeper is not None:
        return "zookeeper" if zookeeper else "embedded"
    if is_kraft(versions):
        return "kraft"
    return "zookeeper" if _LEADER_AND_ISR in versions else "embedded"
