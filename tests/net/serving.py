"""A server with a dispatcher made for the test, and its peers over real sockets."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

from kafkad.broker.loop_timers import LoopTimers
from kafkad.clock import SystemClock
from kafkad.net.connection import Connection, DeferredReply
from kafkad.net.reply import PENDING, Pending, Reply
from kafkad.net.server import Limits, Server
from kafkad.net.transport import PlainTransport, Wrap


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def echo(connection: Connection, view: memoryview, at: int, end: int) -> Reply | Pending | None:
    return frame(bytes(view[at:end]))


def holding(waiting: list[Connection]) -> Handle:
    """Does not answer requests that begin with w, and notes their connections; echoes all others."""

    def handle(connection: Connection, view: memoryview, at: int, end: int) -> Reply | Pending | None:
        if view[at] != ord("w"):
            return echo(connection, view, at, end)
        waiting.append(connection)
        return PENDING

    return handle


Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


Handle = Callable[[Connection, memoryview, int, int], Reply | DeferredReply | Pending | None]


class Serving:
    """Has one function answer everybody."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.made: list[Connection] = []
        self.closed_peers = 0

    def peer(self, connection: Connection) -> Serving:
        self.made.append(connection)
        return self

    def closed(self) -> None:
        self.closed_peers += 1

    def __call__(
        self, connection: Connection, view: memoryview, at: int, end: int
    ) -> Reply | DeferredReply | Pending | None:
        return self._handle(connection, view, at, end)


def serving(limits: Limits | None = None) -> Server:
    """A server that listens nowhere yet."""
    loop, clock = asyncio.get_running_loop(), SystemClock()
    return Server(loop, limits or Limits(), clock, LoopTimers(loop, clock).timers)


def run(
    dispatch: Handle,
    scenario: Callable[[Server, Callable[[], Awaitable[Peer]]], Awaitable[None]],
    limits: Limits | None = None,
    wrap: Wrap = PlainTransport.over,
) -> None:
    async def main() -> None:
        server = serving(limits)
        listener = server.listen("PLAINTEXT", "127.0.0.1", 0, wrap)
        server.start(Serving(dispatch))
        writers = []

        async def connect() -> Peer:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1 << 26)
            writers.append(writer)
            return reader, writer

        try:
            await asyncio.wait_for(scenario(server, connect), 30)
        finally:
            server.close()
            for writer in writers:
                writer.close()
                try:
                    await writer.wait_closed()
                except ConnectionError:
                    continue

    asyncio.run(main())


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)
