"""Whether the machine at the other end of a connection is still there.

What lies between two machines may forget a connection and drop all that is sent over it, while it lets new ones pass.
A kernel acknowledges what it is sent, also for a process that is busy or stopped and whose buffer is full; so a
connection is dead when nothing has been acknowledged for four looks. Where nothing is under way, the kernel looks by
itself (SO_KEEPALIVE). Where something is, it would go on for many minutes. TCP_USER_TIMEOUT shortens that, but it also
ends a connection to a process that does not read for so long.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import Final

_LOOKS: Final = 4
_LONGEST_PAUSE_S: Final = 60
_IN_A_ROW: Final = 2
"""Retransmissions, or probes, without an answer: of the first one it may be on its way, however long ago the last one
came."""
_TCP_INFO: Final = struct.Struct("=2xBB52xI")
"""Of `struct tcp_info`: retransmissions since the last acknowledgement, probes while the other side takes nothing (its
window is zero), and how many ms ago the last acknowledgement was."""


def seconds_between_looks(lag_time_ms: int) -> int:
    """So that a dead connection is given up within half of `replica.lag.time.max.ms`, as a broker is that does not
    answer; but no sooner than after four seconds, for the kernel counts whole ones, and a look may be lost."""
    return min(max(lag_time_ms // (2 * _LOOKS * 1000), 1), _LONGEST_PAUSE_S)


def is_dead(tcp_info: bytes, look_s: int) -> bool:
    """By what Linux says of a connection over which something is under way."""
    retransmitted, probed, silent_ms = _TCP_INFO.unpack_from(tcp_info)
    return bool(max(retransmitted, probed) >= _IN_A_ROW and silent_ms >= _LOOKS * look_s * 1000)


class Lifeline:
    """That of a connected socket. Elsewhere than on Linux, the system's own times count."""

    __slots__ = ("_look_s", "_sock")

    def __init__(self, sock: socket.socket, look_s: int) -> None:
        self._sock = sock
        self._look_s = look_s
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, look_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, look_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _LOOKS - 1)

    @property
    def look_ms(self) -> int:
        """To ask `is_dead` so often, while an answer is waited for, is enough."""
        return self._look_s * 1000

    def is_dead(self) -> bool:
        if sys.platform != "linux":
            return False
        return is_dead(self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size), self._look_s)
