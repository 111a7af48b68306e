"""The line of large requests while memory for requests is used up."""

from __future__ import annotations

from collections.abc import Callable

from kafkad.net.queued import Queued

MB = 1_000_000


class Sender:
    """A client with a large request under way."""

    def __init__(self, queued: Queued, name: str, announced: int) -> None:
        self.address = name
        self.announced = announced
        self.held = 0
        self.closed = False
        self._queued = queued

    def receive(self, size: int) -> None:
        self.held += size
        self._queued.change(size)

    def resume(self) -> None:
        self._queued.may_go_on(self)

    def close(self) -> None:
        self.closed = True
        self._queued.leave(self)
        self._queued.change(-self.held)


class Line:
    """With a limit of 64 MB, and a clock that stands still until the line is looked at."""

    def __init__(self) -> None:
        self._later: list[Callable[[], None]] = []
        self.queued = Queued(64 * MB, lambda seconds, call: self._later.append(call), lambda full: None)

    def sender(self, name: str, announced: int, held: int) -> Sender:
        sender = Sender(self.queued, name, announced)
        sender.receive(held)
        return sender

    def look(self) -> None:
        later, self._later = self._later, []
        for call in later:
            call()


def test_a_request_that_trickles_does_not_keep_its_place_in_line() -> None:
    line = Line()
    trickling = line.sender("trickling", 100 * MB, 64 * MB)
    honest = line.sender("honest", 2 * MB, 64_000)
    assert line.queued.may_go_on(trickling)
    assert not line.queued.may_go_on(honest)
    line.look()
    trickling.receive(3 * MB)
    line.look()
    assert trickling.closed
    assert not honest.closed
    assert not line.queued.full


def test_a_request_that_comes_fast_enough_keeps_its_place_in_line() -> None:
    line = Line()
    large = line.sender("large", 100 * MB, 64 * MB)
    honest = line.sender("honest", 2 * MB, 64_000)
    line.queued.may_go_on(large)
    line.queued.may_go_on(honest)
    line.look()
    large.receive(34 * MB)
    line.look()
    assert not large.closed
    assert not honest.closed


def test_a_slow_request_that_nobody_waits_for_goes_on() -> None:
    line = Line()
    alone = line.sender("alone", 100 * MB, 64 * MB)
    line.queued.may_go_on(alone)
    for _ in range(10):
        line.look()
    assert not alone.closed


def test_many_that_trickle_in_turn_keep_nobody_waiting_for_long() -> None:
    line = Line()
    trickling = [line.sender(f"trickling {i}", MB, 320_000) for i in range(200)]
    honest = line.sender("honest", 2 * MB, 64_000)
    for each in (*trickling, honest):
        line.queued.may_go_on(each)
    line.look()
    line.look()
    assert 16 * MB <= sum(each.held for each in trickling if each.closed) < 17 * MB
    assert not honest.closed
    assert line.queued.may_go_on(honest) or not line.queued.full


def test_nobody_stays_in_line_for_longer_than_its_client_waits() -> None:
    line = Line()
    waiting = [line.sender(f"waiting {i}", 20 * MB, 16 * MB) for i in range(5)]
    for each in waiting:
        line.queued.may_go_on(each)
    for _ in range(3):
        line.look()
        waiting[0].receive(7 * MB)
    assert not any(each.closed for each in waiting)
    line.look()
    assert sum(each.closed for each in waiting) == 1


def test_a_client_that_is_first_again_with_its_next_request_is_not_taken_for_slow() -> None:
    line = Line()
    busy = line.sender("busy", 50 * MB, 40 * MB)
    other = line.sender("other", 50 * MB, 30 * MB)
    line.queued.may_go_on(busy)
    line.queued.may_go_on(other)
    line.look()
    line.queued.leave(busy)
    line.queued.leave(other)
    busy.receive(1 * MB - busy.held)
    other.receive(40 * MB)
    line.queued.may_go_on(busy)
    line.queued.may_go_on(other)
    line.look()
    assert not busy.closed
