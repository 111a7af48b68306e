"""A simulated ZooKeeper: the embedded store's tree behind a network, with a session for each process.

A session ends when nothing was heard of it for its time-out; its owner learns that from the server, when it reaches it
again. While a connection is broken the session is suspended: what was asked before may have been done or not, and is
asked again over the next one, as the broker's own store does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from kafkad.meta.embedded import EmbeddedStore
from kafkad.meta.lost_replies import results_if_carried_out
from kafkad.meta.store import (
    ANY_VERSION,
    ConnectionLoss,
    Create,
    Delete,
    MetaStore,
    MultiFailed,
    Operation,
    Result,
    SessionExpired,
    SessionListener,
    SessionState,
    Set,
    Stat,
    Watch,
    WatchEvent,
)
from tests.sim.history import Violation
from tests.sim.network import Network, Stream
from tests.sim.world import ProcessClock, ProcessLoop, World

STORE = "store"
SESSION_S = 2.0


class StoreServer:
    """The server's side of all sessions."""

    def __init__(self, world: World, network: Network) -> None:
        self.world = world
        self.network = network
        self.loop = world.process(STORE)
        self.store = EmbeddedStore.in_memory(ProcessClock(world))
        self.sessions: dict[int, _ServedSession] = {}
        self.on_write: list[Callable[[Sequence[Operation]], None]] = []
        """Called with what has just been written."""

    def begin(self, client: SimSession) -> int:
        number = self.store.begin_session()
        served = self.sessions[number] = _ServedSession(self, number, client)
        served.look()
        return number

    def expire(self, number: int) -> None:
        if self.sessions.pop(number, None) is not None:
            self.world.note("store", "session", number, "ends")
            self.store.end_session(number)

    def write(self, operations: Sequence[Operation], number: int) -> list[Result]:
        results = _at_once(self.store.write(operations, number))
        for told in self.on_write:
            try:
                told(operations)
            except Violation as violation:  # whoever writes is not to catch it
                self.world.troubles.append(str(violation))
        return results


class _ReplyLost(Exception):
    """The connection broke before there was a reply."""


class _ServedSession:
    def __init__(self, server: StoreServer, number: int, client: SimSession) -> None:
        self._server = server
        self.number = number
        self.client = client
        self.heard_s = server.world.now
        self.missed: list[tuple[Watch, WatchEvent]] = []
        self._watches: dict[Watch, Watch] = {}

    def look(self) -> None:
        """Has it been silent for too long?"""
        if self.number in self._server.sessions:
            left_s = self.heard_s + SESSION_S - self._server.world.now
            if left_s <= 0:
                self._server.expire(self.number)
            else:
                self._server.loop.call_later(left_s + 1e-6, self.look)

    def watch(self, watch: Watch | None) -> Watch | None:
        """In the place of the owner's watch: the event goes over the network, or waits for the connection."""
        if watch is None:
            return None
        known = self._watches.get(watch)
        if known is not None:
            return known

        def fired(event: WatchEvent) -> None:
            self._watches.pop(watch, None)
            connection = self.client.connection
            if connection is None:
                self.missed.append((watch, event))
            else:
                connection.down.push((watch, event, True))

        self._watches[watch] = fired
        return fired


