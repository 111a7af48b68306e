"""Waiting, with one request, until all that it wrote is on the disk (`kafkad.acks.fsync`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.log import Log
from kafkad.replica.durable import Durable

Failures = dict[int, KafkaError]


class Commits:
    """By place in the request: the log whose fsync it waits for. Callbacks only: a task per request costs three times
    what the request itself does."""

    __slots__ = ("_failures", "_left", "_on_end", "_timer")

    def __init__(self, on_end: Callable[[Failures], None]) -> None:
        """`on_end` is called once, with what failed or took too long."""
        self._on_end = on_end
        self._failures: Failures = {}
        self._left: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, durable: Durable, logs: Mapping[int, Log], timeout_ms: int) -> bool:
        """False when there is nothing to wait for; then `on_end` is never called."""
        self._left.update(logs)
        for place, log in logs.items():
            durable.commit(log, partial(self._committed, place))
        if self._left:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._expire)
        return bool(self._left)

    def _committed(self, place: int, error: KafkaError | None) -> None:
        if place not in self._left:
            return  # too late: the request has been answered
        self._left.discard(place)
        if error is not None:
            self._failures[place] = error
        if not self._left and self._timer is not None:
            self._timer.cancel()
            self._on_end(self._failures)

    def _expire(self) -> None:
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "not confirmed in time")
        self._failures.update(dict.fromkeys(self._left, late))
        self._left.clear()
        self._on_end(self._failures)
