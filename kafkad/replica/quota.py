"""The replication quotas of a broker (KIP-73): bytes a second for the replicas that are being moved.

One on the side of leaders, for what throttled followers that are not in sync are sent, one on the side of followers,
for what throttled ones fetch until they have caught up, and one for what moves between log directories of the broker
(KIP-113). Pure: times come from outside.
"""

from __future__ import annotations

from collections.abc import Collection

from kafkad.config import LONG_MAX

_BURST_S = 1.0
"""The time for which what was not used is saved up."""
_LONGEST_WAIT_MS = 1_000.0
"""After which the rate, which may be another by then, is looked at again."""


class ReplicationQuota:
    """Whoever is throttled may take any amount while nothing is owed, and then owes it; it is paid off at the rate."""

    __slots__ = ("_at_ms", "_owed", "_rate")

    def __init__(self, bytes_per_second: float = LONG_MAX) -> None:
        """LONG_MAX is no limit."""
        self._rate = bytes_per_second
        self._owed = 0.0
        """Bytes; below zero it is what was saved up."""
        self._at_ms = 0.0

    def limit(self, bytes_per_second: float, now_ms: float) -> None:
        """To another rate from now on: what is owed until then is paid off at the one before."""
        self._pay(now_ms)
        self._rate = bytes_per_second

    def take(self, count: int, now_ms: float) -> None:
        self._pay(now_ms)
        self._owed += count

    def wait_ms(self, now_ms: float) -> float:
        """After which to ask again whether something may be taken; 0 if it may be now."""
        self._pay(now_ms)
        if self._owed < 1 or self._rate == LONG_MAX:
            return 0.0
        if self._rate <= 0:
            return _LONGEST_WAIT_MS
        return min(1_000 * self._owed / self._rate, _LONGEST_WAIT_MS)

    def _pay(self, now_ms: float) -> None:
        paid = self._rate * (now_ms - self._at_ms) / 1_000
        self._owed = max(self._owed - paid, -self._rate * _BURST_S)
        self._at_ms = now_ms


def is_throttled(replicas: Collection[str], partition: int, broker: int) -> bool:
    """By the topic's list of throttled replicas, as the settings of Kafka have it: `0:1,1:2`, or `*` for all."""
    return bool(replicas) and ("*" in replicas or f"{partition}:{broker}" in replicas)