class _Connection:
    """One connection of a session."""

    def __init__(self, session: SimSession) -> None:
        network, name = session.server.network, session.name
        self.up = Stream(network, name, STORE, self._on_server)
        self.down = Stream(network, STORE, name, self._to_client)
        self.session = session
        self.number = session.number
        self.waiting: dict[asyncio.Future[Any], None] = {}

    def _on_server(self, what: tuple[Callable[[Any], Any], asyncio.Future[Any] | None]) -> None:
        self.session.server.loop.call_soon(self._serve, *what)

    def _serve(self, operation: Callable[[Any], Any], answered: asyncio.Future[Any] | None) -> None:
        session = self.session
        served = session.server.sessions.get(session.number)
        if served is None:
            self.down.push((None, SessionExpired("/"), False))
            return
        served.heard_s = session.server.world.now
        try:
            result, failed = operation(served), False
        except Exception as error:
            result, failed = error, True
        self.down.push((answered, result, failed))

    def _to_client(self, what: tuple[Any, Any, bool]) -> None:
        if not self.session.loop.dead:
            self.session.loop.call_soon(self.session.heard, self, *what)

    def break_off(self) -> None:
        """Answers under way are lost; of a watch that has fired the client hears when it compares what it knows."""
        self.up.break_off()
        served = self.session.server.sessions.get(self.number)
        fired = [(to, what) for to, what, _ in self.down.end() if isinstance(what, WatchEvent)]
        if served is not None:
            served.missed += fired


