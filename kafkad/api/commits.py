"""Waiting, with one request, until all that it wrote is on the disk (`kafkad.acks.fsync`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic

from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.log import Log
from kafkad.replica.durable import Durable

Failures = Mapping[int, KafkaError]

_SWEEP_S = 0.5
_NO_FAILURES: Failures = {}


class Commits:
    """All requests that wait. Callbacks only, and one clock for all: a task and a timer for each request would cost
    more than the request itself does."""

    def __init__(self, durable: Durable) -> None:
        self._durable = durable
        self._waiting: set[_Commit] = set()
        self._sweeping = False

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, logs: Mapping[int, Log], timeout_ms: int, on_end: Callable[[Failures], None]) -> bool:
        """Wait for the logs, given by their place in the request; `on_end` is called once, with what failed or took
        longer than `timeout_ms`. False when there is nothing to wait for: then it is never called."""
        if not logs:
            return False
        commit = _Commit(logs, monotonic() + timeout_ms / 1000, on_end)
        self._waiting.add(commit)
        for place, log in logs.items():
            self._durable.commit(log, partial(self._committed, commit, place))
        if not commit.left:
            return False
        commit.begun = True
        if not self._sweeping:
            self._sweep()
        return True

    def _committed(self, commit: _Commit, place: int, error: KafkaError | None) -> None:
        left = commit.left
        if place not in left:
            return  # too late: the request has been answered
        left.discard(place)
        if error is not None:
            commit.failures = {**commit.failures, place: error}
        if not left:
            self._end(commit)

    def _end(self, commit: _Commit) -> None:
        self._waiting.discard(commit)
        if commit.begun:
            commit.on_end(commit.failures)

    def _sweep(self) -> None:
        now = monotonic()
        for commit in [commit for commit in self._waiting if commit.deadline <= now]:
            late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "not confirmed in time")
            commit.failures = {**commit.failures, **dict.fromkeys(commit.left, late)}
            commit.left.clear()
            self._end(commit)
        self._sweeping = bool(self._waiting)
        if self._sweeping:
            asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)


class _Commit:
    """One request: the places that are not on the disk yet, and those that never will be."""

    __slots__ = ("begun", "deadline", "failures", "left", "on_end")

    def __init__(self, places: Mapping[int, Log], deadline: float, on_end: Callable[[Failures], None]) -> None:
        self.left = set(places)
        self.deadline = deadline
        self.on_end = on_end
        self.failures = _NO_FAILURES
        self.begun = False
