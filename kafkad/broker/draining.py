"""The end of a stop: what was asked is still answered, where that can happen, or at least done.

A produce with acks=all is answered when followers have fetched it. Brokers that stop too, or are gone, never will: when
only such produces are left, and the oldest has not been answered for a second, none of them will be.
"""

from __future__ import annotations

from typing import Protocol

from kafkad.clock import Clock
from kafkad.timers import Timers, sleep

_LONGEST_MS = 30_000
FOLLOWERS_MS = 1_000
"""Twice the time that a follower's fetch waits at its leader."""
_LOOK_MS = 10


class Answering(Protocol):
    """A broker that answers what it was asked."""

    @property
    def idle(self) -> bool: ...
    @property
    def oldest_wait_for_followers(self) -> object | None: ...


class Connections(Protocol):
    def close_quiet(self) -> None: ...


async def drain(connections: Connections, broker: Answering, clock: Clock, timers: Timers) -> None:
    """Fetches that wait for data are not worth waiting for; everything else that can be gets its answer. What is still
    being worked out when its client has gone is waited for, too: it may be about to write."""
    begun = since = clock.monotonic_ms()
    oldest: object | None = None
    while True:
        connections.close_quiet()
        if broker.idle:
            return
        now = clock.monotonic_ms()
        before, oldest = oldest, broker.oldest_wait_for_followers
        if oldest is None or oldest is not before:
            since = now
        if now - since >= FOLLOWERS_MS or now - begun >= _LONGEST_MS:
            return
        await sleep(_LOOK_MS, clock, timers)
