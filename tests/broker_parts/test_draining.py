"""A stop waits for answers that may still come, and for those of followers no longer than these may take."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from kafkad.broker.draining import FOLLOWERS_MS, drain
from kafkad.timers import Timers
from tests.fakes import FakeClock

LONGEST_MS = 30_000
NEVER = 10**9


class Broker:
    """Produces wait, for followers or for something here; the times at which they are answered, the oldest first. There
    are always new ones."""

    def __init__(self, clock: FakeClock, *answered_at: int, for_followers: bool) -> None:
        self._clock = clock
        self._produces = deque((at, object()) for at in answered_at)
        self._for_followers = for_followers

    def _left(self) -> deque[tuple[int, object]]:
        while self._produces and self._produces[0][0] <= self._clock.monotonic_ms():
            self._produces.popleft()
        return self._produces

    @property
    def idle(self) -> bool:
        return not self._left()

    @property
    def oldest_wait_for_followers(self) -> object | None:
        return next((produce for _, produce in self._left()), None) if self._for_followers else None

    def close_quiet(self) -> None:
        """All that is left is of clients that have gone."""
        if left := self._left():
            left.append((left[-1][0], object()))


def drained_in(*answered_at: int, for_followers: bool) -> float:
    async def run() -> float:
        clock, timers = FakeClock(), Timers()
        broker = Broker(clock, *answered_at, for_followers=for_followers)
        draining = asyncio.ensure_future(drain(broker, broker, clock, timers))
        while not draining.done():
            await asyncio.sleep(0)
            clock.advance(10)
            timers.expire(clock.monotonic_ms())
            await asyncio.sleep(0)
        return clock.monotonic_ms()

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("answered_at", "for_followers", "ends"),
    [
        ((), True, 0),
        ((500, 1_400, 2_300), True, 2_300),
        ((500, 1_400, NEVER), True, 1_400 + FOLLOWERS_MS),
        ((NEVER, NEVER), True, FOLLOWERS_MS),
        ((20_000,), False, 20_000),
        ((NEVER,), False, LONGEST_MS),
    ],
)
def test_how_long_a_stop_waits(answered_at: tuple[int, ...], for_followers: bool, ends: int) -> None:
    assert ends <= drained_in(*answered_at, for_followers=for_followers) <= ends + 100
