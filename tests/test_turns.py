"""Turns of the event loop, with a clock of the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kafkad import turns
from kafkad.turns import LONG, SMALL, TOGETHER, TURN_S, Backlog, Jobs, Lane, Pieces, Turns


class Loop:
    """Calls what is due soon, a turn at a time; working takes time by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self._soon: list[Callable[[], None]] = []
        self.lane = Lane(self._soon.append, lambda: self.now)

    def turn(self) -> float:
        """The time it took."""
        begin, soon = self.now, self._soon[:]
        self._soon.clear()
        for callback in soon:
            callback()
        return self.now - begin

    @property
    def idle(self) -> bool:
        return not self._soon


def worker(loop: Loop, name: str, pieces: int, piece_s: float, done: list[str]) -> Callable[[float], None]:
    def step(until: float) -> None:
        nonlocal pieces
        while pieces:
            loop.now += piece_s
            pieces -= 1
            done.append(name)
            if loop.now >= until:
                break
        if pieces:
            loop.lane.add(step)

    return step


def test_a_turn_ends_however_many_wait_and_everybody_gets_a_part() -> None:
    loop = Loop()
    done: list[str] = []
    for name in "abcd":
        loop.lane.add(worker(loop, name, 100, 0.0005, done))
    assert loop.turn() <= TURN_S + 0.0005
    assert set(done) == set("abcd")
    while not loop.idle:
        assert loop.turn() <= TURN_S + 0.0005
    assert sorted(done) == sorted("abcd" * 100)


def test_a_large_piece_leaves_the_others_to_the_next_turn() -> None:
    loop = Loop()
    done: list[str] = []
    for name in "ab":
        loop.lane.add(worker(loop, name, 2, 0.02, done))
    loop.turn()
    assert done == ["a"]
    loop.turn()
    assert done == ["a", "b"]


def test_a_step_that_fails_stops_no_other() -> None:
    loop = Loop()
    done: list[str] = []

    def fail(until: float) -> None:
        raise MemoryError

    loop.lane.add(fail)
    loop.lane.add(worker(loop, "a", 1, 0.001, done))
    with pytest.raises(MemoryError):
        loop.turn()
    loop.turn()
    assert done == ["a"]
    assert loop.idle


def test_what_is_worked_beside_the_lane_is_allowed_anew_in_each_turn() -> None:
    loop = Loop()
    loop.lane.left = -3.0
    loop.lane.add(worker(loop, "a", 1, 0.001, []))
    assert loop.lane.left < 0
    loop.turn()
    assert TURN_S - 0.002 < loop.lane.left < TURN_S
    assert loop.idle


def test_large_jobs_that_begin_in_one_turn_share_it_and_a_small_one_is_done_all_the_same() -> None:
    async def scenario() -> None:
        loop = Loop()
        jobs = Jobs(loop.lane)

        def pieces(count: int, piece_s: float) -> Pieces[str]:
            for _ in range(count):
                loop.now += piece_s
                yield
            return "done"

        begun = [jobs.do(pieces(50, 0.00004)) for _ in range(100)]
        assert loop.now - 100.0 < TURN_S + 100 * 0.00013 + 0.001  # not 200 ms
        assert jobs.do(pieces(20, 0.000004)).done()
        assert not any(job.done() for job in begun)
        while not loop.idle:
            assert loop.turn() <= TURN_S + 0.0002
        assert all(job.result() == "done" for job in begun)
        begin = loop.now
        assert not jobs.do(pieces(50, 0.00004)).done()
        assert loop.now - begin > 0.0009  # the turns since have given new time

    asyncio.run(scenario())


def test_what_takes_long_is_not_begun_beside_the_lane() -> None:
    async def scenario() -> None:
        loop = Loop()
        jobs = Jobs(loop.lane)

        def pieces() -> Pieces[None]:
            yield LONG
            loop.now += 0.003

        begun = [jobs.do(pieces()) for _ in range(100)]
        assert loop.now == 100.0
        while not loop.idle:
            assert loop.turn() <= TURN_S + 0.003
        assert all(job.done() for job in begun)

    asyncio.run(scenario())


