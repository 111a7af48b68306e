"""Whether the leader of a partition serves it, as its clients notice. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kctl.reach.connection import Disconnected


def silent_brokers(answers: Mapping[int, object]) -> frozenset[int]:
    """The brokers that do not answer, of those that were asked something."""
    return frozenset(broker for broker, answer in answers.items() if isinstance(answer, Disconnected))


def leader_trouble(leader: int, silent: Collection[int]) -> str | None:
    """`offline` without a leader, `unreachable` behind one that does not answer; None if nothing is wrong."""
    if leader < 0:
        return "offline"
    return "unreachable" if leader in silent else None
