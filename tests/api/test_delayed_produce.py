"""A produce request that waits until what it wrote is committed: what it hears, and when."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from kafkad.api.delayed_produce import DelayedProduce, DelayedProduces
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.replica.partition import Partition
from kafkad.timers import Timers
from tests.fakes import FakeClock


class Waited:
    """As much of a partition as is asked for: it is committed when the test says so."""

    def __init__(self, *, at_once: bool = False) -> None:
        self._at_once = at_once
        self.asked: list[int] = []
        self.committed: Callable[[KafkaError | None], None]
        self.forgotten: list[Callable[[KafkaError | None], None]] = []

    def when_committed(self, end: int, on_committed: Callable[[KafkaError | None], None]) -> None:
        self.asked.append(end)
        self.committed = on_committed
        if self._at_once:
            on_committed(None)

    def forget_commit(self, on_committed: Callable[[KafkaError | None], None]) -> None:
        self.forgotten.append(on_committed)


class Made:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timers = Timers()
        self.delayed = DelayedProduces(self.clock, self.timers)
        self.ends = 0

    def begin(self, *partitions: Waited, timeout_ms: int = 1000) -> DelayedProduce:
        delayed = self.delayed.new(timeout_ms)
        for place, partition in enumerate(partitions):
            delayed.wait_for(place, cast(Partition, partition), 10 + place)
        return delayed

    def end(self) -> None:
        self.ends += 1

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.expire(self.clock.monotonic_ms())


def codes(delayed: DelayedProduce) -> dict[int, ErrorCode]:
    return {place: error.code for place, error in delayed.failures.items()}


def test_it_is_over_once_with_the_last_of_its_partitions() -> None:
    made, a, b, c = Made(), Waited(), Waited(at_once=True), Waited()
    delayed = made.begin(a, b, c)
    assert (a.asked, b.asked, c.asked) == ([10], [11], [12])
    assert made.delayed.park(delayed, made.end)
    c.committed(StorageError("/disk", "it is gone"))
    assert (made.ends, len(made.delayed)) == (0, 1)
    a.committed(None)
    assert (made.ends, len(made.delayed)) == (1, 0)
    assert codes(delayed) == {2: ErrorCode.KAFKA_STORAGE_ERROR}


def test_what_is_committed_already_needs_no_wait_and_what_failed_at_once_is_not_lost() -> None:
    made, a, b = Made(), Waited(at_once=True), Waited()
    delayed = made.begin(a, b)
    b.committed(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert not made.delayed.park(delayed, made.end)
    assert codes(delayed) == {1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert (made.ends, len(made.delayed), len(made.timers)) == (0, 0, 0)


def test_each_further_failure_is_noted_without_those_before_it() -> None:
    """Thousands of partitions of a request may fail, one by one."""
    made, partitions = Made(), [Waited() for _ in range(4)]
    delayed = made.begin(*partitions)
    assert made.delayed.park(delayed, made.end)
    partitions[0].committed(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    failures = delayed.failures
    partitions[1].committed(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    made.advance(1000)
    assert delayed.failures is failures
    assert codes(delayed) == dict.fromkeys((0, 1), ErrorCode.NOT_LEADER_OR_FOLLOWER) | dict.fromkeys(
        (2, 3), ErrorCode.REQUEST_TIMED_OUT
    )
    assert made.begin(Waited()).failures == {}


def test_what_is_answered_otherwise_is_waited_for_no_more() -> None:
    made, a, b = Made(), Waited(), Waited(at_once=True)
    delayed = made.begin(a, b)
    delayed.forget(0)
    assert a.forgotten == [a.committed]
    assert not made.delayed.park(delayed, made.end)
    a.committed(StorageError("/disk", "it is gone"))
    assert not delayed.failures


def test_what_takes_too_long_is_told_so_and_what_comes_later_is_ignored() -> None:
    made, a, b, slow = Made(), Waited(), Waited(), Waited()
    delayed = made.begin(a, b)
    assert made.delayed.park(delayed, made.end)
    assert made.delayed.park(made.begin(slow, timeout_ms=60_000), made.end)
    a.committed(None)
    for _ in range(3):
        made.advance(500)
    assert made.ends == 1
    assert codes(delayed) == {1: ErrorCode.REQUEST_TIMED_OUT}
    assert (a.forgotten, b.forgotten, slow.forgotten) == ([], [b.committed], [])
    b.committed(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert codes(delayed) == {1: ErrorCode.REQUEST_TIMED_OUT}
    assert (made.ends, len(made.delayed)) == (1, 1)
    slow.committed(None)
    made.advance(60_000)
    assert (made.ends, len(made.delayed), len(made.timers)) == (2, 0, 0)


def test_a_request_whose_time_is_up_as_it_is_parked_hears_so_later() -> None:
    """Its reply is not with the connection yet."""
    made = Made()
    assert made.delayed.park(made.begin(Waited(), timeout_ms=0), made.end)
    assert made.ends == 0
    made.advance(0)
    assert made.ends == 1


def test_each_hears_in_time_whatever_others_wait_for() -> None:
    made, ended = Made(), []
    for timeout_ms in (60_000, 100, 200, 150):
        assert made.delayed.park(made.begin(Waited(), timeout_ms=timeout_ms), partial(ended.append, timeout_ms))
    for heard in ([], [100], [100, 150], [100, 150, 200]):
        assert ended == heard
        made.advance(100 if not ended else 50)
    assert ended == [100, 150, 200]


def test_all_that_wait_are_looked_at_once_in_a_while_however_little_time_they_give() -> None:
    made = Made()
    for ends in (1, 1, 1, 4):
        assert made.delayed.park(made.begin(Waited(), timeout_ms=0), made.end)
        made.advance(0 if made.ends == 0 else 4)
        assert made.ends == ends
    assert len(made.timers) == 0


def test_an_error_as_one_is_answered_keeps_no_other_from_hearing_of_its_time() -> None:
    made, ended = Made(), []

    def fail() -> None:
        raise ZeroDivisionError

    assert made.delayed.park(made.begin(Waited()), fail)
    assert made.delayed.park(made.begin(Waited()), partial(ended.append, 1))
    with pytest.raises(ZeroDivisionError):
        made.advance(1_000)
    assert made.delayed.park(made.begin(Waited()), partial(ended.append, 2))
    made.advance(1_000)
    assert ended == [1, 2]
    assert len(made.delayed) == 0


def test_requests_whose_time_is_up_together_hear_so_in_the_order_in_which_they_came() -> None:
    made, ended = Made(), []
    for request in range(50):
        assert made.delayed.park(made.begin(Waited()), partial(ended.append, request))
    made.advance(1_000)
    assert ended == list(range(50))
