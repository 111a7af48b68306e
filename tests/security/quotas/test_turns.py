"""Who is refused keeps a place in line: the next time what it asks for is there."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import pytest

from kafkad.security.quotas.clients import Meter, Turn
from kafkad.security.quotas.keys import Quota
from kafkad.security.quotas.rate import Windows
from tests.fakes import FakeClock

RATE = 10_000_000


def meter(rate: float = RATE) -> Meter:
    made = Meter(Quota.FETCH, ("u", "c"), Windows())
    made.limit(rate)
    return made


class Reader:
    def __init__(self, meter: Meter, clock: FakeClock) -> None:
        self.meter = meter
        self.clock = clock
        self.turn: Turn | None = None

    def ask(self, amount: float) -> int:
        throttle_ms, self.turn = self.meter.take_in_turn(amount, self.clock, self.turn)
        return throttle_ms


@pytest.mark.parametrize(("readers", "amount"), [(1, 100_000), (100, 100_000), (100, 800_000), (1000, 50_000)])
def test_readers_that_ask_all_the_time_share_the_rate_and_none_waits_long(readers: int, amount: int) -> None:
    """Each answer takes a millisecond to arrive, and who is refused comes again when it was told to."""
    clock, line = FakeClock(), meter()
    start_ms = clock.monotonic_ms()
    asking = [(start_ms + number / readers, number, Reader(line, clock)) for number in range(readers)]
    heapify(asking)
    got = asked = 0
    last, longest_ms = [start_ms] * readers, 0.0
    while asking[0][0] < start_ms + 60_000:
        at_ms, number, reader = heappop(asking)
        clock.advance(at_ms - clock.monotonic_ms())
        throttle_ms = reader.ask(amount)
        if at_ms > start_ms + 30_000:
            asked += 1
            got += not throttle_ms
            longest_ms = max(longest_ms, at_ms - last[number])
        if not throttle_ms:
            last[number] = at_ms
        heappush(asking, (at_ms + max(throttle_ms, 1), number, reader))
    assert got * amount / 30 == pytest.approx(RATE, rel=0.02)
    assert asked <= 2.1 * got + readers, "each is refused once, and then it is its turn"
    assert longest_ms < 2.5 * 1000 * readers * amount / RATE + 1000


def full(clock: FakeClock) -> Meter:
    """Of which nothing is left, up to a byte."""
    line = meter()
    assert line.take(RATE * 10, clock.monotonic_ms()) == 0
    return line


def test_who_leaves_gives_up_its_place() -> None:
    clock = FakeClock()
    line = full(clock)
    first, second, third = (Reader(line, clock) for _ in range(3))
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


def test_what_is_asked_for_then_may_be_more_and_is_paid_by_all() -> None:
    clock = FakeClock()
    line = full(clock)
    reader, other = Reader(line, clock), Reader(line, clock)
    assert reader.ask(RATE) == 1000
    clock.advance(1000)
    assert reader.ask(3 * RATE) == 0
    assert 3000 <= other.ask(RATE) <= 4000, "by how far Kafka's windows have moved"


def test_nobody_waits_in_a_line_that_is_longer_than_the_windows() -> None:
    """It comes again with all others then, as with Kafka."""
    clock = FakeClock()
    line = full(clock)
    readers = [Reader(line, clock) for _ in range(3)]
    assert [reader.ask(RATE * 5) for reader in readers] == [5_000, 10_000, 15_000]
    assert [reader.turn is None for reader in readers] == [False, False, True]


def test_a_place_in_another_line_is_given_up() -> None:
    clock = FakeClock()
    before, after = full(clock), full(clock)
    reader = Reader(before, clock)
    assert reader.ask(RATE) == 1000
    reader.meter = after
    assert reader.ask(RATE) == 1000
    assert Reader(before, clock).ask(RATE) == 1000
