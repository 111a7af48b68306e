"""TCP links between the processes of a cluster, which a test can harm and heal: one port for each target.

A cut link loses nothing and closes nothing: bytes stand still, as while a network drops packets, and go on when it is
healed. New connections are accepted and stand still as well. Each direction can be cut by itself, be slow, or carry
garbage instead of what was sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future

_PIECE = 1 << 16
_CLIENT_ID_AT = 8
_BROKER = re.compile(rb"(?:broker-)?(\d+)")

Source = str | None
"""The end that connects: None for one that is known by the client id of its first request."""


class _Way:
    """One direction between two ends, of all their connections."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.delay_s = 0.0
        self.garbled = False
        self._spoiled: set[asyncio.StreamWriter] = set()

    def heal(self) -> None:
        """Closes the connections that have carried garbage, since their ends may wait for the rest of it."""
        self.delay_s = 0.0
        self.garbled = False
        self.open.set()
        while self._spoiled:
            self._spoiled.pop().transport.abort()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_PIECE):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self.open.wait()
                if self.garbled:
                    self._spoiled.add(writer)
                    data = os.urandom(len(data))
                writer.write(data)
                await writer.drain()


class Links:
    """Proxies on a thread and event loop of their own; a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._ways: dict[tuple[str, str], _Way] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> Links:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def to(self, target: str, port: Callable[[], int], source: Source = None) -> int:
        """The port of a proxy to `target`, whose own port is asked for at each connection."""

        async def listen() -> int:
            async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.current_task()
                assert task is not None
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                await self._serve(reader, writer, source, target, port())

            server = await asyncio.start_server(connected, "127.0.0.1", 0)
            self._servers.append(server)
            bound: int = server.sockets[0].getsockname()[1]
            return bound

        return self._call(listen)

    def cut(self, one: str, other: str) -> None:
        self.cut_way(one, other)
        self.cut_way(other, one)

    def cut_way(self, sender: str, receiver: str) -> None:
        self._loop.call_soon_threadsafe(self._way(sender, receiver).open.clear)

    def slow(self, sender: str, receiver: str, delay_s: float) -> None:
        """Each piece arrives later by that, one after the other."""
        self._loop.call_soon_threadsafe(setattr, self._way(sender, receiver), "delay_s", delay_s)

    def garble(self, sender: str, receiver: str) -> None:
        self._loop.call_soon_threadsafe(setattr, self._way(sender, receiver), "garbled", True)

    def heal(self, one: str, other: str) -> None:
        for way in (self._way(one, other), self._way(other, one)):
            self._loop.call_soon_threadsafe(way.heal)

    def _way(self, sender: str, receiver: str) -> _Way:
        return self._ways.setdefault((sender, receiver), _Way())

    def _call(self, work: Callable[[], object]) -> int:
        result: Future[int] = asyncio.run_coroutine_threadsafe(work(), self._loop)  # type: ignore[arg-type]
        return result.result(30)

    async def _close(self) -> int:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return 0

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: Source, target: str, port: int
    ) -> None:
        first = b""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if source is None:
                first = await reader.readexactly(4)
                first += await reader.readexactly(*struct.unpack(">i", first))
                source = _source_of(first)
            there, back = self._way(source, target), self._way(target, source)
            await there.open.wait()
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
            there_writer.write(first)
            pumps = [
                asyncio.ensure_future(there.pump(reader, there_writer)),
                asyncio.ensure_future(back.pump(there_reader, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                there_writer.transport.abort()
        writer.transport.abort()


def _source_of(frame: bytes) -> str:
    """The id in a broker's client id: broker-1, broker-1-fetcher-0; for most requests Kafka's brokers say just 1."""
    (length,) = struct.unpack_from(">h", frame, 4 + _CLIENT_ID_AT)
    client_id = frame[4 + _CLIENT_ID_AT + 2 :][: max(length, 0)]
    found = _BROKER.match(client_id)
    return found.group(1).decode() if found else ""
