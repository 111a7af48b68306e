"""Notices to systemd, or in its way (sd_notify) to a supervisor: ready, reloading, stopping, a status line, and the
watchdog; and the signals that ask for a reload, or for the end of all brokers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, MutableMapping
from contextlib import suppress

RELOADED = "configuration reloaded"
NOT_RELOADED = "configuration not reloaded: see the log"
STOP_ALL = signal.SIGINT
"""What a supervisor sends to its brokers when all of them are to stop; to stop one of several, send SIGTERM to it."""
NOT_BLANK = "X_FILE_NOT_BLANK"
"""Tells a supervisor that the broker runs by a file that sets something. systemd ignores what begins with X_."""

_STATES = {"READY", "RELOADING", "MONOTONIC_USEC", "STOPPING"}
"""Only the last of them holds."""


def reload_on_sighup(loop: asyncio.AbstractEventLoop, reload: Callable[[], None]) -> None:
    """Calls `reload` for each SIGHUP from now on, and for one that has come already: the process starts with them held
    back, for one that nobody listens to would end it."""
    loop.add_signal_handler(signal.SIGHUP, reload)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


class Notifier:
    """Sends datagrams to the socket systemd named, or over one that is `connected` to a supervisor; without either
    every call does nothing.

    What cannot be sent goes with the next message, if it still holds then: the service manager is never a reason to
    stop serving, but it may not have read for a moment, and it hears only once that the service is ready.
    """

    def __init__(self, address: str | None, *, connected: socket.socket | None = None, watchdog_us: int = 0) -> None:
        self._address = _socket_address(address) if address and connected is None else None
        self._socket = connected
        if self._address is not None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        if self._socket is not None:
            self._socket.setblocking(False)
        self._watchdog_us = watchdog_us
        self._unsent: dict[str, str] = {}

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str], connected: socket.socket | None = None) -> Notifier:
        """Takes the variables out of `environ`, so that worker processes do not speak for the broker."""
        address = environ.pop("NOTIFY_SOCKET", None)
        watchdog_us = environ.pop("WATCHDOG_USEC", "")
        watchdog_pid = environ.pop("WATCHDOG_PID", "")
        ours = not watchdog_pid or watchdog_pid == str(os.getpid())
        interval_us = int(watchdog_us) if ours and watchdog_us.isdecimal() else 0
        return cls(address, connected=connected, watchdog_us=interval_us)

    @property
    def watchdog_interval_s(self) -> float | None:
        """The interval of `watchdog` calls: twice as often as systemd asks for, so that one late call does no harm."""
        return self._watchdog_us / 2_000_000 if self._watchdog_us and self._socket else None

    def ready(self, status: str, *, not_blank: bool = False) -> None:
        """Listeners accept and logs are recovered; also the end of a reload. `not_blank` is for a supervisor."""
        self._send(READY="1", STATUS=status, **({NOT_BLANK: "1"} if not_blank else {}))

    def reloading(self) -> None:
        self._send(RELOADING="1", MONOTONIC_USEC=str(time.monotonic_ns() // 1000))

    def stopping(self, status: str) -> None:
        self._send(STOPPING="1", STATUS=status)

    def status(self, text: str) -> None:
        self._send(STATUS=text)

    def watchdog(self) -> None:
        self._send(WATCHDOG="1")

    def extend_timeout(self, seconds: float) -> None:
        """Start or stop may take this much longer from now on: recovery says so while it makes progress, a stop while
        it waits for others."""
        self._send(EXTEND_TIMEOUT_USEC=str(int(seconds * 1_000_000)))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, **assignments: str) -> None:
        if self._socket is None:
            return
        if _STATES & assignments.keys():
            self._unsent = {name: value for name, value in self._unsent.items() if name not in _STATES}
        self._unsent |= assignments
        message = "\n".join(f"{name}={value}".replace("\n", " ") for name, value in self._unsent.items()).encode()
        with suppress(OSError):
            self._socket.sendmsg([message], [], 0, self._address)
            self._unsent = {}


def _socket_address(announced: str) -> str:
    """A leading @ stands for the zero byte of Linux's abstract namespace."""
    return f"\0{announced[1:]}" if announced.startswith("@") else announced
