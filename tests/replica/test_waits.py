"""Fetches that wait: hundreds of them are tried, or expire, a few milliseconds at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkad.replica.waits import FetchWait, Waits
from kafkad.timers import Timers
from kafkad.turns import TURN_S, Backlog, Lane
from tests.fakes import FakeClock

TRY_S = 0.0005


class Tried:
    """Waits that are tried in turns of a loop by hand; each try takes half a millisecond."""

    def __init__(self, count: int) -> None:
        self.now = 0.0
        self.tries: list[bool] = []
        self.timers = Timers()
        self._clock = FakeClock()
        self._due: list[Callable[[], None]] = []
        self.waits = Waits(self.timers, self._clock, Backlog(Lane(self._due.append, lambda: self.now)).add)
        self.made = [self.waits.fetch(500, self._attempt) for _ in range(count)]

    def _attempt(self, final: bool) -> bool:
        self.now += TRY_S
        self.tries.append(final)
        return True

    def pass_time(self) -> None:
        self._clock.advance(500)
        self.timers.expire(self._clock.monotonic_ms())

    def turns(self) -> list[float]:
        """The time that each turn took, until there is nothing left to do."""
        took = []
        while self._due:
            begin, due = self.now, self._due[:]
            self._due.clear()
            for call in due:
                call()
            took.append(self.now - begin)
        return took


def stir(tried: Tried) -> None:
    for wait in tried.made:
        wait.stir()


@pytest.mark.parametrize(("move", "final"), [(stir, False), (Tried.pass_time, True)])
def test_hundreds_that_move_or_expire_at_once_share_their_turns_with_others(
    move: Callable[[Tried], None], final: bool
) -> None:
    tried = Tried(400)
    move(tried)
    took = tried.turns()
    assert tried.tries == [final] * 400
    assert len(took) >= 400 * TRY_S / (TURN_S + TRY_S)
    assert max(took) < TURN_S + 2 * TRY_S
    assert tried.waits.fetches == 0


def test_one_that_is_answered_before_its_turn_comes_does_not_expire() -> None:
    tried = Tried(1)
    [wait] = tried.made
    wait.stir()
    tried.pass_time()
    tried.turns()
    assert tried.tries == [False]


def test_one_whose_connection_has_gone_is_not_tried() -> None:
    tried = Tried(1)
    wait: FetchWait = tried.made[0]
    wait.stir()
    wait.end()
    tried.turns()
    assert tried.tries == []
