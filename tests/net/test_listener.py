"""Connections that are accepted, refused, or closed for being idle."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest

from kafkad.net.connection import Connection
from kafkad.net.reply import Reply
from kafkad.net.server import Limits, Server
from kafkad.net.transport import hung_up
from tests.net.serving import Peer, Serving, echo, frame, holding, read_frame, run, serving


async def assert_next_waits_for(
    first: asyncio.StreamWriter, server: Server, connect: Callable[[], Awaitable[Peer]], count: int
) -> None:
    """Whoever connects now is let in when `first` goes; until then there are `count`."""
    reader, writer = await connect()
    writer.write(frame(b"me too.."))
    await asyncio.sleep(0.02)
    assert server.total == count
    first.close()
    assert await read_frame(reader) == b"me too.."


@pytest.mark.parametrize("limits", [Limits(max_connections=1), Limits(max_sockets=1)])
def test_max_connections_stops_accepting_until_one_closes(limits: Limits) -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        first_reader, first_writer = await connect()
        first_writer.write(frame(b"anything"))
        assert await read_frame(first_reader) == b"anything"
        await assert_next_waits_for(first_writer, server, connect, count=1)

    run(echo, scenario, limits)


def test_max_connections_keeps_no_broker_out() -> None:
    """The client that is quiet for longest makes room; one that waits for its answer only if there is no other."""
    waiting: list[Connection] = []

    async def main() -> None:
        server = serving(Limits(max_connections=3))
        public, brokers = [server.listen(name, "127.0.0.1", 0, protected=name == "B") for name in ("A", "B")]
        server.start(Serving(holding(waiting)))
        clients: list[Peer] = []
        for tick, said in enumerate((b"wait for it", b"quiet..1", b"quiet..2")):
            server.close_idle(tick, 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", public.port)
            writer.write(frame(said))
            if said[0] != ord("w"):
                assert await read_frame(reader) == said
            clients.append((reader, writer))
        while not waiting:
            await asyncio.sleep(0)
        for gone in (1, 2, 0):
            reader, writer = await asyncio.open_connection("127.0.0.1", brokers.port)
            writer.write(frame(b"a broker"))
            assert await asyncio.wait_for(read_frame(reader), 10) == b"a broker"
            assert await asyncio.wait_for(clients[gone][0].read(), 10) == b""
            assert server.total == 3
            clients.append((reader, writer))
        for _, writer in clients:
            writer.close()
        server.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_who_does_not_read_is_not_spared_for_its_unread_reply() -> None:
    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
        return frame(bytes(16 << 20) if view[at] == ord("m") else b"little")

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        with socket.create_connection(("127.0.0.1", server.listeners[0].port)) as silent:
            silent.sendall(frame(b"much...."))
            while not server.queued._unread:
                await asyncio.sleep(0)
            server.close_idle(5, 0)
            reader, writer = await connect()
            writer.write(frame(b"a little"))
            await read_frame(reader)
            server.apply(Limits(max_connections=1))
            while server.total > 1:
                await asyncio.sleep(0)
            writer.write(frame(b"a little"))
            assert await read_frame(reader) == b"little"

    run(dispatch, scenario)


@pytest.mark.parametrize("lowered, left", [(3, 3), (1, 2)])
def test_a_limit_that_is_lowered_ends_those_that_are_quiet_for_longest(lowered: int, left: int) -> None:
    """But none of the two brokers."""

    async def main() -> None:
        server = serving()
        public, brokers = [server.listen(name, "127.0.0.1", 0, protected=name == "B") for name in ("A", "B")]
        server.start(Serving(echo))
        peers: list[Peer] = []
        for tick in range(7):
            server.close_idle(tick, 0)
            port = brokers.port if tick < 2 else public.port
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(frame(b"anything"))
            assert await read_frame(reader) == b"anything"
            peers.append((reader, writer))
        of_brokers, clients = peers[:2], peers[2:]
        server.apply(Limits(max_connections=lowered))
        assert server.total == 7, "they are ended in the lane"
        gone = clients[: 7 - left]
        assert [await reader.read() for reader, _ in gone] == [b""] * len(gone)
        assert server.total == left
        for reader, writer in (*of_brokers, *clients[len(gone) :]):
            writer.write(frame(b"still here"))
            assert await read_frame(reader) == b"still here"
        for _, writer in peers:
            writer.close()
        server.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_limit_of_one_listener_that_is_lowered_ends_nobody() -> None:
    """Nor does Kafka's: it keeps new ones out until it holds."""

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        peers = [await connect() for _ in range(3)]
        for reader, writer in peers:
            writer.write(frame(b"anything"))
            assert await read_frame(reader) == b"anything"
        server.apply(Limits(max_per_listener={"PLAINTEXT": 1}))
        for reader, writer in peers:
            writer.write(frame(b"still here"))
            assert await read_frame(reader) == b"still here"

    run(echo, scenario)


