"""Moves that errors of ours are in the way of: they are tried again, less and less often."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from kafkad.errors import StorageError
from kafkad.log.log import Log
from kafkad.log.manager import LogManager
from kafkad.log.move import Moves, Step
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from kafkad.timers import Timer, Timers
from tests.fakes import fails_once
from tests.upkeep.moving import FIRST, SECOND, Broker


def test_an_internal_error_in_one_move_ends_neither_it_nor_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_once(monkeypatch, Durable, "flush", ZeroDivisionError("ours"))
    broker.move(FIRST, broker.second)
    broker.move(SECOND, broker.first)
    broker.work()
    assert (broker.home(FIRST), broker.home(SECOND)) == (broker.first, broker.first)
    broker.work(after_ms=1_000)
    assert broker.home(FIRST) == broker.second


def test_an_internal_error_does_not_keep_the_replaced_replica(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_once(monkeypatch, LogManager, "put_away_replaced", MemoryError())
    broker.move(FIRST, broker.second)
    broker.work()
    assert (broker.home(FIRST), os.path.exists(os.path.join(broker.first, "t-0"))) == (broker.second, True)
    broker.work(after_ms=1_000)
    assert not os.path.exists(os.path.join(broker.first, "t-0"))


@pytest.mark.parametrize("error", [ZeroDivisionError, MemoryError])
def test_a_move_that_an_error_of_ours_is_in_the_way_of_is_tried_less_and_less_often_and_told_of_now_and_then(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    tried: list[float] = []
    begun_ms = broker.clock.monotonic_ms()

    async def fail(durable: Durable, log: Log) -> None:
        tried.append(broker.clock.monotonic_ms() - begun_ms)
        raise error

    monkeypatch.setattr(Durable, "flush", fail)
    broker.move(FIRST, broker.second)
    broker.work()
    for _ in range(30):
        broker.work(after_ms=1_000)
    assert tried == [0, 1_000, 3_000, 7_000, 15_000, 25_000]
    is_bug = error is not MemoryError
    why = "internal error in" if is_bug else "not enough memory for"
    said = (f"{why} moving t-0 to another log directory; trying again", is_bug)
    assert [(record.message, bool(record.exc_info)) for record in caplog.records] == [said] * 3


def test_the_pauses_of_a_move_begin_over_once_it_has_gone_on(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[float] = []
    begun_ms = broker.clock.monotonic_ms()
    step = Moves.step
    goes_on = [False, False, True, False, *[True] * 100]

    def fail_at_times(moves: Moves, tp: TopicPartition, *arguments: Any, **options: Any) -> Step:
        tried.append(broker.clock.monotonic_ms() - begun_ms)
        if not goes_on.pop(0):
            raise ZeroDivisionError("ours")
        return step(moves, tp, 1, **options)

    monkeypatch.setattr(Moves, "step", fail_at_times)
    broker.move(FIRST, broker.second)
    broker.work()
    for _ in range(10):
        broker.work(after_ms=1_000)
    assert tried[:5] == [0, 1_000, 3_000, 3_000, 4_000]
    assert broker.home(FIRST) == broker.second


def test_a_move_goes_on_although_memory_was_too_short_for_its_rest(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(durable: Durable, log: Log) -> None:
        raise MemoryError

    at, short = Timers.at, [True, True]

    def no_timer(timers: Timers, deadline_ms: float, action: Callable[[], None]) -> Timer:
        if getattr(getattr(action, "func", None), "__name__", "") == "_has_rested" and short:
            short.pop()
            raise MemoryError
        return at(timers, deadline_ms, action)

    with monkeypatch.context() as patched:
        patched.setattr(Durable, "flush", fail)
        patched.setattr(Timers, "at", no_timer)
        broker.move(FIRST, broker.second)
        broker.work()
        broker.work(after_ms=1_000)
    broker.work(after_ms=10_000)
    broker.work(after_ms=10_000)
    assert (short, broker.home(FIRST)) == ([], broker.second)


def test_a_disk_that_fails_while_a_move_is_given_up_is_not_passed_over(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(durable: Durable, directory: str, work: Callable[[], None]) -> None:
        broker.give_up(FIRST)
        raise StorageError(broker.second, "Input/output error")

    monkeypatch.setattr(Durable, "run", fail)
    broker.move(FIRST, broker.second)
    broker.work()
    assert [directory.failure is None for directory in broker.replicas.logs.directories] == [True, False]


def test_an_error_of_ours_before_all_moves_ends_none(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails_once(monkeypatch, Moves, "under_way", ZeroDivisionError("ours"))
    broker.move(FIRST, broker.second)
    broker.work()
    assert caplog.messages == ["internal error in looking for replicas to move; trying again"]
    broker.work(after_ms=1_000)
    assert broker.home(FIRST) == broker.second
