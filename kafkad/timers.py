"""Deadlines in one heap, and pauses. Nothing sleeps here: the owner asks `next_deadline_ms` and calls `expire(now)`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from kafkad.clock import Clock

log = logging.getLogger(__name__)

_LONGEST_PAUSE_MS = 10_000


class Timer:
    """A handle on one deadline; cancelling is free, the heap forgets it later."""

    __slots__ = ("action", "deadline_ms")

    def __init__(self, deadline_ms: float, action: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Timers:
    """`at` arms, `expire` runs what is due and returns how many ran.

    `on_sooner(deadline_ms)` tells the owner that it must wake earlier than it was going to.
    """

    def __init__(self, on_sooner: Callable[[float], None] | None = None) -> None:
        self.on_sooner = on_sooner
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()

    def __len__(self) -> int:
        return sum(1 for _, _, timer in self._heap if timer.action is not None)

    def at(self, deadline_ms: float, action: Callable[[], None]) -> Timer:
        self._forget_cancelled_if_many()
        timer = Timer(deadline_ms, action)
        heap = self._heap
        heappush(heap, (deadline_ms, next(self._order), timer))
        if heap[0][2] is timer and self.on_sooner is not None:
            self.on_sooner(deadline_ms)
        return timer

    def next_deadline_ms(self) -> float | None:
        heap = self._heap
        while heap and heap[0][2].action is None:
            heappop(heap)
        return heap[0][0] if heap else None

    def expire(self, now_ms: float, most: int | None = None) -> int:
        """`most`: after so many the rest stays due."""
        ran = 0
        heap = self._heap
        while heap and heap[0][0] <= now_ms and ran != most:
            timer = heappop(heap)[2]
            action, timer.action = timer.action, None
            if action is not None:
                action()
                ran += 1
        return ran

    def _forget_cancelled_if_many(self) -> None:
        """Long deadlines that are cancelled early (fetch waits) must not pile up until they are due."""
        heap = self._heap
        size = len(heap)
        if size >= 1024 and size & (size - 1) == 0:
            heap[:] = [entry for entry in heap if entry[2].action is not None]
            heapify(heap)


class Pauses:
    """Between tries of one thing that an error of ours may be in the way of for ever: each is twice as long as the one
    before, up to 10 s. Until then each kind of error is told of once, and then each error."""

    def __init__(self, first_ms: float) -> None:
        self._first_ms = self._next_ms = first_ms
        self._told: type[Exception] | None = None

    def after(self, error: Exception, *, is_ours: bool = True) -> tuple[float, bool]:
        """How long to wait now, and whether to tell of the error. One that is not ours makes the next pause short."""
        pause_ms = self._next_ms
        is_news = type(error) is not self._told or pause_ms == _LONGEST_PAUSE_MS
        self._told = type(error)
        self._next_ms = min(2 * pause_ms, _LONGEST_PAUSE_MS) if is_ours else self._first_ms
        return pause_ms, is_news

    def succeeded(self) -> None:
        """The next error is as the first one."""
        self._next_ms, self._told = self._first_ms, None


async def sleep(ms: float, clock: Clock, timers: Timers) -> None:
    """Return after `ms` milliseconds of `clock`, when `timers` are expired."""
    due = asyncio.Event()
    timer = timers.at(clock.monotonic_ms() + ms, due.set)
    try:
        await due.wait()
    finally:
        timer.cancel()


async def within(ms: float, awaited: Collection[asyncio.Future[None]], clock: Clock, timers: Timers) -> None:
    """Return when all of these, which do not fail, are done, or after `ms` milliseconds. They are left to go on."""
    time_is_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = timers.at(clock.monotonic_ms() + ms, partial(time_is_up.set_result, None))
    try:
        either: list[asyncio.Future[Any]] = [asyncio.gather(*awaited), time_is_up]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()


async def every(
    interval_ms: Callable[[], float], what: str, job: Callable[[], Awaitable[None]], clock: Clock, timers: Timers
) -> None:
    """Do a job again and again, with a rest before each round. An error in one is logged, and the next comes."""
    while True:
        await sleep(interval_ms(), clock, timers)
        try:
            await job()
        except Exception:
            log.exception("internal error in %s; it will be retried", what)
