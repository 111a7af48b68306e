"""Listeners: they accept, count and limit connections, and close those that have gone idle."""

from __future__ import annotations

import asyncio
import logging
import mmap
import socket
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from heapq import nsmallest
from sys import intern
from typing import TYPE_CHECKING, Any, Protocol

from kafkad.clock import Clock
from kafkad.net.awake import Awake
from kafkad.net.connection import SMALL_FRAME, Connection, DeferredReply
from kafkad.net.lobby import Lobby
from kafkad.net.queued import Queued
from kafkad.net.renewal import Renewal
from kafkad.net.reply import Pending, Reply
from kafkad.net.transport import PlainTransport, Transport, Wrap, hung_up, reset
from kafkad.timers import Timers
from kafkad.turns import Backlog, Lane

if TYPE_CHECKING:
    from kafkad.net.tls import Handshake, ServerTls

log = logging.getLogger(__name__)

SHARED_BYTES = 256 * 1024
_KEPT_BUFFERS = 4
_KEPT_BUFFER_BYTES = 4 << 20
_READ_WHEN_FULL = SMALL_FRAME
"""Bytes read at once while requests hold queued.max.request.bytes: the rest stays in the kernel. A small frame of which
a part has arrived has to find room."""
_LAZILY = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_LEAST_BACKLOG = 4096
"""Linux's own default limit. Kafka's default of 50 is for a thread that does nothing but accept; here a crowd that
connects at once, such as all clients after a restart, waits while the loop does something else. The kernel of a client
that is turned away tries again only after 1, 3 and 7 seconds."""
_WAIT_FOR_ROOM_S = 0.1
_MOST_HELD = 1000
_SHARE_OF_STRANGERS = 4
"""What may be held of requests before a login is this part of queued.max.request.bytes, and beside it. The listeners
share it equally."""
_THIS_MACHINE = "127.", "::1"
_MAPPED = "::ffff:"
"""The prefix of IPv4 addresses at a listener on every interface."""
_UNPACED = b"reno"
"""The congestion control that every Linux has. Others, such as bbr, pace even what never leaves the machine."""


def unmapped(address: str) -> str:
    """One of IPv4 without the prefix that it has among those of IPv6: in the form in which peers are counted."""
    return address.removeprefix(_MAPPED)


class CannotListen(Exception):
    """Others listen on the address of a listener, or the system refuses it. The message names it and says why."""


class Peer(Protocol):
    """The dispatcher's side of a connection."""

    def closed(self) -> None:
        """The connection has been closed. Called once."""


class Dispatch(Protocol):
    """Serves the connections of all listeners."""

    def peer(self, connection: Connection) -> Peer:
        """A connection has been opened."""

    def __call__(
        self, connection: Connection, view: memoryview, at: int, end: int
    ) -> Reply | DeferredReply | Pending | None:
        """One request stands in view[at:end], without its length; the reply, None for none, a DeferredReply, or
        PENDING. The view is reused as soon as this returns."""


class Pace(Protocol):
    """How fast connections may come."""

    def wait_ms(self, listener: str, now_ms: float) -> float:
        """One has been accepted: the time until the next one may be."""

    def hold_ms(self, listener: str, host: str, now_ms: float) -> float:
        """The time after which one from this address is to be turned away; 0 if it is welcome."""


class Buffers:
    """Receive buffers for frames too large for the shared one; a few are kept for the next such frame."""

    def __init__(self) -> None:
        self._free: list[memoryview] = []

    def take(self, total: int) -> memoryview:
        """A buffer for a frame of `total` bytes; a new one takes memory page by page, as it is written."""
        for i, buffer in enumerate(self._free):
            if len(buffer.obj) >= total:  # type: ignore[arg-type]
                return memoryview(self._free.pop(i).obj)[:total]
        try:
            return memoryview(mmap.mmap(-1, total, flags=_LAZILY))
        except OSError as error:
            raise MemoryError(str(error)) from error

    def give(self, buffer: memoryview) -> None:
        whole = memoryview(buffer.obj)
        if len(self._free) < _KEPT_BUFFERS and len(whole) <= _KEPT_BUFFER_BYTES:
            self._free.append(whole)


