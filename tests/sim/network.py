"""A simulated network: streams with delays, cuts of one or both directions, and connections that are reset.

What is sent over a cut waits, as TCP sends it again until somebody gives up, and arrives when the cut is healed. A
killed process closes its sockets.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from kafkad.net.reply import FileRange
from tests.sim.world import ProcessLoop, World

_USUAL_S, _SLOW_S = 0.0005, 0.05
_SLOW_ONE_IN = 50
_FIRST_FD = 1_000_000
BROKER_PORT = 9092


class Host:
    """A process on the network."""

    def __init__(self, name: str, loop: ProcessLoop) -> None:
        self.name = name
        self.loop = loop
        self.sockets: dict[int, Socket] = {}


class Stream:
    """One direction of a connection: what is pushed arrives in its order, some time later."""

    def __init__(
        self, network: Network, source: str, target: str, deliver: Callable[[Any], None], *, asks: bool = False
    ) -> None:
        """`asks`: of a connection that the source has opened."""
        self._network = network
        self._ends = source, target
        self._asks = asks
        self._deliver = deliver
        self._under_way: deque[Any] = deque()
        self._last_s = 0.0
        self._moving = 0
        self.ended = False

    def push(self, what: Any) -> None:
        if not self.ended:
            self._under_way.append(what)
            self._move()

    def _move(self) -> None:
        world = self._network.world
        self._last_s = max(self._last_s, world.now + self._network.delay_s())
        self._moving += 1
        world.after(self._last_s - world.now, self._arrive)

    def _arrive(self) -> None:
        self._moving -= 1
        if not self._under_way or self.ended:
            return
        if self._ends in self._network.cuts or (self._asks and self._ends in self._network.stuck):
            self._network.held.setdefault(self._ends, {})[self] = None
            return
        self._deliver(self._under_way.popleft())

    def healed(self) -> None:
        while self._moving < len(self._under_way):
            self._move()

    def end(self) -> list[Any]:
        """What was under way never arrives."""
        self.ended = True
        lost = list(self._under_way)
        self._under_way.clear()
        return lost

    def give_up(self) -> None:
        """What waits for a cut to be healed is not sent again."""
        if self in self._network.held.get(self._ends, {}):
            self._under_way.clear()

    def break_off(self) -> None:
        """Some of what is under way still arrives, the rest never does."""
        keep = self._network.world.random.randint(0, len(self._under_way))
        while len(self._under_way) > keep:
            self._under_way.pop()


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self.cuts: dict[tuple[str, str], None] = {}
        self.stuck: dict[tuple[str, str], None] = {}
        """Whose requests to whom wait as over a cut; what they answer each other does not."""
        self.held: dict[tuple[str, str], dict[Stream, None]] = {}
        self._fds = count(_FIRST_FD)
        self._listening: dict[str, ListenSocket] = {}
        self._hosts: dict[ProcessLoop, Host] = {}
        self.slow = 1.0
        """How much slower than usual everything is."""

    def host(self, name: str, loop: ProcessLoop) -> Host:
        host = self._hosts[loop] = Host(name, loop)
        return host

    def delay_s(self) -> float:
        random = self.world.random
        mean_s = _SLOW_S if random.randrange(_SLOW_ONE_IN) == 0 else _USUAL_S
        return random.expovariate(1 / (mean_s * self.slow))

    # -- faults ----------------------------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        self.cuts[source, target] = None

    def heal(self, source: str, target: str) -> None:
        self.cuts.pop((source, target), None)
        self.stuck.pop((source, target), None)
        for stream in self.held.pop((source, target), {}):
            stream.healed()

    def heal_all(self) -> None:
        for ends in [*self.cuts, *self.stuck]:
            self.heal(*ends)

    def hold_requests(self, source: str, target: str) -> None:
        """Until the two are healed."""
        self.stuck[source, target] = None

    def gone(self, host: Host) -> None:
        """The process is dead."""
        self._hosts.pop(host.loop, None)
        for socket in list(host.sockets.values()):
            socket.close()

    def reset_one(self, name: str) -> None:
        """A connection of a process breaks."""
        hosts = [host for host in self._hosts.values() if host.name == name and host.sockets]
        if hosts:
            sockets = [each for each in hosts[0].sockets.values() if isinstance(each, Socket)]
            if sockets:
                self.world.random.choice(sockets).break_off()

    # -- connections -----------------------------------------------------------------------------------------------

    def listen(self, host: Host, address: str) -> ListenSocket:
        listening = self._listening[address] = ListenSocket(self, next(self._fds), host, address)
        host.sockets[listening.fd] = listening  # type: ignore[assignment]
        return listening

    async def connect(self, endpoint: Any, options: Any) -> Socket:
        """In the place of `kafkad.net.client._socket_to`."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ProcessLoop)
        host = self._hosts[loop]
        connected: asyncio.Future[Socket] = loop.create_future()
        there = Stream(self, host.name, endpoint.host, lambda _: self._accept(host, endpoint.host, connected))
        there.push(None)
        return await connected

    def _accept(self, client: Host, address: str, connected: asyncio.Future[Socket]) -> None:
        listening = self._listening.get(address)

        def answer(socket: Socket | None) -> None:
            if connected.done() or client.loop.dead:
                if socket is not None:
                    socket.close()
            elif socket is None:
                connected.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"))
            else:
                connected.set_result(socket)

        back = Stream(self, address, client.name, answer)
        if listening is None or listening.host.loop.dead or not listening.open:
            back.push(None)
            return
        near, far = Socket(self, next(self._fds), client), Socket(self, next(self._fds), listening.host)
        near.out = Stream(self, client.name, listening.host.name, far.arrived, asks=True)
        far.out = Stream(self, listening.host.name, client.name, near.arrived)
        near.other, far.other = far, near
        listening.arrived(far)
        back.push(near)


