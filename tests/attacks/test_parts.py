"""Requests that come in parts, and never whole; and replies that nobody reads."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Sequence

import pytest

from tests.attacks.attacks import create, metadata
from tests.broker import RawClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def send_and_stay(port: int, starts: Sequence[bytes], seconds: float) -> None:
    """Each over a connection of its own, as much of it as the broker takes; then silence."""
    with contextlib.ExitStack() as stack:
        for start in starts:
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            sock.settimeout(0.5)
            with contextlib.suppress(OSError):
                sock.sendall(start)
        time.sleep(seconds)


def announced(size: int, sent: int) -> bytes:
    return struct.pack(">ihhih", size, 0, 9, 1, -1) + bytes(sent)


def test_half_of_six_large_requests(suffer: Callable[..., None]) -> None:
    """Kafka keeps no more than was announced, either; but for all of them."""
    starts = [announced(100_000_000, 50_000_000)] * 6
    suffer("300 MB of six requests of 100 MB", lambda port: send_and_stay(port, starts, 3))


def test_parts_of_many_requests(suffer: Callable[..., None]) -> None:
    starts = [announced(100_000_000, 500_000)] * 600
    suffer("0.5 MB of each of 600 requests of 100 MB", lambda port: send_and_stay(port, starts, 2))


def test_an_honest_large_request_arrives_all_the_same(suffer: Callable[..., None]) -> None:
    def attack(port: int) -> None:
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                sock.settimeout(0.5)
                with contextlib.suppress(OSError):
                    sock.sendall(announced(100_000_000, 40_000_000))
            with RawClient(port, timeout=60) as client:
                client.send_frame(struct.pack(">hhih", 18, 0, 7, -1) + bytes(8_000_000))
                assert client.receive_frame()[:4] == struct.pack(">i", 7)

    suffer("8 MB of an honest client beside 120 MB of three", attack)


def test_replies_that_nobody_reads(suffer: Callable[..., None]) -> None:
    starts = [300 * metadata("large")] * 50
    suffer(
        "50 connections x 300 Metadata of 1,000 partitions",
        lambda port: send_and_stay(port, starts, 5),
        prepare=lambda port: create(port, "large", 1000),
    )
