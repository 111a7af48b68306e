"""Fetches that wait for more bytes, and being told of a partition that moved.

Whoever has looked at a partition leaves a `Watcher` there; it is told of the next thing that happens, once. What it
then wants to try waits for the next turn of the event loop, however many appends this one brings. Hundreds that are
tried at once, or whose time is up at once, share their turns with everybody else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafkad.clock import Clock
from kafkad.timers import Timer, Timers


class Watcher(Protocol):
    """Registered with one partition in one of its roles: a consumer's or a follower's."""

    def watermark_moved(self) -> None:
        """Consumers may see more, or the start of the log has moved."""

    def end_moved(self) -> None:
        """The log has grown, or the partition is led no more."""


class FetchWait:
    """A fetch that found too little. `attempt(final)` answers it if it can, and says whether it did."""

    __slots__ = ("_attempt", "_timer", "_waits", "stirred")

    def __init__(self, waits: Waits, attempt: Callable[[bool], bool]) -> None:
        self._waits = waits
        self._attempt: Callable[[bool], bool] | None = attempt
        """None when it waits no more: the fetch knows its wait, and in a cycle they would stay."""
        self.stirred = False
        self._timer: Timer | None = None

    def begin(self, timers: Timers, deadline_ms: float) -> None:
        self._timer = timers.at(deadline_ms, self.expire_soon)

    def stir(self) -> None:
        """Try it in the next turn of the loop."""
        if not self.stirred:
            self.stirred = True
            self._waits.soon(self.try_now)

    def try_now(self) -> None:
        self.stirred = False
        attempt = self._attempt
        if attempt is not None and attempt(False):
            self.end()

    def end(self) -> None:
        """Answered, expired, or its connection is gone."""
        if self._attempt is not None:
            self._attempt = None
            self._waits.fetches -= 1
            if self._timer is not None:
                self._timer.cancel()

    def expire_soon(self) -> None:
        """Its time is up, or is not to be waited for: answer it with what there is."""
        self._waits.soon(self._expire)

    def _expire(self) -> None:
        attempt = self._attempt
        if attempt is not None:
            self.end()
            attempt(True)


class Waits:
    """All fetches that wait on one broker."""

    def __init__(self, timers: Timers, clock: Clock, soon: Callable[[Callable[[], None]], object]) -> None:
        """`soon` has something done in a later turn of the loop, not all of it in the next if it is much."""
        self.timers = timers
        self._clock = clock
        self.soon = soon
        self.fetches = 0
        """The number of fetches that wait."""

    def fetch(self, max_wait_ms: int, attempt: Callable[[bool], bool]) -> FetchWait:
        wait = FetchWait(self, attempt)
        self.fetches += 1
        wait.begin(self.timers, self._clock.monotonic_ms() + max_wait_ms)
        return wait
