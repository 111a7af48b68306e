"""Timers that the event loop wakes."""

from __future__ import annotations

import asyncio

from kafkad.clock import Clock
from kafkad.timers import Timers

_MOST_AT_ONCE = 500
"""When more are due, such as the time-outs of thousands of transactions, others have their turn of the loop between."""
_LONGEST_S = 1e6
"""Later deadlines are looked at again then: event loops do not take delays of any length."""


class LoopTimers:
    """Timers that the event loop wakes: one call_later for the earliest deadline, however many there are."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._handle: asyncio.TimerHandle | None = None
        self.timers = Timers(self._arm)

    def _arm(self, deadline_ms: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), 0.0)
        self._handle = self._loop.call_later(min(delay_ms / 1000, _LONGEST_S), self._run)

    def _run(self) -> None:
        """An action that fails is the loop's to report; the others still have their time."""
        self._handle = None
        try:
            self.timers.expire(self._clock.monotonic_ms(), _MOST_AT_ONCE)
        finally:
            deadline_ms = self.timers.next_deadline_ms()
            if deadline_ms is not None:
                self._arm(deadline_ms)
