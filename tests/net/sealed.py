"""A transport that behaves as TLS does, but is easy to see through: records, keys that change, nothing of sendfile.

A record is one byte (data, or a new key), two bytes of length, and that many bytes, each combined with the key.
"""

from __future__ import annotations

import os
import socket

from kafkad.net.reply import Bytes, FileRange
from kafkad.net.transport import has_ended, reset

DATA, NEW_KEY = 0, 1
RECORD = 16 * 1024
_AT_ONCE = 4 * RECORD
FIRST_KEY = 0x5A
HELLO = b"hello, these are my certificates " * 3_000
"""The server's greeting, more than a small socket takes at once."""


def seal(data: bytes | memoryview, key: int, kind: int = DATA) -> bytes:
    table = bytes(each ^ key for each in range(256))
    records = (bytes(data[at : at + RECORD]).translate(table) for at in range(0, len(data), RECORD))
    return b"".join(bytes([kind]) + len(each).to_bytes(2, "big") + each for each in records)


class Opener:
    """Opens the records of one direction."""

    def __init__(self) -> None:
        self.key = FIRST_KEY
        self._sealed = bytearray()

    def open(self, data: bytes) -> tuple[bytes, list[int]]:
        """The contents of the records that are complete now, and the new keys among them."""
        self._sealed += data
        opened, keys = bytearray(), []
        while len(self._sealed) >= 3:
            kind, size = self._sealed[0], int.from_bytes(self._sealed[1:3], "big")
            if len(self._sealed) < 3 + size:
                break
            plain = bytes(each ^ self.key for each in self._sealed[3 : 3 + size])
            del self._sealed[: 3 + size]
            if kind == DATA:
                opened += plain
            elif kind == NEW_KEY:
                self.key = plain[0]
                keys.append(self.key)
            else:
                raise OSError("this is no record")
        return bytes(opened), keys


class SealedTransport:
    """The server's side. It greets with HELLO before anything else, and answers each new key with its own."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sent_ranges = 0
        self._sock = sock
        self._opener = Opener()
        self._key = FIRST_KEY
        self._opened = bytearray()
        self._sealed = bytearray()
        """The bytes that have to leave; `_held` bytes of what was given to `send` are in it."""
        self._held = 0
        self._greeted = False

    @property
    def subject(self) -> None:
        return None

    @property
    def pending(self) -> bool:
        return bool(self._opened or (self._sealed and not self._held))

    @property
    def has_part(self) -> bool:
        return False

    @property
    def unsent(self) -> int:
        return len(self._sealed)

    def fileno(self) -> int:
        return self._sock.fileno()

    def recv_into(self, view: memoryview, /) -> int:
        if len(self._opened) < len(view):
            self._receive()
        size = min(len(view), len(self._opened))
        view[:size] = self._opened[:size]
        del self._opened[:size]
        return size

    def _receive(self) -> None:
        while True:
            try:
                data = self._sock.recv(1 << 20)
            except BlockingIOError:
                if self._opened:
                    return
                raise
            if not data:
                return
            if not self._greeted:
                self._greeted = True
                self._sealed += seal(HELLO, self._key)
            opened, keys = self._opener.open(data)
            self._opened += opened
            for key in keys:
                self._sealed += seal(bytes([key]), self._key, NEW_KEY)
                self._key = key
            self.flush()

    def send(self, data: Bytes, /) -> int:
        if not self.flush():
            raise BlockingIOError
        done, self._held = self._held, 0
        more = memoryview(data)[done : done + _AT_ONCE]
        if not len(more):
            return done
        self._sealed += seal(more, self._key)
        if self.flush():
            return done + len(more)
        self._held = len(more)
        if not done:
            raise BlockingIOError
        return done

    def send_range(self, head: Bytes, part: FileRange) -> int:
        self.sent_ranges += 1
        data = bytes(head) + os.pread(part.file.fd, min(part.length, _AT_ONCE), part.position)
        return self.send(data) if data else 0

    def flush(self) -> bool:
        try:
            while self._sealed:
                del self._sealed[: self._sock.send(self._sealed)]
        except BlockingIOError:
            return False
        return True

    def wake_after(self, size: int) -> None:
        pass

    def has_ended(self) -> bool:
        return has_ended(self._sock)

    def close(self) -> None:
        self._sock.close()

    def abort(self) -> None:
        reset(self._sock)
