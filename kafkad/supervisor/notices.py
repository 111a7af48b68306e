"""Receives what brokers tell their supervisor in systemd's way (sd_notify): ready, status, more time, watchdog."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from struct import Struct

_CREDENTIALS = Struct("iII")
"""process, user, group: the kernel vouches for them"""
_LARGEST = 8192

Notice = Callable[[int, Mapping[str, str]], None]


class Notices:
    """A socket without a file. `take` is called with the process id of the sender and what it says."""

    def __init__(self, take: Notice) -> None:
        self._take = take
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind("")  # the kernel chooses a name in the abstract namespace
        asyncio.get_running_loop().add_reader(self._socket, self._receive)

    @property
    def address(self) -> str:
        """For NOTIFY_SOCKET."""
        return f"@{os.fsdecode(self._socket.getsockname()[1:])}"

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def _receive(self) -> None:
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(_LARGEST, socket.CMSG_SPACE(_CREDENTIALS.size))
            except BlockingIOError:
                return
            for level, kind, content in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                    process, _, _ = _CREDENTIALS.unpack(content)
                    self._take(process, _assignments(data))


def _assignments(data: bytes) -> dict[str, str]:
    pairs = (line.partition("=") for line in data.decode(errors="replace").splitlines())
    return {name: value for name, _, value in pairs}
