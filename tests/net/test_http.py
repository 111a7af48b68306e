"""The HTTP listener by raw sockets: what it serves, and what it does not put up with."""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import uvloop

from kafkad.net import http, tls
from kafkad.net.http import Condition, Endpoints, HttpServer
from kafkad.net.tls import ServerTls, TlsLayer
from tests.certificates import Authority, client_context, server_context


class Broker:
    """The interface that the endpoints ask."""

    def __init__(self) -> None:
        self.problem: str | None = None

    def metrics(self) -> list[str]:
        return ["a 1\n", "b 2\n"]

    def ready(self, in_full: bool) -> Condition:
        return Condition(self.problem is None, self.problem or "ok")

    def health(self, in_full: bool) -> Condition:
        return Condition(True, self.problem or "ok")


@asynccontextmanager
async def serving(
    broker: Broker, timeout_s: float = 5.0, encrypted: ServerTls | None = None
) -> AsyncIterator[HttpServer]:
    endpoints = Endpoints(broker.metrics, broker.health, broker.ready)
    server = HttpServer(endpoints, request_timeout_s=timeout_s, tls=encrypted)
    await server.listen("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.close()


def https(context: ssl.SSLContext) -> ServerTls:
    return ServerTls(TlsLayer(asyncio.get_running_loop().call_soon), context, lambda certificate: "nobody")


async def exchange(server: HttpServer, *sent: bytes) -> bytes:
    """Sends the pieces and reads until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for piece in sent:
        writer.write(piece)
        await writer.drain()
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def get(path: str, *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    lines = [f"{method} {path} HTTP/{version}", "Host: x", *headers, "", ""]
    return "\r\n".join(lines).encode()


def closing(path: str, method: str = "GET") -> bytes:
    return get(path, "Connection: close", method=method)


def answer_to(*sent: bytes, problem: str | None = None, timeout_s: float = 5.0) -> bytes:
    async def run() -> bytes:
        broker = Broker()
        broker.problem = problem
        async with serving(broker, timeout_s) as server:
            return await exchange(server, *sent)

    return asyncio.run(run())


def test_metrics() -> None:
    head, _, body = answer_to(closing("/metrics?x=1")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
    assert b"Content-Length: 8" in head
    assert body == b"a 1\nb 2\n"


def test_head_has_no_body() -> None:
    head, _, body = answer_to(closing("/metrics", method="HEAD")).partition(b"\r\n\r\n")
    assert b"Content-Length: 8" in head
    assert body == b""


def test_health_and_ready() -> None:
    answer = answer_to(closing("/health"), problem="recovering 3 of 7 logs")
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\nrecovering 3 of 7 logs\n")
    answer = answer_to(closing("/ready"), problem="recovering 3 of 7 logs")
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert answer.endswith(b"\r\n\r\nrecovering 3 of 7 logs\n")
    assert answer_to(closing("/ready")).endswith(b"\r\n\r\nok\n")


def test_a_connection_serves_several_requests() -> None:
    answer = answer_to(get("/health") + get("/health"), closing("/metrics"))
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.count(b"keep-alive") == 2


def test_http_1_0_closes_unless_asked_not_to() -> None:
    assert answer_to(get("/health", version="1.0")).count(b"Connection: close") == 1


def test_a_request_may_come_byte_by_byte() -> None:
    assert answer_to(*(bytes([byte]) for byte in closing("/health"))).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x00\x00\x00\x17\x00\x12\x00\x04junk\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /metrics HTTP/2.0\r\nHost: x\r\n\r\n", 400),
        (b"GET metrics HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost\r\n\r\n", 400),
        (get("/metrics", "Content-Length: 5"), 400),
        (get("/metrics", "Transfer-Encoding: chunked"), 400),
        (get("/metrics", method="POST"), 405),
        (get("/nothing"), 404),
        (get("/../etc/passwd"), 404),
        (b"GET /metrics HTTP/1.1\r\nHost: " + b"x" * 9000 + b"\r\n\r\n", 431),
    ],
)
def test_bad_requests_are_answered_and_closed(request_bytes: bytes, status: int) -> None:
    answer = answer_to(request_bytes)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"Connection: close" in answer


def test_a_request_that_does_not_arrive_is_given_up() -> None:
    assert answer_to(b"GET /metr", timeout_s=0.05).startswith(b"HTTP/1.1 408 ")


def test_whoever_has_said_nothing_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS_OF_HOST", 2)

    async def run() -> None:
        async with serving(Broker()) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            silent, quiet = await asyncio.open_connection("127.0.0.1", server.port)
            for _ in range(3):
                writer.write(get("/health"))
                assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200")
                assert (await exchange(server, closing("/health"))).endswith(b"ok\n")
                assert await asyncio.wait_for(silent.read(), 10) == b""
                await closed(quiet)
                silent, quiet = await asyncio.open_connection("127.0.0.1", server.port)
            await closed(quiet)
            await closed(writer)

    asyncio.run(run())


def test_a_flood_from_one_address_keeps_nobody_away_who_is_slow_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(http, "MAX_CONNECTIONS_OF_HOST", 2)

    async def run() -> None:
        async with serving(Broker()) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=("127.0.0.2", 0))
            flood = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(5)]
            for displaced, _ in flood[:3]:
                assert await asyncio.wait_for(displaced.read(), 10) == b""
            writer.write(closing("/health"))
            assert (await reader.read()).endswith(b"ok\n")
            for each in (writer, *(writer for _, writer in flood)):
                await closed(each)

    asyncio.run(run())


def test_whoever_does_not_read_its_answer_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS_OF_HOST", 1)
    broker = Broker()
    monkeypatch.setattr(broker, "metrics", lambda: ["a" * 1_000_000] * 20)

    async def run() -> None:
        async with serving(broker, timeout_s=60) as server:
            for ask in (get, closing):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(ask("/metrics"))
                await reader.readexactly(1)
                assert (await exchange(server, closing("/health"))).endswith(b"ok\n")
                with suppress(OSError):
                    assert len(await asyncio.wait_for(reader.read(), 10)) < 20_000_000
                await closed(writer)

    asyncio.run(run())


def test_whoever_is_being_answered_makes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS_OF_HOST", 1)

    async def run() -> None:
        asked, known = asyncio.Event(), asyncio.Event()

        async def health(in_full: bool) -> Condition:
            asked.set()
            await known.wait()
            return Condition(True, "ok")

        server = HttpServer(Endpoints(Broker().metrics, health, health))
        await server.listen("127.0.0.1", 0)
        first = asyncio.create_task(exchange(server, closing("/health")))
        await asked.wait()
        assert await exchange(server, b"") == b""
        known.set()
        assert (await first).endswith(b"ok\n")
        await server.close()

    asyncio.run(run())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_connections_count_before_their_handshake_which_has_its_time_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS_OF_HOST", 1)
    authority = Authority()
    trusting = client_context(authority)

    async def answer(server: HttpServer) -> bytes:
        reader, writer = await asyncio.open_connection("localhost", server.port, ssl=trusting)
        writer.write(closing("/metrics"))
        answer = await reader.read()
        await closed(writer)
        return answer

    async def run() -> None:
        async with serving(
            Broker(), timeout_s=1, encrypted=https(server_context(authority.issue(), tmp_path))
        ) as server:
            for room_is_needed in (True, False):
                silent, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"\x16\x03")
                if room_is_needed:
                    assert (await answer(server)).endswith(b"b 2\n")
                with suppress(ConnectionResetError):  # what it has sent may be unread
                    assert await asyncio.wait_for(silent.read(), 10) == b""
                await closed(writer)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


def hello() -> bytes:
    """What a client of TLS says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_handshakes_take_turns_with_the_rest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In each turn of the loop they have no more than their share, however many clients send their greeting at once."""
    now, turn = 0.0, 0
    step, turns_of_greetings = tls._step, list[int]()

    def slow_step(layer: TlsLayer, state: ssl.SSLObject, sock: socket.socket, received: bytes) -> object:
        nonlocal now
        if received:
            turns_of_greetings.append(turn)
            now += 0.0004
        return step(layer, state, sock, received)

    async def run() -> None:
        loop = asyncio.get_running_loop()

        def call_soon(callback: Callable[[], None]) -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(callback)

        encrypted = https(server_context(Authority().issue(), tmp_path))
        encrypted.layer = TlsLayer(call_soon, lambda: now)
        async with serving(Broker(), encrypted=encrypted) as server:
            clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(10)]
            while len(server._connections) < len(clients):
                await asyncio.sleep(0)
            for client in clients:
                client.sendall(hello())
            while len(turns_of_greetings) < len(clients):
                await asyncio.sleep(0)
            assert max(Counter(turns_of_greetings).values()) <= 3
            for client in clients:
                client.close()

    monkeypatch.setattr(tls, "_step", slow_step)
    asyncio.run(run())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_long_page_arrives_over_tls_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    broker, authority = Broker(), Authority()
    monkeypatch.setattr(broker, "metrics", lambda: ["a" * 1_000_000] * 5)

    async def run() -> None:
        async with serving(broker, encrypted=https(server_context(authority.issue(), tmp_path))) as server:
            reader, writer = await asyncio.open_connection("localhost", server.port, ssl=client_context(authority))
            writer.write(get("/health") + closing("/metrics"))
            assert len((await reader.read()).rpartition(b"\r\n\r\n")[2]) == 5_000_000
            await closed(writer)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


class CountedPages:
    """A page that is different each time, and takes some turns of the loop."""

    def __init__(self, size: int) -> None:
        self.collected = 0
        self.size = size

    async def metrics(self) -> AsyncIterator[str]:
        self.collected += 1
        number = self.collected
        for _ in range(10):
            await asyncio.sleep(0)
            yield f"{number}" * (self.size // 10)


def held(metrics: Callable[[], AsyncIterator[str]]) -> tuple[Callable[[], AsyncIterator[str]], asyncio.Event]:
    """The same, once the event is set."""
    may_begin = asyncio.Event()

    async def pages() -> AsyncIterator[str]:
        await may_begin.wait()
        async for piece in metrics():
            yield piece

    return pages, may_begin


def test_metrics_are_collected_once_for_all_who_ask_meanwhile() -> None:
    async def run() -> None:
        pages, broker = CountedPages(1000), Broker()
        metrics, may_begin = held(pages.metrics)
        server = HttpServer(Endpoints(metrics, broker.health, broker.ready))
        await server.listen("127.0.0.1", 0)
        try:
            asking = [asyncio.create_task(exchange(server, closing("/metrics"))) for _ in range(10)]
            while server._connections.at_work < 10:
                await asyncio.sleep(0)
            may_begin.set()
            assert all(answer.endswith(b"1" * 1000) for answer in await asyncio.gather(*asking))
            assert pages.collected == 1
            assert (await exchange(server, closing("/metrics"))).endswith(b"2" * 1000)
        finally:
            await server.close()

    asyncio.run(run())


def test_pages_that_nobody_reads_have_a_bound_and_the_latest_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 10 << 20
    monkeypatch.setattr(http, "_MOST_PAGE_BYTES", 25 << 20)

    async def run() -> None:
        pages, broker = CountedPages(size), Broker()
        server = HttpServer(Endpoints(pages.metrics, broker.health, broker.ready))
        await server.listen("127.0.0.1", 0)
        unread = []
        try:
            for number in range(1, 6):
                unread.append(await asyncio.open_connection("127.0.0.1", server.port, limit=1024))
                unread[-1][1].write(get("/metrics"))
                while not any(page.startswith(b"%d" % number) for page in server._reading.values()):
                    await asyncio.sleep(0)
            assert [page[:1] for page in server._reading.values()] == [b"4", b"5"]
            answer = await exchange(server, closing("/metrics"))
            assert answer.endswith(b"6" * 1000)
            assert len(answer) > size
        finally:
            await server.close()
            for _, writer in unread:
                await closed(writer)

    asyncio.run(run())


def test_closing_ends_open_connections() -> None:
    async def run() -> None:
        async with serving(Broker()) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(get("/health"))
            await reader.readuntil(b"ok\n")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()

    asyncio.run(run())


def test_serve_takes_what_the_configuration_says() -> None:
    async def run() -> bytes:
        broker = Broker()
        endpoints = Endpoints(lambda: ["x 1\n"], broker.health, broker.ready)
        server = await http.serve(("127.0.0.1", 0), endpoints)
        answer = await exchange(server, closing("/metrics"))
        await server.close()
        return answer

    assert asyncio.run(run()).endswith(b"x 1\n")


class AskedBroker:
    """Answers that come later."""

    async def metrics(self) -> AsyncIterator[str]:
        for piece in ("a 1\n", "b 2\n"):
            await asyncio.sleep(0)
            yield piece

    async def condition(self, in_full: bool) -> Condition:
        await asyncio.sleep(0)
        return Condition(False, "broker 1: starting")


def test_answers_may_come_later_and_the_socket_may_be_bound_already() -> None:
    async def run() -> tuple[bytes, bytes]:
        broker = AskedBroker()
        server = HttpServer(Endpoints(broker.metrics, broker.condition, broker.condition))
        await server.listen_on(socket.create_server(("127.0.0.1", 0)))
        try:
            return await exchange(server, closing("/metrics")), await exchange(server, closing("/ready"))
        finally:
            await server.close()

    metrics, ready = asyncio.run(run())
    assert metrics.endswith(b"\r\n\r\na 1\nb 2\n")
    assert ready.startswith(b"HTTP/1.1 503 ")
    assert ready.endswith(b"broker 1: starting\n")


@pytest.mark.parametrize("token", ["secret", "geheim-ä", "à", "秘密"])
def test_a_token_may_have_any_letters(token: str) -> None:
    """As a client sends them: in UTF-8, whose bytes may be spaces in Latin-1."""

    async def scenario() -> None:
        broker = Broker()
        server = HttpServer(Endpoints(broker.metrics, broker.health, broker.ready), token=lambda: token)
        await server.listen("127.0.0.1", 0)
        for shown, status in ((token, b"200"), (f"{token}!", b"401")):
            request = f"GET /metrics HTTP/1.0\r\nAuthorization: Bearer {shown} \r\n\r\n"
            answer = await exchange(server, request.encode())
            assert answer.split()[1] == status
        await server.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(("token", "shown", "in_full"), [(None, "", True), ("t", "", False), ("t", "t", True)])
def test_whoever_does_not_show_the_token_is_not_told_in_full(token: str | None, shown: str, in_full: bool) -> None:
    async def scenario() -> None:
        def told(in_full: bool) -> Condition:
            return Condition(True, str(in_full))

        server = HttpServer(Endpoints(Broker().metrics, told, told), token=lambda: token)
        await server.listen("127.0.0.1", 0)
        for path in ("/health", "/ready"):
            answer = await exchange(server, get(path, "Connection: close", f"Authorization: Bearer {shown}"))
            assert answer.endswith(f"\r\n\r\n{in_full}\n".encode())
        await server.close()

    asyncio.run(scenario())


def test_requests_without_end_of_one_connection_let_others_have_their_turn() -> None:
    """Their sender reads all answers, so that nothing has to be waited for."""

    async def run() -> int:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with serving(Broker()) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            meanwhile = asyncio.create_task(others())
            writer.write(100 * get("/ready", method="HEAD") + closing("/ready"))
            before = turns
            await reader.read()
            meanwhile.cancel()
            await closed(writer)
            return turns - before

    assert asyncio.run(run()) > 100
