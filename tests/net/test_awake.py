"""For how long the event loop is kept from sleeping: a clock and a loop whose turns the test takes."""

from __future__ import annotations

from collections.abc import Callable

from kafkad.net.awake import NEVER, SOON_S, Awake


class Loop:
    def __init__(self) -> None:
        self.now = 1000.0
        self.ready: list[Callable[[], None]] = []
        self.awake = Awake(self.ready.append, lambda: self.now)

    def turn(self) -> bool:
        """True if anything was to be done: if not, a loop would sleep."""
        ready, self.ready[:] = self.ready[:], []
        for each in ready:
            each()
        return bool(ready)


def test_the_loop_sleeps_at_once_after_a_first_or_a_late_request() -> None:
    loop = Loop()
    assert loop.awake.served(loop.now - NEVER) == loop.now
    loop.awake.served(SOON_S)
    assert not loop.turn()


def test_after_a_request_that_came_soon_the_loop_polls_for_a_moment() -> None:
    loop = Loop()
    loop.awake.served(SOON_S / 2)
    assert loop.turn()
    loop.now += SOON_S * 0.9
    assert loop.turn()
    loop.now += SOON_S * 0.2
    loop.turn()
    assert not loop.turn()


def test_each_request_that_comes_soon_prolongs_the_polling() -> None:
    loop = Loop()
    for _ in range(5):
        loop.awake.served(SOON_S / 2)
        assert len(loop.ready) == 1
        loop.now += SOON_S * 0.9
        assert loop.turn()
    loop.awake.served(SOON_S * 5)
    loop.now += SOON_S * 0.2
    loop.turn()
    assert not loop.turn()


def test_the_loop_can_be_kept_awake_again() -> None:
    loop = Loop()
    for _ in range(2):
        loop.awake.served(SOON_S / 2)
        loop.now += SOON_S * 2
        assert loop.turn()
        assert not loop.turn()
