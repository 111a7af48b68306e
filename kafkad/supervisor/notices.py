"""Receives what a broker tells its supervisor in systemd's way (sd_notify): ready, status, more time, watchdog."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping

_LARGEST = 8192

Notice = Mapping[str, str]


class Notices:
    """A pair of connected sockets. A broker's process inherits `there`, and so nobody else can speak or be in its way.
    `take` is called with each notice, from `listen` until `close`."""

    def __init__(self, take: Callable[[Notice], None]) -> None:
        self._take = take
        self._here, self.there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._here.setblocking(False)

    def listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._here, self._receive)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._here)
        self._here.close()
        self.there.close()

    def _receive(self) -> None:
        """One in each turn of the loop: a broker that speaks without end keeps nobody else waiting."""
        self._take(_assignments(self._here.recv(_LARGEST)))


def _assignments(data: bytes) -> dict[str, str]:
    pairs = (line.partition("=") for line in data.decode(errors="replace").splitlines())
    return {name: value for name, _, value in pairs}