def test_strangers_at_the_listener_of_brokers_end_nobody_s_connection() -> None:
    async def main() -> None:
        server = serving(Limits(max_connections=1))
        public = server.listen("A", "127.0.0.1", 0)
        brokers = server.listen("B", "127.0.0.1", 0, protected=True, login=True)
        server.start(Serving(echo))
        reader, writer = await asyncio.open_connection("127.0.0.1", public.port)
        strangers = [await asyncio.open_connection("127.0.0.1", brokers.port) for _ in range(3)]
        while brokers.open < 3:
            await asyncio.sleep(0)
        writer.write(frame(b"still here"))
        assert await read_frame(reader) == b"still here"
        brokers.logged_in(next(iter(brokers.connections.values())))
        assert await asyncio.wait_for(reader.read(), 10) == b""
        for _, each in [(reader, writer), *strangers]:
            each.close()
        server.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_no_stranger_is_ended_for_a_broker_at_the_limit() -> None:
    """It would not make room."""

    async def main() -> None:
        server = serving(Limits(max_connections=1))
        public = server.listen("A", "127.0.0.1", 0, login=True)
        brokers = server.listen("B", "127.0.0.1", 0, protected=True)
        server.start(Serving(echo))
        stranger = await asyncio.open_connection("127.0.0.1", public.port)
        client = await asyncio.open_connection("127.0.0.1", public.port)
        while public.open < 2:
            await asyncio.sleep(0)
        silent, active = public.connections.values()
        silent.last_active -= 1000
        public.logged_in(active)
        broker = await asyncio.open_connection("127.0.0.1", brokers.port)
        assert await client[0].read() == b""
        assert (silent.closed, server.known) == (False, 1)
        for _, each in (stranger, client, broker):
            each.close()
        server.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_sockets_that_wait_to_be_turned_away_take_descriptors_too() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        held, other = socket.socketpair()
        other.close()
        server.hold(held, 3_600_000)
        reader, writer = await connect()
        writer.write(frame(b"me too.."))
        while server.listeners[0]._accepting:
            await asyncio.sleep(0)
        assert server.total == 0
        server._turn_away(held)
        assert await read_frame(reader) == b"me too.."

    run(echo, scenario, Limits(max_sockets=1))


def test_a_crowd_that_connects_while_the_loop_is_busy_is_not_turned_away() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        crowd = [socket.create_connection(("127.0.0.1", server.listeners[0].port), timeout=30) for _ in range(300)]
        try:
            while server.total < len(crowd):
                await asyncio.sleep(0)
        finally:
            for sock in crowd:
                sock.close()

    run(echo, scenario)


def test_a_listener_may_have_a_limit_of_its_own() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        _, first_writer = await connect()
        other = server.listen("OTHER", "127.0.0.1", 0)
        other.start(Serving(echo))
        reader, writer = await asyncio.open_connection("127.0.0.1", other.port)
        writer.write(frame(b"anything"))
        assert await read_frame(reader) == b"anything"
        await assert_next_waits_for(first_writer, server, connect, count=2)
        writer.close()

    run(echo, scenario, Limits(max_per_listener={"PLAINTEXT": 1}))


def test_a_listener_apart_lets_in_and_reads_though_the_others_are_full() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        _, writer = await connect()
        apart = server.listen("CONTROL", "127.0.0.1", 0, apart=True)
        apart.start(Serving(echo))
        writer.write(frame(bytes(100))[:50])  # the rest does not come
        while not server.queued.full:
            await asyncio.sleep(0.001)
        other_reader, other = await asyncio.open_connection("127.0.0.1", apart.port)
        other.write(frame(b"anything"))
        assert await read_frame(other_reader) == b"anything"
        assert not apart.queued.full
        assert len(apart.shared) > len(server.listeners[0].shared)
        other.close()

    run(echo, scenario, Limits(max_connections=1, queued_bytes=1))


def test_an_ipv4_peer_has_its_address_on_a_listener_for_both() -> None:
    async def scenario() -> None:
        server = serving(Limits(max_per_ip=0, per_ip_overrides={"127.0.0.1": 1}))
        listener = server.listen("PLAINTEXT", "", 0)
        server.start(Serving(echo))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(frame(b"let in.."))
            assert await read_frame(reader) == b"let in.."
            assert [connection.host for connection in server.connections()] == ["127.0.0.1"]
            writer.close()
        finally:
            server.close()

    asyncio.run(scenario())


