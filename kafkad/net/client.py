"""Client of one other broker, on the event loop: requests are pipelined, and answered in the order they were sent.

A BrokerClient opens its connection when the first request needs it, asks for the API versions, logs in, and opens it
again after it broke, at growing intervals. A request is never sent twice: when its connection breaks or its time is up
it fails with LinkError, and only the caller knows whether it may be repeated. By then what has not reached the other
broker yet never will: it would come behind its repetition.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from kafkad.clock import Clock
from kafkad.model import OWN_SOFTWARE, Endpoint
from kafkad.net.lifeline import Lifeline
from kafkad.net.transport import PlainTransport, Transport
from kafkad.timers import Timer, Timers, sleep
from kafkad.wire.apis import APIS, response_class
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.older import in_version
from kafkad.wire.primitives import MalformedError
from kafkad.wire.schema import read, span

log = logging.getLogger(__name__)

T = TypeVar("T")

_SIZE = struct.Struct(">i")
_ERROR_CODE = struct.Struct(">h")
_UNSUPPORTED_VERSION = 35
_RECEIVED = memoryview(bytearray(64 * 1024))
"""What has just come from a socket, whichever: it is taken at once."""
_WORTH_WAKING = 256 * 1024
"""Bytes of a frame that are read before the rest of it is there."""
_CLOSED = "is not asked any more: the client is closed"


class LinkError(OSError):
    """There is no answer: the request may have been carried out or not."""


class Link(Protocol):
    """A way to one broker: over the network, or within the process."""

    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        """The decoded answer, with whatever error stands in it; LinkError when there is none. Records in it are a
        memoryview of what was received."""

    def close(self) -> None: ...


class FrameLink(Link, Protocol):
    """One that also hands out answers as they came, for a caller that reads them in place."""

    async def open(self, *, timeout_ms: int) -> None:
        """Opens the connection for the next request unless there is one: what is asked then leaves at once. LinkError
        when it cannot be opened."""

    async def exchange(self, request: Any, *, timeout_ms: int, go_on: GoOn | None = None) -> Answer:
        """As `call`. `timeout_ms` is that of each request which `go_on` adds, too."""

    def read(self, request: Any, answer: Answer) -> Any:
        """The decoded answer; LinkError when it is none."""


class Answer(NamedTuple):
    """A response frame without its length; the body, in `version`, starts at `body_at`."""

    frame: bytes | bytearray
    body_at: int
    version: int


GoOn = Callable[[Answer], Any]
"""Looks at an answer as it arrives. A request that it returns is sent at once, and the answer to that one is waited for
instead; with None the answer is handed to who waits."""
Secure = Callable[[socket.socket, str], Awaitable[Transport]]
"""Makes a connected socket a TLS connection to that host. OSError if the host is not trusted, or refuses."""
Login = Callable[["ClientConnection", float], Awaitable[float | None]]
"""Logs in over a connection that has just been opened, before a deadline. The time at which another connection has to
take over, None if never; LinkError when the broker refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    client_id: str
    software: str = OWN_SOFTWARE
    software_version: str = ""
    connect_timeout_ms: int = 10_000
    backoff_ms: int = 50
    """Between a connection that broke and the next attempt; doubled by each failure up to `longest_backoff_ms`."""
    longest_backoff_ms: int = 1_000
    look_s: int = 3
    """Between looks whether the other machine is still there (`Lifeline`)."""
    max_response_bytes: int = 256 << 20
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """API key → the first and last version in which its requests may be sent, where not all that both sides know."""


