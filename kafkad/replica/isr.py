"""Rules of the in-sync replicas and the high watermark. Pure: values in, values out.

The rules are Kafka's (KIP-497 for changes of the ISR that are under way). The maximal ISR is the committed one together
with the one that the controller has been asked for: whoever may be elected next is within it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import NamedTuple

UNKNOWN_OFFSET = -1


class LagLimits(NamedTuple):
    """How far a follower may be behind and still be in sync."""

    ms: float
    """replica.lag.time.max.ms"""
    messages: float = inf
    """kafkad.replica.lag.max.messages; whoever exceeds it leaves at once, and joins only when it no longer does."""


DEFAULT_LAG = LagLimits(30_000)


class Follower(NamedTuple):
    """A follower as its leader knows it by its fetches."""

    end_offset: int = UNKNOWN_OFFSET
    """The end of its log: the offset it asked for last."""
    start_offset: int = UNKNOWN_OFFSET
    caught_up_ms: float = -inf
    """The last time at which it had everything that the leader had."""
    fetched_ms: float = -inf
    leader_end: int = UNKNOWN_OFFSET
    """The end of the leader's log at its last fetch."""


def begun(before: Follower | None, in_sync: bool, leader_end: int, now_ms: float) -> Follower:
    """A follower when a leader epoch begins; `before` is what the same leader knew of it in the last one."""
    caught_up_ms = now_ms if in_sync else -inf
    if before is None:
        return Follower(caught_up_ms=caught_up_ms)
    return before._replace(caught_up_ms=caught_up_ms, fetched_ms=caught_up_ms, leader_end=leader_end)


def fetched(known: Follower, offset: int, start_offset: int, leader_end: int, now_ms: float) -> Follower:
    """The follower after a fetch from `offset` on.

    It also counts as caught up, as of its last fetch, once it has what the leader had then: a follower of a busy
    partition is never quite at the end.
    """
    caught_up_ms = known.caught_up_ms
    if offset >= leader_end:
        caught_up_ms = max(caught_up_ms, now_ms)
    elif offset >= known.leader_end:
        caught_up_ms = max(caught_up_ms, known.fetched_ms)
    return Follower(offset, start_offset, caught_up_ms, now_ms, leader_end)


def gone(known: Follower) -> Follower:
    """A follower out of the ISR whose broker is gone: as if it had not fetched in this leader epoch yet."""
    return known._replace(caught_up_ms=-inf, fetched_ms=-inf)


def has_fetched(follower: Follower) -> bool:
    """True if it has fetched in this leader epoch, or was in sync when that began."""
    return follower.fetched_ms > -inf


def is_caught_up(follower: Follower, leader_end: int, now_ms: float, lag: LagLimits) -> bool:
    if leader_end - follower.end_offset > lag.messages and follower.end_offset != UNKNOWN_OFFSET:
        return False
    return follower.end_offset == leader_end or now_ms - follower.caught_up_ms <= lag.ms


def lagging(
    isr: Iterable[int], followers: Mapping[int, Follower], leader_end: int, now_ms: float, lag: LagLimits
) -> frozenset[int]:
    """The followers that have to leave the ISR."""
    return frozenset(
        broker for broker in isr if broker in followers and not is_caught_up(followers[broker], leader_end, now_ms, lag)
    )


def may_join(follower: Follower, high_watermark: int, epoch_start: int, lag: LagLimits) -> bool:
    """True if it has all that was ever committed: the high watermark alone may still be that of the last leader.

    It must have fetched in this leader epoch: a broker that has died, or lost the disk, had all of that too.
    """
    return (
        has_fetched(follower)
        and follower.end_offset >= high_watermark
        and follower.end_offset >= epoch_start
        and follower.leader_end - follower.end_offset <= lag.messages
    )


def high_watermark(
    now_at: int, leader_end: int, maximal: Iterable[int], followers: Mapping[int, Follower], joining: Iterable[int] = ()
) -> int:
    """The offset that all members of the maximal ISR have, and all that are about to join it; it never goes back."""
    ends = [followers[broker].end_offset for broker in {*maximal, *joining} if broker in followers]
    return max(now_at, min([leader_end, *ends]))
