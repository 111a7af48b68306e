"""The metadata store of a cluster: ZooKeeper, by way of kazoo.

Kazoo has a thread for the connection. The event loop hands requests to it, a bounded number at a time, and it hands
back replies, watches and changes of the session in the order in which ZooKeeper sent them; the loop is woken once for
all that came together. Nothing here blocks the loop.

A broken connection does not end the session: requests that were not sent wait for the next connection, reads that were
are sent again, and a write whose reply was lost raises ConnectionLoss. Watches are compared with what has happened
meanwhile and set again. A session that has expired stays so until `renew`: each session has a kazoo client of its own,
which is given up with it, for kazoo would begin another session by itself.
"""

from __future__ import annotations

import asyncio
import logging
import select
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import GetData, MultiHeader, int_struct, read_buffer, stat_struct
from kazoo.protocol.states import EventType, KazooState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry

from kafkad.clock import Clock
from kafkad.meta.store import (
    ANY_VERSION,
    BadVersion,
    Change,
    Check,
    ConnectionLoss,
    Create,
    Delete,
    MetaError,
    MetaStore,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SessionExpired,
    SessionListener,
    SessionState,
    Set,
    Stat,
    Watch,
    WatchEvent,
    ensure_path,
)
from kafkad.metrics import GAUGE, QUANTILES, SUMMARY, TOTAL, Family, RequestProbe, counters
from kafkad.timers import Timers

log = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 1_000_000
"""ZooKeeper hangs up on a larger request (its `jute.maxbuffer` is 1 MiB, and there is something around each one)."""
_MAX_PIPELINE = 200
"""Kazoo is woken by a byte for each request, through a socket that blocks when it holds some 270 of them."""
_READS_AT_ONCE = 100
"""How many nodes one request reads: few enough for the server to serve others in between."""
_READ_BYTES = 1 << 16
_RETRY_S = 0.1
_RETRY_MAX_S = 0.5
_TELL_MS = 5_000
"""How often to say that ZooKeeper is waited for."""
_CLOSE_MS = 2_000
"""How long the end of a session may take before the process ends without it."""

_ERRORS: dict[type[Exception], type[MetaError]] = {
    kazoo.NoNodeError: NoNode,
    kazoo.NodeExistsError: NodeExists,
    kazoo.BadVersionError: BadVersion,
    kazoo.NotEmptyError: NotEmpty,
    kazoo.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    kazoo.SessionExpiredError: SessionExpired,
    kazoo.ConnectionClosedError: SessionExpired,
    kazoo.ConnectionLoss: ConnectionLoss,
    kazoo.OperationTimeoutError: ConnectionLoss,
    kazoo.RequestTimeoutError: ConnectionLoss,
    kazoo.SessionMovedError: ConnectionLoss,
}
_NOT_AT_FAULT = (kazoo.RolledBackError, kazoo.RuntimeInconsistency)
_CHANGES = {
    EventType.CREATED: Change.CREATED,
    EventType.DELETED: Change.DELETED,
    EventType.CHANGED: Change.CHANGED,
    EventType.CHILD: Change.CHILDREN,
}

Reply = tuple[Any, Exception | None]
Seen = tuple[int, int] | None
"""What a read with a watch has seen of a node: the transaction that made it, and the last change; None: no node."""


class ZooKeeperSettings(NamedTuple):
    """`servers` as host:port,…; `root` is the node below which everything is kept, empty for none."""

    servers: str
    root: str
    session_timeout_ms: int
    max_in_flight: int

    def __str__(self) -> str:
        return self.servers + self.root


