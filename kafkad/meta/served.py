"""Serves the embedded store to the brokers of one host: one session for each connection.

The session ends with the connection, and so with the broker's process, however that ends: its ephemeral nodes are gone
at once, and the other brokers hear of it. A broker that is stopped or stuck keeps its connection; its session expires
after a few seconds of silence, and the broker is told when it listens again.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from kafkad.meta.embedded import EmbeddedStore
from kafkad.meta.store import MetaError, SessionState, WatchEvent
from kafkad.meta.store_messages import (
    SESSION_TICK_S,
    SESSION_TICKS,
    bytes_of,
    error_values,
    node_values,
    operation_of,
    packed,
    receive,
)

log = logging.getLogger(__name__)


async def serve(store: EmbeddedStore, connection: socket.socket) -> None:
    """Returns when the broker at the other end is gone and its session has ended."""
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    served = ServedSession(store, writer)
    watching = None
    try:
        while True:
            served.take(await receive(reader))
            if watching is None:  # a process takes its time to start
                watching = asyncio.create_task(served.expire_when_silent())
    except (asyncio.IncompleteReadError, OSError):
        pass  # the broker is gone
    finally:
        if watching is not None:
            watching.cancel()
        writer.close()
        await served.end()


class ServedSession:
    """Carries out the requests of one broker, as the embedded store does. Writes are judged in the order in which they
    came, and answered when they are on the disk. A read waits for the writes to its nodes that are on their way there,
    and so may find what was asked for after it. An event leaves before the answer to the write that caused it, and
    before those of the reads that find what it tells of."""

    def __init__(self, store: EmbeddedStore, writer: asyncio.StreamWriter) -> None:
        self._session = store.session()
        self._session.listen(self._state_changed)
        self._writer = writer
        self._silent_ticks = 0
        self._requests: set[asyncio.Task[None]] = set()
        self._operations: dict[str, Callable[..., Awaitable[Any]]] = {
            "session": self._number,
            "get": self._get,
            "get_many": self._get_many,
            "exists": self._exists,
            "children": self._children,
            "create": self._create,
            "set": self._set,
            "delete": self._session.delete,
            "multi": self._multi,
            "renew": self._renew,
            "close": self._session.close,
        }

    def take(self, message: Any) -> None:
        self._silent_ticks = 0
        request = asyncio.create_task(self._answer(*message))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)

    async def expire_when_silent(self) -> None:
        """Counts ticks instead of time: after a sleep of the whole machine nobody has been silent."""
        while True:
            await asyncio.sleep(SESSION_TICK_S)
            self._silent_ticks += 1
            if self._silent_ticks >= SESSION_TICKS:
                await self._session.expire()

    async def end(self) -> None:
        await self._session.close()

    async def _answer(self, number: int, operation: str, arguments: list[Any]) -> None:
        try:
            answer = [number, await self._operations[operation](*arguments)]
        except MetaError as error:
            answer = [number, None, error_values(error)]
        except Exception as error:
            log.exception("internal error in the metadata store's operation %s", operation)
            answer = [number, None, ["ConnectionLoss", "metadata", f"internal error: {error!r}"]]
        self._send(answer)

    def _send(self, message: list[Any]) -> None:
        if not self._writer.is_closing():
            self._writer.write(packed(message))

    def _changed(self, event: WatchEvent) -> None:
        self._send(["changed", event.change.name, event.path])

    def _state_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._send(["expired"])

    # -- operations, with arguments and results as they travel -----------------------------------------------------

    async def _number(self) -> int:
        return self._session.number

    async def _renew(self) -> int:
        await self._session.renew()
        return self._session.number

    async def _get(self, path: str, watched: bool) -> Any:
        return node_values(await self._session.get(path, self._changed if watched else None))

    async def _get_many(self, paths: list[str], watched: bool) -> Any:
        found = await self._session.get_many(paths, self._changed if watched else None)
        return [node_values(node) for node in found]

    async def _exists(self, path: str, watched: bool) -> Any:
        return await self._session.exists(path, self._changed if watched else None)

    async def _children(self, path: str, watched: bool) -> list[str]:
        return await self._session.children(path, self._changed if watched else None)

    async def _create(self, path: str, data: str, ephemeral: bool, sequential: bool) -> str:
        return await self._session.create(path, bytes_of(data), ephemeral=ephemeral, sequential=sequential)

    async def _set(self, path: str, data: str, version: int) -> Any:
        return await self._session.set(path, bytes_of(data), version)

    async def _multi(self, operations: list[list[Any]]) -> Any:
        return await self._session.multi([operation_of(values) for values in operations])
