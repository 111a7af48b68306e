"""Who is refused keeps a place in line: the next time what it asked for is there."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from random import Random

import pytest

from kafkad.security.quotas.clients import Meter
from kafkad.security.quotas.keys import Quota
from kafkad.security.quotas.line import Turn
from kafkad.security.quotas.rate import Windows
from tests.fakes import FakeClock

RATE = 10_000_000


def meter(rate: float = RATE) -> Meter:
    made = Meter(Quota.FETCH, ("u", "c"), Windows())
    made.limit(rate)
    return made


def full(clock: FakeClock, rate: float = RATE) -> Meter:
    """Of which nothing is left, up to a byte."""
    made = meter(rate)
    assert made.take(rate * 10, clock.monotonic_ms()) == 0
    return made


class Reader:
    def __init__(self, meter: Meter, clock: FakeClock) -> None:
        self.meter = meter
        self.clock = clock
        self.turn: Turn | None = None

    def ask(self, amount: float) -> int:
        wait_ms, self.turn = self.meter.line.ask(amount, self.clock.monotonic_ms(), self.turn)
        return wait_ms

    def ask_for_up_to(self, amount: float) -> tuple[int, float]:
        """As a fetch does, which is cut to what may be asked for."""
        amount = min(amount, self.meter.line.most(self.turn))
        return self.ask(amount), amount


@pytest.mark.parametrize(
    ("readers", "amount"),
    [(1, 100_000), (100, 100_000), (100, 800_000), (100, 3_000_000), (20, 50_000_000), (1000, 50_000)],
)
def test_readers_that_ask_all_the_time_share_the_rate_and_none_waits_long(readers: int, amount: int) -> None:
    """Answers take some milliseconds to arrive, and who is refused comes again soon after it was told to."""
    clock, shared, chance = FakeClock(), meter(), Random(1)
    start_ms = clock.monotonic_ms()
    asking = [(start_ms + number / readers, number, Reader(shared, clock)) for number in range(readers)]
    heapify(asking)
    asked = served = 0
    got = 0.0
    last, longest_ms = [start_ms] * readers, 0.0
    while asking[0][0] < start_ms + 240_000:
        at_ms, number, reader = heappop(asking)
        clock.advance(at_ms - clock.monotonic_ms())
        wait_ms, taken = reader.ask_for_up_to(amount)
        if at_ms > start_ms + 120_000:
            asked += 1
            served += not wait_ms
            got += 0 if wait_ms else taken
            longest_ms = max(longest_ms, at_ms - last[number])
        if not wait_ms:
            last[number] = at_ms
        heappush(asking, (at_ms + max(wait_ms, 1) + chance.uniform(0, 5), number, reader))
    assert got / 120 == pytest.approx(RATE, rel=0.02)
    assert asked <= 2.1 * served + readers, "each is refused once, and then it is its turn"
    assert longest_ms < 30_000


def test_who_leaves_gives_up_its_place() -> None:
    clock = FakeClock()
    shared = full(clock)
    first, second, third = (Reader(shared, clock) for _ in range(3))
    assert (first.ask(RATE), second.ask(RATE)) == (1000, 2000)
    assert first.turn is not None
    first.turn.leave()
    assert third.ask(RATE) == 2000


def test_who_comes_too_early_waits_for_the_rest() -> None:
    clock = FakeClock()
    reader = Reader(full(clock), clock)
    assert reader.ask(RATE) == 1000
    clock.advance(400)
    assert reader.ask(RATE) == 600
    clock.advance(600)
    assert reader.ask(RATE) == 0
    assert reader.turn is None


def test_who_has_a_turn_gets_no_more_than_it_has_waited_for() -> None:
    clock = FakeClock()
    shared = full(clock)
    readers = [Reader(shared, clock) for _ in range(100)]
    for reader in readers:
        assert reader.ask(20_000) > 0
    clock.advance(201)
    assert sum(reader.ask_for_up_to(9 * RATE)[1] for reader in readers) == 100 * 20_000
    assert len(shared.line) == 0


def test_the_longer_the_line_the_less_each_may_ask_for() -> None:
    clock = FakeClock()
    shared = full(clock)
    readers = [Reader(shared, clock) for _ in range(9)]
    asked = [reader.ask_for_up_to(50_000_000)[1] for reader in readers]
    assert asked[0] == 50_000_000
    assert asked[-1] == 10 * RATE // 9


def test_a_turn_is_kept_for_as_long_as_the_windows_and_no_longer() -> None:
    clock = FakeClock()
    shared = full(clock)
    readers = [Reader(shared, clock) for _ in range(5)]
    assert [reader.ask(RATE) for reader in readers] == [1000, 2000, 3000, 4000, 5000]
    clock.advance(12_500)
    late = [reader.ask_for_up_to(RATE) for reader in readers[1:]]
    assert [wait_ms for wait_ms, _ in late] == [0, 0, 0, 0]
    assert readers[0].turn is not None and readers[0].turn not in shared.line._turns, "its bytes were given back"
    clock.advance(60_000)
    assert shared.owed_ms(clock.monotonic_ms()) == 0
    assert readers[0].ask(RATE) == 0, "there is enough again, as for anybody"


def test_another_quota_is_another_line() -> None:
    clock = FakeClock()
    shared = full(clock)
    reader = Reader(shared, clock)
    assert reader.ask(9 * RATE) == 9_000
    shared.limit(1_000)
    clock.advance(9_000)
    wait_ms, amount = reader.ask_for_up_to(9 * RATE)
    assert (wait_ms > 0, amount) == (True, 10_000)


def test_a_batch_that_is_larger_than_the_windows_passes_in_its_turn() -> None:
    """However many others wait behind it; and is paid for afterwards."""
    clock = FakeClock()
    shared = full(clock)
    others = [Reader(shared, clock) for _ in range(3)]
    assert others[0].ask(RATE) == 1000
    large = Reader(shared, clock)
    assert large.ask(20 * RATE) == 1000
    assert [other.ask(RATE) for other in others[1:]] == [2000, 3000]
    assert shared.line.most(large.turn) == 1
    clock.advance(1000)
    assert large.ask(20 * RATE) == 0
    assert shared.owed_ms(clock.monotonic_ms()) > 20_000
    assert others[0].ask(RATE) == 0


def test_a_place_in_another_line_is_given_up() -> None:
    clock = FakeClock()
    before, after = full(clock), full(clock)
    reader = Reader(before, clock)
    assert reader.ask(RATE) == 1000
    reader.meter = after
    assert reader.ask(RATE) == 1000
    assert Reader(before, clock).ask(RATE) == 1000


def test_the_measured_rate_is_never_below_nothing() -> None:
    clock = FakeClock()
    shared = full(clock)
    reader = Reader(shared, clock)
    reader.ask(9 * RATE)
    clock.advance(21_000)
    assert Reader(shared, clock).ask(1) == 0
    clock.advance(11_500)
    assert shared.measured(clock.monotonic_ms()).values["byte_rate"] >= 0
