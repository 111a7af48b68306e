"""Staying awake after an answer, when the next request of that connection is likely to come at once.

A core that has nothing to do goes to sleep, and to wake it takes as long as to answer a small request, on a virtual
machine longer. So the event loop polls for a moment instead of waiting, but only after a request that came that soon
itself: connections that are idle or slow never cost anything, however many they are.
"""

from __future__ import annotations

from collections.abc import Callable
from os import sched_yield
from time import monotonic
from typing import Final

NEVER: Final = float("-inf")
SOON_S: Final = 100e-6
"""Long enough for a client that is woken, reads 64 KB and asks for more. A client that sends on one connection
every 100 us keeps a core busy, but the loop yields it when others need it; at half that pace there is no polling."""


class Awake:
    """Keeps one event loop awake: gives it something to do in every turn, so that all connections are served alike."""

    __slots__ = ("_call_soon", "_polling", "_until", "clock")

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock: Callable[[], float] = monotonic
    ) -> None:
        self.clock = clock
        self._call_soon = call_soon
        self._until = NEVER
        self._polling = False

    def served(self, gap: float) -> float:
        """A connection was served, `gap` seconds after it had been the last time; returns when."""
        now = self.clock()
        if gap < SOON_S:
            self._until = now + SOON_S
            if not self._polling:
                self._polling = True
                self._call_soon(self._poll)
        return now

    def _poll(self) -> None:
        if self.clock() < self._until:
            sched_yield()  # the client may need this very core
            self._call_soon(self._poll)
        else:
            self._polling = False
