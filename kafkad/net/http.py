"""A small HTTP/1.1 listener for machines that watch kafkad: /metrics, /health, /ready. Reads nothing but GET and HEAD.

It shares the event loop with Kafka's clients, so everything is bounded: connections, also of one address, the size of a
request, the time one may take to arrive or to be read. When there are too many connections, the one that has said
nothing for longest makes room for the next. Metrics are collected once for all who ask meanwhile; of pages that are not
read yet only the latest are kept, and who reads an older one is closed.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkad.net.stream import Stream
from kafkad.net.transport import PlainTransport, Transport
from kafkad.net.visitors import Visitors

if TYPE_CHECKING:
    from kafkad.net.tls import ServerTls

log = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 8192
MAX_CONNECTIONS = 64
MAX_CONNECTIONS_OF_HOST = 16
REQUEST_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 75.0
"""Longer than the minute between two scrapes."""
_MOST_PAGE_BYTES = 64 << 20
"""Of all pages of metrics that are being read; the one that is new has room in any case."""
_PIECE = 64 * 1024
_END = b"\r\n\r\n"
_BACKLOG = 100
_REST_S = 0.5

TOKEN_VARIABLE = "KAFKAD_SUPERVISOR_TOKEN"
"""In the environment of one of several brokers: what its supervisor shows at its private listener."""
OPEN_METRICS_VARIABLE = "KAFKAD_SUPERVISOR_OPEN_METRICS"
"""There, too, where the supervisor tells metrics to anybody."""

TEXT = "text/plain; charset=utf-8"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


DAMAGED, EXPOSED = "damaged: ", "exposed: "
"""They begin lines of /health about a damaged log, and about a listener that is open to others, for those who look for
them, as `kctl doctor` does."""


class Condition(NamedTuple):
    """Good is answered with 200, bad with 503, and either with the text."""

    good: bool
    text: str


class Endpoints(NamedTuple):
    """Answers that are at hand, or that others have to be asked for. `health` and `ready` are told whether to answer in
    full, or without names of topics and paths."""

    metrics: Callable[[], Iterable[str] | AsyncIterable[str]]
    health: Callable[[bool], Condition | Awaitable[Condition]]
    ready: Callable[[bool], Condition | Awaitable[Condition]]


class _Refused(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Request(NamedTuple):
    method: str
    path: str
    keep_alive: bool
    authorization: str = ""
    """As it came, each byte a character."""


class HttpServer:
    """Made by `serve`; `close` ends open connections too. With a `token` metrics are for those who show it.

    Connections are accepted here, and not by a server of asyncio, which would tell of one only after its handshake, and
    would work on all handshakes at once.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        tls: ServerTls | None = None,
        token: Callable[[], str | None] = lambda: None,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self._endpoints = endpoints
        self._tls = tls
        self._token = token
        self._request_timeout_s = request_timeout_s
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._connections: Visitors[asyncio.Task[None]] = Visitors(MAX_CONNECTIONS, MAX_CONNECTIONS_OF_HOST)
        self._collecting: asyncio.Task[bytearray] | None = None
        self._reading: dict[asyncio.Task[None], bytearray] = {}
        """Who is being sent which page of metrics; the oldest page is the first."""

    async def listen(self, host: str, port: int) -> None:
        """Raises OSError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        places = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, address in dict.fromkeys((place[0], place[4]) for place in places):
                if family == socket.AF_INET or socket.has_ipv6:
                    self._sockets.append(socket.create_server(address, family=family, backlog=_BACKLOG))
        except OSError:
            await self.close()
            raise
        self._accept_all()

    async def listen_on(self, bound: socket.socket) -> None:
        """On a socket that is bound already."""
        bound.listen(_BACKLOG)
        self._sockets.append(bound)
        self._accept_all()

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    async def close(self) -> None:
        tasks: list[asyncio.Task[Any]] = [*self._accepting, *self._connections.all()]
        if self._collecting is not None:
            tasks.append(self._collecting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listening in self._sockets:
            listening.close()

    def _accept_all(self) -> None:
        for listening in self._sockets:
            listening.setblocking(False)
            self._accepting.append(asyncio.create_task(self._accept(listening)))

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:  # it has gone again, or there are no descriptors left
                log.warning("cannot accept a connection for HTTP: %s", error)
                await asyncio.sleep(_REST_S)
                continue
            host = address[0]
            if await self._make_room_for(host):
                task = asyncio.create_task(self._welcome(accepted))
                self._connections.enter(task, host)
                task.add_done_callback(self._forget)
            else:
                accepted.close()
            await asyncio.sleep(0)  # it begins: until then, nobody would close its socket

    async def _make_room_for(self, host: str) -> bool:
        while not self._connections.has_room_for(host):
            connection = self._connections.who_makes_room_for(host)
            if connection is None:
                return False
            connection.cancel()
            await asyncio.wait([connection])
        return True

    def _forget(self, connection: asyncio.Task[None]) -> None:
        self._connections.leave(connection)
        self._reading.pop(connection, None)

    async def _welcome(self, accepted: socket.socket) -> None:
        """Until the peer leaves, is too slow, or the broker stops."""
        with suppress(OSError, EOFError), accepted:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(self._request_timeout_s):
                transport = await self._over(accepted)
            with closing(transport):
                await self._serve(Stream(transport))

    async def _over(self, accepted: socket.socket) -> Transport:
        if self._tls is None:
            return PlainTransport.over(accepted)
        from kafkad.net.tls import accept

        return await accept(self._tls, accepted)

    async def _serve(self, stream: Stream) -> None:
        wait_s = self._request_timeout_s
        while await self._serve_one(stream, wait_s):
            wait_s = IDLE_TIMEOUT_S
            await asyncio.sleep(0)  # who sends requests without end, and reads the answers, never has to be waited for

    async def _serve_one(self, stream: Stream, wait_s: float) -> bool:
        """True if there may be another request."""
        try:
            request = await self._read(stream, wait_s)
            with self._at_work():
                status, kind, body = await self._answer(request)
        except _Refused as refusal:
            request = _Request("GET", "", keep_alive=False)
            status, kind, body = refusal.status, TEXT, f"{refusal}\n".encode()
        head = _head(status, kind, len(body), keep_alive=request.keep_alive)
        async with asyncio.timeout(self._request_timeout_s):
            await stream.send(head)
            await self._send(stream, body if request.method != "HEAD" else b"")
        self._reading.pop(_this_task(), None)
        return request.keep_alive

    async def _send(self, stream: Stream, body: bytes | bytearray) -> None:
        for begin in range(0, len(body), _PIECE):
            await stream.send(memoryview(body)[begin : begin + _PIECE])
            await asyncio.sleep(0)  # let Kafka's clients in between

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Meanwhile this connection makes no room for others."""
        connection = _this_task()
        self._connections.is_answered(connection)
        try:
            yield
        finally:
            self._connections.is_silent(connection)

    async def _read(self, stream: Stream, wait_s: float) -> _Request:
        received = stream.received
        try:
            if not received:
                async with asyncio.timeout(wait_s):
                    await stream.receive()
            async with asyncio.timeout(self._request_timeout_s):
                while (end := received.find(_END, 0, MAX_REQUEST_BYTES)) < 0:
                    if len(received) >= MAX_REQUEST_BYTES:
                        raise _Refused(431, f"a request may have {MAX_REQUEST_BYTES} bytes")
                    await stream.receive()
        except TimeoutError:
            raise _Refused(408, "the request did not arrive in time") from None
        head = bytes(received[: end + len(_END)])
        del received[: len(head)]
        return _parsed(head)

    async def _answer(self, request: _Request) -> tuple[int, str, bytes | bytearray]:
        if request.path == "/metrics":
            if not self._shows_token(request):
                raise _Refused(401, "metrics are for those who show the token, as in Authorization: Bearer TOKEN")
            return 200, PROMETHEUS, await self._metrics()
        asked = {"/health": self._endpoints.health, "/ready": self._endpoints.ready}.get(request.path)
        if asked is None:
            raise _Refused(404, "not found; try /metrics, /health or /ready")
        answer = asked(self._shows_token(request))
        condition = answer if isinstance(answer, Condition) else await answer
        return (200 if condition.good else 503), TEXT, f"{condition.text}\n".encode()

    async def _metrics(self) -> bytearray:
        if self._collecting is None:
            self._collecting = asyncio.create_task(self._collect())
        page = await asyncio.shield(self._collecting)
        self._reading[_this_task()] = page
        return page

    async def _collect(self) -> bytearray:
        try:
            page = bytearray()
            async for piece in _one_by_one(self._endpoints.metrics()):
                page += piece.encode()
                await asyncio.sleep(0)  # let Kafka's clients in between
            self._drop_pages(len(page))
            return page
        finally:
            self._collecting = None

    def _drop_pages(self, size: int) -> None:
        """For a new page: closes who reads the oldest ones."""
        pages = {id(page): page for page in self._reading.values()}
        left = sum(map(len, pages.values()))
        for oldest in pages.values():
            if left + size <= _MOST_PAGE_BYTES:
                return
            left -= len(oldest)
            for connection in [connection for connection, page in self._reading.items() if page is oldest]:
                del self._reading[connection]
                connection.cancel()

    def _shows_token(self, request: _Request) -> bool:
        """True also where there is none to show."""
        token, shown = self._token(), request.authorization.encode("latin-1")
        return not token or hmac.compare_digest(shown, f"Bearer {token}".encode())


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def _one_by_one(pieces: Iterable[str] | AsyncIterable[str]) -> AsyncIterator[str]:
    if isinstance(pieces, AsyncIterable):
        async for piece in pieces:
            yield piece
    else:
        for piece in pieces:
            yield piece


