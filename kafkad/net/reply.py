"""The pieces of a reply, bytes and ranges of files, and their sending with as few calls as possible."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

_SMALL_RANGE = 16 * 1024
"""Reading such a range and sending it with what stands around it costs less than a sendfile of its own."""
_ONE_SEND = 64 * 1024
BYTES = (bytes, bytearray, memoryview)


class OpenFile(Protocol):
    @property
    def fd(self) -> int: ...


class FileRange(Protocol):
    """Bytes that stand in a file and go to the socket without passing through this process."""

    @property
    def file(self) -> OpenFile: ...
    @property
    def position(self) -> int: ...
    @property
    def length(self) -> int: ...


Bytes = bytes | bytearray | memoryview
Part = Bytes | FileRange
Reply = bytes | bytearray | list[Part]


class Pending:
    def __repr__(self) -> str:
        return "PENDING"


PENDING: Final = Pending()
"""Returned by a dispatcher when the reply will come later, by `Connection.reply`."""


class NotTaken:
    def __repr__(self) -> str:
        return "NOT_TAKEN"


NOT_TAKEN: Final = NotTaken()
"""Returned by a door for a frame that has to wait: it is kept, and handed over again by `Connection.take_turn`."""


class UnsentRange:
    """The unsent rest of a range that is sent in pieces."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: OpenFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length


def gathered(out: deque[Part]) -> Bytes:
    """Takes from the queue what leaves in one send: bytes and small ranges, up to the next large one."""
    run: list[Bytes] = []
    size = 0
    while out and size < _ONE_SEND:
        part = out[0]
        if isinstance(part, BYTES):
            data: Bytes = part
        elif part.length <= _SMALL_RANGE:
            data = os.pread(part.file.fd, part.length, part.position)
            if len(data) < part.length:
                raise cut_off(part)
        else:
            break
        out.popleft()
        run.append(data)
        size += len(data)
    return run[0] if len(run) == 1 else b"".join(run)


def cut_off(part: FileRange) -> OSError:
    return OSError(errno.EIO, f"the file ends before position {part.position + part.length}, which was promised")


def joined(replies: list[Reply]) -> Reply:
    """Replies of pipelined requests leave in one send when none of them comes from a file."""
    if all(type(reply) is not list for reply in replies):
        return b"".join(replies)  # type: ignore[arg-type]
    parts: list[Part] = []
    for reply in replies:
        parts += reply if type(reply) is list else [reply]  # type: ignore[list-item]
    return parts


def size_of(reply: Reply) -> int:
    if type(reply) is not list:
        return len(reply)
    return sum(len(part) if isinstance(part, BYTES) else part.length for part in reply)


def memory_of(out: Iterable[Part]) -> int:
    return sum(len(part) for part in out if isinstance(part, BYTES))


def unsent(data: Bytes, sent: int) -> Bytes:
    """The unsent rest of it. A large one is copied only when that frees half of its memory: it leaves in hundreds of
    pieces."""
    left = memoryview(data)[sent:]
    whole = len(data.obj) if isinstance(data, memoryview) else len(data)  # type: ignore[arg-type]
    return left if len(left) > max(_ONE_SEND, whole // 2) else bytes(left)
