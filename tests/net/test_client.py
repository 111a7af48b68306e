"""The client of another broker, over real sockets and with a clock of the test's own."""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise

import pytest

from kafkad.clock import SystemClock
from kafkad.model import Endpoint
from kafkad.net.client import Answer, BrokerClient, ClientConnection, ClientOptions, LinkError, Login
from kafkad.net.connection import Connection
from kafkad.net.lifeline import Lifeline
from kafkad.net.reply import PENDING, Pending, Reply
from kafkad.net.server import Server
from kafkad.net.transport import MeasuredTransport, PlainTransport, Transport
from kafkad.timers import Timers
from kafkad.wire.frames import API_VERSIONS, encode_response, read_request_header
from kafkad.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kafkad.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.fakes import FakeClock
from tests.net.serving import Peer, run

FIND_COORDINATOR = 10
SERVED = ApiVersionsResponse(
    api_keys=[ApiVersion(api_key=API_VERSIONS, max_version=3), ApiVersion(api_key=FIND_COORDINATOR, max_version=2)]
)
OPTIONS = ClientOptions(client_id="broker-1", software_version="1.0")

Scenario = Callable[["Broker"], Awaitable[None]]


class Broker:
    """The other side: answers ApiVersions at once, and leaves everything else to the test."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timers = Timers()
        self.port = 0
        self.versions_asked: list[int] = []
        self.asked: list[tuple[Connection, int, int]] = []
        self.served = SERVED
        self.only_version_0 = False

    def dispatch(self, connection: Connection, view: memoryview, at: int, end: int) -> Reply | Pending:
        header, _ = read_request_header(view[at:end])
        if header.api_key != API_VERSIONS:
            self.asked.append((connection, header.api_version, header.correlation_id))
            return PENDING
        self.versions_asked.append(header.api_version)
        if self.only_version_0 and header.api_version:
            return encode_response(API_VERSIONS, 0, header.correlation_id, ApiVersionsResponse(error_code=35))
        return encode_response(API_VERSIONS, header.api_version, header.correlation_id, self.served)

    def client(self, options: ClientOptions = OPTIONS, login: Login | None = None) -> BrokerClient:
        endpoint = Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=self.port)
        return BrokerClient(endpoint, options, self.clock, self.timers, login)

    async def requests(self, count: int) -> None:
        while len(self.asked) < count:
            await asyncio.sleep(0.001)

    def answer(self, host: str) -> None:
        connection, version, correlation_id = self.asked.pop(0)
        connection.reply(encode_response(FIND_COORDINATOR, version, correlation_id, FindCoordinatorResponse(host=host)))

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.expire(self.clock.monotonic_ms())


def connected(sock: PlainTransport, endpoint: Endpoint) -> ClientConnection:
    return ClientConnection(sock, Lifeline(sock, OPTIONS.look_s), endpoint, OPTIONS, SystemClock(), Timers())


async def left(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def with_broker(scenario: Scenario) -> None:
    broker = Broker()

    async def main(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        broker.port = server.listeners[0].port
        await scenario(broker)

    run(broker.dispatch, main)


def ask(client: BrokerClient, key: str = "group", timeout_ms: int = 1000) -> asyncio.Task[FindCoordinatorResponse]:
    return asyncio.ensure_future(client.call(FindCoordinatorRequest(key=key), timeout_ms=timeout_ms))


async def opens_another(broker: Broker, client: BrokerClient) -> None:
    """Another connection: what was asked over the last one is not answered any more."""
    broker.asked.clear()
    again = ask(client)
    await broker.requests(1)
    broker.answer("again")
    assert (await again).host == "again"


def test_a_request_goes_out_in_the_highest_version_that_both_know() -> None:
    async def scenario(broker: Broker) -> None:
        client = broker.client()
        answer = ask(client)
        await broker.requests(1)
        assert broker.versions_asked == [3]
        assert broker.asked[0][1] == 2
        broker.answer("here")
        assert (await answer).host == "here"
        client.close()

    with_broker(scenario)


def test_requests_are_pipelined_and_a_caller_that_gives_up_disturbs_nobody() -> None:
    async def scenario(broker: Broker) -> None:
        client = broker.client()
        first, second, third = ask(client), ask(client), ask(client)
        await broker.requests(1)
        second.cancel()
        for host in ("a", "b", "c"):
            await broker.requests(1)
            broker.answer(host)
        assert (await first).host == "a"
        assert (await third).host == "c"
        assert broker.versions_asked == [3]
        client.close()

    with_broker(scenario)


class Conversation:
    """Asks for one key after another; the answer to what comes after the last key is left to who waits."""

    def __init__(self, client: BrokerClient, *keys: str, timeout_ms: int = 1000) -> None:
        self._keys = list(keys)
        self.hosts: list[str] = []
        self._client = client
        self._first = FindCoordinatorRequest(key="first")
        self.over = asyncio.ensure_future(self._converse(timeout_ms))

    async def _converse(self, timeout_ms: int) -> str:
        answer = await self._client.exchange(self._first, timeout_ms=timeout_ms, go_on=self._go_on)
        return self._host(answer)

    def _host(self, answer: Answer) -> str:
        host: str = self._client.read(self._first, answer).host
        return host

    def _go_on(self, answer: Answer) -> FindCoordinatorRequest | None:
        host = self._host(answer)
        if not self._keys:
            return None
        if host == "wrong":
            raise ValueError("the answer makes no sense")
        self.hosts.append(host)
        return FindCoordinatorRequest(key=self._keys.pop(0))


def test_a_conversation_asks_for_more_with_each_answer_and_hands_out_the_last() -> None:
    async def scenario(broker: Broker) -> None:
        client = broker.client()
        conversation = Conversation(client, "second", "third")
        for host in ("a", "b", "c"):
            await broker.requests(1)
            other = ask(client)
            broker.answer(host)
            await broker.requests(1)
            broker.answer("another's")
            assert (await other).host == "another's"
        assert await conversation.over == "c"
        assert conversation.hosts == ["a", "b"]
        client.close()

    with_broker(scenario)


def test_each_request_of_a_conversation_has_its_own_time() -> None:
    async def scenario(broker: Broker) -> None:
        client = broker.client()
        conversation = Conversation(client, "second", "third")
        for host in ("a", "b"):
            await broker.requests(1)
            broker.advance(900)
            broker.answer(host)
        await broker.requests(1)
        broker.advance(999)
        assert not conversation.over.done()
        broker.advance(1)
        with pytest.raises(LinkError, match="did not answer FindCoordinator in time"):
            await conversation.over
        client.close()

    with_broker(scenario)


def test_what_fails_in_a_conversation_is_told_to_who_waits_and_the_connection_stays() -> None:
    async def scenario(broker: Broker) -> None:
        client = broker.client()
        conversation = Conversation(client, "second")
        await broker.requests(1)
        broker.answer("wrong")
        with pytest.raises(ValueError, match="makes no sense"):
            await conversation.over
        answer = ask(client)
        await broker.requests(1)
        broker.answer("here")
        assert (await answer).host == "here"
        assert broker.versions_asked == [3]
        client.close()

    with_broker(scenario)


@pytest.mark.parametrize("closes", [False, True])
def test_a_conversation_ends_with_its_connection(closes: bool) -> None:
    """Of a session that is over, the answer is still handed out."""

    async def scenario(broker: Broker) -> None:
        async def login(connection: ClientConnection, deadline_ms: float) -> float:
            return broker.clock.monotonic_ms() + 500

        client = broker.client(login=login)
        conversation = Conversation(client, "second", "third")
        await broker.requests(1)
        broker.answer("a")
        await broker.requests(1)
        if closes:
            client.close()
            with pytest.raises(LinkError, match="the client is closed"):
                await conversation.over
        else:
            broker.advance(500)
            broker.answer("b")
            assert await conversation.over == "b"
        assert conversation.hosts == ["a"]
        client.close()

    with_broker(scenario)


def test_before_its_session_ends_a_connection_is_left_to_what_was_asked_and_another_takes_its_place() -> None:
    async def scenario(broker: Broker) -> None:
        opened: list[ClientConnection] = []

        async def login(connection: ClientConnection, deadline_ms: float) -> float:
            opened.append(connection)
            return broker.clock.monotonic_ms() + 5_000

        client = broker.client(login=login)
        early = ask(client, timeout_ms=60_000)
        await broker.requests(1)
        broker.advance(5_000)
        late = ask(client, timeout_ms=60_000)
        await broker.requests(2)
        for host in ("early", "late"):
            broker.answer(host)
        assert ((await early).host, (await late).host) == ("early", "late")
        assert [connection.closed for connection in opened] == [True, False]
        client.close()

    with_broker(scenario)


def test_an_old_broker_is_asked_for_its_versions_in_version_0() -> None:
    async def scenario(broker: Broker) -> None:
        broker.only_version_0 = True
        client = broker.client()
        answer = ask(client)
        await broker.requests(1)
        assert broker.versions_asked == [3, 0]
        broker.answer("old")
        assert (await answer).host == "old"
        client.close()

    with_broker(scenario)


def test_an_api_that_the_broker_does_not_serve_is_named_and_keeps_the_connection() -> None:
    async def scenario(broker: Broker) -> None:
        broker.served = ApiVersionsResponse(api_keys=[ApiVersion(api_key=API_VERSIONS, max_version=3)])
        client = broker.client()
        for _ in range(2):
            with pytest.raises(LinkError, match="does not serve FindCoordinator"):
                await ask(client)
        assert broker.versions_asked == [3]
        client.close()

    with_broker(scenario)


def test_a_late_answer_fails_everything_on_its_connection_and_the_next_request_opens_another() -> None:
    async def scenario(broker: Broker) -> None:
        client = broker.client()
        late, behind = ask(client, timeout_ms=100), ask(client, timeout_ms=5000)
        await broker.requests(1)
        broker.advance(100)
        for task in (late, behind):
            with pytest.raises(LinkError, match="did not answer FindCoordinator in time"):
                await task
        await opens_another(broker, client)
        client.close()

    with_broker(scenario)


def test_a_dead_connection_is_given_up_long_before_the_answer_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = False
    monkeypatch.setattr(Lifeline, "is_dead", lambda self: dead)

    async def scenario(broker: Broker) -> None:
        nonlocal dead
        client = broker.client()
        slow, *lost = [ask(client, timeout_ms=30_000) for _ in range(3)]
        await broker.requests(1)
        for _ in range(3):
            broker.advance(OPTIONS.look_s * 1000)
        assert not slow.done()
        broker.answer("slow")
        assert (await slow).host == "slow"
        dead = True
        broker.advance(OPTIONS.look_s * 1000)
        for task in lost:
            with pytest.raises(LinkError, match="is not heard of any more over this connection"):
                await task
        await opens_another(broker, client)
        broker.advance(OPTIONS.look_s * 1000)
        assert broker.versions_asked == [3, 3], "nobody looks at a connection over which nothing is waited for"
        client.close()

    with_broker(scenario)


def test_a_broker_that_is_not_there_is_tried_at_growing_intervals() -> None:
    async def scenario(broker: Broker) -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            broker.port = nobody.getsockname()[1]
        client = broker.client()
        with pytest.raises(LinkError, match=f"127.0.0.1:{broker.port} cannot be reached: Connection refused"):
            await ask(client)
        waits = []
        for _ in range(6):
            again = ask(client, timeout_ms=60_000)
            while (due := broker.timers.next_deadline_ms() or math.inf) > 30_000:  # until the attempt has its own
                await asyncio.sleep(0)
            waits.append(due - broker.clock.monotonic_ms())
            broker.advance(int(waits[-1]))
            with pytest.raises(LinkError, match="cannot be reached"):
                await again
        assert waits == [100, 200, 400, 800, 1000, 1000]
        client.close()

    with_broker(scenario)


def test_who_asks_in_the_turn_in_which_a_connection_failed_does_not_get_its_failure_again() -> None:
    """Who then asks at once again would never let the loop go on to note that it has failed."""

    async def scenario(broker: Broker) -> None:
        async def refused() -> ClientConnection:
            raise LinkError("refused")

        client = broker.client()
        client._opening = asyncio.ensure_future(refused())
        await asyncio.wait([client._opening])
        asking = asyncio.create_task(client.open(timeout_ms=60_000))
        while broker.timers.next_deadline_ms() is None and not asking.done():
            await asyncio.sleep(0)
        broker.advance(OPTIONS.longest_backoff_ms)
        await asking
        client.close()

    with_broker(scenario)


def test_waiting_for_a_connection_ends_with_the_request() -> None:
    async def scenario(broker: Broker) -> None:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            broker.port = silent.getsockname()[1]
            client = broker.client()
            waiting = ask(client, timeout_ms=50)
            while broker.timers.next_deadline_ms() is None:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            broker.advance(50)
            with pytest.raises(LinkError, match="did not accept in time"):
                await waiting
            client.close()

    with_broker(scenario)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (struct.pack(">i", -1), "an answer of -1 bytes"),
        (struct.pack(">i", 1 << 30), "an answer of 1073741824 bytes"),
        (struct.pack(">ii", 4, 77), "correlation id 77 where 1 is expected"),
        (struct.pack(">ii", 4, 1), "sent an answer to ApiVersions that cannot be read"),
        (b"", "closed the connection"),
    ],
    ids=["negative length", "huge", "other correlation id", "no body", "end"],
)
def test_a_peer_that_does_not_follow_the_protocol_is_left(sent: bytes, why: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.write(sent)
        await left(writer)
        ended.set()

    ended = asyncio.Event()

    async def main() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        broker = Broker()
        broker.port = server.sockets[0].getsockname()[1]
        client = broker.client()
        with pytest.raises(LinkError, match=why):
            await asyncio.wait_for(ask(client), 30)
        client.close()
        await ended.wait()
        server.close()

    asyncio.run(main())


def test_answers_that_trickle_are_put_together() -> None:
    async def scenario(broker: Broker) -> None:
        async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            upstream, downstream = await asyncio.open_connection("127.0.0.1", behind)

            async def there() -> None:
                while data := await reader.read(65536):
                    downstream.write(data)
                downstream.close()

            forward = asyncio.ensure_future(there())
            while data := await upstream.read(3):
                writer.write(data)
                await writer.drain()
                await asyncio.sleep(0)
            await forward
            await left(writer, downstream)
            ended.set()

        ended = asyncio.Event()
        behind = broker.port
        proxy = await asyncio.start_server(trickle, "127.0.0.1", 0)
        broker.port = proxy.sockets[0].getsockname()[1]
        client = broker.client()
        answers = [ask(client, key=str(number), timeout_ms=60_000) for number in range(3)]
        for host in ("a" * 100, "b", "c"):
            await broker.requests(1)
            broker.answer(host)
        assert [(await answer).host for answer in answers] == ["a" * 100, "b", "c"]
        client.close()
        await ended.wait()
        proxy.close()

    with_broker(scenario)


@pytest.mark.parametrize("ends", [False, True], ids=["whole", "cut off"])
@pytest.mark.parametrize("sizes", [(300_000, 5, 70_000), (65_532, 65_533, 1), (2_000_000,)])
def test_large_answers_arrive_whole_in_whatever_pieces_they_come(sizes: tuple[int, ...], ends: bool) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = bytearray()
        for number, size in enumerate(sizes):
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(length)
            frames += struct.pack(">iix", size + 5, number + 1) + bytes([number]) * size
        del frames[len(frames) - ends :]
        for at, end in pairwise((0, 2, 50, 70_000, 70_001, 200_000, len(frames) + 200_000)):
            writer.write(frames[at:end])
            await writer.drain()
            await asyncio.sleep(0.01)
        await left(writer)
        ended.set()

    ended = asyncio.Event()

    async def main() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        endpoint = Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=server.sockets[0].getsockname()[1])
        sock = PlainTransport.over(socket.create_connection((endpoint.host, endpoint.port)))
        connection = connected(sock, endpoint)
        request = FindCoordinatorRequest(coordinator_keys=["k"])
        answers = await asyncio.gather(
            *[connection.exchange(request, deadline_ms=1e9, version=4) for _ in sizes], return_exceptions=True
        )
        for number, (size, answer) in enumerate(zip(sizes, answers, strict=True)):
            if ends and number == len(sizes) - 1:
                assert isinstance(answer, LinkError)
                assert "closed the connection" in str(answer)
            else:
                assert not isinstance(answer, BaseException)
                assert answer.frame[answer.body_at :] == bytes([number]) * size
        connection.close("the test is over")
        await ended.wait()
        server.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_request_larger_than_the_socket_takes_leaves_in_pieces() -> None:
    received = 0

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        with suppress(ConnectionResetError):
            while data := await reader.read(65536):
                received += len(data)
        await left(writer)
        ended.set()

    ended = asyncio.Event()

    async def main() -> None:
        server = await asyncio.start_server(swallow, "127.0.0.1", 0)
        endpoint = Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=server.sockets[0].getsockname()[1])
        sock = PlainTransport.over(socket.create_connection((endpoint.host, endpoint.port)))
        connection = connected(sock, endpoint)
        large = FindCoordinatorRequest(key_type=0, coordinator_keys=["k" * 30_000] * 300)
        tasks = [
            asyncio.ensure_future(connection.exchange(request, deadline_ms=1e9, version=4))
            for request in (large, FindCoordinatorRequest(coordinator_keys=["small"]))
        ]
        while received < 9_000_000:
            await asyncio.sleep(0.001)
        connection.close("the test is over")
        for task in tasks:
            with pytest.raises(LinkError, match="the test is over"):
                await task
        await ended.wait()
        server.close()

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("is_answered", [False, True])
def test_what_is_given_up_does_not_arrive_later(is_answered: bool) -> None:
    """A marker would come behind its repetition, and end the next transaction of its producer."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            here = socket.create_connection(listening.getsockname())
            there, _ = listening.accept()
        endpoint = Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=here.getpeername()[1])
        with there:
            connection = connected(PlainTransport.over(here), endpoint)
            asked = asyncio.ensure_future(
                connection.exchange(FindCoordinatorRequest(coordinator_keys=["k"]), deadline_ms=1e9, version=4)
            )
            await asyncio.sleep(0)
            assert there.recv(65536)
            if is_answered:
                there.sendall(struct.pack(">iix", 5, 1))
                await asked
            connection.close("the test is over")
            if is_answered:
                assert there.recv(1) == b""
            else:
                with pytest.raises(LinkError):
                    await asked
                with pytest.raises(ConnectionResetError):
                    there.recv(1)

    asyncio.run(main())


