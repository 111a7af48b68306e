"""Fetches that wait for more bytes of their partitions.

A partition that moved is only marked; the waiting fetches are tried once per turn of the event loop, however many
appends that turn brought.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkad.clock import Clock
from kafkad.timers import Timer, Timers

if TYPE_CHECKING:
    from kafkad.replica.partition import Partition


class FetchWait:
    """A fetch that found too little. `attempt(final)` answers it if it can, and says whether it did."""

    __slots__ = ("_partitions", "_timer", "attempt", "done")

    def __init__(self, partitions: Sequence[Partition], attempt: Callable[[bool], bool]) -> None:
        self.attempt = attempt
        self.done = False
        self._partitions = partitions
        self._timer: Timer | None = None

    def begin(self, timers: Timers, deadline_ms: float) -> None:
        for partition in self._partitions:
            partition.fetch_waits[self] = None
        self._timer = timers.at(deadline_ms, self._expire)

    def try_now(self) -> None:
        if not self.done and self.attempt(False):
            self.end()

    def end(self) -> None:
        """Forget it everywhere: answered, expired, or its connection is gone."""
        self.done = True
        for partition in self._partitions:
            partition.fetch_waits.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        if not self.done:
            self.end()
            self.attempt(True)


class Waits:
    """Collects the partitions that moved in this turn and then tries what waits for them."""

    def __init__(self, timers: Timers, clock: Clock, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._timers = timers
        self._clock = clock
        self._call_soon = call_soon
        self._moved: dict[Partition, None] = {}

    def fetch(self, partitions: Sequence[Partition], max_wait_ms: int, attempt: Callable[[bool], bool]) -> FetchWait:
        wait = FetchWait(partitions, attempt)
        wait.begin(self._timers, self._clock.monotonic_ms() + max_wait_ms)
        return wait

    def wake(self, partition: Partition) -> None:
        if not self._moved:
            self._call_soon(self._run)
        self._moved[partition] = None

    def _run(self) -> None:
        moved, self._moved = self._moved, {}
        for partition in moved:
            for wait in list(partition.fetch_waits):
                wait.try_now()