def test_a_peer_is_made_when_a_connection_opens_and_told_once_when_it_closes() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        reader, writer = await connect()
        writer.write(frame(b"anything"))
        assert await read_frame(reader) == b"anything"
        [connection] = server.connections()
        serving = connection.peer
        assert (serving.made, serving.closed_peers) == ([connection], 0)
        writer.close()
        while not connection.closed:
            await asyncio.sleep(0)
        connection.close()
        assert serving.closed_peers == 1

    run(echo, scenario)


def test_max_connections_per_ip_closes_the_new_one() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        first_reader, first_writer = await connect()
        first_writer.write(frame(b"anything"))
        assert await read_frame(first_reader) == b"anything"
        second_reader, _ = await connect()
        assert await second_reader.read() == b""
        first_writer.write(frame(b"still here"))
        assert await read_frame(first_reader) == b"still here"

    run(echo, scenario, Limits(max_per_ip=1))


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_what_stays_on_this_machine_is_not_paced(address: str) -> None:
    async def scenario() -> None:
        server = serving()
        listener = server.listen("PLAINTEXT", "", 0)
        server.start(Serving(echo))
        try:
            reader, writer = await asyncio.open_connection(address, listener.port)
            writer.write(frame(b"8 bytes!"))
            await read_frame(reader)
            [connection] = server.connections()
            with socket.socket(fileno=os.dup(connection.fd)) as sock:
                control = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            assert control.rstrip(b"\0") == b"reno"
            writer.close()
        finally:
            server.close()

    asyncio.run(scenario())


def test_idle_connections_are_closed_whatever_they_wait_for() -> None:
    waiting: list[Connection] = []

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        idle_reader, _ = await connect()
        busy_reader, busy_writer = await connect()
        busy_writer.write(frame(b"wait...."))
        active_reader, active_writer = await connect()
        active_writer.write(frame(b"wait too"))
        while server.total < 3 or len(waiting) < 2:
            await asyncio.sleep(0)
        assert server.close_idle(tick=9, oldest_allowed=0) == 0
        [answered] = [each for each in waiting if each.port == active_writer.get_extra_info("sockname")[1]]
        answered.reply(frame(b"answered"))
        assert server.close_idle(tick=10, oldest_allowed=5) == 2
        assert (await idle_reader.read(), await busy_reader.read()) == (b"", b"")
        assert await read_frame(active_reader) == b"answered"
        assert server.total == 1

    run(holding(waiting), scenario)


def test_a_reply_that_is_being_read_keeps_its_connection_and_one_that_is_not_does_not() -> None:
    size = 16 << 20

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
        return frame(bytes(size))

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            socks = [
                stack.enter_context(socket.create_connection(("127.0.0.1", server.listeners[0].port))) for _ in range(2)
            ]
            for sock in socks:
                sock.setblocking(False)
                await loop.sock_sendall(sock, frame(b"send much"))
            while server.total < 2 or any(connection.quiet for connection in server.connections()):
                await asyncio.sleep(0)
            server.close_idle(tick=10, oldest_allowed=0)
            left = size // 2
            while left > 0:
                left -= len(await loop.sock_recv(socks[0], 1 << 20))
            assert server.close_idle(tick=11, oldest_allowed=5) == 1
            [kept] = server.connections()
            assert kept.port == socks[0].getsockname()[1]

    run(dispatch, scenario)


def test_a_client_that_has_gone_while_its_request_waits_is_noticed() -> None:
    waiting: list[Connection] = []

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        _, gone = await connect()
        gone.write(frame(b"wait...."))
        _, left_work = await connect()
        left_work.write(frame(b"wait too") + frame(b"and this one is still to be done"))
        _, there = await connect()
        there.write(frame(b"wait 3.."))
        while len(waiting) < 3:
            await asyncio.sleep(0)
        for writer in (gone, left_work):
            writer.close()
            await writer.wait_closed()
        while not any(connection.is_forsaken() for connection in server.connections()):
            await asyncio.sleep(0)
        assert server.close_idle(tick=1, oldest_allowed=0) == 0, "it may have come just now"
        assert server.close_idle(tick=2, oldest_allowed=0) == 1
        assert server.total == 2

    run(holding(waiting), scenario)


def test_a_connection_that_is_reset_while_its_request_waits_has_lost_its_client() -> None:
    """It is asked before anybody has noticed: while it is paused, nobody looks."""
    waiting: list[Connection] = []

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        _, writer = await connect()
        writer.write(frame(b"wait...."))
        while not waiting:
            await asyncio.sleep(0)
        [connection] = waiting
        assert not connection.has_lost_client()
        connection._pause()
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        while not connection.has_lost_client():
            await asyncio.sleep(0)
        assert not connection.closed
        connection.close()
        assert connection.has_lost_client()

    run(holding(waiting), scenario)


