"""Connections over a transport that holds bytes back and has something to say itself, as TLS does."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from kafkad.net.connection import Connection
from kafkad.net.reply import Pending, Reply
from kafkad.net.server import SHARED_BYTES, Limits, Server
from tests.net.sealed import DATA, FIRST_KEY, HELLO, NEW_KEY, Opener, SealedTransport, seal
from tests.net.serving import Peer, echo, frame, holding, run
from tests.net.test_connection import OpenFile, Range


class Client:
    """The other end: a socket with small buffers, so that what the server says does not fit in at once."""

    def __init__(self, server: Server) -> None:
        self.key = FIRST_KEY
        self.opener = Opener()
        self.received = bytearray()
        self.keys: list[int] = []
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.setblocking(False)
        self._port = server.listeners[0].port
        self._loop = asyncio.get_running_loop()

    async def connect(self) -> Client:
        await self._loop.sock_connect(self.sock, ("127.0.0.1", self._port))
        return self

    async def send(self, data: bytes, kind: int = DATA) -> None:
        await self._loop.sock_sendall(self.sock, seal(data, self.key, kind))

    async def read(self, size: int) -> bytes:
        while len(self.received) < size:
            data = await self._loop.sock_recv(self.sock, 1 << 16)
            assert data, "the server closed the connection"
            opened, keys = self.opener.open(data)
            self.received += opened
            self.keys += keys
        taken = bytes(self.received[:size])
        del self.received[:size]
        return taken

    async def read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self.read(4))
        return await self.read(size)


def sealed(
    dispatch: Callable[[Connection, memoryview, int, int], Reply | Pending | None],
    scenario: Callable[[Server, Client], Awaitable[None]],
    limits: Limits | None = None,
) -> None:
    async def connected(server: Server, _: Callable[[], Awaitable[Peer]]) -> None:
        client = await Client(server).connect()
        try:
            await scenario(server, client)
        finally:
            client.sock.close()

    run(dispatch, connected, limits or Limits(send_buffer_bytes=4096), SealedTransport)


async def greeted(client: Client) -> Client:
    await client.send(frame(b"first one"))
    assert await client.read(len(HELLO)) == HELLO
    assert await client.read_frame() == b"first one"
    return client


def test_what_the_transport_says_itself_leaves_whole_although_nothing_is_answered() -> None:
    async def scenario(server: Server, client: Client) -> None:
        await client.send(b"\0")  # a quarter of a length
        assert await client.read(len(HELLO)) == HELLO
        [connection] = server.connections()
        while connection._awaits_room:
            await asyncio.sleep(0)
        await client.send(frame(b"a request")[1:])
        assert await client.read_frame() == b"a request"

    sealed(echo, scenario)


def test_a_new_key_is_answered_between_two_requests() -> None:
    async def scenario(server: Server, client: Client) -> None:
        await greeted(client)
        await client.send(b"\x33", NEW_KEY)
        client.key = 0x33
        await client.send(frame(b"under it"))
        assert await client.read_frame() == b"under it"
        assert client.keys == [0x33]

    sealed(echo, scenario)


@pytest.mark.parametrize("size", [100, 20_000, SHARED_BYTES - 4, SHARED_BYTES, 900_000, 3_000_000])
def test_frames_of_every_size_arrive_and_their_replies_leave_through_a_narrow_socket(size: int) -> None:
    async def scenario(server: Server, client: Client) -> None:
        await greeted(client)
        body = os.urandom(size)
        sending = asyncio.ensure_future(client.send(frame(body) + frame(b"the next one")))
        assert await client.read_frame() == body
        assert await client.read_frame() == b"the next one"
        await sending

    sealed(echo, scenario)


def test_what_is_held_back_when_the_buffer_is_full_is_read_without_the_kernel_saying_so() -> None:
    bodies = [b"%09d" % i + bytes(i % 50) for i in range(20_000)]

    async def scenario(server: Server, client: Client) -> None:
        await greeted(client)
        sending = asyncio.ensure_future(client.send(b"".join(map(frame, bodies))))
        for body in bodies:
            assert await client.read_frame() == body
        await sending

    assert sum(map(len, bodies)) > SHARED_BYTES
    sealed(echo, scenario)


def test_what_is_held_back_while_the_connection_is_paused_is_read_when_it_goes_on() -> None:
    waiting: list[Connection] = []

    async def scenario(server: Server, client: Client) -> None:
        await greeted(client)
        server.listeners[0].shared = server.shared[:1000]
        bodies = [bytes(500), bytes(700), b"held back", b"and more.."]
        await client.send(frame(b"wait....") + b"".join(map(frame, bodies)))
        while not waiting:
            await asyncio.sleep(0)
        assert waiting[0]._transport.pending
        waiting[0].reply(frame(b"answered"))
        assert await client.read_frame() == b"answered"
        assert [await client.read_frame() for _ in bodies] == bodies

    sealed(holding(waiting), scenario, Limits())


def test_ranges_of_files_leave_through_it_and_not_past_it() -> None:
    with tempfile.TemporaryFile() as file:
        data = os.urandom(1_500_000)
        file.write(data)
        file.flush()
        opened = OpenFile(file.fileno())
        expected = b"abc" + data[100:1_000_100] + data[7:10_007] + b"xyz" + data[:100_000]

        def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
            head = struct.pack(">i", len(expected)) + b"abc"
            return [head, Range(opened, 100, 1_000_000), Range(opened, 7, 10_000), b"xyz", Range(opened, 0, 100_000)]

        async def scenario(server: Server, client: Client) -> None:
            await client.send(frame(b"one.....") + frame(b"two....."))
            assert await client.read(len(HELLO)) == HELLO
            for _ in range(2):
                assert await client.read_frame() == expected
            [connection] = server.connections()
            assert cast(SealedTransport, connection._transport).sent_ranges >= 4

        sealed(dispatch, scenario)


def test_a_file_that_ends_too_early_closes_the_connection() -> None:
    with tempfile.TemporaryFile() as file:
        opened = OpenFile(file.fileno())

        def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
            return [struct.pack(">i", 100_000), Range(opened, 0, 100_000)]

        async def scenario(server: Server, client: Client) -> None:
            await client.send(frame(b"give me."))
            assert await client.read(len(HELLO) + 4) == HELLO + struct.pack(">i", 100_000)
            assert await asyncio.get_running_loop().sock_recv(client.sock, 1) == b""

        sealed(dispatch, scenario)


def test_what_is_no_record_closes_the_connection() -> None:
    async def scenario(server: Server, client: Client) -> None:
        await greeted(client)
        await client.send(b"?", 7)
        assert await asyncio.get_running_loop().sock_recv(client.sock, 1) == b""
        assert server.total == 0

    sealed(echo, scenario)


# -- muted peers, whatever they come through ---------------------------------------------------------------------------


def test_a_muted_peer_gets_its_answer_at_once_and_is_then_not_read_for_a_while() -> None:
    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply | Pending | None:
        if view[at] == ord("m"):
            connection.mute(300)
            connection.mute(20)
        return echo(connection, view, at, end)

    async def scenario(server: Server, client: Client) -> None:
        await greeted(client)
        started = time.monotonic()
        await client.send(frame(b"mute me.") + frame(b"together"))
        assert await client.read_frame() == b"mute me."
        assert time.monotonic() - started < 0.3
        [connection] = server.connections()
        assert connection.muted
        assert server.close_idle(10, 10) == 0
        await client.send(frame(b"later on"))
        assert await client.read_frame() == b"together"
        assert time.monotonic() - started > 0.29
        assert await client.read_frame() == b"later on"
        assert not connection.muted
        assert connection.last_active == 10

    sealed(dispatch, scenario)


def test_a_muted_peer_that_has_closed_is_not_read_again() -> None:
    async def scenario(server: Server, client: Client) -> None:
        await greeted(client)
        [connection] = server.connections()
        connection.mute(5)
        connection.close()
        assert not server.timers.next_deadline_ms()
        connection.mute(5)
        assert not server.timers.next_deadline_ms()

    sealed(echo, scenario)


def test_a_muted_peer_whose_answer_is_still_leaving_goes_on_when_both_are_over() -> None:
    async def scenario(server: Server, client: Client) -> None:
        await greeted(client)
        await client.send(frame(bytes(500_000)))
        [connection] = server.connections()
        while not connection._out:
            await asyncio.sleep(0)
        connection.mute(30)
        await asyncio.sleep(0.05)
        assert not connection.muted
        assert await client.read_frame() == bytes(500_000)
        await client.send(frame(b"and again"))
        assert await client.read_frame() == b"and again"

    sealed(echo, scenario)