async def serve(
    address: tuple[str, int],
    endpoints: Endpoints,
    *,
    tls: ServerTls | None = None,
    token: Callable[[], str | None] = lambda: None,
) -> HttpServer:
    """Listens on host (empty: every interface) and port; raises OSError when the address cannot be had."""
    server = HttpServer(endpoints, tls=tls, token=token)
    await server.listen(*address)
    scheme = "http" if tls is None else "https"
    log.info("serving metrics on %s://%s:%d/metrics", scheme, address[0] or "0.0.0.0", server.port)
    return server


def _parsed(head: bytes) -> _Request:
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0") or not words[1].startswith("/"):
        raise _Refused(400, "this is not an HTTP request")
    method, target, version = words
    headers = dict(map(_header, lines[1:-2]))
    if version == "HTTP/1.1" and "host" not in headers:
        raise _Refused(400, "HTTP/1.1 requires a Host header")
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise _Refused(400, "requests have no body here")
    if method not in ("GET", "HEAD"):
        raise _Refused(405, "only GET and HEAD")
    connection = headers.get("connection", "").lower()
    keep_alive = connection != "close" if version == "HTTP/1.1" else connection == "keep-alive"
    return _Request(method, target.partition("?")[0], keep_alive, headers.get("authorization", ""))


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name or name != name.strip():
        raise _Refused(400, "a header is malformed")
    return name.lower(), value.strip(" \t")


def _head(status: int, kind: str, length: int, *, keep_alive: bool) -> bytes:
    allow = {405: "Allow: GET, HEAD\r\n", 401: "WWW-Authenticate: Bearer\r\n"}.get(status, "")
    connection = "keep-alive" if keep_alive else "close"
    return (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n"
        f"{allow}Connection: {connection}\r\n\r\n"
    ).encode()
