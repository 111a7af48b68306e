"""A broker's session with an embedded store that another process on this host owns and serves (`meta/served`).

Requests are sent as they come, without waiting for earlier answers. The connection is the broker's tie to its
supervisor: it cannot be made again, and `on_loss` is called when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from kafkad.meta.store import (
    ANY_VERSION,
    Change,
    ConnectionLoss,
    MetaStore,
    Operation,
    OutOfReach,
    Result,
    SessionExpired,
    SessionListener,
    SessionState,
    Stat,
    Watch,
    WatchEvent,
)
from kafkad.meta.store_messages import (
    SESSION_TICK_S,
    error_of,
    node_of,
    operation_values,
    packed,
    receive,
    result_of,
    text_of,
)


class RemoteSession(MetaStore):
    """One session, a MetaStore, made by `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_loss: Callable[[], None]) -> None:
        self._reader = reader
        self._writer = writer
        self._on_loss = on_loss
        self._number = 0
        self._expired = False
        self._lost = False
        self._closed = False
        self._numbers = count(1)
        self._waiting: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        self._watches: dict[bool, dict[str, Counter[Watch]]] = {True: defaultdict(Counter), False: defaultdict(Counter)}
        """What is called for an event, and how many reads have set it."""
        self._listeners: list[SessionListener] = []
        self._loop = asyncio.get_running_loop()
        self._chores = [asyncio.create_task(self._receive()), asyncio.create_task(self._stay_alive())]

    @classmethod
    async def connect(cls, connection: socket.socket, on_loss: Callable[[], None]) -> RemoteSession:
        """Raises ConnectionLoss when there is nobody at the other end."""
        session = cls(*await asyncio.open_unix_connection(sock=connection), on_loss)
        session._number = await session._ask("session", "/")
        return session

    @property
    def session_id(self) -> int:
        return self._number

    @property
    def session_timeout_ms(self) -> int:
        return 0

    @property
    def problem(self) -> str | None:
        """The supervisor, which has the store, tells of it once for all brokers."""
        return None

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        created: str = await self._ask("create", path, path, text_of(data), ephemeral, sequential)
        return created

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        node = node_of(await self._read("get", path, watch))
        assert node is not None
        return node

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[tuple[bytes, Stat] | None]:
        paths = list(paths)
        if watch is None:
            return [node_of(values) for values in await self._ask("get_many", "/", paths, False)]
        watched = [self._watch(path, watch) for path in paths]
        found: list[tuple[bytes, Stat] | None] = [None] * len(paths)
        try:
            found = [node_of(values) for values in await self._ask("get_many", "/", paths, True)]
        finally:
            for watches, node in zip(watched, found, strict=True):
                if node is None:
                    _take_back(watches, watch)
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat = await self._read("exists", path, watch)
        return None if stat is None else Stat(*stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names: list[str] = await self._read("children", path, watch, of_children=True)
        return names

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return Stat(*await self._ask("set", path, path, text_of(data), version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._ask("delete", path, path, version)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return list(map(result_of, await self._ask("multi", "/", list(map(operation_values, operations)))))

    def listen(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def renew(self) -> None:
        if self._expired:
            self._expired = False
            self._number = await self._ask("renew", "/")
            self._tell(SessionState.CONNECTED)

    async def close(self) -> None:
        """Ends the connection, too. Nothing when it is lost."""
        with contextlib.suppress(OutOfReach):
            await self._ask("close", "/")
        self._closed = True
        for chore in self._chores:
            chore.cancel()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    # -- requests --------------------------------------------------------------------------------------------------

    async def _ask(self, operation: str, about: str, *arguments: Any) -> Any:
        if self._lost or self._closed:
            raise ConnectionLoss(about, "the connection to the supervisor, which has the metadata store, is closed")
        if self._expired:
            raise SessionExpired(about)
        number = next(self._numbers)
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[number] = about, answer
        self._writer.write(packed([number, operation, arguments]))
        return await answer

    async def _read(self, operation: str, path: str, watch: Watch | None, *, of_children: bool = False) -> Any:
        """The watch is there before the answer, for the event may follow it closely; a read that failed set none."""
        if watch is None:
            return await self._ask(operation, path, path, False)
        watches = self._watch(path, watch, of_children=of_children)
        try:
            return await self._ask(operation, path, path, True)
        except BaseException:
            _take_back(watches, watch)
            raise

    def _watch(self, path: str, watch: Watch, *, of_children: bool = False) -> Counter[Watch]:
        """Where `_take_back` finds it, as long as it was not called."""
        watches = self._watches[of_children][path]
        watches[watch] += 1
        return watches

    # -- what the server says --------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        try:
            while True:
                self._take(await receive(self._reader))
        except (asyncio.IncompleteReadError, OSError):
            self._lose()

    def _take(self, message: list[Any]) -> None:
        if message[0] == "changed":
            # not before whoever waits for an answer that came earlier has gone on
            self._loop.call_soon(self._fire, WatchEvent(Change[message[1]], message[2]))
        elif message[0] == "expired":
            self._expire()
        else:
            number, result, *error = message
            _, answer = self._waiting.pop(number)
            if answer.done():
                return  # nobody waits for it any more
            if error:
                answer.set_exception(error_of(error[0]))
            else:
                answer.set_result(result)

    def _fire(self, event: WatchEvent) -> None:
        watches: Counter[Watch] = Counter()
        if event.change is not Change.CHILDREN:
            watches += self._watches[False].pop(event.path, Counter())
        if event.change in (Change.CHILDREN, Change.DELETED):
            watches += self._watches[True].pop(event.path, Counter())
        for watch in watches:
            watch(event)

    def _expire(self) -> None:
        self._expired = True
        for watches in self._watches.values():
            watches.clear()
        self._tell(SessionState.EXPIRED)

    def _lose(self) -> None:
        self._lost = True
        waiting, self._waiting = self._waiting, {}
        for about, answer in waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionLoss(about, "the supervisor, which has the metadata store, is gone"))
        if not self._closed:
            self._on_loss()

    async def _stay_alive(self) -> None:
        while not self._lost:
            await asyncio.sleep(SESSION_TICK_S)
            if not self._expired:
                with contextlib.suppress(OutOfReach):
                    await self._ask("session", "/")

    def _tell(self, state: SessionState) -> None:
        for listener in self._listeners:
            listener(state)


def _take_back(watches: Counter[Watch], watch: Watch) -> None:
    """What one read has set; another may have set the same."""
    watches[watch] -= 1
    if not watches[watch]:
        del watches[watch]
