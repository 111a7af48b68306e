"""Dead connections: what the kernel is told, and what is made of what it says."""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic, sleep
from typing import NamedTuple

import pytest

from kafkad.net.lifeline import Lifeline, is_dead, seconds_between_looks

_SO_ATTACH_FILTER = 26


class Pair(NamedTuple):
    here: socket.socket
    there: socket.socket


@contextmanager
def pairs(count: int) -> Iterator[list[Pair]]:
    with ExitStack() as open_sockets, socket.create_server(("127.0.0.1", 0)) as listening:
        made = []
        for _ in range(count):
            here = open_sockets.enter_context(socket.create_connection(listening.getsockname()))
            made.append(Pair(here, open_sockets.enter_context(listening.accept()[0])))
        yield made


@pytest.fixture
def pair() -> Iterator[Pair]:
    with pairs(1) as [made]:
        yield made


def fill(sock: socket.socket) -> None:
    """The buffers of both ends."""
    sock.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            sock.send(bytes(65_536))


@pytest.mark.parametrize(
    ("lag_time_ms", "look_s"),
    [(30_000, 3), (10_000, 1), (5_000, 1), (0, 1), (-1, 1), (120_000, 15), (10**15, 60)],
)
def test_a_connection_is_given_up_within_half_of_the_lag_time_if_that_is_long_enough(
    lag_time_ms: int, look_s: int
) -> None:
    assert seconds_between_looks(lag_time_ms) == look_s


def test_the_kernel_looks_where_nothing_is_under_way(pair: Pair) -> None:
    lifeline = Lifeline(pair.here, 5)
    assert lifeline.look_ms == 5_000
    assert pair.here.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    assert [pair.here.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [5, 5, 3]
    user_timeout = pair.here.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert user_timeout == 0, "it ends connections to a process that reads nothing"


def tcp_info(*, retransmits: int, probes: int = 0, unacked: int, last_ack_recv: int) -> bytes:
    """As in linux/tcp.h: 8 bytes, and numbers of 32 bits."""
    numbers = [0] * 24
    numbers[4], numbers[12] = unacked, last_ack_recv
    return struct.pack("=8B24I", 1, 0, retransmits, probes, 0, 0, 0, 0, *numbers)


@pytest.mark.parametrize(
    ("info", "dead"),
    [
        (tcp_info(retransmits=4, unacked=2, last_ack_recv=8_000), True),
        (tcp_info(retransmits=2, unacked=1, last_ack_recv=60_000), True),
        (tcp_info(retransmits=4, unacked=2, last_ack_recv=7_999), False),
        (tcp_info(retransmits=0, probes=3, unacked=0, last_ack_recv=8_000), True),
        (tcp_info(retransmits=0, probes=5, unacked=0, last_ack_recv=7_999), False),
        (tcp_info(retransmits=0, unacked=0, last_ack_recv=60_000), False),
        (tcp_info(retransmits=1, unacked=1, last_ack_recv=60_000), False),
    ],
    ids=[
        "silent",
        "silent for long",
        "not for long",
        "its buffer was full, and it is silent",
        "its buffer is full",
        "nothing was sent",
        "just sent again",
    ],
)
def test_a_connection_is_dead_when_what_is_sent_again_and_again_is_not_acknowledged(info: bytes, dead: bool) -> None:
    assert is_dead(info, 2) is dead


def test_a_process_that_reads_nothing_is_there(pair: Pair) -> None:
    """What is said of it is read in the right places: its kernel has acknowledged a moment ago."""
    lifeline = Lifeline(pair.here, 1)
    assert not lifeline.is_dead()
    fill(pair.here)
    assert not lifeline.is_dead()


@pytest.mark.slow
def test_who_is_cut_off_is_found_dead_and_who_reads_nothing_is_not() -> None:
    """By the kernel itself: one connection is idle when it is cut, over one something is under way, and at the end of
    one a process reads nothing, as one does at the end of the last, which is not cut."""
    with pairs(4) as (idle, busy, filled, full):
        lifelines = [Lifeline(pair.here, 1) for pair in (idle, busy, filled, full)]
        fill(filled.here)
        sleep(1)  # until its window is known to be zero
        for pair in (idle, busy, filled):
            drop_all(pair.there)
        busy.here.send(b"x")
        fill(full.here)
        began = monotonic()
        idle.here.settimeout(20)
        with pytest.raises(TimeoutError) as timed_out:
            idle.here.recv(1)
        assert timed_out.value.errno == errno.ETIMEDOUT
        for lifeline in lifelines[1:3]:
            while not lifeline.is_dead():
                sleep(0.1)
                assert monotonic() < began + 20
        sleep(max(began + 6 - monotonic(), 0))
        assert not lifelines[3].is_dead()
        full.there.setblocking(False)
        assert full.there.recv(1)


def drop_all(sock: socket.socket) -> None:
    """Whatever arrives for it: its kernel acknowledges nothing any more."""
    accept_no_byte = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0))
    program = struct.pack("HL", 1, ctypes.addressof(accept_no_byte))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
