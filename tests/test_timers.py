import asyncio
import itertools

import pytest

from kafkad.broker.loop_timers import LoopTimers
from kafkad.clock import SystemClock
from kafkad.timers import Pauses, Timers, every, within
from tests.fakes import FakeClock


def test_expire_runs_what_is_due_in_order_of_deadline() -> None:
    timers, ran = Timers(), list[str]()
    timers.at(20, lambda: ran.append("b"))
    timers.at(10, lambda: ran.append("a"))
    timers.at(30, lambda: ran.append("c"))
    assert timers.expire(20) == 2
    assert ran == ["a", "b"]
    assert timers.next_deadline_ms() == 30


def test_the_loop_has_other_turns_between_thousands_that_are_due() -> None:
    async def scenario() -> None:
        loop, clock = asyncio.get_running_loop(), SystemClock()
        timers, ran = LoopTimers(loop, clock).timers, list[int]()
        for number in range(3000):
            timers.at(clock.monotonic_ms() - 1, lambda number=number: ran.append(number))
        in_between = list[int]()
        while len(ran) < 3000:
            await asyncio.sleep(0)
            in_between.append(len(ran))
        assert ran == sorted(ran)
        assert max(b - a for a, b in itertools.pairwise([0, *in_between])) <= 500

    asyncio.run(scenario())


def test_a_cancelled_timer_never_runs_and_is_no_deadline() -> None:
    timers, ran = Timers(), list[str]()
    timers.at(10, lambda: ran.append("a")).cancel()
    assert timers.next_deadline_ms() is None
    assert timers.expire(100) == 0
    assert not ran


def test_cancelled_timers_do_not_pile_up() -> None:
    timers = Timers()
    for _ in range(5000):
        timers.at(1e9, lambda: None).cancel()
    assert len(timers._heap) < 1200


def test_the_owner_hears_only_of_earlier_deadlines() -> None:
    heard = list[float]()
    timers = Timers(heard.append)
    for deadline in (30, 40, 10, 20):
        timers.at(deadline, lambda: None)
    assert heard == [30, 10]


def test_an_action_that_fails_does_not_stop_the_clock_of_the_others() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        reported: list[object] = []
        loop.set_exception_handler(lambda loop, context: reported.append(context["exception"]))
        clock = SystemClock()
        timers = LoopTimers(loop, clock).timers
        rung = loop.create_future()
        failure = ValueError("a mistake")

        def fail() -> None:
            raise failure

        timers.at(clock.monotonic_ms(), fail)
        timers.at(clock.monotonic_ms() + 1, lambda: rung.set_result(None))
        await asyncio.wait_for(rung, 10)
        assert reported == [failure]

    asyncio.run(scenario())


def test_a_job_that_fails_once_is_done_again_after_the_time_that_holds_then(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        clock, timers, rounds = FakeClock(), Timers(), list[float]()
        intervals = iter((10, 20, 30))

        async def job() -> None:
            rounds.append(clock.monotonic_ms() - begun)
            if len(rounds) == 1:
                raise ValueError("a mistake")

        begun = clock.monotonic_ms()
        going_on = asyncio.create_task(every(lambda: next(intervals), "the dishes", job, clock, timers))
        for _ in range(6):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            clock.advance(10)
            timers.expire(clock.monotonic_ms())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        going_on.cancel()
        assert rounds == [10, 30, 60]
        assert caplog.messages == ["internal error in the dishes; it will be retried"]

    asyncio.run(scenario())


@pytest.mark.parametrize("is_done", [True, False])
def test_what_is_waited_for_within_a_time_is_left_to_go_on(is_done: bool) -> None:
    async def scenario() -> None:
        clock, timers = FakeClock(), Timers()
        first, second = (asyncio.get_running_loop().create_future() for _ in range(2))
        waiting = asyncio.create_task(within(1000, [first, second], clock, timers))
        first.set_result(None)
        await asyncio.sleep(0)
        timers.expire(999)
        await asyncio.sleep(0)
        assert not waiting.done()
        if is_done:
            second.set_result(None)
        else:
            timers.expire(1000)
        await waiting
        assert not second.cancelled()
        assert len(timers) == 0

    asyncio.run(scenario())


def test_behind_a_success_an_error_is_news_again_and_its_pause_short() -> None:
    pauses = Pauses(100)
    assert [pauses.after(ValueError()) for _ in range(3)] == [(100, True), (200, False), (400, False)]
    pauses.succeeded()
    assert [pauses.after(ValueError()) for _ in range(2)] == [(100, True), (200, False)]