def test_a_client_that_has_gone_while_it_is_muted_is_noticed() -> None:
    """Of many that come and go none is kept until its time is up, unless it has left something to be done."""
    served: list[bytes] = []

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
        served.append(bytes(view[at:end]))
        connection.mute(3_600_000)
        return frame(b"answered")

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        peers = [await connect() for _ in range(3)]
        for reader, writer in peers:
            writer.write(frame(b"a request"))
            assert await read_frame(reader) == b"answered"
        (_, gone), (_, left_work), _ = peers
        left_work.write(frame(b"and another"))
        for writer in (gone, left_work):
            writer.close()
            await writer.wait_closed()
        assert server.close_idle(tick=9, oldest_allowed=0) == 1
        assert server.total == 2
        for connection in server.connections():
            connection.unmute()
        while len(served) < 4:
            await asyncio.sleep(0)
        assert served[3] == b"and another"
        assert server.close_idle(tick=18, oldest_allowed=0) == 1
        assert server.total == 1

    run(dispatch, scenario)


def test_a_connection_that_broke_while_its_last_bytes_were_read_is_noticed() -> None:
    """libuv stops looking at a socket once it has seen an error, which such a read does not meet."""

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        peers = [await connect() for _ in range(2)]
        for reader, writer in peers:
            writer.write(frame(b"a request"))
            await read_frame(reader)
        broken, _ = server.connections()
        broken.listener.loop.remove_reader(broken.fd)
        _, writer = peers[0]
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        while not hung_up([broken.fd]):
            await asyncio.sleep(0)
        assert server.close_idle(tick=9, oldest_allowed=0) == 1
        assert (broken.closed, server.total) == (True, 1)

    run(lambda connection, view, at, end: frame(b"answered"), scenario)


def test_what_a_client_that_has_gone_left_to_a_muted_connection_keeps_it_no_longer_than_an_idle_one() -> None:
    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
        connection.mute(3_600_000)
        return frame(b"answered")

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        peers = [await connect() for _ in range(3)]
        for reader, writer in peers:
            writer.write(frame(b"a request"))
            assert await read_frame(reader) == b"answered"
        for _, writer in peers:
            writer.write(frame(b"and another"))
        (_, gone), (_, reset), _ = peers
        gone.close()
        await gone.wait_closed()
        reset.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reset.transport.abort()
        while len(hung_up(connection.fd for connection in server.connections())) < 2:
            await asyncio.sleep(0)
        assert server.close_idle(tick=100, oldest_allowed=90) == 0
        assert server.close_idle(tick=110, oldest_allowed=100) == 0
        assert server.close_idle(tick=111, oldest_allowed=101) == 2
        assert server.total == 1, "who is there is told when it will be read again"

    run(dispatch, scenario)


class Pace:
    """Lets some connections in and then holds the others, or has them wait."""

    def __init__(self, *, free: int = 10**6, welcome: int = 10**6) -> None:
        self.free = free
        self.welcome = welcome

    def wait_ms(self, listener: str, now_ms: float) -> float:
        self.free -= 1
        return 0 if self.free > 0 else 150

    def hold_ms(self, listener: str, host: str, now_ms: float) -> float:
        assert (listener, host) == ("PLAINTEXT", "127.0.0.1")
        self.welcome -= 1
        return 0 if self.welcome >= 0 else 100


def test_connections_that_come_too_fast_wait_in_the_kernel() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        server.pace = Pace(free=2)
        peers = [await connect() for _ in range(4)]
        await asyncio.sleep(0.05)
        assert server.total == 2
        peers[0][1].close()
        await asyncio.sleep(0.02)
        assert server.total == 1, "one that ends makes no room: time does"
        for reader, writer in peers[1:]:
            writer.write(frame(b"anything"))
            assert await read_frame(reader) == b"anything"

    run(echo, scenario)


def test_an_address_that_connects_too_fast_is_held_and_reset() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        server.pace = Pace(welcome=1)
        reader, writer = await connect()
        writer.write(frame(b"anything"))
        assert await read_frame(reader) == b"anything"
        held_reader, held_writer = await connect()
        held_writer.write(frame(b"me too.."))
        while not server.refused:
            await asyncio.sleep(0)
        assert (server.total, len(server.held), server.refused) == (1, 1, 1)
        with pytest.raises(ConnectionResetError):
            await held_reader.readexactly(1)
        assert not server.held

    run(echo, scenario)


def test_only_so_many_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkad.net.server._MOST_HELD", 3)

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        server.pace = Pace(welcome=0)
        for _ in range(6):
            with contextlib.suppress(ConnectionResetError):
                await connect()
        while server.refused < 6:
            await asyncio.sleep(0)
        assert len(server.held) == 3

    run(echo, scenario)