def test_a_connection_is_logged_in_before_it_is_used_and_a_refused_login_is_told() -> None:
    async def scenario(broker: Broker) -> None:
        logins = 0

        async def login(connection: ClientConnection, deadline_ms: float) -> None:
            nonlocal logins
            logins += 1
            assert FIND_COORDINATOR in connection.versions
            assert not broker.asked
            if logins == 1:
                raise LinkError("the broker refuses the login of User:one")

        endpoint = Endpoint(listener="SASL_PLAINTEXT", host="127.0.0.1", port=broker.port)
        client = BrokerClient(endpoint, OPTIONS, broker.clock, broker.timers, login)
        with pytest.raises(LinkError, match="refuses the login of User:one"):
            await ask(client)
        broker.advance(100)
        answer = ask(client)
        await broker.requests(1)
        broker.answer("in")
        assert (await answer).host == "in"
        assert logins == 2
        client.close()

    with_broker(scenario)


class Unwatchable(MeasuredTransport):
    """A transport whose socket the loop does not take."""

    def fileno(self) -> int:
        return -1


@pytest.mark.parametrize("wrong", ["host", "transport", "login"])
def test_whatever_keeps_a_connection_from_being_opened_its_callers_get_a_link_error(wrong: str) -> None:
    async def scenario(broker: Broker) -> None:
        async def secure(sock: socket.socket, host: str) -> Transport:
            assert isinstance(sock, PlainTransport)
            secured.append(sock)
            return Unwatchable(sock, lambda ns: None) if wrong == "transport" else sock

        async def login(connection: ClientConnection, deadline_ms: float) -> None:
            raise RuntimeError("can't start new thread")

        secured: list[socket.socket] = []
        host = "no-name" * 10 if wrong == "host" else "127.0.0.1"
        endpoint = Endpoint(listener="SASL_SSL", host=host, port=broker.port)
        client = BrokerClient(endpoint, OPTIONS, broker.clock, broker.timers, login, secure)
        with pytest.raises(LinkError, match=f"broker at {host}:{broker.port} cannot be reached: "):
            await ask(client)
        assert all(sock.fileno() == -1 for sock in secured)
        client.close()

    with_broker(scenario)