@dataclass(slots=True, kw_only=True)
class Limits:
    """The limits of connections to a broker; replaced whole when the settings change."""

    max_connections: int = 2**31 - 1
    max_sockets: int = 2**31 - 1
    """The same, for want of file descriptors."""
    max_per_listener: dict[str, int] = field(default_factory=dict)
    max_per_ip: int = 2**31 - 1
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    idle_ms: int = 600_000
    max_request_bytes: int = 100 << 20
    queued_bytes: int = -1
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    backlog: int = 50
    setup_ms: int = 10_000
    """From being accepted to being authenticated."""
    max_unauthenticated: int = 1_000
    max_unauthenticated_per_ip: int = 100

    def allowed_from(self, address: str) -> int:
        return self.per_ip_overrides.get(address, self.max_per_ip)


class Server:
    """All listeners of a broker; they share the limits and the receive buffer.

    Those that are `apart` share no more: they have queues of their own, and none of their requests waits for those of
    the others. One that is `protected` is not kept shut by max.connections: clients have to go for it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits, clock: Clock, timers: Timers) -> None:
        self.loop = loop
        self.limits = limits
        self.clock = clock
        self.timers = timers
        self.listeners: list[Listener] = []
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self.buffers = Buffers()
        self.awake = Awake(loop.call_soon)
        self.lane = Lane(loop.call_soon)
        self.renewal = Renewal(clock, timers)
        self._ends = Backlog(self.lane)
        self.queued = Queued(limits.queued_bytes, loop.call_later, self._read_at_once)
        self.per_ip: Counter[str] = Counter()
        self.total = 0
        self.refused = 0
        self.pace: Pace | None = None
        """None where connections may come as fast as they like."""
        self.held: set[socket.socket] = set()
        """Sockets of addresses that connect too fast, reset only after a while: else these would try again at once."""
        self._gone: dict[Connection, int] = {}
        """Muted connections whose client has gone, with the tick at which that was noticed."""

    def listen(
        self,
        name: str,
        host: str,
        port: int,
        wrap: Wrap = PlainTransport.over,
        *,
        apart: bool = False,
        protected: bool = False,
        tls: ServerTls | None = None,
        login: bool = False,
    ) -> Listener:
        """Bind now, so that a taken port is known at once; `start` begins to accept. `login`: peers are nobody until
        `Listener.logged_in`."""
        sock = _bound(host, port, self.limits)
        listener = Listener(self, name, sock, wrap, apart=apart, protected=protected, tls=tls, login=login)
        self.listeners.append(listener)
        return listener

    def start(self, dispatch: Dispatch) -> None:
        """CannotListen when somebody else, who was bound to the same port, has begun to listen on it."""
        guarded = sum(listener.guarded for listener in self.listeners)
        for listener in self.listeners:
            listener.lobby.most_bytes //= max(guarded, 1)
            try:
                listener.start(dispatch)
            except OSError as error:
                raise CannotListen(f"cannot listen on {listener}: {error.strerror}") from error

    def _read_at_once(self, full: bool) -> None:
        for listener in self.listeners:
            if not listener.apart:
                listener.read_at_once(full)

    def stop_accepting(self) -> None:
        for listener in self.listeners:
            listener.stop_accepting()

    def close_quiet(self) -> None:
        """Close connections with nothing to answer."""
        for connection in self.connections():
            if connection.quiet:
                connection.close()

    def close(self) -> None:
        self.stop_accepting()
        for sock in list(self.held):
            self._turn_away(sock)
        for connection in self.connections():
            connection.close()

    def hold(self, sock: socket.socket, ms: float) -> None:
        """Nothing of it is read, and it ends with a reset."""
        self.refused += 1
        self.held.add(sock)
        if len(self.held) > _MOST_HELD:
            self._turn_away(sock)
        else:
            self.timers.at(self.clock.monotonic_ms() + ms, partial(self._turn_away, sock))

    def _turn_away(self, sock: socket.socket) -> None:
        self.held.discard(sock)
        reset(sock)
        self.accept_if_room()

    @property
    def known(self) -> int:
        """What max.connections limits: strangers have limits of their own, and so have listeners apart."""
        return sum(listener.known for listener in self.listeners if not listener.apart)

    @property
    def lacks_sockets(self) -> bool:
        """True when one more would take a file descriptor that others need."""
        limited = self.total - sum(listener.open for listener in self.listeners if listener.apart)
        return limited + len(self.held) >= self.limits.max_sockets

    def end_quietest_client(self) -> None:
        for connection in self._quietest_clients(1):
            _end_one_too_many(connection)

    def _quietest_clients(self, most: int) -> list[Connection]:
        """The connections that have said and taken nothing for longest, which Kafka ends above max.connections; of a
        stranger's nothing is gained."""
        clients = (listener for listener in self.listeners if not listener.apart and not listener.protected)
        connections = [
            each for listener in clients for each in listener.connections.values() if each not in listener.lobby
        ]
        return nsmallest(most, connections, key=lambda each: (each.is_being_answered, each.last_active))

    def _fit(self) -> None:
        """Ends clients until there are no more than max.connections. As with Kafka, the limit of a single listener ends
        nobody."""
        for connection in self._quietest_clients(max(self.known - self.limits.max_connections, 0)):
            self._ends.add(partial(self._end_if_too_many, connection))

    def _end_if_too_many(self, connection: Connection) -> None:
        if not connection.closed and self.known > self.limits.max_connections:
            _end_one_too_many(connection)

    def accept_if_room(self) -> None:
        for listener in self.listeners:
            listener.resume_if_room()

    def connections(self) -> list[Connection]:
        return [c for listener in self.listeners for c in listener.connections.values()]

    def apply(self, limits: Limits) -> None:
        self.limits = limits
        for listener in self.listeners:
            listener.max_request_bytes = limits.max_request_bytes
            lobby = listener.lobby
            lobby.patience_ms = limits.setup_ms
            lobby.most, lobby.most_of_host = limits.max_unauthenticated, limits.max_unauthenticated_per_ip
        self.accept_if_room()
        self._fit()

    def close_idle(self, tick: int, oldest_allowed: int) -> int:
        """Called by the broker's clock: `tick` marks what is active from now on. As with Kafka, a request that waits
        for its answer for so long ends with its connection; one whose client has gone ends at once. One that is muted
        is not idle; what its client has left behind when it went is done if its turn comes before so long.

        A connection that breaks while its last bytes are read is not told of by uvloop any more: it is asked for."""
        closed = 0
        for listener in self.listeners:
            listener.tick = tick
        gone: dict[Connection, int] = {}
        connections = self.connections()
        are_gone = hung_up(connection.fd for connection in connections)
        for connection in connections:
            quiet_since = connection.last_active
            is_broken = are_gone.get(connection.fd, False)
            if connection.muted:
                is_broken, quiet_since = False, tick
                if connection.fd in are_gone:
                    quiet_since = gone[connection] = self._gone.get(connection, tick)
            is_quiet = connection.last_active < tick - 1
            if quiet_since < oldest_allowed or (is_quiet and (is_broken or connection.is_forsaken())):
                connection.close()
                closed += 1
        self._gone = gone
        return closed


