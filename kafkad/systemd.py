"""Notices to systemd (sd_notify): ready, reloading, stopping, a status line, and the watchdog."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress

STOP_ALL = signal.SIGINT
"""What a supervisor sends to its brokers when all of them are to stop; to stop one of several, send SIGTERM to it."""


class Notifier:
    """Sends datagrams to the socket systemd named; without one every call does nothing.

    A message that cannot be sent is dropped: the service manager is never a reason to stop serving.
    """

    def __init__(self, address: str | None, *, watchdog_us: int = 0) -> None:
        self._address = _socket_address(address) if address else None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if address else None
        if self._socket is not None:
            self._socket.setblocking(False)
        self._watchdog_us = watchdog_us

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> Notifier:
        """Takes the variables out of `environ`, so that worker processes do not speak for the broker."""
        address = environ.pop("NOTIFY_SOCKET", None)
        watchdog_us = environ.pop("WATCHDOG_USEC", "")
        watchdog_pid = environ.pop("WATCHDOG_PID", "")
        ours = not watchdog_pid or watchdog_pid == str(os.getpid())
        return cls(address, watchdog_us=int(watchdog_us) if ours and watchdog_us.isdecimal() else 0)

    @property
    def watchdog_interval_s(self) -> float | None:
        """The interval of `watchdog` calls: twice as often as systemd asks for, so that one late call does no harm."""
        return self._watchdog_us / 2_000_000 if self._watchdog_us and self._socket else None

    def ready(self, status: str) -> None:
        """Listeners accept and logs are recovered; also the end of a reload."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        self._send("STOPPING=1", f"STATUS={status}")

    def status(self, text: str) -> None:
        self._send(f"STATUS={text}")

    def watchdog(self) -> None:
        self._send("WATCHDOG=1")

    def extend_timeout(self, seconds: float) -> None:
        """Start or stop may take this much longer from now on: recovery says so while it makes progress."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, *assignments: str) -> None:
        if self._socket is None or self._address is None:
            return
        message = "\n".join(line.replace("\n", " ") for line in assignments).encode()
        with suppress(OSError):
            self._socket.sendto(message, self._address)


def _socket_address(announced: str) -> str:
    """A leading @ stands for the zero byte of Linux's abstract namespace."""
    return f"\0{announced[1:]}" if announced.startswith("@") else announced
