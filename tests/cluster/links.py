"""TCP links between the processes of a cluster, which a test can cut and heal: one port for each target.

A cut link loses nothing and closes nothing: bytes stand still in both directions, as while a network drops packets, and
go on when it is healed. New connections are accepted and stand still as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future

_PIECE = 1 << 16
_CLIENT_ID_AT = 8
_BROKER = re.compile(rb"broker-(\d+)")

Source = str | None
"""The end that connects: None for one that is known by the client id of its first request."""


class Links:
    """Proxies on a thread and event loop of their own; a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._open: dict[frozenset[str], asyncio.Event] = {}
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
        self._loop.call_soon_threadsafe(self._gate(one, other).clear)

    def heal(self, one: str, other: str) -> None:
        self._loop.call_soon_threadsafe(self._gate(one, other).set)

    def _gate(self, one: str, other: str) -> asyncio.Event:
        pair = frozenset({one, other})
        if pair not in self._open:
            self._open[pair] = asyncio.Event()
            self._open[pair].set()
        return self._open[pair]

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
            gate = self._gate(source, target)
            await gate.wait()
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
            there_writer.write(first)
            pumps = [
                asyncio.ensure_future(_pump(reader, there_writer, gate)),
                asyncio.ensure_future(_pump(there_reader, writer, gate)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                there_writer.transport.abort()
        writer.transport.abort()


def _source_of(frame: bytes) -> str:
    """Brokers name themselves as Kafka's do: broker-1, broker-1-fetcher-0."""
    (length,) = struct.unpack_from(">h", frame, 4 + _CLIENT_ID_AT)
    client_id = frame[4 + _CLIENT_ID_AT + 2 :][: max(length, 0)]
    found = _BROKER.match(client_id)
    return found.group(1).decode() if found else ""


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_PIECE):
            await gate.wait()
            writer.write(data)
            await writer.drain()
