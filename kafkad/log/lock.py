"""The lock of a log directory, which Kafka's brokers and kafkad respect from each other."""

from __future__ import annotations

import fcntl
import os
import struct

from kafkad.opening import open_at_once

LOCK = ".lock"

_FLOCK = struct.Struct("hhqqi4x")
_WHOLE_FILE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def take(fd: int) -> None:
    """OSError when another has it. It is let go when the file is closed."""
    # Of the open file, not of the process, yet in the way of a JVM's lock, which is the process's.
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _WHOLE_FILE)


def holder(fd: int) -> int:
    """The process that holds the lock, if it is a JVM that the kernel can name."""
    kind, pid = _ask(fd)
    return pid if kind != fcntl.F_UNLCK and pid > 0 else 0


def is_taken(directory: str) -> bool:
    """True if a broker is using the directory."""
    try:
        fd = open_at_once(os.path.join(directory, LOCK), os.O_RDONLY)
    except OSError:
        return False
    try:
        return _ask(fd)[0] != fcntl.F_UNLCK
    finally:
        os.close(fd)


def _ask(fd: int) -> tuple[int, int]:
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, _WHOLE_FILE))
    return int(kind), int(pid)
