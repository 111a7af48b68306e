"""Connections whose clients are to come back: each ends when nothing is being answered, and few at a time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import cast

from kafkad.net.connection import Connection
from kafkad.net.renewal import PAUSE_MS, ROUND_MS, TOGETHER, Renewal
from kafkad.net.server import Server
from kafkad.timers import Timers
from tests.fakes import FakeClock
from tests.net.serving import Peer, echo, frame, holding, read_frame, run


class Client:
    """A connection as the renewal sees it."""

    def __init__(self, *, busy: bool = False) -> None:
        self.busy = busy
        self.asked = 0
        self.closed = False

    def leave(self) -> None:
        self.asked += 1
        self.closed = self.closed or not self.busy


class Scene:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timers = Timers()
        self.renewal = Renewal(self.clock, self.timers)

    def begin(self, *clients: Client) -> None:
        self.renewal.begin(cast(list[Connection], clients))

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.expire(self.clock.monotonic_ms())


def test_few_are_closed_at_a_time() -> None:
    scene, clients = Scene(), [Client() for _ in range(2 * TOGETHER + 1)]
    scene.begin(*clients)
    closed = [sum(client.closed for client in clients)]
    for _ in range(2):
        scene.advance(PAUSE_MS)
        closed.append(sum(client.closed for client in clients))
    assert closed == [TOGETHER, 2 * TOGETHER, 2 * TOGETHER + 1]
    scene.advance(ROUND_MS)
    assert all(client.asked == 1 for client in clients)
    assert not len(scene.timers)


def test_who_waits_for_an_answer_is_asked_again() -> None:
    scene, busy, more = Scene(), Client(busy=True), Client(busy=True)
    scene.begin(busy)
    scene.advance(ROUND_MS // 2)
    scene.begin(more)
    scene.advance(ROUND_MS // 2)
    assert (busy.asked, more.asked) == (2, 1)
    busy.busy = more.busy = False
    scene.advance(ROUND_MS)
    assert (busy.closed, more.closed) == (True, True)
    scene.advance(ROUND_MS)
    assert not len(scene.timers)


def test_a_quiet_connection_leaves_at_once() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        reader, writer = await connect()
        writer.write(frame(b"anything"))
        assert await read_frame(reader) == b"anything"
        [connection] = server.connections()
        connection.leave()
        assert connection.closed
        assert await reader.read() == b""

    run(echo, scenario)


def test_a_connection_leaves_behind_the_answer_that_its_client_waits_for() -> None:
    waiting: list[Connection] = []

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        reader, writer = await connect()
        writer.write(frame(b"wait....") + frame(b"behind.."))
        while not waiting:
            await asyncio.sleep(0)
        [connection] = waiting
        connection.leave()
        assert not connection.closed
        connection.reply(frame(b"answered"))
        assert [await read_frame(reader), await read_frame(reader)] == [b"answered", b"behind.."]
        assert await reader.read() == b""

    run(holding(waiting), scenario)


def test_what_has_arrived_is_answered_first() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", server.listeners[0].port)) as sock:
            while not server.connections():
                await asyncio.sleep(0)
            [connection] = server.connections()
            whole = frame(b"in parts")
            sock.sendall(whole[:6])
            connection.leave()
            assert not connection.closed, "it has not been read yet"
            while not connection.held:
                await asyncio.sleep(0)
            connection.leave()
            assert not connection.closed, "the rest is to come"
            sock.sendall(whole[6:])
            sock.setblocking(False)
            assert await loop.sock_recv(sock, 100) == whole
            connection.leave()
            assert connection.closed

    run(echo, scenario)