def test_hundreds_that_give_way_share_the_turns_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0

    def worked(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def work() -> None:
        own = Turns()
        for _ in range(100):
            worked(0.00005)
            await own.give_way()

    async def scenario() -> None:
        working = [asyncio.create_task(work()) for _ in range(300)]
        longest = 0.0
        while not all(task.done() for task in working):
            before = now
            await asyncio.sleep(0)
            longest = max(longest, now - before)
        assert longest < 0.05, "not 300 x 5 ms"
        alone = asyncio.create_task(work())
        turned = 0
        while not alone.done():
            await asyncio.sleep(0)
            turned += 1
        assert turned < 5

    monkeypatch.setattr(turns, "monotonic", lambda: now)
    asyncio.run(scenario())


def test_jobs_that_have_grown_are_done_one_after_the_other() -> None:
    async def scenario() -> None:
        loop = Loop()
        jobs = Jobs(loop.lane)
        sizes = dict.fromkeys(range(4), 0)

        def growing(number: int) -> Pieces[None]:
            for _ in range(100):
                loop.now += 0.001
                sizes[number] += 1
                yield

        begun = [jobs.do(growing(n), has_grown=lambda n=n: sizes[n] >= 20) for n in sizes]  # type: ignore[misc]
        while not loop.idle:
            loop.turn()
            assert sum(30 < size < 100 for size in sizes.values()) <= 1
        assert all(job.done() for job in begun)

    asyncio.run(scenario())


def test_jobs_take_little_memory_together_and_small_ones_wait_for_no_others() -> None:
    async def scenario() -> None:
        loop = Loop()
        jobs = Jobs(loop.lane)
        going: set[int] = set()
        most = 0

        def pieces(number: int) -> Pieces[None]:
            nonlocal most
            going.add(number)
            most = max(most, len(going))
            for _ in range(30):
                loop.now += 0.001
                yield
            going.remove(number)

        begun = [jobs.do(pieces(number), size=TOGETHER // 4, host=f"10.0.0.{number % 2}") for number in range(20)]
        larger = jobs.do(pieces(20), size=2 * TOGETHER)
        assert most == 4
        small = jobs.do(pieces(-1), size=SMALL)
        while not small.done():
            loop.turn()
        assert not any(job.done() for job in begun[4:])
        while not loop.idle:
            loop.turn()
        assert larger.done() and all(job.done() for job in begun)
        assert most == 5, "four, and the small one"

    asyncio.run(scenario())


def test_hosts_take_turns_with_jobs_that_are_done_alone_and_those_of_each_keep_their_order() -> None:
    async def scenario() -> None:
        loop = Loop()
        jobs = Jobs(loop.lane)
        done: list[str] = []

        def large(name: str) -> Pieces[None]:
            for _ in range(30):
                loop.now += 0.001
                yield
            done.append(name)

        for number in range(5):
            jobs.do(large(f"crowd {number}"), alone=True, host="10.0.0.1")
        for number in range(2):
            jobs.do(large(f"other {number}"), alone=True, host="10.0.0.2")
        while not loop.idle:
            loop.turn()
        assert done == ["crowd 0", "other 0", "crowd 1", "other 1", "crowd 2", "crowd 3", "crowd 4"]

    asyncio.run(scenario())


def test_a_backlog_is_worked_off_in_its_order_a_turn_at_a_time() -> None:
    loop = Loop()
    backlog, done = Backlog(loop.lane), list[int]()

    def work(number: int) -> None:
        loop.now += 0.001
        done.append(number)
        if number == 3:
            backlog.add(lambda: work(20))

    for number in range(20):
        backlog.add(lambda number=number: work(number))  # type: ignore[misc]
    assert done == []
    while not loop.idle:
        assert loop.turn() <= TURN_S + 0.001
    assert done == list(range(21))


def test_a_backlog_goes_on_behind_what_fails(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    backlog, done = Backlog(loop.lane), list[str]()
    backlog.add(lambda: done.append("first"))
    backlog.add(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    backlog.add(lambda: done.append("last"))
    while not loop.idle:
        loop.turn()
    assert done == ["first", "last"]
    assert "ZeroDivisionError" in caplog.text