class BrokerClient:
    """The Link to a broker at an endpoint; one connection, opened when needed."""

    def __init__(
        self,
        endpoint: Endpoint,
        options: ClientOptions,
        clock: Clock,
        timers: Timers,
        login: Login | None = None,
        secure: Secure | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._options = options
        self._clock = clock
        self._timers = timers
        self._login = login
        self._secure = secure
        self._connection: ClientConnection | None = None
        self._former: ClientConnection | None = None
        """The previous connection, while answers are still due on it."""
        self._opening: asyncio.Task[ClientConnection] | None = None
        self._failures = 0
        self._not_before_ms = 0.0
        self._closed = False

    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        return self.read(request, await self.exchange(request, timeout_ms=timeout_ms))

    def read(self, request: Any, answer: Answer) -> Any:
        try:
            frame = memoryview(answer.frame)
            return read(response_class(request.__schema__.key), answer.version, frame, answer.body_at)[0]
        except MalformedError as error:
            raise self._failed(f"sent an answer that cannot be read: {error}") from error

    async def open(self, *, timeout_ms: int) -> None:
        await self._connected(self._clock.monotonic_ms() + timeout_ms)

    async def exchange(self, request: Any, *, timeout_ms: int, go_on: GoOn | None = None) -> Answer:
        """`timeout_ms` includes opening the connection."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        connection = self._connection
        if connection is None or connection.closed or connection.good_until_ms is not None:
            connection = await self._connected(deadline_ms)
        conversation = None if go_on is None else Conversation(go_on, timeout_ms)
        return await connection.exchange(request, deadline_ms=deadline_ms, conversation=conversation)

    def close(self) -> None:
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        for connection in (self._connection, self._former):
            if connection is not None:
                connection.close(_CLOSED)

    async def _connected(self, deadline_ms: float) -> ClientConnection:
        if self._closed:
            raise self._failed(_CLOSED)
        if self._opening is not None and self._opening.done():
            self._opened(self._opening)  # in the turn in which it failed: who asks again would get the same answer
        connection = self._connection
        if connection is not None and not connection.closed:
            if connection.good_until_ms is None or self._clock.monotonic_ms() < connection.good_until_ms:
                return connection
            self._connection, self._former = None, connection
            connection.close_when_answered()
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.get_running_loop().create_task(self._open())
            opening.add_done_callback(self._opened)
        try:
            return await _in_time(asyncio.shield(opening), deadline_ms, self._timers, f"{self} did not accept in time")
        except asyncio.CancelledError:
            if not opening.cancelled() or _is_asked_to_end():
                raise
            raise self._failed(_CLOSED) from None

    def _opened(self, task: asyncio.Task[ClientConnection]) -> None:
        if task is not self._opening:
            return
        self._opening = None
        if task.cancelled() or task.exception() is not None:
            self._failures += 1
        else:
            self._connection = task.result()
            self._failures = 0
            if self._closed:
                self._connection.close(_CLOSED)
        wait_ms = min(self._options.backoff_ms << min(self._failures, 16), self._options.longest_backoff_ms)
        self._not_before_ms = self._clock.monotonic_ms() + wait_ms

    async def _open(self) -> ClientConnection:
        """LinkError whatever there is in the way: a host that is no name, no thread to look it up in, a bug."""
        wait_ms = self._not_before_ms - self._clock.monotonic_ms()
        if wait_ms > 0:
            await sleep(wait_ms, self._clock, self._timers)
        try:
            return await self._new_connection(self._clock.monotonic_ms() + self._options.connect_timeout_ms)
        except LinkError:
            raise
        except OSError as error:
            raise self._failed(f"cannot be reached: {_reason(error)}") from error
        except Exception as error:
            if not isinstance(error, (UnicodeError, RuntimeError, MemoryError)):  # no name, no thread, no memory
                log.exception("internal error in reaching %s", self)
            raise self._failed(f"cannot be reached: {error!r}") from error

    async def _new_connection(self, deadline_ms: float) -> ClientConnection:
        opening = asyncio.ensure_future(_socket_to(self.endpoint, self._options))
        try:
            sock = await _in_time(opening, deadline_ms, self._timers, f"{self} did not accept in time")
        except asyncio.CancelledError:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result().close()  # it was connected in the very turn in which the client was closed
            raise
        try:
            lifeline = Lifeline(sock, self._options.look_s)
            transport = await self._transport(sock, deadline_ms)
            connection = ClientConnection(transport, lifeline, self.endpoint, self._options, self._clock, self._timers)
        except BaseException:
            sock.close()
            raise
        try:
            await connection.ask_versions(deadline_ms)
            if self._login is not None:
                connection.good_until_ms = await self._login(connection, deadline_ms)
        except BaseException:
            connection.close("it could not be opened")
            raise
        return connection

    async def _transport(self, sock: PlainTransport, deadline_ms: float) -> Transport:
        if self._secure is None:
            return sock
        securing = asyncio.ensure_future(self._secure(sock, self.endpoint.host))
        try:
            return await _in_time(securing, deadline_ms, self._timers, f"{self} did not agree on TLS in time")
        except LinkError:
            raise
        except OSError as error:
            raise self._failed(f"cannot be reached over TLS: {error}") from error

    def _failed(self, what: str) -> LinkError:
        return LinkError(f"{self} {what}")

    def __str__(self) -> str:
        return f"broker at {self.endpoint.host}:{self.endpoint.port}"


class _Sent(NamedTuple):
    key: int
    version: int
    correlation_id: int
    deadline_ms: float
    answered: asyncio.Future[Answer]
    conversation: Conversation | None


class Conversation(NamedTuple):
    """Requests that follow one another, whose last answer is waited for."""

    go_on: GoOn
    timeout_ms: int
    """Of each request that `go_on` adds."""


class ClientConnection:
    """One connection: frames out, frames in, each matched with the oldest request that has no answer yet."""

    def __init__(
        self,
        transport: Transport,
        lifeline: Lifeline,
        endpoint: Endpoint,
        options: ClientOptions,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self.closed = False
        self.versions: dict[int, tuple[int, int]] = {}
        """API key → first and last version that the broker serves."""
        self._agreed: dict[int, int] = {}
        """API key → the version in which its requests are sent."""
        self.good_until_ms: float | None = None
        """After this nothing more is sent: the broker is about to end the session. None: it never is."""
        self._closes_when_answered = False
        self._transport = transport
        self._fd = transport.fileno()
        self._lifeline = lifeline
        self.endpoint = endpoint
        self._options = options
        self._clock = clock
        self._timers = timers
        self._loop = asyncio.get_running_loop()
        self._correlation_id = 0
        self._sent: deque[_Sent] = deque()
        self._next_look: Timer | None = None
        """At what has been sent: at its first deadline or before."""
        self._left = b""
        """Too little of a frame to say how large it is."""
        self._frame: bytearray | None = None
        """A frame that is received in place, `_filled` bytes of it so far."""
        self._filled = 0
        self._lowest = 1
        self._out = bytearray()
        self._loop.add_reader(self._fd, self._on_readable)
        if transport.pending:
            self._loop.call_soon(self._on_readable)

    async def exchange(
        self,
        request: Any,
        *,
        deadline_ms: float,
        version: int | None = None,
        conversation: Conversation | None = None,
    ) -> Answer:
        """Send at once, and wait for the answer; a request that is late closes the connection, and all behind it."""
        answered: asyncio.Future[Answer] = self._loop.create_future()
        self._ask(request, version, deadline_ms, answered, conversation)
        return await answered

    def _ask(
        self,
        request: Any,
        version: int | None,
        deadline_ms: float,
        answered: asyncio.Future[Answer],
        conversation: Conversation | None,
    ) -> None:
        key = request.__schema__.key
        if version is None:
            version = self.version_of(request)
        if self.closed:
            raise self.error("closed the connection")
        correlation_id = self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        header = RequestHeader(key, version, correlation_id, self._options.client_id)
        frame = encode_request(header, in_version(request, version))
        self._sent.append(_Sent(key, version, correlation_id, deadline_ms, answered, conversation))
        if self._next_look is None or deadline_ms < self._next_look.deadline_ms:
            self._look_by(deadline_ms)
        self._send(frame)

    def _look_by(self, deadline_ms: float) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        look_ms = min(deadline_ms, self._clock.monotonic_ms() + self._lifeline.look_ms)
        self._next_look = self._timers.at(look_ms, self._close_if_late_or_dead)

    def _close_if_late_or_dead(self) -> None:
        self._next_look = None
        now_ms = self._clock.monotonic_ms()
        for sent in self._sent:
            if sent.deadline_ms <= now_ms:
                self.close(f"did not answer {APIS[sent.key].name} in time")
                return
        if not self._sent:
            return
        if self._lifeline.is_dead():
            self.close("is not heard of any more over this connection")
        else:
            self._look_by(min(sent.deadline_ms for sent in self._sent))

    def version_of(self, request: Any) -> int:
        """The highest version that both sides know, and that the options allow. LinkError when there is none."""
        schema = request.__schema__
        agreed = self._agreed.get(schema.key)
        if agreed is not None:
            return agreed
        first, last = span(schema.versions)
        if schema.key in self._options.versions:
            lowest, highest = self._options.versions[schema.key]
            first, last = max(first, lowest), min(last, highest)
        served = self.versions.get(schema.key)
        if served is None or min(served[1], last) < max(served[0], first):
            raise self.error(f"does not serve {APIS[schema.key].name} in a version of {first} to {last}")
        self._agreed[schema.key] = min(served[1], last)
        return min(served[1], last)

    async def ask(self, request: Any, *, deadline_ms: float) -> Any:
        """The decoded answer. LinkError when there is none."""
        answer = await self.exchange(request, deadline_ms=deadline_ms)
        try:
            return read(response_class(request.__schema__.key), answer.version, answer.frame, answer.body_at)[0]
        except MalformedError as error:
            raise self.error(f"sent an answer that cannot be read: {error}") from error

    def close_when_answered(self) -> None:
        """Nothing more is sent; what has been is still answered."""
        self._closes_when_answered = True
        self._close_if_answered()

    def _close_if_answered(self) -> None:
        if not self._sent:
            self.close("is asked over another connection")

    async def ask_versions(self, deadline_ms: float) -> None:
        """A broker that does not know this version of ApiVersions answers in version 0, with an error."""
        from kafkad.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

        request = ApiVersionsRequest(
            client_software_name=self._options.software, client_software_version=self._options.software_version
        )
        try:
            for version in (3, 0):
                answer = await self.exchange(request, deadline_ms=deadline_ms, version=version)
                (code,) = _ERROR_CODE.unpack_from(answer.frame, answer.body_at)
                if code != _UNSUPPORTED_VERSION:
                    break
            response, _ = read(ApiVersionsResponse, version, answer.frame, answer.body_at)
        except (MalformedError, struct.error) as error:
            raise self.error(f"sent an answer to ApiVersions that cannot be read: {error}") from error
        if response.error_code:
            raise self.error(f"refused ApiVersions with error {response.error_code}")
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def close(self, why: str) -> None:
        """Everything that still waits for an answer fails with `why`, and is not sent on, nor again by the kernel."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        if self._sent:
            self._transport.abort()
        else:
            self._transport.close()
        if self._next_look is not None:
            self._next_look.cancel()
        for sent in self._sent:
            if not sent.answered.done():
                sent.answered.set_exception(self.error(why))
        self._sent.clear()

    def error(self, what: str) -> LinkError:
        return LinkError(f"broker at {self.endpoint.host}:{self.endpoint.port} {what}")

    def _send(self, frame: bytes | bytearray) -> None:
        if self._out:
            self._out += frame
            return
        try:
            sent = self._transport.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.close(f"broke off: {_reason(error)}")
            return
        if sent < len(frame):
            self._out += memoryview(frame)[sent:]
            self._loop.add_writer(self._fd, self._on_writable)

    def _on_writable(self) -> None:
        try:
            if self._out:
                del self._out[: self._transport.send(self._out)]
            if not self._out and self._transport.flush():
                self._loop.remove_writer(self._fd)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(f"broke off: {_reason(error)}")

    def _on_readable(self) -> None:
        """Bytes that the transport still holds are read in the next turn: the kernel does not report them."""
        if self.closed:
            return
        try:
            if self._frame is None:
                self._receive()
            else:
                self._receive_in_place()
            if self._transport.pending and not self.closed:
                self._loop.call_soon(self._on_readable)
        except BlockingIOError:
            if not self._transport.flush():
                self._loop.add_writer(self._fd, self._on_writable)
            elif self._transport.pending:
                self._loop.call_soon(self._on_readable)
        except MalformedError as error:
            self.close(f"does not follow the protocol: {error}")
        except OSError as error:
            self.close(f"broke off: {_reason(error)}")

    def _receive(self) -> None:
        got = self._transport.recv_into(_RECEIVED)
        if not got:
            self.close("closed the connection")
            return
        self._take_frames(memoryview(b"".join((self._left, _RECEIVED[:got]))) if self._left else _RECEIVED[:got])
        if self._frame is not None:
            if got == len(_RECEIVED):
                self._receive_in_place()
            else:
                self._wake_after(len(self._frame) - self._filled)

    def _receive_in_place(self) -> None:
        frame = self._frame
        assert frame is not None
        try:
            got = self._transport.recv_into(memoryview(frame)[self._filled :])
        except BlockingIOError:
            got = -1
        if not got:
            self.close("closed the connection")
            return
        self._filled += max(got, 0)
        if self._filled < len(frame):
            self._wake_after(len(frame) - self._filled)
            return
        self._frame = None
        self._wake_after(1)
        self._take(frame)

    def _wake_after(self, size: int) -> None:
        """Have the kernel report the socket readable only when so many bytes are there, and not with each segment."""
        size = min(size, _WORTH_WAKING)
        if size != self._lowest:
            self._lowest = size
            self._transport.wake_after(size)

    def _take_frames(self, data: memoryview) -> None:
        """Answer what has arrived whole. Each frame has bytes of its own: a caller may keep them."""
        at, have = 0, len(data)
        while have - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(data, at)
            if not 4 <= size <= self._options.max_response_bytes:
                raise MalformedError(f"an answer of {size} bytes")
            at += _SIZE.size
            if have - at < size:
                self._frame, self._filled, self._left = bytearray(size), have - at, b""
                self._frame[: self._filled] = data[at:]
                return
            self._take(bytes(data[at : at + size]))
            at += size
        self._left = bytes(data[at:])

    def _take(self, frame: bytes | bytearray) -> None:
        if not self._sent:
            raise MalformedError("a response without a request")
        sent = self._sent[0]
        version = sent.version
        correlation_id, body_at = read_response_header(sent.key, version, frame)
        if correlation_id != sent.correlation_id:
            raise MalformedError(f"correlation id {correlation_id} where {sent.correlation_id} is expected")
        self._sent.popleft()
        if not sent.answered.done():
            self._answered(sent, Answer(frame, body_at, version))
        if self._closes_when_answered:
            self._close_if_answered()

    def _answered(self, sent: _Sent, answer: Answer) -> None:
        """HOT. A conversation does not go on over a connection whose session is over."""
        conversation = sent.conversation
        if conversation is None or self._closes_when_answered:
            sent.answered.set_result(answer)
            return
        now_ms = self._clock.monotonic_ms()
        if self.good_until_ms is not None and now_ms >= self.good_until_ms:
            sent.answered.set_result(answer)
            return
        try:
            request = conversation.go_on(answer)
            if request is None:
                sent.answered.set_result(answer)
            else:
                self._ask(request, None, now_ms + conversation.timeout_ms, sent.answered, conversation)
        except Exception as error:
            sent.answered.set_exception(error)


async def _socket_to(endpoint: Endpoint, options: ClientOptions) -> PlainTransport:
    """A connected socket to the first address of the endpoint's host that accepts."""
    loop = asyncio.get_running_loop()
    refused: OSError = OSError(f"{endpoint.host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        endpoint.host, endpoint.port, type=socket.SOCK_STREAM
    ):
        sock = PlainTransport(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option, size in (
                (socket.SO_SNDBUF, options.send_buffer_bytes),
                (socket.SO_RCVBUF, options.receive_buffer_bytes),
            ):
                if size > 0:
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            refused = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise refused


def _reason(error: OSError) -> str:
    """The kernel's own words where it has some: those of asyncio repeat the address."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)


async def _in_time(waited_for: asyncio.Future[T], deadline_ms: float, timers: Timers, late: str) -> T:
    """The result of `waited_for`. At the deadline it is cancelled and LinkError(late) raised."""
    overdue = False

    def give_up() -> None:
        nonlocal overdue
        overdue = True
        waited_for.cancel()

    timer = timers.at(deadline_ms, give_up)
    try:
        return await waited_for
    except asyncio.CancelledError:
        if overdue and not _is_asked_to_end():
            raise LinkError(late) from None
        raise
    finally:
        timer.cancel()


def _is_asked_to_end() -> bool:
    """True if the waiting task itself was cancelled, perhaps in the same turn as what it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
