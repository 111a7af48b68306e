"""Who waits before being known: how many, how long, and who makes room."""

from __future__ import annotations

import pytest

from kafkad.net.lobby import Lobby
from kafkad.timers import Timers
from tests.fakes import FakeClock


class Guest:
    def __init__(self, lobby: Lobby, host: str = "a", *, quiet: bool = True) -> None:
        self.host = host
        self.port = 1
        self.quiet = quiet
        self.closed = False
        self._lobby = lobby
        lobby.enter(self)

    def close(self) -> None:
        self.closed = True
        self._lobby.leave(self)


class Entrance:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timers = Timers()
        self.lobby = Lobby(self.clock, self.timers, patience_ms=10_000, most=4, most_of_host=2, most_bytes=1000)

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.expire(self.clock.monotonic_ms())


@pytest.fixture
def entrance() -> Entrance:
    return Entrance()


def test_whoever_stays_too_long_is_closed_and_whoever_leaves_is_not(entrance: Entrance) -> None:
    late, known = Guest(entrance.lobby), Guest(entrance.lobby)
    entrance.advance(9_999)
    entrance.lobby.leave(known)
    entrance.lobby.leave(known)
    entrance.advance(1)
    assert (late.closed, known.closed) == (True, False)
    assert (len(entrance.lobby), entrance.lobby.late) == (0, 1)
    assert not len(entrance.timers)


def test_the_next_step_of_a_client_has_only_the_time_that_is_left(entrance: Entrance) -> None:
    handshake = Guest(entrance.lobby)
    entrance.advance(6_000)
    connection = Guest.__new__(Guest)
    connection.__dict__ |= vars(handshake)
    entrance.lobby.go_on_as(handshake, connection)
    entrance.advance(3_999)
    assert not connection.closed
    entrance.advance(1)
    assert connection.closed


def test_the_oldest_that_says_nothing_makes_room(entrance: Entrance) -> None:
    guests = [Guest(entrance.lobby, host, quiet=host != "a") for host in "abcd"]
    assert not entrance.lobby.has_room()  # they have only just come
    entrance.advance(1_000)
    assert entrance.lobby.has_room()
    assert [guest.closed for guest in guests] == [False, True, False, False]
    assert entrance.lobby.has_room()
    assert entrance.lobby.displaced == 1


def test_a_host_makes_room_for_itself_only(entrance: Entrance) -> None:
    other, first, second = (Guest(entrance.lobby, host) for host in "baa")
    assert not entrance.lobby.has_room_for("a")
    assert entrance.lobby.has_room_for("b")
    entrance.advance(1_000)
    assert entrance.lobby.has_room_for("a")
    assert (other.closed, first.closed, second.closed) == (False, True, False)


def test_nobody_makes_room_whose_turn_it_is_here(entrance: Entrance) -> None:
    for _ in range(2):
        Guest(entrance.lobby, quiet=False)
    entrance.advance(5_000)
    assert not entrance.lobby.has_room_for("a")


def test_whoever_has_sent_most_makes_room_for_what_others_send(entrance: Entrance) -> None:
    lobby = entrance.lobby
    guests = [Guest(lobby, host) for host in "abcd"]
    for guest, size in zip(guests, (100, 600, 200, 50), strict=True):
        lobby.hold(guest, size)
    lobby.hold(guests[0], 150)
    assert not any(guest.closed for guest in guests)
    lobby.hold(guests[3], 51)
    assert [guest.closed for guest in guests] == [False, True, False, False]
    assert (lobby.held, lobby.displaced) == (401, 1)


def test_one_alone_may_send_as_much_as_it_likes(entrance: Entrance) -> None:
    """Where frames may be larger than the bound for all."""
    large, other = Guest(entrance.lobby), Guest(entrance.lobby)
    entrance.lobby.hold(large, 5_000)
    assert not large.closed
    entrance.lobby.hold(other, 1)
    assert (large.closed, other.closed, entrance.lobby.held) == (True, False, 1)


def test_who_has_left_holds_nothing_here(entrance: Entrance) -> None:
    handshake, known = Guest(entrance.lobby), Guest(entrance.lobby)
    entrance.lobby.hold(handshake, 300)
    entrance.lobby.hold(known, 500)
    connection = Guest.__new__(Guest)
    connection.__dict__ |= vars(handshake)
    entrance.lobby.go_on_as(handshake, connection)
    assert entrance.lobby.held == 500
    entrance.lobby.leave(known)
    entrance.lobby.hold(known, 700)
    assert entrance.lobby.held == 0


def test_whoever_may_not_log_in_is_told_so_late_but_makes_room(entrance: Entrance) -> None:
    refused, silent = Guest(entrance.lobby, quiet=False), Guest(entrance.lobby, "b")
    entrance.lobby.hold(refused, 900)
    entrance.lobby.refused(refused)
    assert (entrance.lobby.held, refused in entrance.lobby) == (0, True)
    entrance.advance(10_000)
    assert (refused.closed, silent.closed) == (False, True)
    for _ in range(3):
        Guest(entrance.lobby, "c")
    assert entrance.lobby.has_room()
    assert refused.closed
    entrance.lobby.refused(refused)
    assert refused not in entrance.lobby


def test_whoever_waits_for_others_has_no_deadline_but_makes_room(entrance: Entrance) -> None:
    waiting = Guest(entrance.lobby, quiet=False)
    entrance.lobby.hold(waiting, 100)
    entrance.lobby.put_off(waiting)
    entrance.advance(10_000)
    assert (waiting.closed, entrance.lobby.held) == (False, 100)
    Guest(entrance.lobby)
    assert entrance.lobby.has_room_for("a")
    assert waiting.closed
