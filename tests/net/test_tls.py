"""Connections over TLS, over real sockets: what the rules of a transport mean for OpenSSL."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import cycle
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from kafkad.net.connection import Connection
from kafkad.net.reply import Pending, Reply
from kafkad.net.server import SHARED_BYTES, Limits, Listener, Server
from kafkad.net.tls import ServerTls, TlsLayer, TlsTransport
from kafkad.net.tls import connect as connect_tls
from kafkad.net.transport import has_more, hung_up
from tests.certificates import DAY, Authority, client_context, server_context
from tests.net.serving import Handle, Serving, echo, frame, holding, read_frame, serving
from tests.net.test_connection import OpenFile, Range
from tests.net.tls_records import greeted

AUTHORITY = Authority()
SERVER = AUTHORITY.issue()
Connect = Callable[..., Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def over_tls(
    dispatch: Handle,
    scenario: Callable[[Listener, Connect], Awaitable[None]],
    limits: Limits | None = None,
    *,
    server: dict[str, Any] | None = None,
    client: dict[str, Any] | None = None,
    user_of: Callable[[bytes], str] = lambda der: "somebody",
    login: bool = False,
) -> None:
    async def main(directory: Path) -> None:
        context = server_context(SERVER, directory, num_tickets=0, **(server or {}))
        if context.verify_mode:
            context.load_verify_locations(cadata=AUTHORITY.pem)
        broker = serving(limits)
        tls = ServerTls(TlsLayer(broker.loop.call_soon), context, user_of)
        listener = broker.listen("SSL", "127.0.0.1", 0, tls=tls, login=login)
        broker.start(Serving(dispatch))
        trusting = client_context(AUTHORITY, **(client or {}))
        writers = []

        async def connect(
            context: ssl.SSLContext = trusting,
        ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection(
                "localhost", listener.port, ssl=context, limit=1 << 26, family=socket.AF_INET
            )
            writers.append(writer)
            return reader, writer

        try:
            await asyncio.wait_for(scenario(listener, connect), 60)
        finally:
            broker.close()
            for writer in writers:
                writer.transport.abort()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))


def transport_of(server: Server) -> TlsTransport:
    [connection] = server.connections()
    assert isinstance(connection._transport, TlsTransport)
    return connection._transport


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [8, 16_380, 16_385, SHARED_BYTES - 4, SHARED_BYTES, 900_000, 5_000_000])
def test_frames_of_every_size_arrive_and_their_replies_leave(size: int, version: ssl.TLSVersion) -> None:
    async def scenario(listener: Listener, connect: Connect) -> None:
        reader, writer = await connect()
        body = os.urandom(size)
        writer.write(frame(body) + frame(b"the next one"))
        assert await read_frame(reader) == body
        assert await read_frame(reader) == b"the next one"

    limits = Limits(send_buffer_bytes=16_384, receive_buffer_bytes=16_384)
    over_tls(echo, scenario, limits, client={"minimum_version": version, "maximum_version": version})


def test_many_small_requests_together_are_answered_in_their_order() -> None:
    bodies = [b"%09d" % i + bytes(i % 50) for i in range(20_000)]

    async def scenario(listener: Listener, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(b"".join(map(frame, bodies)))
        for body in bodies:
            assert await read_frame(reader) == body

    assert sum(map(len, bodies)) > SHARED_BYTES
    over_tls(echo, scenario)


def test_what_openssl_holds_back_while_the_connection_is_paused_is_read_when_it_goes_on() -> None:
    waiting: list[Connection] = []

    async def scenario(listener: Listener, connect: Connect) -> None:
        reader, writer = await connect()
        listener.shared = listener.shared[:1000]
        bodies = [bytes(500), bytes(700), b"held back", b"and more.."]
        writer.write(frame(b"wait....") + b"".join(map(frame, bodies)))
        while not waiting:
            await asyncio.sleep(0)
        assert transport_of(listener.server).pending
        waiting[0].reply(frame(b"answered"))
        assert await read_frame(reader) == b"answered"
        assert [await read_frame(reader) for _ in bodies] == bodies

    over_tls(holding(waiting), scenario)


def test_a_client_that_does_not_read_gets_everything_once_it_does() -> None:
    async def scenario(listener: Listener, connect: Connect) -> None:
        reader, writer = await connect()
        reader._limit = 1000  # type: ignore[attr-defined]
        bodies = [os.urandom(300_000) for _ in range(10)]
        for body in bodies:
            writer.write(frame(body))
        while not (listener.connections and next(iter(listener.connections.values()))._out):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        for body in bodies:
            assert await read_frame(reader) == body

    over_tls(echo, scenario, Limits(send_buffer_bytes=16_384))


def test_ranges_of_files_are_encrypted() -> None:
    with tempfile.TemporaryFile() as file:
        data = os.urandom(1_500_000)
        file.write(data)
        file.flush()
        opened = OpenFile(file.fileno())
        large = os.urandom(200_000)
        expected = b"abc" + data[100:1_000_100] + data[7:10_007] + b"xyz" + large + data[:300_000] + b"!"

        def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
            head = struct.pack(">i", len(expected)) + b"abc"
            ranges = Range(opened, 100, 1_000_000), Range(opened, 7, 10_000), Range(opened, 0, 300_000)
            return [head, ranges[0], ranges[1], b"xyz", large, ranges[2], b"!"]

        async def scenario(listener: Listener, connect: Connect) -> None:
            reader, writer = await connect()
            writer.write(frame(b"one.....") + frame(b"two....."))
            for _ in range(2):
                assert await read_frame(reader) == expected

        over_tls(dispatch, scenario)
        over_tls(dispatch, scenario, Limits(send_buffer_bytes=16_384))


def test_what_is_encrypted_and_not_read_counts_among_the_unread_replies() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(10_000_000)
        range_ = Range(OpenFile(file.fileno()), 0, 10_000_000)

        def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
            return [struct.pack(">i", 10_000_000), range_]

        async def scenario(listener: Listener, connect: Connect) -> None:
            queued = listener.server.queued
            reader, writer = await connect()
            transport = cast(asyncio.Transport, writer.transport)
            transport.pause_reading()
            writer.write(frame(b"give me."))
            while not queued._unread:
                await asyncio.sleep(0)
            [connection] = queued._unread
            assert isinstance(connection, Connection)
            assert queued._all_unread >= connection._transport.unsent > 0
            transport.resume_reading()
            assert len(await read_frame(reader)) == 10_000_000
            while queued._unread:
                await asyncio.sleep(0)
            assert queued._all_unread == 0

        over_tls(dispatch, scenario, Limits(send_buffer_bytes=16_384))


def test_a_file_that_ends_too_early_closes_the_connection() -> None:
    with tempfile.TemporaryFile() as file:
        opened = OpenFile(file.fileno())

        def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
            return [struct.pack(">i", 100_000), Range(opened, 0, 100_000)]

        async def scenario(listener: Listener, connect: Connect) -> None:
            reader, writer = await connect()
            writer.write(frame(b"give me."))
            assert await reader.read() == struct.pack(">i", 100_000)

        over_tls(dispatch, scenario)


def test_buffers_are_shared_and_left_empty() -> None:
    """One client's broken records must not reach another."""

    async def scenario(listener: Listener, connect: Connect) -> None:
        assert listener.tls is not None
        layer = listener.tls.layer
        one, other = await connect(), await connect()
        for reader, writer in (one, other):
            writer.write(frame(bytes(700_000)))
            assert await read_frame(reader) == bytes(700_000)
        os.write(one[1].get_extra_info("socket").fileno(), b"\x17\x03\x03\x00\x20" + bytes(400))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            assert await one[0].read() == b""
            raise ConnectionError
        assert not layer.incoming.pending
        assert not layer.outgoing.pending
        other[1].write(frame(b"and still"))
        assert await read_frame(other[0]) == b"and still"
        assert listener.server.total == 1

    over_tls(echo, scenario)