class SimSession(MetaStore):
    """A broker's session, as its process sees it."""

    def __init__(self, server: StoreServer, name: str, loop: ProcessLoop) -> None:
        self.server = server
        self.name = name
        self.loop = loop
        self.number = server.begin(self)
        self.connection: _Connection | None = _Connection(self)
        self.state = SessionState.CONNECTED
        self._listeners: list[SessionListener] = []
        self._state_changed = asyncio.Event()
        self._heard_s = server.world.now
        self._closed = False
        loop.call_later(SESSION_S / 4, self._ping)

    @property
    def session_id(self) -> int:
        return self.number

    @property
    def session_timeout_ms(self) -> int:
        return int(SESSION_S * 1000)

    @property
    def problem(self) -> str | None:
        return None

    # -- the connection ----------------------------------------------------------------------------------------------

    def break_connection(self) -> None:
        """What is under way may still be done; nobody will be told."""
        connection, self.connection = self.connection, None
        if connection is None:
            return
        connection.break_off()
        if self.loop.dead:
            return
        self.loop.call_soon(self._lost, connection)

    def _lost(self, connection: _Connection) -> None:
        self._tell(SessionState.SUSPENDED)
        for answered in connection.waiting:
            if not answered.done():
                answered.set_exception(_ReplyLost)

    def _ping(self) -> None:
        """Often enough to keep the session; or to get a connection again."""
        if self._closed:
            return
        if self.connection is None and self.state is SessionState.SUSPENDED:
            self._reconnect()
        elif self.connection is not None:
            if self.server.world.now - self._heard_s > SESSION_S * 2 / 3:
                self.break_connection()
            else:
                self.connection.up.push((lambda served: None, None))
        self.loop.call_later(SESSION_S / 4 * self.server.world.random.uniform(0.5, 1.0), self._ping)

    def _reconnect(self) -> None:
        """Watches that fired meanwhile are told of first."""
        network = self.server.network
        if (self.name, STORE) in network.cuts or (STORE, self.name) in network.cuts:
            return
        served = self.server.sessions.get(self.number)
        if served is None:
            self._tell(SessionState.EXPIRED)
            return
        self.connection = _Connection(self)
        self._heard_s = served.heard_s = self.server.world.now
        missed, served.missed = served.missed, []
        for watch, event in missed:
            self.connection.down.push((watch, event, True))
        self._tell(SessionState.CONNECTED)

    def heard(self, connection: _Connection, to: Any, what: Any, failed: bool) -> None:
        """An answer, a watch's event, or the end of the session."""
        if connection is not self.connection:
            if isinstance(what, WatchEvent) and connection.number == self.number:
                self._hear(to, what)
            return
        self._heard_s = self.server.world.now
        if isinstance(what, WatchEvent):
            self._hear(to, what)
        elif to is None:
            if isinstance(what, SessionExpired):
                self._expired()
        else:
            connection.waiting.pop(to, None)
            if not to.done():
                (to.set_exception if failed else to.set_result)(what)

    def _hear(self, watch: Watch, event: WatchEvent) -> None:
        self.server.world.note("watch", self.name, event.change.name, event.path)
        watch(event)

    def _expired(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.break_off()
            for answered in connection.waiting:
                if not answered.done():
                    answered.set_exception(SessionExpired("/"))
        self._tell(SessionState.EXPIRED)

    def _tell(self, state: SessionState) -> None:
        if state is not self.state:
            self.state = state
            self._state_changed.set()
            self.server.world.note("session", self.name, self.number, state.name)
            for listener in self._listeners:
                listener(state)

    async def _ask(self, path: str, operation: Callable[[_ServedSession], Any]) -> Any:
        """Until there is a reply."""
        while True:
            with suppress(_ReplyLost):
                return await self._ask_once(path, operation)

    async def _ask_once(self, path: str, operation: Callable[[_ServedSession], Any]) -> Any:
        while self.connection is None and self.state is not SessionState.EXPIRED:
            self._state_changed.clear()
            await self._state_changed.wait()
        if self.connection is None:
            raise SessionExpired(path)
        answered = self.loop.create_future()
        connection = self.connection
        connection.waiting[answered] = None
        connection.up.push((operation, answered))
        try:
            return await answered
        finally:
            connection.waiting.pop(answered, None)

    # -- MetaStore ---------------------------------------------------------------------------------------------------

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        return await self._single(Create(path, data, ephemeral, sequential))  # type: ignore[return-value]

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        def operation(served: _ServedSession) -> tuple[bytes, Stat]:
            node = self.server.store.get(path)
            self.server.store.watch(path, served.number, served.watch(watch))
            return node.data, node.stat

        return await self._ask(path, operation)

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[tuple[bytes, Stat] | None]:
        store = self.server.store

        def operation(served: _ServedSession) -> list[tuple[bytes, Stat] | None]:
            nodes = [store.find(path) for path in paths]
            for path, node in zip(paths, nodes, strict=True):
                if node is not None:
                    store.watch(path, served.number, served.watch(watch))
            return [None if node is None else (node.data, node.stat) for node in nodes]

        return await self._ask("/", operation)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        def operation(served: _ServedSession) -> Stat | None:
            node = self.server.store.find(path)
            self.server.store.watch(path, served.number, served.watch(watch))
            return None if node is None else node.stat

        return await self._ask(path, operation)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        def operation(served: _ServedSession) -> list[str]:
            node = self.server.store.get(path)
            self.server.store.watch(path, served.number, served.watch(watch), of_children=True)
            return sorted(node.children or ())

        return await self._ask(path, operation)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return await self._single(Set(path, data, version))  # type: ignore[return-value]

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._single(Delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        def write(served: _ServedSession) -> list[Result]:
            return self.server.write(operations, served.number)

        try:
            return await self._ask_once("/", write)
        except _ReplyLost:
            pass
        try:
            return await self._ask("/", write)
        except MultiFailed:
            done = await results_if_carried_out(self, operations)
            if done is None:
                raise
            return done

    def listen(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def renew(self) -> None:
        if self.state is not SessionState.EXPIRED:
            return
        network = self.server.network
        began = self.loop.create_future()
        self.loop.call_later(network.delay_s() + network.delay_s(), began.set_result, None)
        await began
        if (self.name, STORE) in network.cuts or (STORE, self.name) in network.cuts:
            raise ConnectionLoss("/", "the store cannot be reached")
        if self.state is SessionState.EXPIRED:
            self.number = self.server.begin(self)
            self.connection = _Connection(self)
            self._heard_s = self.server.world.now
            self._tell(SessionState.CONNECTED)

    async def close(self) -> None:
        self._closed = True
        self.server.loop.call_soon(self.server.expire, self.number)

    async def _single(self, operation: Operation) -> Result:
        try:
            return (await self.multi([operation]))[0]
        except MultiFailed as error:
            raise error.cause from None


def _at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the store in memory waits for nothing")
