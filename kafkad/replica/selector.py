"""Chooses the replica that a consumer is to read from, as Kafka's RackAwareReplicaSelector does (KIP-392).

Pure. The leader is asked; a consumer that says its rack is sent to a replica in it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from kafkad.model import BrokerInfo
from kafkad.replica.isr import Follower


def nearest(
    rack: str,
    offset: int,
    leader: int,
    followers: Mapping[int, Follower],
    isr: Container[int],
    brokers: Mapping[int, BrokerInfo],
) -> int:
    """The leader if it is in this rack or nobody else is, otherwise the follower there that has most.

    Only followers that are in sync and alive and have `offset` count.
    """

    def is_there(broker: int) -> bool:
        return broker in brokers and brokers[broker].rack == rack

    if is_there(leader):
        return leader
    candidates = [
        (follower.end_offset, follower.caught_up_ms, broker)
        for broker, follower in followers.items()
        if broker in isr and is_there(broker) and follower.start_offset <= offset <= follower.end_offset
    ]
    return max(candidates)[2] if candidates else leader
