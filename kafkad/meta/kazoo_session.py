"""One session with ZooKeeper by way of kazoo, the only module that knows it.

Kazoo has a thread for the connection. What comes from it (replies, watches, changes of the session) is handed to the
event loop in the order in which ZooKeeper sent it, in the terms of `meta/store`; the loop is woken once for all that
came together. Kazoo would begin another session when one has expired: a client is given up with its session.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import select
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient, TransactionRequest
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import SASL, GetData, MultiHeader, int_struct, read_buffer, stat_struct
from kazoo.protocol.states import EventType, KazooState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from kafkad.meta.digest_login import DigestError, DigestLogin, ZooKeeperLogin
from kafkad.meta.store import (
    BadPath,
    BadVersion,
    Change,
    Check,
    ConnectionLoss,
    Create,
    Delete,
    MetaError,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Refused,
    SessionExpired,
    Set,
    Stat,
    WatchEvent,
)

log = logging.getLogger(__name__)

_READ_BYTES = 1 << 16
_RETRY_S = 0.1
_RETRY_MAX_S = 0.5

_ERRORS: dict[type[Exception], type[MetaError]] = {
    kazoo.NoNodeError: NoNode,
    kazoo.NodeExistsError: NodeExists,
    kazoo.BadVersionError: BadVersion,
    kazoo.BadArgumentsError: BadPath,
    kazoo.NotEmptyError: NotEmpty,
    kazoo.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    kazoo.SessionExpiredError: SessionExpired,
    kazoo.ConnectionClosedError: SessionExpired,
    kazoo.ConnectionLoss: ConnectionLoss,
    kazoo.OperationTimeoutError: ConnectionLoss,
    kazoo.RequestTimeoutError: ConnectionLoss,
    kazoo.SessionMovedError: ConnectionLoss,
}
_OF_OLD_CLIENTS = "/consumers"
_SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens", "/kafkad/login_secret")
_NOT_AT_FAULT = (kazoo.RolledBackError, kazoo.RuntimeInconsistency)
_CHANGES = {
    EventType.CREATED: Change.CREATED,
    EventType.DELETED: Change.DELETED,
    EventType.CHANGED: Change.CHANGED,
    EventType.CHILD: Change.CHILDREN,
}

Reply = tuple[Any, Exception | None]
"""A value, with Stats for ZooKeeper's, or an error, which is a MetaError if it is ZooKeeper's."""


class ZooKeeperSettings(NamedTuple):
    """`servers` as host:port,…; `root` is the node below which everything is kept, empty for none.

    `tls` makes the context of each connection, `login` is who this broker is for ZooKeeper; `protects` says whether
    nodes are made with ACLs: for the same user to change, and for others to read but where that would show secrets.
    """

    servers: str
    root: str
    session_timeout_ms: int
    max_in_flight: int
    tls: Callable[[], ssl.SSLContext] | None = None
    login: ZooKeeperLogin | None = None
    protects: bool = False

    def __str__(self) -> str:
        return self.servers + self.root


class Sendable(Protocol):
    """A request, as it is seen from here. `path` is for errors."""

    path: str
    send: Callable[[KazooSession], Any]


class Owner(Protocol):
    """Who is told on the event loop of what came from ZooKeeper."""

    def connected(self, server: str, session_id: int, timeout_ms: int) -> None: ...
    def suspended(self, problem: str) -> None: ...
    def expired(self) -> None: ...
    def answered(self, request: Any, reply: Reply) -> None: ...
    def heard(self, event: WatchEvent) -> None: ...


class KazooSession:
    """A kazoo client for the time of one session."""

    def __init__(self, settings: ZooKeeperSettings, owner: Owner) -> None:
        self.retired = False
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._told: deque[Callable[[], None]] = deque()
        self._waking = False
        self._ended = asyncio.Event()
        self._problems = _LastProblem()
        servers = settings.servers.count(",") + 1
        timeout_s = settings.session_timeout_ms / 1000
        handler = _Handler(timeout_s / servers, settings.tls)
        self._settings = settings
        retry = KazooRetry(max_tries=-1, delay=_RETRY_S, max_delay=_RETRY_MAX_S, sleep_func=handler.sleep_func)
        self.client = KazooClient(
            settings.servers,
            timeout=timeout_s,
            handler=handler,
            connection_retry=retry,
            logger=self._problems.logger,
        )
        self.client._connection = _Connection(
            self.client, retry, self._problems.logger, self._on_connected, settings.login
        )
        self.client.add_listener(self._on_state)
        self.client.start_async()

    @property
    def problem(self) -> str:
        return self._problems.text

    @property
    def last_zxid(self) -> int:
        """Of the last transaction that a reply told of."""
        return int(self.client.last_zxid)

    # Requests, at whole paths. Each gives what kazoo completes with the reply.

    def create(self, at: str, data: bytes, *, ephemeral: bool, sequential: bool) -> Any:
        return self.client.create_async(at, data, self._acl(at), ephemeral=ephemeral, sequence=sequential)

    def get(self, at: str, *, watched: bool) -> Any:
        return self.client.get_async(at, watch=self._on_watch if watched else None)

    def get_many(self, paths: Iterable[str]) -> Any:
        result = self.client.handler.async_result()
        self.client._call(_GetMany(paths), result)
        return result

    def exists(self, at: str, *, watched: bool) -> Any:
        return self.client.exists_async(at, watch=self._on_watch if watched else None)

    def children(self, at: str, *, watched: bool) -> Any:
        return self.client.get_children_async(at, watch=self._on_watch if watched else None, include_data=True)

    def set(self, at: str, data: bytes, version: int) -> Any:
        return self.client.set_async(at, data, version)

    def delete(self, at: str, version: int) -> Any:
        return self.client.delete_async(at, version)

    def commit(self, operations: Iterable[tuple[str, Operation]]) -> Any:
        transaction = self.client.transaction()
        for index, (at, operation) in enumerate(operations):
            try:
                self._add(transaction, at, operation)
            except ValueError as error:
                raise MultiFailed(index, BadPath(operation.path)) from error
        return transaction.commit_async()

    def _add(self, transaction: TransactionRequest, at: str, operation: Operation) -> None:
        match operation:
            case Create():
                transaction.create(
                    at,
                    operation.data,
                    self._acl(at),
                    ephemeral=operation.ephemeral,
                    sequence=operation.sequential,
                )
            case Set():
                transaction.set_data(at, operation.data, operation.version)
            case Delete():
                transaction.delete(at, operation.version)
            case Check():
                transaction.check(at, operation.version)

    def _acl(self, at: str) -> list[Any]:
        """As Kafka has it: clients of before 0.9 write their offsets below /consumers themselves."""
        path = at.removeprefix(self._settings.root)
        if not self._settings.protects or path == _OF_OLD_CLIENTS:
            return list(OPEN_ACL_UNSAFE)
        return list(CREATOR_ALL_ACL if path.startswith(_SENSITIVE) else CREATOR_ALL_ACL + READ_ACL_UNSAFE)

    def send(self, request: Sendable) -> None:
        """The owner is told of the reply."""
        try:
            result = request.send(self)
        except Exception as error:
            self._tell(partial(self._owner.answered, request, (None, translated(request.path, error))))
        else:
            result.rawlink(lambda result: self._tell(partial(self._answered, request, result)))

    def _answered(self, request: Sendable, result: Any) -> None:
        error = result.exception
        reply = (_with_stats(result.value), None) if error is None else (None, translated(request.path, error))
        self._owner.answered(request, reply)

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

    def _on_watch(self, event: WatchedEvent) -> None:
        change = _CHANGES.get(event.type)
        if change is not None:  # other events tell that a client has dropped its watches
            heard = partial(self._owner.heard, WatchEvent(change, event.path))
            self._tell(partial(self._unless_retired, heard))

    def _on_connected(self, server: str, timeout_ms: int) -> None:
        session_id, _ = self.client.client_id
        self._tell(partial(self._unless_retired, partial(self._owner.connected, server, session_id, timeout_ms)))

    def _on_state(self, state: str) -> None:
        if state == KazooState.SUSPENDED:
            self._tell(partial(self._unless_retired, partial(self._owner.suspended, self._problems.text)))
        elif state == KazooState.LOST:
            self._tell(partial(self._unless_retired, self._owner.expired))

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

    def __init__(self, connect_s: float, tls: Callable[[], ssl.SSLContext] | None) -> None:
        super().__init__()
        self._tls = tls
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
        made = super().create_connection(*args, timeout=min(timeout, self._connect_s), **kwargs)
        if self._tls is None:
            return made
        try:
            return self._tls().wrap_socket(made, server_hostname=kwargs["hostname"])
        except BaseException:
            made.close()
            raise

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
    """Kazoo's connection, with three differences.

    It logs in by DIGEST-MD5 without another package, it tells for how long the server lets the session live, and it
    reads and writes as much at once as there is, where kazoo takes several system calls for each request and reply.
    """

    handler: _Handler

    def __init__(
        self,
        client: KazooClient,
        retry: KazooRetry,
        logger: logging.Logger,
        on_connected: Callable[[str, int], None],
        login: ZooKeeperLogin | None,
    ) -> None:
        super().__init__(client, retry, logger)
        self.sasl_options: dict[str, str] | None = {} if login is not None else None
        self._login = login
        self._on_connected = on_connected
        self._unread = b""
        self._gathered: bytearray | None = None
        self.handler.has_unread = lambda each: each is self._socket and bool(self._unread)

    def _connect(self, host: str, address: str, port: int) -> tuple[float, float]:
        self._unread = b""
        read_ms, connect_ms = super()._connect(host, address, port)
        self._on_connected(f"{host}:{port}", round(read_ms * 3 / 2))  # of the session's time kazoo takes two thirds
        return read_ms, connect_ms

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """A server that refuses the password says so, or just hangs up."""
        assert self._login is not None
        exchange, number = DigestLogin(self._login, secrets.token_hex(16)), 0
        message: bytes | None = b""
        try:
            while message is not None:
                number += 1
                self._submit(SASL(message), timeout, number)
                header, reply, at = self._read_header(timeout)
                if header.err:
                    raise kazoo.EXCEPTIONS[header.err]()
                challenge, _ = SASL.deserialize(reply, at)
                message = exchange.respond(challenge)
        except (kazoo.AuthFailedError, kazoo.ConnectionDropped, DigestError, UnicodeDecodeError) as error:
            why = str(error) or "is the password right?"
            raise kazoo.AuthFailedError(f"{host} refuses the login of {self._login.username}: {why}") from error

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
            text = record.getMessage().removeprefix("Connection dropped: ").removeprefix("socket connection error: ")
            if text != "None":  # of an error without a number, as a time-out, kazoo says no more
                self.text = text


def translated(path: str, error: Exception) -> Exception:
    """An error of ZooKeeper's, or of kazoo's about the path, as the MetaError for this path; any other as it is."""
    if isinstance(error, ValueError):
        return BadPath(path)
    if not isinstance(error, kazoo.KazooException):
        return error
    kind = _ERRORS.get(type(error))
    return kind(path) if kind else Refused(path, f"ZooKeeper refused the request: {type(error).__name__}")


def is_at_fault(result: object) -> bool:
    """True for the operation of a transaction because of which none was carried out."""
    return isinstance(result, Exception) and not isinstance(result, _NOT_AT_FAULT)


def _with_stats(value: Any) -> Any:
    """The same value with Stats in the place of kazoo's."""
    if isinstance(value, ZnodeStat):
        return _stat(value)
    if type(value) is tuple:
        return tuple(map(_with_stats, value))
    if type(value) is list and any(isinstance(each, ZnodeStat) for each in value):
        return list(map(_with_stats, value))
    return value


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
