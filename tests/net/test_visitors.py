"""Who makes room at the HTTP listener, and for whom."""

from __future__ import annotations

from kafkad.net.visitors import Visitors


class Scene:
    """At most four, two of an address. They are called by their address and a number."""

    def __init__(self, *present: str) -> None:
        self.now = 0.0
        self.visitors: Visitors[str] = Visitors(4, 2, lambda: self.now)
        for visitor in present:
            self.visitors.enter(visitor, visitor[0])

    def comes(self, host: str) -> str | None:
        """Who has to go for one from there. "" if nobody has to, None if there is no room."""
        return "" if self.visitors.has_room_for(host) else self.visitors.who_makes_room_for(host)


def test_one_address_is_at_its_own_expense() -> None:
    scene = Scene("a1", "b1", "b2")
    assert scene.comes("a") == ""
    assert scene.comes("b") == "b1"
    scene.visitors.is_answered("b1")
    assert scene.comes("b") == "b2"
    scene.visitors.is_answered("b2")
    assert scene.comes("b") is None
    scene.visitors.is_silent("b1")
    scene.visitors.leave("b2")
    assert scene.comes("b") == ""


def test_whoever_is_slow_has_a_second_before_it_makes_room_for_another_address() -> None:
    scene = Scene("a1", "b1", "b2", "c1")
    scene.now = 1.0
    assert scene.comes("d") == "a1"
    scene.visitors.is_answered("a1")
    assert scene.comes("d") == "b1"
    scene.visitors.is_silent("a1")
    for visitor in ("b1", "b2", "c1"):
        scene.visitors.is_answered(visitor)
    assert scene.comes("d") is None
    scene.now = 2.0
    assert scene.comes("d") == "a1"
    scene.visitors.leave("a1")
    assert scene.comes("d") == ""
    assert (len(scene.visitors), scene.visitors.at_work) == (3, 3)


def test_a_few_addresses_that_never_are_silent_for_long_keep_nobody_out() -> None:
    scene = Scene("a1", "b1", "b2", "c1")
    scene.now = 0.9
    assert scene.comes("d") == "b1"
    scene.visitors.is_answered("b1")
    scene.visitors.is_answered("b2")
    assert scene.comes("d") is None
    scene = Scene("a1", "b1", "c1", "d1")
    scene.now = 0.9
    assert scene.comes("e") is None, "none of them has more than this one would have"