def _end_one_too_many(connection: Connection) -> None:
    listener = connection.listener.name
    log.info("closed the connection of %s at %s: there is one above max.connections", connection.address, listener)
    connection.close()


class Listener:
    """One bound address. `max.connections` reached: it stops accepting until one closes, as Kafka does."""

    def __init__(
        self,
        server: Server,
        name: str,
        sock: socket.socket,
        wrap: Wrap,
        *,
        apart: bool = False,
        protected: bool = False,
        tls: ServerTls | None = None,
        login: bool = False,
    ) -> None:
        self.server = server
        self.name = name
        self.apart = apart
        self.protected = protected
        self.tls = tls
        self.login = login
        self.handshakes: set[Handshake] = set()
        self.port: int = sock.getsockname()[1]
        self.host: str = sock.getsockname()[0]
        self.connections: dict[int, Connection] = {}
        self.accepted = 0
        self.tick = 0
        self.loop = server.loop
        self.clock = server.clock
        self.timers = server.timers
        self.shared = server.shared
        self.buffers = server.buffers
        self.awake = server.awake
        self.lane = server.lane
        self.queued = server.queued
        if apart:
            self.lane = Lane(server.loop.call_soon)
            self.queued = Queued(server.limits.queued_bytes, server.loop.call_later, self.read_at_once)
        limits = server.limits
        self.lobby = Lobby(
            server.clock,
            server.timers,
            patience_ms=limits.setup_ms,
            most=limits.max_unauthenticated,
            most_of_host=limits.max_unauthenticated_per_ip,
            most_bytes=server.queued.limit // _SHARE_OF_STRANGERS,
        )
        """Not shared: strangers at a public listener keep no broker out of the one between brokers."""
        self.logins = Backlog(self.lane)
        """Frames of peers that log in: all of them together are one piece of work among the others in the lane."""
        self.dispatch: Dispatch
        self.max_request_bytes = limits.max_request_bytes
        self._sock = sock
        self._wrap = wrap
        self._listening = False
        self._accepting = False
        self._paced = False
        """Connections have come too fast: the others wait in the kernel for a while."""
        self._open = True

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    @property
    def open(self) -> int:
        """The number of connections, with those whose handshake goes on."""
        return len(self.connections) + len(self.handshakes)

    @property
    def known(self) -> int:
        """The number of connections without strangers."""
        return self.open - len(self.lobby)

    def start(self, dispatch: Dispatch) -> None:
        self.dispatch = dispatch
        self._sock.listen(max(self.server.limits.backlog, _LEAST_BACKLOG))
        self._listening = True
        self._accept_again()

    def read_at_once(self, full: bool) -> None:
        """Less at once while queued requests hold all the memory that they may."""
        self.shared = self.server.shared[:_READ_WHEN_FULL] if full else self.server.shared

    def stop_accepting(self) -> None:
        if self._open:
            self._open = False
            self._pause()
            self._sock.close()
        for handshake in list(self.handshakes):
            handshake.close()

    @property
    def closed(self) -> int:
        """The number of connections that have ended."""
        return self.accepted - self.open

    def forget(self, connection: Connection) -> None:
        """Called by a connection of this listener that has closed."""
        if self.connections.pop(connection.fd, None) is not None:
            if self.login:
                self.lobby.leave(connection)
            self._one_less(connection.host)

    def _one_less(self, host: str) -> None:
        server = self.server
        server.total -= 1
        server.per_ip[host] -= 1
        if not server.per_ip[host]:
            del server.per_ip[host]
        server.accept_if_room()

    def logged_in(self, connection: Connection) -> None:
        """It is a stranger no more."""
        self.lobby.leave(connection)
        self._count(connection)

    def _count(self, connection: Connection) -> None:
        """One more that is known. Strangers may become so many in one moment that there are too many."""
        server = self.server
        if self.known > self._most:
            _end_one_too_many(connection)
        elif not self.apart and server.known > server.limits.max_connections:
            if self.protected:
                server.end_quietest_client()
            else:
                _end_one_too_many(connection)

    def handshake_failed(self, handshake: Handshake) -> None:
        self.handshakes.discard(handshake)
        self.lobby.leave(handshake)
        self._one_less(handshake.host)

    def handshake_done(self, handshake: Handshake, transport: Transport) -> None:
        self.handshakes.discard(handshake)
        connection = self._open_connection(transport, handshake.host, handshake.port)
        if self.login:
            self.lobby.go_on_as(handshake, connection)
        else:
            self.lobby.leave(handshake)
            self._count(connection)
        if connection.closed:
            return
        if transport.pending and not connection.muted:
            connection.on_readable()

    def resume_if_room(self) -> None:
        if self._open and self._listening and not self._accepting and not self._paced and not self._full:
            self._accept_again()

    @property
    def _most(self) -> int:
        limits = self.server.limits
        return limits.max_per_listener.get(self.name, limits.max_connections)

    @property
    def _full(self) -> bool:
        server = self.server
        if self.known >= self._most:
            return True
        if self.apart:
            return False
        return server.lacks_sockets or (not self.protected and server.known >= server.limits.max_connections)

    @property
    def guarded(self) -> bool:
        return self.tls is not None or self.login

    def _accept_again(self) -> None:
        self._accepting = True
        self.loop.add_reader(self._sock.fileno(), self._accept)

    def _pause(self) -> None:
        if self._accepting:
            self._accepting = False
            self.loop.remove_reader(self._sock.fileno())

    def _accept(self) -> None:
        for _ in range(128):
            if self._full:
                if not self.apart and self.server.lacks_sockets:
                    log.warning(
                        "listener %s accepts no more: %d connections are as many as the limit of open files leaves "
                        "room for, beside kafkad.max.open.files",
                        self.name,
                        self.server.total,
                    )
                self._pause()
                return
            if self.guarded and not self.lobby.has_room():
                self._pause()
                self.loop.call_later(_WAIT_FOR_ROOM_S, self.resume_if_room)
                return
            try:
                sock, address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                log.error("listener %s cannot accept: %s", self.name, error)
                self._pause()
                self.loop.call_later(1.0, self.resume_if_room)
                return
            self._welcome(sock, address)
            if self.server.pace is not None and self._wait(self.server.pace):
                return

    def _wait(self, pace: Pace) -> bool:
        """True if the next connection is to be accepted later."""
        now_ms = self.clock.monotonic_ms()
        wait_ms = pace.wait_ms(self.name, now_ms)
        if wait_ms > 0:
            self._paced = True
            self._pause()
            self.timers.at(now_ms + wait_ms, self._go_on)
        return self._paced

    def _go_on(self) -> None:
        self._paced = False
        self.resume_if_room()

    def _welcome(self, sock: socket.socket, address: Any) -> None:
        server = self.server
        host = unmapped(address[0])
        if server.pace is not None and (ms := server.pace.hold_ms(self.name, host, self.clock.monotonic_ms())):
            log.info("%s connects to %s faster than its quota: turned away in %d ms", host, self.name, ms)
            server.hold(sock, ms)
            return
        if server.per_ip[host] >= server.limits.allowed_from(host):
            server.refused += 1
            log.info("refused a connection from %s: it has max.connections.per.ip=%d", host, server.per_ip[host])
            sock.close()
            return
        if self.guarded and not self.lobby.has_room_for(host):
            server.refused += 1
            log.info(
                "refused a connection from %s: it has kafkad.max.unauthenticated.connections.per.ip=%d of them",
                host,
                server.limits.max_unauthenticated_per_ip,
            )
            sock.close()
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if host.startswith(_THIS_MACHINE):
            with suppress(PermissionError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _UNPACED)
        host = intern(host)
        server.per_ip[host] += 1
        server.total += 1
        self.accepted += 1
        if self.tls is not None:
            handshake = self.tls.greet(self, sock, host, address[1])
            self.handshakes.add(handshake)
            self.lobby.enter(handshake)
            return
        connection = self._open_connection(self._wrap(sock), host, address[1])
        if self.login:
            self.lobby.enter(connection)
        else:
            self._count(connection)

    def _open_connection(self, transport: Transport, host: str, port: int) -> Connection:
        connection = Connection(self, transport, host, port)
        self.connections[connection.fd] = connection
        self.loop.add_reader(connection.fd, connection.on_readable)
        connection.peer = self.dispatch.peer(connection)  # which may mute it at once
        return connection


def _bound(host: str, port: int, limits: Limits) -> socket.socket:
    family = socket.AF_INET6 if ":" in host or not host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if host else 0)
        for option, size in (
            (socket.SO_SNDBUF, limits.send_buffer_bytes),
            (socket.SO_RCVBUF, limits.receive_buffer_bytes),
        ):
            if size > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        sock.setblocking(False)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock
