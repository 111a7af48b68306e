"""Connections whose clients are to come back: what they were told when they came is true no more.

Each ends in a moment in which its client waits for no answer, and few at a time, for all come back at once. Those that
have no such moment yet are asked again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from kafkad.clock import Clock
from kafkad.net.connection import Connection
from kafkad.timers import Timers

TOGETHER: Final = 20
PAUSE_MS: Final = 20
ROUND_MS: Final = 1_000


class Renewal:
    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._due: deque[Connection] = deque()
        self._stayed: list[Connection] = []
        """Those of this round that have not ended at once."""

    def begin(self, connections: Iterable[Connection]) -> None:
        goes_on = bool(self._due)
        self._due.extend(connections)
        if not goes_on:
            self._step()

    def _step(self) -> None:
        due = self._due
        for _ in range(min(TOGETHER, len(due))):
            connection = due.popleft()
            connection.leave()
            if not connection.closed:
                self._stayed.append(connection)
        pause_ms = PAUSE_MS
        if not due:
            pause_ms = ROUND_MS
            due.extend(self._stayed)
            self._stayed.clear()
        if due:
            self._timers.at(self._clock.monotonic_ms() + pause_ms, self._step)
