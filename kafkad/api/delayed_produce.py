"""Produce requests with acks=all that wait until all their partitions have committed, and their deadlines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf

from kafkad.clock import Clock
from kafkad.errors import ErrorCode, KafkaError
from kafkad.replica.partition import OnCommitted, Partition
from kafkad.timers import Timer, Timers

_APART_MS = 10
"""The least time between two looks at the deadlines of all that wait: there may be tens of thousands."""
_NO_FAILURES: dict[int, KafkaError] = {}
"""What all requests share in which nothing has failed."""


class DelayedProduce:
    """One request: the places whose partitions have not committed yet, and those that never will."""

    __slots__ = ("_on_end", "_parked", "deadline_ms", "failures", "waiting")

    def __init__(self, deadline_ms: float, parked: dict[DelayedProduce, None]) -> None:
        self._parked = parked
        self.waiting: dict[int, tuple[Partition, OnCommitted]] = {}
        self.deadline_ms = deadline_ms
        self.failures = _NO_FAILURES
        """By the partition's place in the request."""
        self._on_end: Callable[[], None] | None = None

    def wait_for(self, place: int, partition: Partition, end: int) -> None:
        """HOT. To be called right after the append at whose end `end` is."""
        on_committed = partial(self._committed, place)
        self.waiting[place] = partition, on_committed
        partition.when_committed(end, on_committed)

    def forget(self, place: int) -> None:
        """It is answered with something else."""
        waited = self.waiting.pop(place, None)
        if waited is not None:
            partition, on_committed = waited
            partition.forget_commit(on_committed)

    def park(self, on_end: Callable[[], None]) -> None:
        """Call back once nothing is waited for any more, which it still is."""
        self._on_end = on_end
        self._parked[self] = None

    def expire(self) -> None:
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "not committed in time")
        for place in list(self.waiting):
            self._fail(place, late)
            self.forget(place)
        self._end()

    def _committed(self, place: int, error: KafkaError | None) -> None:
        if self.waiting.pop(place, None) is None:
            return  # too late: the request has been answered
        if error is not None:
            self._fail(place, error)
        if not self.waiting:
            self._end()

    def _fail(self, place: int, error: KafkaError) -> None:
        if self.failures is _NO_FAILURES:
            self.failures = {}
        self.failures[place] = error

    def _end(self) -> None:
        if self._on_end is not None:
            self._parked.pop(self, None)
            self._on_end()


class DelayedProduces:
    """All requests that wait. One timer, for the first deadline, looks after all: one for each would cost more than the
    request."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._parked: dict[DelayedProduce, None] = {}
        """In the order in which they came, in which they are also answered when their time is up."""
        self._timer: Timer | None = None
        self._due_ms = inf
        """When it is due; nobody who waits has an earlier deadline."""
        self._looked_ms = -inf

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def oldest(self) -> DelayedProduce | None:
        return next(iter(self._parked), None)

    def new(self, timeout_ms: int) -> DelayedProduce:
        """For a request that has to be answered within `timeout_ms`."""
        return DelayedProduce(self._clock.monotonic_ms() + timeout_ms, self._parked)

    def park(self, delayed: DelayedProduce, on_end: Callable[[], None]) -> bool:
        """Call `on_end` when all is committed, has failed, or takes too long, but never before this returns; False,
        and it is never called, when there is nothing left to wait for."""
        if not delayed.waiting:
            return False
        delayed.park(on_end)
        if delayed.deadline_ms < self._due_ms:
            self._look_by(delayed.deadline_ms)
        return True

    def _look_by(self, deadline_ms: float) -> None:
        due_ms = max(deadline_ms, self._looked_ms + _APART_MS)
        if due_ms < self._due_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._due_ms = due_ms
            self._timer = self._timers.at(due_ms, self._look)

    def _look(self) -> None:
        self._looked_ms, self._due_ms = self._clock.monotonic_ms(), inf
        try:
            for delayed in [delayed for delayed in self._parked if delayed.deadline_ms <= self._looked_ms]:
                delayed.expire()
        finally:  # an error of ours keeps no other request from being answered
            if self._parked:
                self._look_by(min(delayed.deadline_ms for delayed in self._parked))