class ZooKeeperStore(MetaStore):
    """One session, a MetaStore; made by `connect`."""

    def __init__(self, settings: ZooKeeperSettings, clock: Clock, timers: Timers) -> None:
        self._settings = settings
        self._clock = clock
        self._timers = timers
        self._loop = asyncio.get_running_loop()
        self._root = ""
        self._listeners: list[SessionListener] = []
        self._waiting: deque[_Request] = deque()
        self._sent: dict[_Request, None] = {}
        self._watches: dict[bool, dict[str, dict[Watch, Seen]]] = {True: {}, False: {}}
        self._state: SessionState | None = None
        self._state_changed = asyncio.Event()
        self._closed = False
        self._session_id = 0
        self._latency = RequestProbe("ZooKeeper")
        self._lost_connections = 0
        self._connections = 0
        self._lost_sessions = 0
        self._session_timeout_ms = settings.session_timeout_ms
        self._link = _Link(settings, self)

    @classmethod
    async def connect(
        cls, settings: ZooKeeperSettings, timeout_ms: float, clock: Clock, timers: Timers
    ) -> ZooKeeperStore:
        """Begins a session, and makes the root where it is missing. ConnectionLoss when it takes too long."""
        store = cls(settings, clock, timers)
        try:
            await store._connected(timeout_ms)
            if settings.root:
                await ensure_path(store, settings.root)
                store._root = settings.root
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        return self._session_timeout_ms

    @property
    def problem(self) -> str | None:
        """Why there is no connection now; None while there is one."""
        if self._has_session or self._closed:
            return None
        return f"no connection to ZooKeeper at {self._settings}: {self._link.problem}"

    def collect(self) -> Iterator[Family]:
        """Under Kafka's names."""
        now_s = self._clock.monotonic_ms() / 1000
        quantiles = zip(QUANTILES, self._latency.quantiles_ms(now_s), strict=True)
        yield Family(
            "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
            SUMMARY,
            "Milliseconds from a request to ZooKeeper to its answer.",
            [((("quantile", name),), value) for (name, _), value in quantiles],
            [("_count", (), self._latency.count), ("_sum", (), self._latency.sum_ms(TOTAL))],
        )
        counted = {
            "zookeepersyncconnects": self._connections,
            "zookeeperdisconnects": self._lost_connections,
            "zookeeperexpires": self._lost_sessions,
        }
        yield from counters("kafka_server_sessionexpirelistener", counted, "The session with ZooKeeper")
        yield Family(
            "kafka_server_sessionexpirelistener_sessionstate",
            GAUGE,
            "1 for the state of the session with ZooKeeper.",
            [((("state", state.name),), int(self._state is state)) for state in SessionState],
        )

    # Operations.

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        _refuse_large(path, len(data))
        at = self._at(path)
        made = await self._ask(
            path, lambda link: link.client.create_async(at, data, ephemeral=ephemeral, sequence=sequential)
        )
        return self._named(made)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        send = self._getting(path, watched=watch is not None)
        data, stat = await self._read(path, send, watch, lambda found: _data_seen(found[1]))
        return data or b"", _stat(stat)

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[tuple[bytes, Stat] | None]:
        """A request that reads many nodes cannot set watches."""
        if watch is not None:
            return await self._get_each(paths, watch)
        parts = [paths[begin : begin + _READS_AT_ONCE] for begin in range(0, len(paths), _READS_AT_ONCE)]
        requests = [self._enqueue(_Request(part[0], self._getting_many(part), is_read=True)) for part in parts]
        found: list[tuple[bytes, Stat] | None] = []
        for part, request in zip(parts, requests, strict=True):
            for path, node in zip(part, _value(request.path, await request.reply), strict=True):
                if isinstance(node, Exception) and not isinstance(node, kazoo.NoNodeError):
                    raise _translated(path, node)
                found.append(None if isinstance(node, Exception) else node)
        return found

    async def _get_each(self, paths: Sequence[str], watch: Watch) -> list[tuple[bytes, Stat] | None]:
        requests = [
            _Request(
                path, self._getting(path, watched=True), is_read=True, watch=watch, seen=lambda f: _data_seen(f[1])
            )
            for path in paths
        ]
        for request in requests:
            self._enqueue(request)
        found: list[tuple[bytes, Stat] | None] = []
        for request in requests:
            value, error = await request.reply
            if isinstance(error, kazoo.NoNodeError):
                found.append(None)
            else:
                data, stat = _value(request.path, (value, error))
                found.append((data or b"", _stat(stat)))
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat = await self._read(path, self._looking(path, watched=watch is not None), watch, _data_seen)
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        send = self._listing(path, watched=watch is not None)
        names, _ = await self._read(path, send, watch, lambda found: _children_seen(found[1]), of_children=True)
        return sorted(names)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        _refuse_large(path, len(data))
        at = self._at(path)
        return _stat(await self._ask(path, lambda link: link.client.set_async(at, data, version)))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        at = self._at(path)
        await self._ask(path, lambda link: link.client.delete_async(at, version))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        path = operations[0].path if operations else "/"
        _refuse_large(path, sum(_size(operation, self._root) for operation in operations))
        results = await self._ask(path, lambda link: self._commit(link, operations))
        for index, (operation, result) in enumerate(zip(operations, results, strict=True)):
            if isinstance(result, Exception) and not isinstance(result, _NOT_AT_FAULT):
                raise MultiFailed(index, _translated(operation.path, result))
        return [self._result(result) for result in results]

    def _commit(self, link: _Link, operations: Sequence[Operation]) -> Any:
        transaction = link.client.transaction()
        for operation in operations:
            at = self._at(operation.path)
            match operation:
                case Create():
                    transaction.create(at, operation.data, ephemeral=operation.ephemeral, sequence=operation.sequential)
                case Set():
                    transaction.set_data(at, operation.data, operation.version)
                case Delete():
                    transaction.delete(at, operation.version)
                case Check():
                    transaction.check(at, operation.version)
        return transaction.commit_async()

    def _result(self, result: object) -> Result:
        if isinstance(result, str):
            return self._named(result)
        return _stat(result) if isinstance(result, ZnodeStat) else None

    # The session.

    def listen(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def renew(self) -> None:
        self._refuse_closed()
        if self._state is SessionState.EXPIRED:
            if self._link.retired:
                self._link = _Link(self._settings, self)
            await self._connected()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._fail_all(self._waiting)
        self._waiting.clear()
        ended = self._link.retire()
        if self._state is SessionState.CONNECTED:
            timer = self._timers.at(self._clock.monotonic_ms() + _CLOSE_MS, ended.set)
            await ended.wait()
            timer.cancel()
        self._fail_all(list(self._sent))

    async def _connected(self, timeout_ms: float = float("inf")) -> None:
        """Returns when there is a session. ConnectionLoss when it takes longer, or cannot be."""
        now_ms = self._clock.monotonic_ms()
        deadline_ms = now_ms + timeout_ms
        while not self._has_session and not self._link.retired and now_ms < deadline_ms:
            self._state_changed.clear()
            timer = self._timers.at(min(deadline_ms, now_ms + _TELL_MS), self._state_changed.set)
            await self._state_changed.wait()
            timer.cancel()
            now_ms = self._clock.monotonic_ms()
            if not self._has_session and now_ms < deadline_ms:
                log.warning("waiting for ZooKeeper at %s: %s", self._settings, self._link.problem)
        if not self._has_session:
            raise ConnectionLoss(str(self._settings), f"ZooKeeper does not answer: {self._link.problem}")

    @property
    def _has_session(self) -> bool:
        return self._state is SessionState.CONNECTED

    def _set_state(self, state: SessionState) -> None:
        if self._state is not state:
            self._state = state
            for listener in self._listeners:
                self._loop.call_soon(listener, state)
        self._state_changed.set()

    # What a link tells, on the event loop.

    def connected(self, server: str, session_id: int, timeout_ms: int) -> None:
        again = session_id == self._session_id
        log.info(
            "%s ZooKeeper at %s: session 0x%x, which expires after %d ms",
            "reconnected to" if again else "connected to",
            server,
            session_id,
            timeout_ms,
        )
        self._connections += 1
        self._session_id, self._session_timeout_ms = session_id, timeout_ms
        self._set_state(SessionState.CONNECTED)
        if again:
            self._watch_again()
        self._send_waiting()

    def suspended(self, problem: str) -> None:
        if self._state is SessionState.CONNECTED:
            self._lost_connections += 1
            log.warning("lost the connection to ZooKeeper; connecting to %s again: %s", self._settings, problem)
            self._set_state(SessionState.SUSPENDED)

    def expired(self) -> None:
        """No kazoo client is left with a session."""
        self._link.retire()
        requests = [*self._sent, *self._waiting]
        self._sent.clear()
        self._waiting.clear()
        self._watches = {True: {}, False: {}}
        if self._state is not None and not self._closed:
            self._lost_sessions += 1
            log.warning("session 0x%x with ZooKeeper has expired", self._session_id)
            self._set_state(SessionState.EXPIRED)
        self._state_changed.set()
        self._fail_all(requests)

    def answered(self, request: _Request, reply: Reply) -> None:
        self._sent.pop(request, None)
        self._latency.record(round((self._clock.monotonic_ms() - request.sent_ms) * 1000))
        value, error = reply
        if request.is_read and _ERRORS.get(type(error)) is ConnectionLoss and not self._closed:  # type: ignore[arg-type]
            self._waiting.append(request)
        else:
            if error is None and request.watch is not None:
                watches = self._watches[request.of_children].setdefault(request.path, {})
                watches[request.watch] = request.seen(value)
            request.finish(reply)
        self._send_waiting()

    def heard(self, event: WatchedEvent) -> None:
        change = _CHANGES.get(event.type)
        if change is not None:  # other events tell that a client has dropped its watches
            self._fire(WatchEvent(change, self._named(event.path)))

    # Requests.

    def _at(self, path: str) -> str:
        return (self._root + path).rstrip("/") or "/"

    def _named(self, path: str) -> str:
        return path.removeprefix(self._root) or "/"

    def _getting(self, path: str, *, watched: bool) -> Send:
        at = self._at(path)
        return lambda link: link.client.get_async(at, watch=link.heard if watched else None)

    def _getting_many(self, paths: Sequence[str]) -> Send:
        request = _GetMany(map(self._at, paths))
        return lambda link: link.call(request)

    def _looking(self, path: str, *, watched: bool) -> Send:
        at = self._at(path)
        return lambda link: link.client.exists_async(at, watch=link.heard if watched else None)

    def _listing(self, path: str, *, watched: bool) -> Send:
        at = self._at(path)
        return lambda link: link.client.get_children_async(at, watch=link.heard if watched else None, include_data=True)

    async def _ask(self, path: str, send: Send) -> Any:
        return _value(path, await self._enqueue(_Request(path, send)).reply)

    async def _read(
        self, path: str, send: Send, watch: Watch | None, seen: Callable[[Any], Seen], *, of_children: bool = False
    ) -> Any:
        request = _Request(path, send, is_read=True, watch=watch, seen=seen, of_children=of_children)
        return _value(path, await self._enqueue(request).reply)

    def _enqueue(self, request: _Request) -> _Request:
        self._refuse_closed()
        if self._state is SessionState.EXPIRED:
            raise SessionExpired(request.path)
        self._waiting.append(request)
        self._send_waiting()
        return request

    def _refuse_closed(self) -> None:
        if self._closed:
            raise SessionExpired(str(self._settings), "the session was closed")

    def _send_waiting(self) -> None:
        limit = min(self._settings.max_in_flight, _MAX_PIPELINE)
        while self._waiting and self._state is SessionState.CONNECTED and len(self._sent) < limit:
            request = self._waiting.popleft()
            if not request.reply.done():  # who asked has not been cancelled
                self._sent[request] = None
                request.sent_ms = self._clock.monotonic_ms()
                self._link.send(request)

    def _fail_all(self, requests: Sequence[_Request] | deque[_Request]) -> None:
        for request in requests:
            request.finish((None, kazoo.SessionExpiredError()))

    # Watches.

    def _fire(self, event: WatchEvent) -> None:
        called: dict[Watch, None] = {}
        if event.change is not Change.CHILDREN:
            called |= dict.fromkeys(self._watches[False].pop(event.path, ()))
        if event.change in (Change.CHILDREN, Change.DELETED):
            called |= dict.fromkeys(self._watches[True].pop(event.path, ()))
        for watch in called:  # after those who wait for a reply that came before this event
            self._loop.call_soon(watch, event)

    def _watch_again(self) -> None:
        """Kazoo drops all watches with a connection."""

        def again(path: str, send: Send, compare: Callable[[str, Reply], None]) -> None:
            request = _Request(path, send)
            request.reply.add_done_callback(lambda done: compare(path, done.result()))
            self._waiting.appendleft(request)

        for path in self._watches[False]:
            again(path, self._looking(path, watched=True), self._compare_data)
        for path in self._watches[True]:
            again(path, self._listing(path, watched=True), self._compare_children)

    def _compare_data(self, path: str, reply: Reply) -> None:
        stat, error = reply
        if error is not None:
            return  # the next connection does it again
        for before in self._watches[False].get(path, {}).values():
            if before != _data_seen(stat):
                change = Change.DELETED if stat is None else Change.CHANGED if before else Change.CREATED
                self._fire(WatchEvent(change, path))
                return

    def _compare_children(self, path: str, reply: Reply) -> None:
        found, error = reply
        if isinstance(error, kazoo.NoNodeError):
            self._fire(WatchEvent(Change.DELETED, path))
        elif error is None and any(
            before != _children_seen(found[1]) for before in self._watches[True].get(path, {}).values()
        ):
            self._fire(WatchEvent(Change.CHILDREN, path))


class _Request:
    """A request on its way. `seen` takes from the reply to a read what its watch has to be compared with later."""

    __slots__ = ("is_read", "of_children", "path", "reply", "seen", "send", "sent_ms", "watch")

    def __init__(
        self,
        path: str,
        send: Send,
        *,
        is_read: bool = False,
        watch: Watch | None = None,
        seen: Callable[[Any], Seen] = lambda value: None,
        of_children: bool = False,
    ) -> None:
        self.path = path
        self.send = send
        self.is_read = is_read
        self.watch = watch
        self.seen = seen
        self.of_children = of_children
        self.sent_ms = 0.0
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def finish(self, reply: Reply) -> None:
        if not self.reply.done():
            self.reply.set_result(reply)


class _Link:
    """A kazoo client for the time of one session. Tells the store what comes from kazoo's thread, on the event loop."""

    def __init__(self, settings: ZooKeeperSettings, store: ZooKeeperStore) -> None:
        self.retired = False
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._told: deque[Callable[[], None]] = deque()
        self._waking = False
        self._ended = asyncio.Event()
        self._problems = _LastProblem()
        servers = settings.servers.count(",") + 1
        timeout_s = settings.session_timeout_ms / 1000
        handler = _Handler(timeout_s / servers)
        retry = KazooRetry(max_tries=-1, delay=_RETRY_S, max_delay=_RETRY_MAX_S, sleep_func=handler.sleep_func)
        self.client = KazooClient(
            settings.servers,
            timeout=timeout_s,
            handler=handler,
            connection_retry=retry,
            logger=self._problems.logger,
        )
        self.client._connection = _Connection(self.client, retry, self._problems.logger, self._on_connected)
        self.client.add_listener(self._on_state)
        self.client.start_async()

    @property
    def problem(self) -> str:
        return self._problems.text

    def send(self, request: _Request) -> None:
        try:
            result = request.send(self)
        except Exception as error:
            self._tell(partial(self._store.answered, request, (None, error)))
        else:
            result.rawlink(lambda result: self._tell(partial(self._answered, request, result)))

    def call(self, request: _GetMany) -> Any:
        """For a request that kazoo does not have."""
        result = self.client.handler.async_result()
        self.client._call(request, result)
        return result

    def _answered(self, request: _Request, result: Any) -> None:
        self._store.answered(request, (result.value, result.exception))

    def retire(self) -> asyncio.Event:
        """Ends the session, if there still is one; the event is set when it is over. Only replies are told by then."""
        if not self.retired:
            self.retired = True
            threading.Thread(target=self._stop, name="zookeeper-close", daemon=True).start()
        return self._ended

    def _stop(self) -> None:
        try:
            self.client.stop()
            self.client.close()
        except Exception:
            log.debug("a connection to ZooKeeper did not end well", exc_info=True)
        with suppress(RuntimeError):  # the loop is closed: nobody waits for this
            self._loop.call_soon_threadsafe(self._ended.set)

    # In kazoo's thread.

    def heard(self, event: WatchedEvent) -> None:
        self._tell(partial(self._unless_retired, partial(self._store.heard, event)))

    def _on_connected(self, server: str, timeout_ms: int) -> None:
        session_id, _ = self.client.client_id
        self._tell(partial(self._unless_retired, partial(self._store.connected, server, session_id, timeout_ms)))

    def _on_state(self, state: str) -> None:
        if state == KazooState.SUSPENDED:
            self._tell(partial(self._unless_retired, partial(self._store.suspended, self._problems.text)))
        elif state == KazooState.LOST:
            self._tell(partial(self._unless_retired, self._store.expired))

    def _tell(self, call: Callable[[], None]) -> None:
        self._told.append(call)
        if not self._waking:
            self._waking = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._waking = False  # before the queue is read: what is added from now on is either read or wakes the loop
        while self._told:
            self._told.popleft()()

    def _unless_retired(self, call: Callable[[], None]) -> None:
        if not self.retired:
            call()


Send = Callable[[_Link], Any]


class _GetMany:
    """Reads many nodes by one request, which ZooKeeper has since 3.6: as fast as kazoo reads a few by one each.

    Its result has data and Stat of each node, or an error.
    """

    type = 22

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = tuple(paths)

    def serialize(self) -> bytearray:
        request = bytearray()
        for path in self.paths:
            request += MultiHeader(GetData.type, False, -1).serialize() + GetData(path, None).serialize()
        request += MultiHeader(-1, True, -1).serialize()
        return request

    @classmethod
    def deserialize(cls, reply: bytes, offset: int) -> list[tuple[bytes, Stat] | Exception]:
        found: list[tuple[bytes, Stat] | Exception] = []
        header, offset = MultiHeader.deserialize(reply, offset)
        while not header.done:
            if header.type == GetData.type:
                data, offset = read_buffer(reply, offset)
                found.append((data or b"", _stat(ZnodeStat._make(stat_struct.unpack_from(reply, offset)))))
                offset += stat_struct.size
            else:
                found.append(kazoo.EXCEPTIONS[header.err]())
                offset += int_struct.size
            header, offset = MultiHeader.deserialize(reply, offset)
        return found


class _AtOnce:
    """Stands in for the queues of kazoo's handler: what is put in runs at once, in the thread that puts it in."""

    def put(self, call: Callable[[], None]) -> None:
        call()


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Kazoo's threads, but one: callbacks are for the event loop, and the connection's thread hands them over."""

    def __init__(self, connect_s: float) -> None:
        super().__init__()
        self.completion_queue = _AtOnce()
        self.has_unread: Callable[[Any], bool] = lambda each: False
        self._connect_s = connect_s

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> Any:
        """A server that does not even take the connection must not use up the time of a session."""
        return super().create_connection(*args, timeout=min(timeout, self._connect_s), **kwargs)

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        unread = [each for each in readers if self.has_unread(each)]
        return (unread, [], []) if unread else self.wait(readers, writers, timeout)

    def wait(
        self, readers: Sequence[Any], writers: Sequence[Any], timeout: float | None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """A poll is one system call, where kazoo's own way makes an epoll for each wait."""
        poll = select.poll()
        for sockets, event in ((readers, select.POLLIN), (writers, select.POLLOUT)):
            for each in sockets:
                poll.register(each, event)
        ready = {number for number, _ in poll.poll(None if timeout is None else timeout * 1000)}
        return [s for s in readers if s.fileno() in ready], [s for s in writers if s.fileno() in ready], []


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """Kazoo's connection, with two differences.

    It tells for how long the server lets the session live, and it reads and writes as much at once as there is, where
    kazoo takes several system calls for each request and each reply.
    """

    handler: _Handler

    def __init__(
        self, client: KazooClient, retry: KazooRetry, logger: logging.Logger, on_connected: Callable[[str, int], None]
    ) -> None:
        super().__init__(client, retry, logger)
        self._on_connected = on_connected
        self._unread = b""
        self._gathered: bytearray | None = None
        self.handler.has_unread = lambda each: each is self._socket and bool(self._unread)

    def _connect(self, host: str, address: str, port: int) -> tuple[float, float]:
        self._unread = b""
        read_ms, connect_ms = super()._connect(host, address, port)
        self._on_connected(f"{host}:{port}", round(read_ms * 3 / 2))  # of the session's time kazoo takes two thirds
        return read_ms, connect_ms

    def _read(self, length: int, timeout: float) -> bytes:
        with self._socket_error_handling():
            while len(self._unread) < length:
                try:
                    received = self._socket.recv(_READ_BYTES)
                except (BlockingIOError, ssl.SSLWantReadError):
                    if not self.handler.wait([self._socket], [], timeout)[0]:
                        raise self.handler.timeout_exception("socket time-out during read") from None
                    continue
                if not received:
                    raise kazoo.ConnectionDropped("socket connection broken")
                self._unread += received
        taken, self._unread = self._unread[:length], self._unread[length:]
        return taken

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """All that wait, in one write."""
        self._gathered = bytearray()
        try:
            super()._send_request(read_timeout, connect_timeout)
            while self.client._queue:
                super()._send_request(read_timeout, connect_timeout)
        finally:
            gathered, self._gathered = self._gathered, None
        self._write(gathered, connect_timeout)

    def _write(self, message: bytes | bytearray, timeout: float) -> None:
        if self._gathered is not None:
            self._gathered += message
            return
        left = memoryview(message)
        with self._socket_error_handling():
            while left:
                try:
                    left = left[self._socket.send(left) :]
                except (BlockingIOError, ssl.SSLWantWriteError):
                    if not self.handler.wait([], [self._socket], timeout)[1]:
                        raise self.handler.timeout_exception("socket time-out during write") from None


class _LastProblem(logging.Handler):
    """Keeps what kazoo complains of, which it does at each attempt to connect; its own errors go to the log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = "no server has answered"
        self.logger = logging.Logger("kazoo", logging.WARNING)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno > logging.WARNING:
            log.handle(record)
        elif not record.getMessage().startswith("Transition to"):
            self.text = (
                record.getMessage().removeprefix("Connection dropped: ").removeprefix("socket connection error: ")
            )


def _value(path: str, reply: Reply) -> Any:
    value, error = reply
    if error is not None:
        raise _translated(path, error)
    return value


def _translated(path: str, error: Exception) -> MetaError:
    """Raises what is no error of ZooKeeper's."""
    if not isinstance(error, kazoo.KazooException):
        raise error
    kind = _ERRORS.get(type(error))
    return kind(path) if kind else MetaError(path, f"ZooKeeper refused the request: {type(error).__name__}")


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(
        stat.czxid,
        stat.mzxid,
        stat.ctime,
        stat.mtime,
        stat.version,
        stat.cversion,
        stat.ephemeralOwner,
        stat.numChildren,
    )


def _data_seen(stat: ZnodeStat | None) -> Seen:
    return None if stat is None else (stat.czxid, stat.mzxid)


def _children_seen(stat: ZnodeStat) -> Seen:
    return stat.czxid, stat.cversion


def _size(operation: Operation, root: str) -> int:
    data = operation.data if isinstance(operation, Create | Set) else b""
    return len(root) + len(operation.path.encode()) + len(data) + 60  # headers, lengths, version, rights


def _refuse_large(path: str, size: int) -> None:
    if size > MAX_REQUEST_BYTES:
        raise MetaError(path, f"a request of {size} bytes is too large for ZooKeeper, which takes {MAX_REQUEST_BYTES}")
