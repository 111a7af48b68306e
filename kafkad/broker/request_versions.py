"""The versions in which requests go to other brokers, as inter.broker.protocol.version caps them.

While brokers of a cluster are upgraded one after the other, those that are new already keep to what the old ones read.
The table has what Kafka 3.9 sends at each protocol version; requests that are not in it go in the highest version that
both sides have.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkad.config.protocol import Protocol

FETCH, LIST_OFFSETS, LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 1, 2, 4, 5, 6

_SINCE: Mapping[int, tuple[tuple[Protocol, int], ...]] = {
    FETCH: (
        (Protocol(3, 9, 0), 17),
        (Protocol(3, 7, 4), 16),
        (Protocol(3, 5, 1), 15),
        (Protocol(3, 5, 0), 14),
        (Protocol(3, 1, 0), 13),
    ),
    LIST_OFFSETS: ((Protocol(3, 9, 0), 9), (Protocol(3, 5, 0), 8), (Protocol(3, 0, 1), 7)),
    LEADER_AND_ISR: ((Protocol(3, 4, 0), 7), (Protocol(3, 2, 0), 6)),
    STOP_REPLICA: ((Protocol(3, 4, 0), 4), (Protocol(2, 6, 0), 3)),
    UPDATE_METADATA: ((Protocol(3, 4, 0), 8), (Protocol(2, 8, 1), 7)),
}
"""API key → from which protocol on it goes in which version, the newest first."""
_FIRST = {FETCH: 13}
"""A follower names topics by their ids."""


def of(protocol: Protocol) -> dict[int, tuple[int, int]]:
    """API key → the first and the last version in which its requests may go to other brokers."""
    return {
        key: (_FIRST.get(key, 0), next((last for since, last in steps if protocol >= since), steps[-1][1]))
        for key, steps in _SINCE.items()
    }