def test_who_waits_for_a_connection_is_told_that_the_client_is_closed_and_not_cancelled() -> None:
    async def scenario(broker: Broker) -> None:
        for turns in range(12):  # from before the connection is begun until after it is open
            client = broker.client()
            waiting = ask(client)
            for _ in range(turns):
                await asyncio.sleep(0)
            client.close()
            with pytest.raises(LinkError, match="the client is closed"):
                await waiting
            assert client._connection is None or client._connection.closed

    with_broker(scenario)


@pytest.mark.parametrize("closed", [False, True])
def test_who_is_cancelled_in_the_turn_in_which_a_connection_is_late_or_closed_ends(closed: bool) -> None:
    """It would go on for ever if it took that for a request to send again."""

    async def scenario(broker: Broker) -> None:
        client = broker.client()
        waiting = ask(client)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert client._opening is not None
        if closed:
            client.close()
            while not client._opening.cancelled():
                await asyncio.sleep(0)
        else:
            broker.advance(60_000)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        client.close()

    with_broker(scenario)


@pytest.mark.parametrize("size", [10, 300_000, 2_000_000])
def test_answers_of_any_size_arrive_whole_and_in_order(size: int) -> None:
    async def scenario(broker: Broker) -> None:
        client = broker.client()
        waiting = [ask(client) for _ in range(4)]
        hosts = ["a", "b" * min(size, 32_000), "c", "d"]
        for host in hosts:
            await broker.requests(1)
            connection, version, correlation_id = broker.asked.pop(0)
            response = FindCoordinatorResponse(host=host, error_message=None)
            frame = bytearray(encode_response(FIND_COORDINATOR, version, correlation_id, response))
            frame += bytes(size)  # what is left over is ignored
            frame[:4] = (len(frame) - 4).to_bytes(4, "big")
            connection.reply(bytes(frame))
        assert [(await answer).host for answer in waiting] == hosts
        client.close()

    with_broker(scenario)


def test_nothing_is_asked_through_a_closed_client() -> None:
    async def scenario(broker: Broker) -> None:
        client = broker.client()
        waiting = ask(client)
        await broker.requests(1)
        client.close()
        with pytest.raises(LinkError, match="the client is closed"):
            await waiting
        with pytest.raises(LinkError, match="the client is closed"):
            await ask(client)

    with_broker(scenario)