class ListenSocket:
    """As much of a listening socket as `net.server.Listener` uses."""

    def __init__(self, network: Network, fd: int, host: Host, address: str) -> None:
        self.fd = fd
        self.host = host
        self.address = address
        self.open = False
        self._waiting: deque[Socket] = deque()
        host.loop.made_pollable(fd, lambda: bool(self._waiting))

    def getsockname(self) -> tuple[str, int]:
        return self.address, BROKER_PORT

    def listen(self, backlog: int) -> None:
        self.open = True

    def fileno(self) -> int:
        return self.fd

    def arrived(self, socket: Socket) -> None:
        self._waiting.append(socket)
        self.host.loop.poll(self.fd)

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        if not self._waiting:
            raise BlockingIOError
        socket = self._waiting.popleft()
        return socket, (socket.other.host.name, socket.fd)

    def close(self) -> None:
        self.open = False
        self.host.sockets.pop(self.fd, None)
        for socket in self._waiting:
            socket.close()


class Socket:
    """One end of a connection: a socket as `net.client` uses it, and a `net.transport.Transport`."""

    pending = False
    has_part = False
    subject = None
    other: Socket
    out: Stream

    def __init__(self, network: Network, fd: int, host: Host) -> None:
        self.fd = fd
        self.host = host
        self._network = network
        self._in = bytearray()
        self._ended = False
        self._closed = False
        host.sockets[fd] = self
        host.loop.made_pollable(fd, lambda: bool(self._in) or self._ended)

    # -- the network's side ------------------------------------------------------------------------------------------

    def arrived(self, data: bytes | None) -> None:
        """None is the end of the connection."""
        if self._closed:
            return
        if data is None:
            self._ended = True
        else:
            self._network.world.note("net", self.other.host.name, ">", self.host.name, len(data), hash_of(data))
            self._in += data
        self.host.loop.poll(self.fd)

    def break_off(self) -> None:
        """The connection is reset: of what is under way, some arrives."""
        for end in (self, self.other):
            end.out.break_off()
            end.out.push(None)

    # -- the process's side ------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        return self.fd

    def setblocking(self, blocking: bool) -> None:
        pass

    def setsockopt(self, *option: object) -> None:
        pass

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return bytes(size)

    def wake_after(self, size: int) -> None:
        pass

    def has_ended(self) -> bool:
        return self._ended and not self._in

    def flush(self) -> bool:
        return True

    def recv(self, most: int) -> bytes:
        self._check()
        data = bytes(self._in[:most])
        del self._in[:most]
        return data

    def recv_into(self, view: memoryview) -> int:
        self._check()
        size = min(len(view), len(self._in))
        view[:size] = self._in[:size]
        del self._in[:size]
        return size

    def _check(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if not self._in and not self._ended:
            raise BlockingIOError

    def send(self, data: Any) -> int:
        if self._closed or self._ended:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        self.out.push(bytes(data))
        return len(data)

    def send_range(self, head: Any, part: FileRange) -> int:
        return self.send(bytes(head) + os.pread(part.file.fd, part.length, part.position))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.host.sockets.pop(self.fd, None)
            self.host.loop.unpollable(self.fd)
            self.out.push(None)

    def abort(self) -> None:
        if not self._closed:
            self.out.give_up()
        self.close()


def hash_of(data: bytes) -> str:
    from zlib import crc32

    return f"{crc32(data):08x}"
