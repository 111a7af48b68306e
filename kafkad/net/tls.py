"""TLS above a socket: OpenSSL between two buffers of memory, while the socket stays kafkad's own.

One `recv` brings what may be 16 records, and one `send` takes as many away; OpenSSL's own sockets read and write each
record by itself. Both buffers belong to all connections of the loop: whoever works on one leaves it empty. So a
connection that has once received a large frame does not keep buffers of that size.

OpenSSL swallows the beginning of a record before the rest of it is there: a socket is awaited for so much less.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kafkad.net.reply import Bytes, FileRange, unsent
from kafkad.net.transport import reset

if TYPE_CHECKING:
    from kafkad.net.server import Listener

log = logging.getLogger(__name__)

T = TypeVar("T")

_RECORD: Final = 16_645
"""The most bytes of one record, which is also the most that OpenSSL swallows of one that is not complete."""
_AT_ONCE: Final = 256 * 1024
_LEAST_AT_ONCE: Final = 32 * 1024
"""Encrypted at once at first, and again after the socket was full: what finds no room is kept in memory. Twice as much
each time that all of it has left, up to `_AT_ONCE`."""
_HEADER: Final = 5
_SLICE: Final = 64 * 1024
"""About what OpenSSL is given to open at once."""
_RECORDS: Final = 32
"""The most records that it is given at once: a change of keys has 27 bytes, and takes it 10 to 15 us."""
_FREE_RECORDS: Final = 4
"""The records that any connection may have opened however much others have taken."""
_OPENING_S: Final = 0.002
"""The share of a turn of the loop that all connections have for what takes longer to open than its size allows."""
_ALLOWED_S: Final = 5e-9
"""For a byte: with large records it takes a tenth of that, with changes of keys a hundred times as long."""
_MOST_BARREN: Final = 24 * 1024
"""Bytes without any data in them after which a connection ends: more than a record that is not complete."""
_MOST_KEPT: Final = 8 * 1024 * 1024
"""The most bytes that connections together keep unopened, before each receives less at once."""
_SCRATCH: Final = _AT_ONCE + 4096
_HELLO_BYTES: Final = 64 * 1024
"""The most that is read of a peer before its handshake is over."""
_MOST_UNSENT: Final = 64 * 1024
"""The most that OpenSSL may have to say by itself to a peer that does not read: answers to changes of keys, which the
peer can ask for as often as it likes."""
_FAREWELL: Final = 128
"""More bytes than a peer's last word has, whatever the cipher: 24 with TLS 1.3, 85 at most with 1.2."""
_HANDSHAKES_S: Final = 0.001
"""The share of a turn of the loop that handshakes have: a thousand clients that come back take 200 to 900 ms."""


