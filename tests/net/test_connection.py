"""Frames and replies of one connection, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkad.net.connection import Connection, DeferredReply, Ending
from kafkad.net.reply import PENDING, Bytes, FileRange, Part, Pending, Reply, unsent
from kafkad.net.server import SHARED_BYTES, Buffers, Limits, Server
from kafkad.net.transport import PlainTransport, Transport
from kafkad.turns import TURN_S
from tests.fakes import turns
from tests.net.serving import Peer, echo, frame, holding, read_frame, run


@dataclass(frozen=True)
class OpenFile:
    fd: int


@dataclass(frozen=True)
class Range:
    file: OpenFile
    position: int
    length: int


def test_a_reply_that_comes_while_another_is_leaving_follows_it() -> None:
    pending: list[Connection] = []
    large = bytes(8 << 20)

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply | Pending | None:
        if bytes(view[at:end]).startswith(b"large"):
            return frame(large)
        pending.append(connection)
        return PENDING

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        reader, writer = await connect()
        writer.write(frame(b"large  1") + frame(b"pending 2"))
        while not pending:
            await asyncio.sleep(0)
        pending[0].reply(frame(b"pending 2"))
        assert await read_frame(reader) == large
        assert await read_frame(reader) == b"pending 2"

    run(dispatch, scenario)


def test_the_time_that_its_bytes_take_is_told_while_it_is_measured() -> None:
    """In pieces, as a large reply leaves; nobody is told before and after."""
    large, spent = bytes(8 << 20), list[int]()

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
        wanted = bytes(view[at:end])
        connection.measure(None if wanted == b"in quiet" else spent.append)
        return frame(large if wanted.startswith(b"large") else wanted)

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        reader, writer = await connect()
        for body, told in ((b"in quiet", False), (b"measured", True), (b"large  1", True), (b"in quiet", True)):
            spent.clear()
            writer.write(frame(body))
            assert len(await read_frame(reader)) in (len(body), len(large))
            assert bool(spent) is told
            assert all(ns > 0 for ns in spent)
        spent.clear()
        writer.write(frame(b"in quiet"))
        assert await read_frame(reader) == b"in quiet"
        assert spent == []

    run(dispatch, scenario)


def test_requests_that_wait_for_their_turn_say_how_long() -> None:
    waited: list[int] = []

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
        waited.append(connection.waited_us)
        time.sleep(TURN_S)
        return frame(view[at:end])

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        reader, writer = await connect()
        for bodies in ([b"request 1", b"request 2", b"request 3"], [b"request 4"]):
            writer.write(b"".join(map(frame, bodies)))
            assert [await read_frame(reader) for _ in bodies] == bodies

    run(dispatch, scenario)
    assert [wait > 0 for wait in waited] == [False, True, True, False]


def test_a_later_reply_keeps_its_place_and_lets_what_came_with_it_go_on() -> None:
    laters: list[tuple[DeferredReply, bytes]] = []
    pending: list[tuple[Connection, bytes]] = []

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply | DeferredReply | Pending | None:
        body = bytes(view[at:end])
        if body.startswith(b"later"):
            laters.append((DeferredReply(connection), body))
            return laters[-1][0]
        if body.startswith(b"pending"):
            pending.append((connection, body))
            return PENDING
        return frame(body)

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        server.lane.clock = lambda: 0.0  # the turn does not end between them, however busy the machine is
        reader, writer = await connect()
        bodies = [b"later  1", b"at once 2", b"later  3", b"pending 4", b"at once 5", b"later  6"]
        writer.write(b"".join(frame(body) for body in bodies))
        while not pending:
            await asyncio.sleep(0)
        assert [body for _, body in laters] == [b"later  1", b"later  3"]
        connection, body = pending[0]
        connection.reply(frame(body))
        for later, body in reversed(laters):
            assert not connection.quiet
            later.settle(frame(body))
        assert [await read_frame(reader) for _ in bodies[:4]] == bodies[:4]
        while len(laters) < 3:
            await asyncio.sleep(0)
        laters[2][0].settle(frame(bodies[5]))
        assert [await read_frame(reader) for _ in bodies[4:]] == bodies[4:]
        assert connection.quiet

    run(dispatch, scenario)


@pytest.mark.parametrize("second", [b"at once 2", b"nothing 2", b"later  2", b"pending 2"])
def test_a_later_reply_that_comes_while_the_next_request_is_served_leaves_in_its_place(second: bytes) -> None:
    """Serving the second may be what the first one waited for: an append, or a disk that fails."""
    laters: list[DeferredReply] = []
    pending: list[Connection] = []

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply | DeferredReply | Pending | None:
        body = bytes(view[at:end])
        if not laters:
            laters.append(DeferredReply(connection))
            return laters[0]
        if laters[0].reply is None:
            laters[0].settle(frame(b"later  1"))
        if body.startswith(b"later"):
            laters.append(DeferredReply(connection))
            return laters[-1]
        if body.startswith(b"pending"):
            pending.append(connection)
            return PENDING
        return None if body.startswith(b"nothing") else frame(body)

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        server.lane.clock = lambda: 0.0  # the turn does not end between them, however busy the machine is
        reader, writer = await connect()
        writer.write(frame(b"later  1") + frame(second))
        while not laters or laters[0].reply is None:
            await asyncio.sleep(0)
        for later in laters[1:]:
            later.settle(frame(second))
        for connection in pending:
            connection.reply(frame(second))
        expected = [b"later  1"] if second == b"nothing 2" else [b"later  1", second]
        assert [await read_frame(reader) for _ in expected] == expected
        writer.write(frame(b"at once 3"))
        assert await read_frame(reader) == b"at once 3"

    run(dispatch, scenario)


def test_nothing_is_served_any_more_of_what_came_with_a_request_that_closed_its_connection() -> None:
    served = []

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply | None:
        served.append(bytes(view[at:end]))
        connection.close()
        return None

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        reader, writer = await connect()
        writer.write(frame(b"closes 1") + frame(b"late   2"))
        assert await reader.read() == b""
        assert served == [b"closes 1"]

    run(dispatch, scenario)


async def ended(server: Server, reader: asyncio.StreamReader) -> bool:
    """Nothing but the end comes, once the time is over that a client has for its last reply."""
    for connection in server.connections():
        connection.unmute()
    return await reader.read() == b"" and server.total == 0


def test_requests_before_one_that_ends_the_connection_are_answered() -> None:
    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
        if view[at] == ord("b"):
            raise Ending
        if view[at] == ord("o"):
            raise RuntimeError("a bug of ours")
        return frame(bytes(view[at:end]))

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        for bad in (frame(b"bad    3"), frame(b"ours   3"), struct.pack(">i", -1)):
            reader, writer = await connect()
            writer.write(frame(b"good   1") + frame(b"good   2") + bad + bytes(1000))
            assert [await read_frame(reader) for _ in range(2)] == [b"good   1", b"good   2"]
            assert await ended(server, reader)

    run(dispatch, scenario)


def test_a_reply_that_waits_leaves_before_its_connection_ends() -> None:
    laters: list[DeferredReply] = []
    failing: list[Connection] = []

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply | DeferredReply | Pending | None:
        kind = view[at]
        if kind == ord("l"):
            laters.append(DeferredReply(connection))
            return laters[-1]
        if kind == ord("b"):
            raise Ending
        if kind == ord("e"):
            connection.end()
            return None
        failing.append(connection)
        return PENDING

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        for last in (b"bad    2", b"ends   2", b"fails  2"):
            reader, writer = await connect()
            writer.write(frame(b"later  1") + frame(last) + frame(b"later  3"))
            while not laters or (last == b"fails  2" and not failing):
                await asyncio.sleep(0)
            for connection in failing:
                connection.end()
            await turns(3)
            [later] = laters
            later.settle(frame(b"later  1"))
            laters.clear()
            assert await read_frame(reader) == b"later  1"
            assert await ended(server, reader)

    run(dispatch, scenario)


def test_a_large_request_that_is_worked_on_keeps_its_bytes_when_its_connection_closes() -> None:
    owned: list[memoryview] = []
    large = 1 << 20

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply | Pending:
        if owned:
            return frame(b"echo")
        owned.append(connection.own(view[at:end]))
        return PENDING

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        _, writer = await connect()
        writer.write(frame(b"a" * large))
        while not owned:
            await asyncio.sleep(0)
        [connection] = server.connections()
        connection.close()
        reader, writer = await connect()
        writer.write(frame(b"b" * large))
        assert await read_frame(reader) == b"echo"
        assert owned[0] == b"a" * large

    run(dispatch, scenario)


def test_pipelined_frames_are_answered_in_order() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        reader, writer = await connect()
        bodies = [bytes([i]) * (8 + 37 * i) for i in range(200)]
        writer.write(b"".join(frame(body) for body in bodies))
        assert [await read_frame(reader) for _ in bodies] == bodies

    run(echo, scenario)


def test_a_frame_may_come_a_byte_at_a_time() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        reader, writer = await connect()
        for byte in frame(b"twelve bytes"):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert await read_frame(reader) == b"twelve bytes"

    run(echo, scenario)


def test_a_peer_that_trickles_wakes_nobody_until_its_frame_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    woken = 0
    on_readable = Connection.on_readable

    def counted(connection: Connection) -> None:
        nonlocal woken
        woken += 1
        on_readable(connection)

    monkeypatch.setattr(Connection, "on_readable", counted)

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        reader, writer = await connect()
        for _ in range(2):
            nonlocal woken
            woken = 0
            for byte in frame(bytes(100)):
                writer.write(bytes([byte]))
                await asyncio.sleep(0.001)
            assert await read_frame(reader) == bytes(100)
            assert woken <= 6  # for the length a byte at a time, and when the rest is there

    run(echo, scenario)


def test_frames_larger_than_the_shared_buffer_arrive_whole_and_their_buffer_is_used_again() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        reader, writer = await connect()
        for size in (SHARED_BYTES // 2 - 4, SHARED_BYTES // 2, SHARED_BYTES, 3 * SHARED_BYTES + 17, 2_000_000, 9):
            body = os.urandom(size)
            writer.write(frame(body) + frame(b"the next one"))
            assert await read_frame(reader) == body
            assert await read_frame(reader) == b"the next one"
        assert 0 < len(server.buffers._free) <= 4

    run(echo, scenario)


def test_memory_follows_what_arrives_not_what_is_claimed() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        _, writer = await connect()
        writer.write(struct.pack(">i", 90 << 20) + bytes(300))
        arrived, before = 304, resident()
        for more in (0, 200_000, 1_000_000, 9_000_000):
            for _ in range(more // 100_000):  # so that what is sent takes no memory of this process to speak of
                writer.write(bytes(100_000))
                await writer.drain()
            arrived += more
            while not server.connections() or server.connections()[0].held < arrived - (256 << 10):
                await asyncio.sleep(0.001)
            assert resident() - before <= arrived * 9 // 8 + (3 << 20)

    run(echo, scenario)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_large_requests_share_the_memory_there_is_and_all_arrive() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        large = [await connect() for _ in range(8)]
        half = bytes(1_000_000)
        for _, writer in large:
            writer.write(struct.pack(">i", 2_000_000) + half)
        while not server.queued.full:
            await asyncio.sleep(0.001)
        reader, writer = await connect()
        for i in range(20):
            writer.write(frame(b"small  %2d" % i))
            assert await read_frame(reader) == b"small  %2d" % i
        held = sum(connection.held for connection in server.connections())
        assert held <= 1_500_000 + 2_000_000 + 8 * 256 * 1024
        for _, each in large:
            each.write(half)
        for each, _ in large:
            assert await read_frame(each) == 2 * half
        assert not server.queued.full

    run(echo, scenario, Limits(queued_bytes=1_500_000))


async def stand_first_in_line(server: Server, writer: asyncio.StreamWriter) -> None:
    """With a request of which more than all memory has come, and the rest has not."""
    writer.write(struct.pack(">i", 4_000_000) + bytes(1_600_000))
    while not server.queued.full:
        await asyncio.sleep(0.001)
    writer.write(bytes(600_000))
    while not server.queued._waiting:
        await asyncio.sleep(0.001)


def test_who_stalls_while_others_wait_for_memory_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kafkad.net.queued._LOOK_S", 0.1)

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        stalled, writer = await connect()
        await stand_first_in_line(server, writer)
        reader, other = await connect()
        other.write(frame(bytes(2_000_000)))
        assert len(await read_frame(reader)) == 2_000_000
        assert await stalled.read() == b""
        assert "too slowly while requests hold" in caplog.text

    run(echo, scenario, Limits(queued_bytes=1_000_000))


def test_a_request_whose_rest_has_arrived_waits_for_no_larger_one_that_trickles() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        _, writer = await connect()
        await stand_first_in_line(server, writer)
        reader, other = await connect()
        other.write(frame(bytes(200_000)))
        assert len(await read_frame(reader)) == 200_000
        assert server.total == 2

    run(echo, scenario, Limits(queued_bytes=1_000_000))


def test_a_large_request_that_has_arrived_stands_in_nobodys_way_while_it_is_worked_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafkad.net.queued._LOOK_S", 0.05)
    working: list[Connection] = []

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply | Pending:
        if working:
            return frame(b"answered")
        connection.own(view[at:end])
        working.append(connection)
        return PENDING

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        slow, writer = await connect()
        writer.write(struct.pack(">i", 4_000_000) + bytes(1_600_000))
        while not server.queued.full:
            await asyncio.sleep(0.001)
        writer.write(bytes(2_400_000))  # first in line
        while not working:
            await asyncio.sleep(0.001)
        reader, other = await connect()
        other.write(frame(bytes(2_000_000)))
        assert await read_frame(reader) == b"answered"
        await asyncio.sleep(0.2)
        working[0].reply(frame(b"done"))
        assert await read_frame(slow) == b"done"

    run(dispatch, scenario, Limits(queued_bytes=1_000_000))


def test_without_memory_one_connection_is_closed_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_memory(buffers: Buffers, total: int) -> memoryview:
        raise MemoryError

    monkeypatch.setattr(Buffers, "take", no_memory)

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        reader, writer = await connect()
        writer.write(struct.pack(">i", 2_000_000) + bytes(100_000))
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        good, writer = await connect()
        writer.write(frame(b"still here"))
        assert await read_frame(good) == b"still here"
        assert [record.message.partition(": ")[2] for record in caplog.records] == ["not enough memory for its request"]

    run(echo, scenario)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "it begins as TLS does, which this listener does not speak"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", "it begins as HTTP does"),
    ],
)
def test_who_speaks_another_protocol_is_told_of_by_its_name(
    said: bytes, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        reader, writer = await connect()
        writer.write(said)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        assert told in caplog.text

    run(echo, scenario)


def test_replies_that_nobody_reads_have_a_bound_over_all_connections(caplog: pytest.LogCaptureFixture) -> None:
    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
        return frame(bytes(16 << 20))

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            for i in range(6):
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", server.listeners[0].port)))
                sock.setblocking(False)
                await loop.sock_sendall(sock, frame(b"send much"))
                while caplog.text.count("does not read its replies") < i - 1:  # two have room
                    await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
            assert 1 <= len(server.queued._unread) <= 3
            assert sum(server.queued._unread.values()) <= 32 << 20
            received = 0  # the last one is still served
            while received < (16 << 20) + 4:
                received += len(await loop.sock_recv(sock, 1 << 20))

    run(dispatch, scenario, Limits(queued_bytes=32 << 20))


class Bottomless(PlainTransport):
    """Its peer takes everything at once, and never makes anybody wait."""

    turn: Callable[[], int]
    turns: list[int]

    def send(self, data: Bytes, /) -> int:  # type: ignore[override]
        self.turns.append(self.turn())
        return min(len(data), 10_000)

    def send_range(self, head: Bytes, part: FileRange) -> int:
        self.turns.append(self.turn())
        return len(head) + min(part.length, 100_000)


def test_who_takes_a_large_reply_as_fast_as_it_can_be_sent_leaves_others_their_turns() -> None:
    turn = 0
    turns: list[int] = []

    def wrap(sock: socket.socket) -> Transport:
        transport = Bottomless.over(sock)
        assert isinstance(transport, Bottomless)
        transport.turn, transport.turns = lambda: turn, turns
        return transport

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
        now = 0.0

        def each_call_takes_a_millisecond() -> float:
            nonlocal now
            now += 0.001
            return now

        connection.listener.lane.clock = each_call_takes_a_millisecond
        return [struct.pack(">i", 10_000_000), Range(OpenFile(0), 0, 10_000_000)]

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        nonlocal turn
        _, writer = await connect()
        writer.write(frame(b"give me."))
        while len(turns) < 100:
            await asyncio.sleep(0)
            turn += 1
        await asyncio.sleep(0.01)
        [connection] = server.connections()
        assert connection.quiet
        assert len(turns) == 100
        assert max(map(turns.count, turns)) <= 5

    run(dispatch, scenario, wrap=wrap)


def test_replies_that_are_there_in_one_turn_share_it_and_count_for_no_slow_reader() -> None:
    waiting: list[Connection] = []
    turns: list[int] = []

    def wrap(sock: socket.socket) -> Transport:
        transport = Bottomless.over(sock)
        assert isinstance(transport, Bottomless)
        transport.turn, transport.turns = lambda: 0, turns
        return transport

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        now = 0.0

        def clock() -> float:
            nonlocal now
            now += 0.0001
            return now

        for _ in range(100):
            _, writer = await connect()
            writer.write(frame(b"wait...."))
        while len(waiting) < 100:
            await asyncio.sleep(0)
        server.lane.clock = clock
        for connection in waiting:
            connection.reply(bytes(100_000))
        assert 200 <= len(turns) <= 260, "two pieces of each, and what the turn has time for"
        assert not server.queued._unread
        assert len(server.queued._in_turn) > 90
        while not all(connection.quiet for connection in waiting):
            await asyncio.sleep(0)
        assert len(turns) == 1_000
        assert server.total == 100
        assert (server.queued._in_turn, server.queued._all_in_turn) == ({}, 0)

    run(holding(waiting), scenario, Limits(queued_bytes=10 << 20), wrap)


def test_replies_leave_at_once_when_those_that_wait_for_turns_hold_the_limit() -> None:
    waiting: list[Connection] = []

    def wrap(sock: socket.socket) -> Transport:
        transport = Bottomless.over(sock)
        assert isinstance(transport, Bottomless)
        transport.turn, transport.turns = lambda: 0, []
        return transport

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        for _ in range(10):
            _, writer = await connect()
            writer.write(frame(b"wait...."))
        while len(waiting) < 10:
            await asyncio.sleep(0)
        server.lane.left = 0
        for connection in waiting:
            connection.reply(bytes(100_000))
        assert [connection.quiet for connection in waiting] == [False] * 3 + [True] * 7
        while not all(connection.quiet for connection in waiting):
            await asyncio.sleep(0)
        assert server.queued._all_in_turn == 0

    run(holding(waiting), scenario, Limits(queued_bytes=245_000), wrap)


@pytest.mark.parametrize("length", [20_000, 1_000_000, 5_000_000])
def test_the_rest_of_a_reply_takes_no_more_than_twice_its_size(length: int) -> None:
    left: Bytes = bytes(10_000_000)
    while len(left) > 1000:
        left = unsent(left, min(length, len(left) - 1000))
        whole = left.obj if isinstance(left, memoryview) else left
        assert len(whole) <= 2 * len(left)  # type: ignore[arg-type]


def test_absurd_lengths_close_the_connection_and_no_other() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        good_reader, good_writer = await connect()
        for size in (-1, 0, 7, 0x7FFFFFFF, -(2**31)):
            reader, writer = await connect()
            writer.write(struct.pack(">i", size) + bytes(20))
            assert await reader.read() == b""
        good_writer.write(frame(b"still here"))
        assert await read_frame(good_reader) == b"still here"

    run(echo, scenario)


def test_a_request_above_the_limit_is_refused_though_it_comes_whole(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        reader, writer = await connect()
        writer.write(frame(bytes(1000)) + frame(bytes(1001)))
        assert await read_frame(reader) == bytes(1000)
        assert await reader.read() == b""
        assert "a frame of 1001 bytes is over socket.request.max.bytes=1000" in caplog.text

    run(echo, scenario, Limits(max_request_bytes=1000))


def test_what_follows_a_pending_request_waits_for_its_answer() -> None:
    waiting: list[Connection] = []

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        reader, writer = await connect()
        writer.write(
            frame(b"first...") + frame(b"wait....") + frame(b"third...") + frame(b"wait....") + frame(b"fifth...")
        )
        assert await read_frame(reader) == b"first..."
        while not waiting:
            await asyncio.sleep(0.001)
        writer.write(frame(b"sixth..."))
        await asyncio.sleep(0.01)
        waiting.pop().reply(frame(b"2"))
        assert [await read_frame(reader) for _ in range(2)] == [b"2", b"third..."]
        while not waiting:
            await asyncio.sleep(0.001)
        waiting.pop().reply(None)
        assert [await read_frame(reader) for _ in range(2)] == [b"fifth...", b"sixth..."]

    run(holding(waiting), scenario)


def test_a_peer_that_does_not_read_costs_one_reply_and_no_other_connection() -> None:
    answered = 0

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
        nonlocal answered
        answered += 1
        return frame(bytes(1 << 20))

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        sock = socket.create_connection(("127.0.0.1", server.listeners[0].port))
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        for _ in range(64):
            await loop.sock_sendall(sock, frame(b"send much"))
            await asyncio.sleep(0.001)
        assert answered < 60
        reader, writer = await connect()
        writer.write(frame(b"and me?.."))
        assert len(await read_frame(reader)) == 1 << 20
        received = 0
        while received < 64 * ((1 << 20) + 4):
            received += len(await loop.sock_recv(sock, 1 << 20))
        assert answered == 65
        sock.close()

    run(dispatch, scenario)


def test_requests_that_arrive_together_and_are_not_read_cost_one_share_of_replies() -> None:
    answered = 0

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
        nonlocal answered
        answered += 1
        return frame(bytes(100_000))

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        sock = socket.create_connection(("127.0.0.1", server.listeners[0].port))
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(sock, 1000 * frame(b"send much"))
        await asyncio.sleep(0.2)
        (connection,) = server.connections()
        assert connection._out
        assert 0 < sum(len(part) for part in connection._out if isinstance(part, bytes | memoryview)) <= 400_000
        assert answered < 200
        received = 0
        while received < 1000 * 100_004:
            received += len(await loop.sock_recv(sock, 1 << 20))
        assert answered == 1000
        while not connection.quiet:
            await asyncio.sleep(0)
        sock.close()

    run(dispatch, scenario)


def test_requests_that_arrive_together_share_the_loop_with_everybody() -> None:
    answered: list[bytes] = []

    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
        time.sleep(0.002)
        answered.append(bytes(view[at : at + 4]))
        return frame(bytes(view[at:end]))

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        greedy = [await connect() for _ in range(5)]
        reader, writer = await connect()
        for i, (_, each) in enumerate(greedy):
            each.write(200 * frame(b"%04d....." % i))
        while len(answered) < 20:
            await asyncio.sleep(0)
        before = len(answered)
        writer.write(frame(b"honest..."))
        assert await read_frame(reader) == b"honest..."
        assert answered.index(b"hone") - before <= 10  # not behind the thousand that came first
        del answered[: before + 1]
        while len(answered) < 50:
            await asyncio.sleep(0)
        assert {bytes(each) for each in answered[20:]} >= {b"%04d" % i for i in range(5)}
        for each, _ in greedy:
            assert [await read_frame(each) for _ in range(200)]

    run(dispatch, scenario)


def test_ranges_of_files_leave_in_their_place() -> None:
    with tempfile.TemporaryFile() as file:
        data = os.urandom(3_000_000)
        file.write(data)
        file.flush()
        opened = OpenFile(file.fileno())

        def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
            return [
                struct.pack(">i", 2_500_006) + b"abc",
                Range(opened, 100, 2_000_000),
                Range(opened, 7, 500_000),
                b"xyz",
            ]

        async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
            reader, writer = await connect()
            writer.write(frame(b"one.....") + frame(b"two....."))
            for _ in range(2):
                body = await read_frame(reader)
                assert body == b"abc" + data[100:2_000_100] + data[7:500_007] + b"xyz"

        run(dispatch, scenario)


def test_small_ranges_leave_with_what_stands_around_them_however_many() -> None:
    with tempfile.TemporaryFile() as file:
        data = os.urandom(100_000)
        file.write(data)
        file.flush()
        opened = OpenFile(file.fileno())
        ranges = [Range(opened, i * 97 % 60_000, i * 31 % 20_000 + 1) for i in range(500)]
        expected = b"".join(b"<" + data[r.position : r.position + r.length] + b">" for r in ranges)

        def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
            parts: list[Part] = [part for r in ranges for part in (b"<", r, b">")]
            return [struct.pack(">i", len(expected)), *parts]

        async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
            reader, writer = await connect()
            writer.write(frame(b"one.....") + frame(b"two....."))
            for _ in range(2):
                assert await read_frame(reader) == expected

        run(dispatch, scenario)


@pytest.mark.parametrize(("size", "before"), [(100_000, 4), (10, 0)])
def test_a_file_that_ends_too_early_closes_the_connection(size: int, before: int) -> None:
    with tempfile.TemporaryFile() as file:
        opened = OpenFile(file.fileno())

        def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
            return [struct.pack(">i", size), Range(opened, 0, size)]

        async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
            reader, writer = await connect()
            writer.write(frame(b"give me."))
            assert len(await reader.read()) == before

        run(dispatch, scenario)


def test_an_error_of_ours_costs_one_connection() -> None:
    def dispatch(connection: Connection, view: memoryview, at: int, end: int) -> Reply:
        raise RuntimeError("a bug")

    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        reader, writer = await connect()
        writer.write(frame(b"anything"))
        assert await reader.read() == b""
        assert server.total == 0

    run(dispatch, scenario)


def test_a_partial_frame_goes_on_while_less_is_read_at_once() -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Peer]]) -> None:
        reader, writer = await connect()
        body = os.urandom(60_000)
        writer.write(frame(body)[:50_000])
        while not (server.connections() and server.connections()[0]._partial):
            await asyncio.sleep(0.001)
        server.listeners[0].read_at_once(True)
        writer.write(frame(body)[50_000:])
        assert await read_frame(reader) == body

    run(echo, scenario)
