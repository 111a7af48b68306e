"""Transports of a connection: the plain socket, or a layer of encryption above it.

The rules that a layer above the socket has to keep, and that Connection relies on:
- `recv_into` fills as much of the view as it can. When bytes that have arrived find no room there, something is
  `pending`: the kernel reports them no more, so the connection reads on by itself.
- `send` returns how many of the bytes are done with; while there are none, BlockingIOError. The others are offered
  again, first of all in the next send, so what has been encrypted of them is kept and sent, never encrypted twice.
- What a layer says of its own accord (handshakes, changed keys) it sends when it can. While some of that is left,
  something is `pending` too, and it leaves with `flush`, which follows each `recv_into` that found nothing.
- An error of the layer is an OSError, and ends the connection. "Not now" is BlockingIOError, in whichever direction.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import perf_counter_ns
from typing import Final, Protocol

from kafkad.net.reply import Bytes, FileRange

_MOST_OF_A_FILE: Final = 2 << 20
"""Bytes that leave in one call, however fast the peer takes them."""
_NO_LINGERING = struct.pack("ii", 1, 0)


class Transport(Protocol):
    """HOT: each of these is called once or twice for a request."""

    @property
    def pending(self) -> bool:
        """True if there is something to do that the kernel does not report."""

    @property
    def has_part(self) -> bool:
        """True if it holds the beginning of something that cannot be read before the rest has arrived."""

    @property
    def subject(self) -> str | None:
        """The user that the peer's certificate names, if it has shown one that is trusted."""

    @property
    def unsent(self) -> int:
        """Bytes that it holds itself until they can leave."""

    def fileno(self) -> int: ...
    def recv_into(self, view: memoryview, /) -> int: ...
    def send(self, data: Bytes, /) -> int:
        """As a socket's own. It may take less than there is room for, so that others have their turn."""

    def send_range(self, head: Bytes, part: FileRange) -> int:
        """As `send`, of `head` and the range behind it; nothing of the range when the file ends where it begins."""

    def flush(self) -> bool:
        """True if nothing is left of what the layer itself has to say."""

    def wake_after(self, size: int) -> None:
        """The socket need not be reported readable before `size` bytes have arrived: a hint."""

    def has_ended(self) -> bool:
        """True if the peer has closed its side, or both, and nothing that it sent is unread."""

    def close(self) -> None: ...

    def abort(self) -> None:
        """Close it with a reset: what has not reached the peer yet never will."""


class MeasuredTransport:
    """Another transport, whose work is measured: `spent` is told the nanoseconds of each call that moves bytes."""

    __slots__ = ("below", "spent")

    def __init__(self, below: Transport, spent: Callable[[int], None]) -> None:
        self.below = below
        self.spent = spent

    @property
    def pending(self) -> bool:
        return self.below.pending

    @property
    def has_part(self) -> bool:
        return self.below.has_part

    @property
    def subject(self) -> str | None:
        return self.below.subject

    @property
    def unsent(self) -> int:
        return self.below.unsent

    def fileno(self) -> int:
        return self.below.fileno()

    def recv_into(self, view: memoryview, /) -> int:
        begun = perf_counter_ns()
        try:
            return self.below.recv_into(view)
        finally:
            self.spent(perf_counter_ns() - begun)

    def send(self, data: Bytes, /) -> int:
        begun = perf_counter_ns()
        try:
            return self.below.send(data)
        finally:
            self.spent(perf_counter_ns() - begun)

    def send_range(self, head: Bytes, part: FileRange) -> int:
        begun = perf_counter_ns()
        try:
            return self.below.send_range(head, part)
        finally:
            self.spent(perf_counter_ns() - begun)

    def flush(self) -> bool:
        return self.below.flush()

    def wake_after(self, size: int) -> None:
        self.below.wake_after(size)

    def has_ended(self) -> bool:
        return self.below.has_ended()

    def close(self) -> None:
        self.below.close()

    def abort(self) -> None:
        self.below.abort()


Wrap = Callable[[socket.socket], Transport]
"""Takes over a socket that has been accepted; it does not block from then on."""


class PlainTransport(socket.socket):
    """A socket as it is: receiving and sending are its own methods, with nothing in between."""

    __slots__ = ()

    pending: Final = False
    has_part: Final = False
    subject: Final = None
    unsent: Final = 0

    @classmethod
    def over(cls, sock: socket.socket) -> PlainTransport:
        plain = cls(sock.family, sock.type, sock.proto, sock.detach())
        plain.setblocking(False)
        return plain

    def send_range(self, head: Bytes, part: FileRange) -> int:
        """Without MSG_MORE for the head: corking it costs a fetch of 64 KB two thirds more time."""
        sent = self.send(head) if head else 0
        if sent < len(head):
            return sent
        try:
            return sent + os.sendfile(self.fileno(), part.file.fd, part.position, min(part.length, _MOST_OF_A_FILE))
        except BlockingIOError:
            if not sent:
                raise
            return sent

    def flush(self) -> bool:
        return True

    def wake_after(self, size: int) -> None:
        self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def has_ended(self) -> bool:
        return has_ended(self)

    def abort(self) -> None:
        reset(self)


def reset(sock: socket.socket) -> None:
    """Close it; the kernel forgets what it would have sent, or sent again."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
    sock.close()


def hung_up(fds: Iterable[int]) -> dict[int, bool]:
    """The sockets whose peer has closed its side, however much that it sent is unread; True where the connection is
    broken altogether. One question to the kernel for all of them."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLRDHUP)
    return {fd: bool(events & (select.POLLERR | select.POLLHUP)) for fd, events in poll.poll(0)}


def has_more(fd: int) -> bool:
    """There is something to be read of this socket, be it only its end."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def has_ended(sock: socket.socket) -> bool:
    """See `Transport`."""
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