class TlsLayer:
    """What all TLS connections of an event loop share: buffers, the queue of handshakes, and time for records."""

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock: Callable[[], float] = monotonic
    ) -> None:
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.scratch = memoryview(bytearray(_SCRATCH))
        """Bytes that have just come from a socket or a file, and go through OpenSSL at once."""
        self._call_soon = call_soon
        self.clock = clock
        self._steps: deque[Callable[[], None]] = deque()
        self.left = _OPENING_S
        """Seconds that small records may still take until the loop has turned."""
        self.kept = 0
        """Bytes that connections have received and not opened."""

    def spend(self, seconds: float) -> None:
        """Small records have taken so long."""
        if self.left == _OPENING_S:
            self._call_soon(self._refill)
        self.left -= seconds

    def _refill(self) -> None:
        self.left = _OPENING_S

    def clear(self) -> None:
        """After an error: nothing of this connection must come to another."""
        self.incoming.read()
        self.outgoing.read()

    def queue(self, step: Callable[[], None]) -> None:
        """It is called in a later turn of the loop."""
        self._steps.append(step)
        if len(self._steps) == 1:
            self._call_soon(self._turn)

    async def in_turn(self, step: Callable[[], T]) -> T:
        """What the step returns or raises, once it has had its turn."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def take_turn() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(step())
            except OSError as error:
                done.set_exception(error)

        self.queue(take_turn)
        return await done

    def _turn(self) -> None:
        steps, clock = self._steps, self.clock
        end = clock() + _HANDSHAKES_S
        try:
            while steps and clock() < end:
                steps[0]()
                steps.popleft()
        except BaseException:
            steps.popleft()
            raise
        finally:
            if steps:
                self._call_soon(self._turn)


class ServerTls:
    """The TLS of one listener. `context` may be replaced: it holds for handshakes that begin from then on.

    `user_of` says which user a trusted certificate names, from its DER; ValueError if it names none.
    """

    def __init__(self, layer: TlsLayer, context: ssl.SSLContext, user_of: Callable[[bytes], str]) -> None:
        self.layer = layer
        self.context = context
        self.user_of = user_of
        self.handshakes = 0
        self.failed = 0

    def greet(self, listener: Listener, sock: socket.socket, host: str, port: int) -> Handshake:
        """Takes over a socket that has been accepted."""
        return Handshake(listener, self, sock, host, port)


class Handshake:
    """A socket that has been accepted, until TLS is agreed on; then the listener makes a connection of it."""

    __slots__ = (
        "_closed",
        "_fd",
        "_left",
        "_listener",
        "_out",
        "_queued",
        "_received",
        "_sock",
        "_tls",
        "_writing",
        "host",
        "port",
        "server_tls",
    )

    def __init__(self, listener: Listener, server_tls: ServerTls, sock: socket.socket, host: str, port: int) -> None:
        sock.setblocking(False)
        layer = server_tls.layer
        self.host = host
        self.port = port
        self.server_tls = server_tls
        self._listener = listener
        self._sock = sock
        self._fd = sock.fileno()
        self._tls = server_tls.context.wrap_bio(layer.incoming, layer.outgoing, server_side=True)
        self._received = b""
        self._left = _HELLO_BYTES
        self._out = b""
        self._queued = False
        self._writing = False
        self._closed = False
        listener.loop.add_reader(self._fd, self._on_readable)

    @property
    def quiet(self) -> bool:
        """It waits for its peer, and not for its turn here."""
        return not self._queued

    def close(self, why: str | None = None) -> None:
        if self._closed:
            return
        self._let_go()
        self.server_tls.failed += 1
        self._sock.close()
        if why is not None:
            log.info("listener %s: TLS with %s:%d failed: %s", self._listener.name, self.host, self.port, why)
        self._listener.handshake_failed(self)

    def _let_go(self) -> None:
        self._closed = True
        self._listener.loop.remove_reader(self._fd)
        if self._writing:
            self._listener.loop.remove_writer(self._fd)

    def _on_readable(self) -> None:
        """Reads little and works on it when it is its turn."""
        try:
            received = self._sock.recv(min(self._left, _RECORD))
        except BlockingIOError:
            return
        except OSError as error:
            self.close(error.strerror)
            return
        self._left -= len(received)
        if not received:
            self.close("the client closed the connection")
            return
        if not self._left:
            self.close(f"it has sent {_HELLO_BYTES} bytes and no end of its greeting")
            return
        self._received += received
        self._listener.lobby.hold(self, _HELLO_BYTES - self._left)
        if not self._queued and not self._closed:
            self._queued = True
            self.server_tls.layer.queue(self._go_on)

    def _go_on(self) -> None:
        self._queued = False
        if self._closed:
            return
        layer = self.server_tls.layer
        layer.incoming.write(self._received)
        why = None
        done = False
        try:
            self._tls.do_handshake()
            done = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            why = _reason(error)
        self._received = layer.incoming.read()
        if layer.outgoing.pending:
            self._out += layer.outgoing.read()
        if self._out:
            self._send()
        if why is not None:
            self.close(why)
        elif done and not self._closed:
            self._finish()

    def _finish(self) -> None:
        certificate = self._tls.getpeercert(binary_form=True)
        user = None
        if certificate is not None:
            try:
                user = self.server_tls.user_of(certificate)
            except ValueError as error:
                self.close(str(error))
                return
        self._let_go()
        self.server_tls.handshakes += 1
        transport = TlsTransport(
            self._sock, self._tls, self.server_tls.layer, user, received=self._received, unsent=self._out
        )
        self._listener.handshake_done(self, transport)

    def _send(self) -> None:
        try:
            sent = self._sock.send(self._out)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.close(error.strerror)
            return
        self._out = self._out[sent:]
        if bool(self._out) != self._writing and not self._closed:
            self._writing = not self._writing
            if self._writing:
                self._listener.loop.add_writer(self._fd, self._send)
            else:
                self._listener.loop.remove_writer(self._fd)


class _Step(NamedTuple):
    """What one step of a handshake has brought: whether it is over, what of the peer's bytes is behind it, and what is
    to be said to the peer."""

    is_last: bool
    left: bytes
    said: bytes


async def connect(layer: TlsLayer, context: ssl.SSLContext, sock: socket.socket, host: str) -> TlsTransport:
    """Agrees on TLS with a server at `host`. Raises OSError, with the reason why it is not trusted if it is not."""

    async def at_once(step: Callable[[], _Step]) -> _Step:
        return step()

    tls = context.wrap_bio(layer.incoming, layer.outgoing, server_hostname=host)
    return await _agree(layer, tls, sock, at_once)


async def accept(server_tls: ServerTls, sock: socket.socket) -> TlsTransport:
    """Agrees on TLS with a client, step by step in turn with all other handshakes. Raises OSError."""
    layer = server_tls.layer
    tls = server_tls.context.wrap_bio(layer.incoming, layer.outgoing, server_side=True)
    try:
        transport = await _agree(layer, tls, sock, layer.in_turn)
    except BaseException:
        server_tls.failed += 1
        raise
    server_tls.handshakes += 1
    return transport


async def _agree(
    layer: TlsLayer,
    tls: ssl.SSLObject,
    sock: socket.socket,
    take: Callable[[Callable[[], _Step]], Awaitable[_Step]],
) -> TlsTransport:
    loop = asyncio.get_running_loop()
    received = b""
    while True:
        is_last, received, said = await take(partial(_step, layer, tls, sock, received))
        if said:
            await loop.sock_sendall(sock, said)
        if is_last:
            return TlsTransport(sock, tls, layer, None, received=received)
        more = await loop.sock_recv(sock, _RECORD)
        if not more:
            raise OSError("it closed the connection during the handshake")
        received += more


def _step(layer: TlsLayer, tls: ssl.SSLObject, sock: socket.socket, received: bytes) -> _Step:
    layer.incoming.write(received)
    is_last = False
    try:
        tls.do_handshake()
        is_last = True
    except ssl.SSLWantReadError:
        pass
    except ssl.SSLError as error:
        last = layer.outgoing.read()
        layer.clear()
        with suppress(OSError):
            sock.send(last)
        raise OSError(_reason(error)) from error
    return _Step(is_last, layer.incoming.read(), layer.outgoing.read())


class TlsTransport:
    """A connection after its handshake. `received` is what has come since, `unsent` what has still to leave."""

    __slots__ = (
        "_barren",
        "_due",
        "_early",
        "_ended",
        "_held",
        "_kept",
        "_layer",
        "_left",
        "_lowest",
        "_more",
        "_out",
        "_piece",
        "_sock",
        "_tls",
        "pending",
        "subject",
    )

    def __init__(
        self,
        sock: socket.socket,
        tls: ssl.SSLObject,
        layer: TlsLayer,
        subject: str | None,
        *,
        received: bytes = b"",
        unsent: bytes = b"",
    ) -> None:
        self.subject = subject
        self._sock = sock
        self._tls = tls
        self._layer = layer
        self._kept: Bytes = b""
        """Encrypted bytes for which there was no room, or no time; or too little of a record to say how large it is."""
        self._due = 0
        """Bytes that OpenSSL has not been given yet of a record that it has the beginning of."""
        self._barren = 0
        """Bytes that have been opened since the last data."""
        self._early: bytes = b""
        """Data that was opened in search of a last word, before anybody read."""
        self._more = bool(received or tls.pending())
        """Something has arrived that the kernel does not know of any more."""
        self._ended = False
        """The peer has said that nothing follows."""
        self._left = False
        """The peer has closed the connection without saying so."""
        self._out: Bytes = unsent
        """Encrypted bytes that have to leave; they hold `_held` bytes of what was given to `send`."""
        self._held = 0
        self._piece = _LEAST_AT_ONCE
        self._lowest = 1
        self.pending = self._more or bool(unsent)
        self._keep(received)

    @property
    def has_part(self) -> bool:
        return self._due > 0 or bool(self._kept)

    @property
    def unsent(self) -> int:
        return len(self._out)

    def fileno(self) -> int:
        return self._sock.fileno()

    def recv_into(self, view: memoryview, /) -> int:
        """HOT. At most one call of the kernel; records are opened into `view` until it is full, there are no more, or
        they have taken too long."""
        layer, size = self._layer, len(view)
        if self._more:
            if self._early:
                size = min(size, len(self._early))
                view[:size], self._early = self._early[:size], self._early[size:]
                return size
            kept, self._more = self._kept, False
            self._keep(b"")
            found = self._open(view, kept)
            if found or self._ended:
                return found
            if self._more:
                raise BlockingIOError
        most = max(size + (size >> 8), _RECORD) if layer.kept < _MOST_KEPT else _RECORD
        got = self._sock.recv_into(layer.scratch[:most])
        if not got:
            self._left = not self._ended
            return 0
        sealed: Bytes = layer.scratch[:got]
        if self._kept:
            sealed = bytes(self._kept) + sealed
            self._keep(b"")
        found = self._open(view, sealed)
        if not found and not self._ended:
            raise BlockingIOError
        return found

    def _open(self, view: memoryview, sealed: Bytes) -> int:
        """Opens one slice after the other; what finds no room in `view`, or no time, is kept. 0 at the end, or if there
        is no whole record."""
        layer, size, room = self._layer, len(sealed), len(view)
        begun = until = 0.0
        filled = at = 0
        try:
            while True:
                end, records = self._slice(sealed, at, _RECORDS if layer.left > 0 else _FREE_RECORDS)
                if not until and (end < size or records > _FREE_RECORDS):
                    begun = layer.clock()
                    until = begun + layer.left + size * _ALLOWED_S
                layer.incoming.write(sealed[at:end] if end - at < size else sealed)
                filled = self._opened(view, filled)
                at = end
                if self._more or filled == room or size - at < _HEADER or layer.clock() >= until:
                    break
        except BaseException:
            self._say_last()
            raise
        if until:
            over = layer.clock() - begun - at * _ALLOWED_S
            if over > 0:
                layer.spend(over)
        if at < size:
            self._keep(bytes(self._kept) + sealed[at:])
            self._more = self._more or size - at >= _HEADER
        if layer.outgoing.pending:
            self._out = bytes(self._out) + layer.outgoing.read()
            if not self.flush() and len(self._out) > _MOST_UNSENT:
                raise OSError("it has keys changed and does not read the answers")
        self.pending = self._more or bool(self._out and not self._held)
        return filled

    def _slice(self, sealed: Bytes, start: int, most: int) -> tuple[int, int]:
        """Where what OpenSSL is given next ends: after `most` records that begin in it, or about 64 KB; and how many
        they are. It ends within a record only where `sealed` does, and within no record's header."""
        size, enough = len(sealed) - _HEADER, start + _SLICE
        at, records = start + self._due, 0
        while at <= size and records < most and at < enough:
            at += _HEADER + (sealed[at + 3] << 8 | sealed[at + 4])
            records += 1
        end = min(at, size + _HEADER)
        self._due = at - end
        return end, records

    def _keep(self, kept: Bytes) -> None:
        self._layer.kept += len(kept) - len(self._kept)
        self._kept = kept

    def _opened(self, view: memoryview, filled: int) -> int:
        """How much of `view` is filled after all that is in the shared buffer has been taken."""
        tls, incoming = self._tls, self._layer.incoming
        read: Callable[[int, memoryview], int] = tls.read  # type: ignore[assignment]
        size, before, given = len(view), filled, incoming.pending
        try:
            while True:
                got = read(size - filled, view[filled:] if filled else view)
                filled += got
                if filled == size or not got:
                    self._due = 0  # it stands between two records
                    self._keep(incoming.read())
                    self._ended = not got
                    self._more = bool(self._kept or not got or tls.pending())
                    break
                if not incoming.pending:
                    break
        except ssl.SSLWantReadError:
            pass
        self._barren = 0 if filled > before else self._barren + given
        if self._barren > _MOST_BARREN:
            raise OSError("it sends nothing but changes of keys")
        return filled

    def send(self, data: Bytes, /) -> int:
        """HOT. One piece of it at most."""
        if self._out and not self.flush():
            raise BlockingIOError
        if self._held:
            held, self._held = self._held, 0
            return held
        most = self._piece
        try:
            taken = self._tls.write(data if len(data) <= most else memoryview(data)[:most])
        except BaseException:
            self._say_last()
            raise
        sealed = self._layer.outgoing.read()
        try:
            sent = self._sock.send(sealed)
        except BlockingIOError:
            sent = 0
        if sent < len(sealed):
            self._out, self._held = unsent(sealed, sent), taken
            self._piece = _LEAST_AT_ONCE
            raise BlockingIOError
        if taken == most and most < _AT_ONCE:
            self._piece = most * 2
        return taken

    def send_range(self, head: Bytes, part: FileRange) -> int:
        """HOT. Head and range leave in one piece."""
        size = len(head)
        if self._held > size:
            return self._sent_before()
        if size >= self._piece:
            return self.send(head)
        end = min(size + part.length, self._piece)
        scratch = self._layer.scratch
        scratch[:size] = head
        got = os.preadv(part.file.fd, [scratch[size:end]], part.position)
        return self.send(scratch[: size + got])

    def _sent_before(self) -> int:
        """What the last send has encrypted, head and some of the range, is done with when it has left."""
        if not self.flush():
            raise BlockingIOError
        done, self._held = self._held, 0
        return done

    def flush(self) -> bool:
        try:
            while self._out:
                sent = self._sock.send(self._out)
                self._out = unsent(self._out, sent)
        except BlockingIOError:
            return False
        self.pending = self._more
        return True

    def wake_after(self, size: int) -> None:
        lowest = max(size - _RECORD, 1)
        if lowest != self._lowest:
            self._lowest = lowest
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, lowest)

    def has_ended(self) -> bool:
        """Before it closes, a peer says so in a record that only OpenSSL can read. So little that has come is opened,
        and kept if it is something else."""
        if self._more:
            return self._ended and not self._early
        try:
            few = self._sock.recv(_FAREWELL, socket.MSG_PEEK)
            if len(few) == _FAREWELL:
                return False
            view = memoryview(bytearray(_FAREWELL))
            got = self.recv_into(view) if few else 0
        except BlockingIOError:
            return False
        except OSError:
            return True
        if got:
            self._early = bytes(view[:got])
            self._more = self.pending = True
        return not got

    def close(self) -> None:
        """Says that this is the end, if it may be said now and somebody is there to hear it: most peers do without."""
        if not self._out and not self._left:
            with suppress(OSError):
                self._tls.unwrap()
            self._say_last()
        self._sock.close()
        self._keep(b"")

    def abort(self) -> None:
        reset(self._sock)
        self._keep(b"")

    def _say_last(self) -> None:
        """What OpenSSL has to say of an error, or of the end, is tried once."""
        last = bytes(self._out) + self._layer.outgoing.read()
        self._layer.clear()
        if last:
            with suppress(OSError):
                self._sock.send(last)
        self._out = b""


_OTHER_PROTOCOLS = {
    "WRONG_VERSION_NUMBER": "it does not begin as TLS does (its security.protocol?)",
    "HTTP_REQUEST": "it begins as HTTP does, without TLS",
}


def _reason(error: ssl.SSLError) -> str:
    if error.reason in _OTHER_PROTOCOLS:
        return _OTHER_PROTOCOLS[error.reason]
    text = getattr(error, "verify_message", None) or error.reason or str(error)
    return text.lower().replace("_", " ")