def test_a_client_that_says_it_is_done_has_its_last_request_answered() -> None:
    answered: list[bytes] = []

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply | Pending | None:
        answered.append(bytes(view[at:end]))
        return echo(connection, view, at, end)

    async def scenario(listener: Listener, connect: Connect) -> None:
        _, writer = await connect()
        writer.write(frame(b"the last"))
        writer.close()
        while listener.open:
            await asyncio.sleep(0.001)
        assert answered == [b"the last"]

    over_tls(dispatch, scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_connection_that_is_reset_while_its_request_waits_has_lost_its_client(version: ssl.TLSVersion) -> None:
    """A large one: it has been received where it stays."""
    waiting: list[Connection] = []

    async def scenario(listener: Listener, _: Connect) -> None:
        loop = asyncio.get_running_loop()
        sock = socket.create_connection(("127.0.0.1", listener.port))
        sock.setblocking(False)
        trusting = client_context(AUTHORITY, minimum_version=version, maximum_version=version)
        client = await connect_tls(TlsLayer(loop.call_soon), trusting, sock, "localhost")
        request, sent = frame(b"w" * 100_000), 0
        while not waiting:
            if sent < len(request):
                with contextlib.suppress(BlockingIOError):
                    sent += client.send(request[sent:])
            await asyncio.sleep(0)
        [connection] = waiting
        assert not connection.has_lost_client()
        connection._pause()
        client.abort()
        while not connection.has_lost_client():
            await asyncio.sleep(0)
        assert not connection.closed

    over_tls(holding(waiting), scenario)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("left_over", [b"", b"and this one is still to be done", bytes(500)])
def test_a_client_that_has_gone_while_it_is_not_read_is_noticed(version: ssl.TLSVersion, left_over: bytes) -> None:
    """It has said so, in a record like any other. Nothing is lost of what it sent before that."""
    served: list[bytes] = []

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply | Pending | None:
        served.append(bytes(view[at:end]))
        connection.mute(3_600_000)
        return echo(connection, view, at, end)

    async def scenario(listener: Listener, _: Connect) -> None:
        server, loop = listener.server, asyncio.get_running_loop()
        sock = socket.create_connection(("127.0.0.1", listener.port))
        sock.setblocking(False)
        trusting = client_context(AUTHORITY, minimum_version=version, maximum_version=version)
        client = await connect_tls(TlsLayer(loop.call_soon), trusting, sock, "localhost")
        client.send(frame(b"mute me."))
        await received(client)
        [connection] = server.connections()
        assert not connection.is_forsaken()
        if left_over:
            client.send(frame(left_over))
        client.close()
        assert [connection.is_forsaken() for _ in range(2)] == [not left_over] * 2
        assert server.close_idle(tick=9, oldest_allowed=0) == int(not left_over)
        if left_over:
            connection.unmute()
            while len(served) < 2:
                await asyncio.sleep(0)
            assert served[1] == left_over
            assert server.close_idle(tick=18, oldest_allowed=0) == 1

    over_tls(dispatch, scenario)


def test_what_a_client_that_has_gone_left_to_a_muted_connection_keeps_it_no_longer_than_an_idle_one() -> None:
    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply | Pending | None:
        connection.mute(3_600_000)
        return echo(connection, view, at, end)

    async def scenario(listener: Listener, connect: Connect) -> None:
        server = listener.server
        reader, writer = await connect()
        writer.write(frame(b"mute me."))
        assert await read_frame(reader) == b"mute me."
        writer.write(frame(bytes(20_000)))
        writer.transport.abort()  # without a word, which would be waited for
        [connection] = server.connections()
        while not hung_up([connection.fd]):
            await asyncio.sleep(0)
        assert server.close_idle(tick=100, oldest_allowed=90) == 0
        assert server.close_idle(tick=110, oldest_allowed=100) == 0
        assert server.close_idle(tick=111, oldest_allowed=101) == 1

    over_tls(dispatch, scenario)


async def received(client: TlsTransport) -> int:
    view = memoryview(bytearray(1_000))
    while True:
        try:
            return client.recv_into(view)
        except BlockingIOError:
            await asyncio.sleep(0)


def test_the_server_says_that_it_closes() -> None:
    async def scenario(listener: Listener, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(frame(b"question"))
        assert await read_frame(reader) == b"question"
        listener.server.close()
        assert await reader.read() == b""
        assert writer.transport.get_extra_info("ssl_object") is not None

    over_tls(echo, scenario)


def test_nothing_is_said_to_a_client_that_left_without_a_word() -> None:
    """It would cost a twentieth of a short connection, and be answered by a reset."""

    async def scenario(listener: Listener, connect: Connect) -> None:
        client, _ = await greeted(listener.port, AUTHORITY)
        with client:
            client.setblocking(False)
            client.shutdown(socket.SHUT_WR)
            assert await asyncio.get_running_loop().sock_recv(client, 100) == b""

    over_tls(echo, scenario)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_client_may_change_its_keys() -> None:
    async def scenario(listener: Listener, connect: Connect) -> None:
        client = await asyncio.create_subprocess_exec(
            *("openssl", "s_client", "-connect", f"127.0.0.1:{listener.port}", "-tls1_3"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert client.stdin is not None
        assert client.stdout is not None
        try:
            for text in (b"before it", b"after it!", b"and again"):
                client.stdin.write(frame(text))
                await client.stdout.readuntil(frame(text))
                await asyncio.sleep(0.02)  # a command is a read of its own
                client.stdin.write(b"K\n")
                await client.stdout.readuntil(b"KEYUPDATE")
                await asyncio.sleep(0.02)
        finally:
            client.kill()
            await client.wait()

    over_tls(echo, scenario)


def test_who_has_keys_changed_without_end_and_does_not_read_is_closed() -> None:
    async def scenario(listener: Listener, connect: Connect) -> None:
        client, records = await greeted(listener.port, AUTHORITY)
        with client:
            client.sendall(records.data(frame(b"question")))
            updates = b"".join(records.key_update() for _ in range(20_000))
            sending = asyncio.create_task(asyncio.to_thread(client.sendall, updates))
            while listener.connections:
                await asyncio.sleep(0.001)
            with contextlib.suppress(OSError):
                await sending

    over_tls(echo, scenario, Limits(send_buffer_bytes=32 * 1024))


def test_nothing_but_changes_of_keys_ends_the_connection_and_does_not_take_the_loop() -> None:
    async def scenario(listener: Listener, connect: Connect) -> None:
        client, records = await greeted(listener.port, AUTHORITY)
        with client:
            while not listener.connections:
                await asyncio.sleep(0.001)
            [connection] = listener.connections.values()
            client.sendall(b"".join(records.key_update(asked=False) for _ in range(5_000)))
            began = time.process_time()
            while listener.connections:
                connection.on_readable()
                await asyncio.sleep(0)
            assert time.process_time() - began < 0.15

    over_tls(echo, scenario)


def test_keys_may_change_as_often_as_there_is_data() -> None:
    async def scenario(listener: Listener, connect: Connect) -> None:
        loop = asyncio.get_running_loop()
        client, records = await greeted(listener.port, AUTHORITY)
        with client:
            client.setblocking(False)
            question = frame(b"question")
            sent = [(records.data(question), records.key_update()) for _ in range(4_000)]
            sending = loop.create_task(loop.sock_sendall(client, b"".join(map(b"".join, sent))))
            answered = 0
            while answered < 4_000 * len(sent[0][0]):
                answered += len(await loop.sock_recv(client, 1 << 20))
            await sending
            assert listener.connections

    over_tls(echo, scenario)


def test_small_records_of_all_connections_share_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clients, updates, seconds_each = 20, 300, 12e-6
    opened = 0
    open_ = TlsTransport._opened

    def counted(transport: TlsTransport, view: memoryview, filled: int) -> int:
        nonlocal opened
        opened += transport._layer.incoming.pending // len(update)
        return open_(transport, view, filled)

    async def scenario(listener: Listener, connect: Connect) -> None:
        nonlocal opened
        assert listener.tls is not None
        layer = listener.tls.layer
        layer.clock = lambda: opened * seconds_each
        loop = asyncio.get_running_loop()
        question = frame(b"question")
        with contextlib.ExitStack() as sockets:
            streams = []
            for _ in range(clients):
                client, records = await greeted(listener.port, AUTHORITY)
                sockets.enter_context(client).setblocking(False)
                stream = b"".join(records.key_update(asked=False) for _ in range(updates)) + records.data(question)
                streams.append((client, stream))
            while len(listener.connections) < clients:
                await asyncio.sleep(0.001)
            opened = 0
            for client, stream in streams:
                assert client.send(stream) == len(stream)
            answers = asyncio.gather(*(loop.sock_recv(client, 1) for client, _ in streams))
            longest = 0
            while not answers.done():
                before = opened
                await asyncio.sleep(0)
                longest = max(longest, opened - before)
            assert all(answers.result())
            assert opened >= clients * updates
            assert longest < clients * 2 * 4 + 0.002 / seconds_each + 100
            assert layer.kept == 0

    update = b"x" * 27
    monkeypatch.setattr(TlsTransport, "_opened", counted)
    over_tls(echo, scenario)


def test_records_may_come_in_pieces_of_any_size() -> None:
    async def scenario(listener: Listener, connect: Connect) -> None:
        loop = asyncio.get_running_loop()
        client, records = await greeted(listener.port, AUTHORITY)
        with client:
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            bodies = [b"question %d" % number for number in range(8)]
            stream = b"".join(records.data(frame(body)) + records.key_update(asked=False) for body in bodies)
            at = 0
            for size in cycle((1, 2, 3, 4, 5, 6, 41)):
                await loop.sock_sendall(client, stream[at : at + size])
                await asyncio.sleep(0.0005)
                at += size
                if at >= len(stream):
                    break
            while len(asked) < len(bodies):
                await asyncio.sleep(0.001)
            assert asked == bodies

    asked: list[bytes] = []

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> None:
        asked.append(bytes(view[at:end]))

    over_tls(dispatch, scenario)


# -- handshakes --------------------------------------------------------------------------------------------------------


def test_a_certificate_names_its_user() -> None:
    async def scenario(listener: Listener, connect: Connect) -> None:
        with tempfile.TemporaryDirectory() as directory:
            alice = AUTHORITY.issue("alice", names=())
            await connect(client_context(AUTHORITY, alice, Path(directory)))
            while not listener.connections:
                await asyncio.sleep(0.001)
            [connection] = listener.connections.values()
            assert connection.subject == f"{len(alice.der)} bytes"
            await connect()
            while len(listener.connections) < 2:
                await asyncio.sleep(0.001)
            assert [c.subject for c in listener.connections.values()][1] is None

    over_tls(echo, scenario, server={"verify_mode": ssl.CERT_OPTIONAL}, user_of=lambda der: f"{len(der)} bytes")


STRANGER = Authority("Somebody else")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(lambda: None, id="none"),
        pytest.param(lambda: STRANGER.issue("alice"), id="of a stranger"),
        pytest.param(lambda: AUTHORITY.issue("alice", since=-9 * DAY, until=-DAY), id="expired"),
        pytest.param(lambda: AUTHORITY.issue("alice", since=DAY), id="not yet"),
        pytest.param(lambda: AUTHORITY.issue("alice", usages=[ExtendedKeyUsageOID.SERVER_AUTH]), id="for servers only"),
    ],
)
def test_a_client_without_a_good_certificate_is_turned_away(
    refused: Callable[[], Any], version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(listener: Listener, connect: Connect) -> None:
        with tempfile.TemporaryDirectory() as directory:
            only = {"minimum_version": version, "maximum_version": version}
            context = client_context(AUTHORITY, refused(), Path(directory), **only)
            with pytest.raises((ssl.SSLError, ConnectionError)):
                reader, _ = await connect(context)
                await reader.readexactly(1)
        assert listener.open == listener.server.total == len(listener.lobby) == 0
        assert not listener.server.per_ip
        assert listener.tls is not None
        assert (listener.tls.handshakes, listener.tls.failed) == (0, 1)

    caplog.set_level("INFO")
    over_tls(echo, scenario, server={"verify_mode": ssl.CERT_REQUIRED})
    assert "listener SSL: TLS with 127.0.0.1:" in caplog.text


def test_a_certificate_that_names_nobody_ends_the_connection() -> None:
    def nobody(der: bytes) -> str:
        raise ValueError("no rule fits CN=alice")

    async def scenario(listener: Listener, connect: Connect) -> None:
        with tempfile.TemporaryDirectory() as directory:
            reader, _ = await connect(client_context(AUTHORITY, AUTHORITY.issue("alice"), Path(directory)))
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            assert not listener.open

    over_tls(echo, scenario, server={"verify_mode": ssl.CERT_REQUIRED}, user_of=nobody)


def plain(listener: Listener) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", listener.port))
    sock.setblocking(False)
    return sock


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it begins as HTTP does, without TLS"),
        (frame(b"\0\x12\0\0\0\0\0\7"), "it does not begin as TLS does (its security.protocol?)"),
        (bytes(100_000), "it does not begin as TLS does (its security.protocol?)"),
        (b"", "the client closed the connection"),
    ],
)
def test_what_is_no_greeting_ends_the_connection(data: bytes, why: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(listener: Listener, connect: Connect) -> None:
        sock, loop = plain(listener), asyncio.get_running_loop()
        await loop.sock_sendall(sock, data)
        if not data:
            sock.shutdown(socket.SHUT_WR)
        try:
            while await loop.sock_recv(sock, 1000):
                pass  # an alert
        except ConnectionError:
            pass
        assert not listener.open
        sock.close()

    caplog.set_level("INFO")
    over_tls(echo, scenario)
    assert f" failed: {why}\n" in caplog.text


def test_a_greeting_is_bounded() -> None:
    """A record that goes on for ever is not kept for ever."""

    async def scenario(listener: Listener, connect: Connect) -> None:
        sock, loop = plain(listener), asyncio.get_running_loop()
        hello = b"\x01" + (200_000).to_bytes(3, "big") + bytes(16_380)  # a message of 200,000 bytes in many records
        with pytest.raises(ConnectionError):
            while True:
                await loop.sock_sendall(sock, b"\x16\x03\x01" + len(hello).to_bytes(2, "big") + hello)
                await asyncio.sleep(0.001)
        sock.close()

    over_tls(echo, scenario)


def test_whoever_is_slow_is_closed_at_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(listener: Listener, connect: Connect) -> None:
        silent, trickling = plain(listener), plain(listener)
        loop, started = asyncio.get_running_loop(), time.monotonic()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        hello = client_context(AUTHORITY).wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            hello.do_handshake()

        async def trickle() -> None:
            for byte in outgoing.read():
                await loop.sock_sendall(trickling, bytes([byte]))
                await asyncio.sleep(0.01)

        task = asyncio.ensure_future(trickle())
        assert await loop.sock_recv(silent, 1) == b""
        assert 0.14 < time.monotonic() - started < 5
        with pytest.raises(ConnectionError):
            await task
        assert not listener.open
        assert listener.lobby.late == 2
        silent.close()
        trickling.close()

    caplog.set_level("INFO")
    over_tls(echo, scenario, Limits(setup_ms=150))
    assert "not authenticated after 0.15 s" in caplog.text


def test_after_its_handshake_a_connection_has_all_the_time_unless_it_has_to_log_in() -> None:
    async def scenario(listener: Listener, connect: Connect) -> None:
        reader, writer = await connect()
        await asyncio.sleep(0.3)
        writer.write(frame(b"question"))
        if listener.login:
            assert await reader.read() == b""
        else:
            assert await read_frame(reader) == b"question"

    async def logs_in(listener: Listener, connect: Connect) -> None:
        reader, writer = await connect()
        while not listener.connections:
            await asyncio.sleep(0.001)
        listener.logged_in(*listener.connections.values())
        await asyncio.sleep(0.3)
        writer.write(frame(b"question"))
        assert await read_frame(reader) == b"question"

    over_tls(echo, scenario, Limits(setup_ms=250))
    over_tls(echo, scenario, Limits(setup_ms=250), login=True)
    over_tls(echo, logs_in, Limits(setup_ms=250), login=True)


def test_silent_clients_make_room_and_others_are_turned_away_meanwhile() -> None:
    async def scenario(listener: Listener, connect: Connect) -> None:
        loop = asyncio.get_running_loop()
        silent = [plain(listener) for _ in range(3)]
        while listener.open < 3:
            await asyncio.sleep(0.001)
        with pytest.raises(ConnectionError):
            await connect()
        assert listener.server.refused == 1
        await asyncio.sleep(1.05)
        reader, writer = await connect()
        writer.write(frame(b"question"))
        assert await read_frame(reader) == b"question"
        assert await loop.sock_recv(silent[0], 1) == b""
        assert (listener.lobby.displaced, listener.open) == (1, 3)
        for sock in silent:
            sock.close()

    over_tls(echo, scenario, Limits(max_unauthenticated_per_ip=3))


def test_strangers_at_one_listener_keep_nobody_out_of_another() -> None:
    """All listeners together hold no more of what strangers send."""

    async def main() -> None:
        server = serving(Limits(max_unauthenticated=3, max_unauthenticated_per_ip=3, queued_bytes=80_000))
        public, between, _ = [server.listen(name, "127.0.0.1", 0, login=name != "OPEN") for name in ("A", "B", "OPEN")]
        server.start(Serving(echo))
        strangers = [plain(public) for _ in range(3)]
        while public.open < 3:
            await asyncio.sleep(0.001)
        reader, writer = await asyncio.open_connection("127.0.0.1", between.port)
        writer.write(frame(b"question"))
        assert await asyncio.wait_for(read_frame(reader), 10) == b"question"
        assert (public.open, between.open) == (3, 1)
        assert public.lobby.most_bytes + between.lobby.most_bytes == 20_000
        server.apply(Limits(max_unauthenticated=7, max_unauthenticated_per_ip=5))
        assert [(each.lobby.most, each.lobby.most_of_host) for each in (public, between)] == [(7, 5)] * 2
        writer.close()
        for stranger in strangers:
            stranger.close()
        server.close()

    asyncio.run(main())


def test_a_crowd_that_comes_back_at_once_gets_in() -> None:
    async def scenario(listener: Listener, connect: Connect) -> None:
        async def come_back() -> None:
            reader, writer = await connect()
            writer.write(frame(b"question"))
            assert await read_frame(reader) == b"question"

        await asyncio.gather(*(come_back() for _ in range(60)))
        assert listener.tls is not None
        assert (listener.tls.handshakes, listener.tls.failed, len(listener.lobby)) == (60, 0, 0)

    over_tls(echo, scenario, Limits(max_unauthenticated=20))


def test_the_first_request_may_come_with_the_end_of_the_handshake() -> None:
    async def scenario(listener: Listener, connect: Connect) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context(AUTHORITY).wrap_bio(incoming, outgoing, server_hostname="localhost")
        sock, loop = plain(listener), asyncio.get_running_loop()
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                if outgoing.pending:
                    await loop.sock_sendall(sock, outgoing.read())
                incoming.write(await loop.sock_recv(sock, 100_000))
        client.write(frame(b"together"))
        await loop.sock_sendall(sock, outgoing.read())
        incoming.write(await loop.sock_recv(sock, 100_000))
        assert client.read(100) == frame(b"together")
        sock.close()

    over_tls(echo, scenario)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [3, 1200], ids=["not even its size", "half of it"])
def test_a_connection_does_not_leave_amid_a_record(size: int, version: ssl.TLSVersion) -> None:
    """Neither the kernel nor the connection has anything of the request that has begun to arrive."""

    async def scenario(listener: Listener, connect: Connect) -> None:
        loop = asyncio.get_running_loop()
        trusting = client_context(AUTHORITY, minimum_version=version, maximum_version=version)
        with plain(listener) as sock:
            layer = TlsLayer(loop.call_soon)
            client = await connect_tls(layer, trusting, sock, "localhost")
            while not listener.connections:
                await asyncio.sleep(0)
            [connection] = listener.connections.values()
            request = frame(b"x" * 2000)
            client._tls.write(request)
            record = layer.outgoing.read()
            await loop.sock_sendall(sock, record[:size])
            while has_more(connection.fd) or not transport_of(listener.server).has_part:
                await asyncio.sleep(0)
            connection.leave()
            assert not connection.closed
            await loop.sock_sendall(sock, record[size:])
            layer.incoming.write(await loop.sock_recv(sock, 100_000))
            assert client._tls.read(100_000) == request
            connection.leave()
            assert connection.closed

    over_tls(echo, scenario)


def test_handshakes_take_turns_with_the_rest() -> None:
    """In each turn of the loop they have no more than their share."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        now = 0.0
        layer = TlsLayer(loop.call_soon, lambda: now)
        done: list[int] = []

        def step(number: int) -> None:
            nonlocal now
            done.append(number)
            now += 0.0004

        for number in range(7):
            layer.queue(lambda number=number: step(number))  # type: ignore[misc]
        counts = []
        for _ in range(5):
            await asyncio.sleep(0)
            counts.append(len(done))
        assert counts == [3, 6, 7, 7, 7]
        assert done == sorted(done)

    asyncio.run(main())
