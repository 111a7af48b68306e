"""The metadata store of a cluster: ZooKeeper.

The event loop hands requests to a session, a bounded number at a time. Nothing here blocks the loop.

A broken connection does not end the session: requests wait for the next connection, and those whose replies were lost
are sent again. A write that is refused then, because it was carried out the first time, gives what it gave that time;
only a sequential node may be made twice, and none is deleted that was made anew meanwhile. Watches are compared with
what has happened meanwhile and set again. A session that has expired stays so until `renew`, which begins another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from kafkad.clock import Clock
from kafkad.meta.kazoo_session import KazooSession, Reply, ZooKeeperSettings, is_at_fault, translated
from kafkad.meta.lost_replies import results_if_carried_out
from kafkad.meta.retrying import in_any_session
from kafkad.meta.store import (
    ANY_VERSION,
    BadVersion,
    Change,
    ConnectionLoss,
    Create,
    Delete,
    MetaError,
    MetaStore,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    Result,
    SessionExpired,
    SessionListener,
    SessionState,
    Set,
    Stat,
    TooLarge,
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
_TELL_MS = 5_000
"""How often to say that ZooKeeper is waited for."""
_CLOSE_MS = 2_000
"""How long the end of a session may take before the process ends without it."""

Send = Callable[[KazooSession], Any]
Seen = tuple[int, int] | None
"""What a read with a watch has seen of a node: the transaction that made it, and the last change; None: no node."""


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
        self._session = KazooSession(settings, self)

    @classmethod
    async def connect(
        cls, settings: ZooKeeperSettings, timeout_ms: float, clock: Clock, timers: Timers
    ) -> ZooKeeperStore:
        """Begins a session, and makes the root where it is missing. ConnectionLoss when it takes too long."""
        store = cls(settings, clock, timers)
        try:
            await store._connected(timeout_ms)
            if settings.root:
                await in_any_session(store, lambda: ensure_path(store, settings.root), "make the root", clock, timers)
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
        return f"no connection to ZooKeeper at {self._settings}: {self._session.problem}"

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
        made = await self._write(
            Create(path, data, ephemeral, sequential),
            lambda session: session.create(at, data, ephemeral=ephemeral, sequential=sequential),
        )
        return self._named(made)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        send = self._getting(path, watched=watch is not None)
        data, stat = await self._read(path, send, watch, lambda found: _data_seen(found[1]))
        return data or b"", stat

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[tuple[bytes, Stat] | None]:
        """A request that reads many nodes cannot set watches."""
        if watch is not None:
            return await self._get_each(paths, watch)
        parts = [paths[begin : begin + _READS_AT_ONCE] for begin in range(0, len(paths), _READS_AT_ONCE)]
        requests = [self._enqueue(_Request(part[0], self._getting_many(part))) for part in parts]
        found: list[tuple[bytes, Stat] | None] = []
        for part, request in zip(parts, requests, strict=True):
            for path, node in zip(part, _value(await request.reply), strict=True):
                error = translated(path, node) if isinstance(node, Exception) else None
                if error is not None and not isinstance(error, NoNode):
                    raise error
                found.append(None if error is not None else node)
        return found

    async def _get_each(self, paths: Sequence[str], watch: Watch) -> list[tuple[bytes, Stat] | None]:
        requests = [
            _Request(path, self._getting(path, watched=True), watch=watch, seen=lambda f: _data_seen(f[1]))
            for path in paths
        ]
        for request in requests:
            self._enqueue(request)
        found: list[tuple[bytes, Stat] | None] = []
        for request in requests:
            value, error = await request.reply
            if isinstance(error, NoNode):
                found.append(None)
            else:
                data, stat = _value((value, error))
                found.append((data or b"", stat))
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat: Stat | None = await self._read(path, self._looking(path, watched=watch is not None), watch, _data_seen)
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        send = self._listing(path, watched=watch is not None)
        names, _ = await self._read(path, send, watch, lambda found: _children_seen(found[1]), of_children=True)
        return sorted(names)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        _refuse_large(path, len(data))
        at = self._at(path)
        stat: Stat = await self._write(Set(path, data, version), lambda session: session.set(at, data, version))
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        at = self._at(path)
        await self._write(Delete(path, version), lambda session: session.delete(at, version))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        sizes = [_size(operation, self._root) for operation in operations]
        path = operations[sizes.index(max(sizes))].path if operations else "/"
        _refuse_large(path, sum(sizes))
        placed = [(self._at(operation.path), operation) for operation in operations]
        reply, in_doubt = await self._write_until_answered(path, operations, lambda session: session.commit(placed))
        results = _value(reply)
        for index, (operation, result) in enumerate(zip(operations, results, strict=True)):
            if is_at_fault(result):
                done = await results_if_carried_out(self, operations) if in_doubt else None
                if done is None:
                    raise MultiFailed(index, _as_meta_error(translated(operation.path, result)))
                return done
        return [self._result(result) for result in results]

    async def _write(self, operation: Operation, send: Send) -> Any:
        try:
            (value, error), in_doubt = await self._write_until_answered(operation.path, [operation], send)
        except MultiFailed as e:
            raise e.cause from None
        if isinstance(error, (NodeExists, NoNode, BadVersion)) and in_doubt:
            done = await results_if_carried_out(self, [operation])
            if done is not None:
                return done[0]
        return _value((value, error))

    async def _write_until_answered(self, path: str, operations: Sequence[Operation], send: Send) -> tuple[Reply, bool]:
        """The reply, and whether one was lost before it.

        Before a deletion is sent again the node is read: one that was made after the first attempt is another node, and
        is left alone (MultiFailed, BadVersion).
        """
        deleted = {each.path: index for index, each in enumerate(operations) if isinstance(each, Delete)}
        if not deleted:
            request = self._enqueue(_Request(path, send))
            return await request.reply, request.in_doubt
        seen, in_doubt = self._session.last_zxid, False
        while True:
            reply = await self._enqueue(_Request(path, send, insists=False)).reply
            if not isinstance(reply[1], ConnectionLoss) or self._closed:
                return reply, in_doubt
            in_doubt = True
            for node, at in zip(await self.get_many(list(deleted)), deleted, strict=True):
                if node is not None and node[1].czxid > seen:
                    raise MultiFailed(deleted[at], BadVersion(at))

    def _result(self, result: object) -> Result:
        if isinstance(result, str):
            return self._named(result)
        return result if isinstance(result, Stat) else None

    # The session.

    def listen(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def renew(self) -> None:
        self._refuse_closed()
        if self._state is SessionState.EXPIRED:
            if self._session.retired:
                self._session = KazooSession(self._settings, self)
            await self._connected()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._fail_all(self._waiting)
        self._waiting.clear()
        ended = self._session.retire()
        if self._state is SessionState.CONNECTED:
            timer = self._timers.at(self._clock.monotonic_ms() + _CLOSE_MS, ended.set)
            await ended.wait()
            timer.cancel()
        self._fail_all(list(self._sent))

    async def _connected(self, timeout_ms: float = float("inf")) -> None:
        """Returns when there is a session. ConnectionLoss when it takes longer, or cannot be."""
        now_ms = self._clock.monotonic_ms()
        deadline_ms = now_ms + timeout_ms
        while not self._has_session and not self._session.retired and now_ms < deadline_ms:
            self._state_changed.clear()
            timer = self._timers.at(min(deadline_ms, now_ms + _TELL_MS), self._state_changed.set)
            await self._state_changed.wait()
            timer.cancel()
            now_ms = self._clock.monotonic_ms()
            if not self._has_session and now_ms < deadline_ms:
                log.warning("waiting for ZooKeeper at %s: %s", self._settings, self._session.problem)
        if not self._has_session:
            raise ConnectionLoss(str(self._settings), f"ZooKeeper does not answer: {self._session.problem}")

    @property
    def _has_session(self) -> bool:
        return self._state is SessionState.CONNECTED

    def _set_state(self, state: SessionState) -> None:
        if self._state is not state:
            self._state = state
            for listener in self._listeners:
                self._loop.call_soon(listener, state)
        self._state_changed.set()

    # What the session tells, on the event loop.

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
        self._session.retire()
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
        if isinstance(error, ConnectionLoss) and request.insists and not self._closed:
            request.in_doubt = True
            self._waiting.append(request)
        else:
            if error is None and request.watch is not None:
                watches = self._watches[request.of_children].setdefault(request.path, {})
                watches[request.watch] = request.seen(value)
            request.finish(reply)
        self._send_waiting()

    def heard(self, event: WatchEvent) -> None:
        self._fire(WatchEvent(event.change, self._named(event.path)))

    # Requests.

    def _at(self, path: str) -> str:
        return (self._root + path).rstrip("/") or "/"

    def _named(self, path: str) -> str:
        return path.removeprefix(self._root) or "/"

    def _getting(self, path: str, *, watched: bool) -> Send:
        at = self._at(path)
        return lambda session: session.get(at, watched=watched)

    def _getting_many(self, paths: Sequence[str]) -> Send:
        places = list(map(self._at, paths))
        return lambda session: session.get_many(places)

    def _looking(self, path: str, *, watched: bool) -> Send:
        at = self._at(path)
        return lambda session: session.exists(at, watched=watched)

    def _listing(self, path: str, *, watched: bool) -> Send:
        at = self._at(path)
        return lambda session: session.children(at, watched=watched)

    async def _read(
        self, path: str, send: Send, watch: Watch | None, seen: Callable[[Any], Seen], *, of_children: bool = False
    ) -> Any:
        request = _Request(path, send, watch=watch, seen=seen, of_children=of_children)
        return _value(await self._enqueue(request).reply)

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
                self._session.send(request)

    def _fail_all(self, requests: Sequence[_Request] | deque[_Request]) -> None:
        for request in requests:
            request.finish((None, SessionExpired(request.path)))

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
            self._waiting.appendleft(_Request(path, send, on_reply=partial(compare, path), insists=False))

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
        if isinstance(error, NoNode):
            self._fire(WatchEvent(Change.DELETED, path))
        elif error is None and any(
            before != _children_seen(found[1]) for before in self._watches[True].get(path, {}).values()
        ):
            self._fire(WatchEvent(Change.CHILDREN, path))


class _Request:
    """A request on its way. `seen` takes from the reply to a read what its watch has to be compared with later.

    `on_reply` is called as the reply comes, before anybody who waits for a later one goes on. `insists` sends it
    again when its reply was lost; `in_doubt` says that one was, so that it may have been carried out before.
    """

    __slots__ = ("in_doubt", "insists", "of_children", "on_reply", "path", "reply", "seen", "send", "sent_ms", "watch")

    def __init__(
        self,
        path: str,
        send: Send,
        *,
        watch: Watch | None = None,
        seen: Callable[[Any], Seen] = lambda value: None,
        of_children: bool = False,
        on_reply: Callable[[Reply], None] = lambda reply: None,
        insists: bool = True,
    ) -> None:
        self.on_reply = on_reply
        self.insists = insists
        self.path = path
        self.send = send
        self.in_doubt = False
        self.watch = watch
        self.seen = seen
        self.of_children = of_children
        self.sent_ms = 0.0
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def finish(self, reply: Reply) -> None:
        if not self.reply.done():
            self.on_reply(reply)
            self.reply.set_result(reply)


def _value(reply: Reply) -> Any:
    value, error = reply
    if error is not None:
        raise error
    return value


def _as_meta_error(error: Exception) -> MetaError:
    """Raises what is no error of ZooKeeper's."""
    if not isinstance(error, MetaError):
        raise error
    return error


def _data_seen(stat: Stat | None) -> Seen:
    return None if stat is None else (stat.czxid, stat.mzxid)


def _children_seen(stat: Stat) -> Seen:
    return stat.czxid, stat.cversion


def _size(operation: Operation, root: str) -> int:
    data = operation.data if isinstance(operation, Create | Set) else b""
    return len(root) + len(operation.path.encode()) + len(data) + 60  # headers, lengths, version, rights


def _refuse_large(path: str, size: int) -> None:
    if size > MAX_REQUEST_BYTES:
        raise TooLarge(path, f"a request of {size} bytes is too large for ZooKeeper, which takes {MAX_REQUEST_BYTES}")
