"""The addresses of hosts that settings and quotas name: a name server may take its time, so it is asked in a thread.

What it does not know, or not now, it is asked again every minute, until an address has come.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any

from kafkad.clock import Clock
from kafkad.net.server import unmapped
from kafkad.timers import Timer, Timers

log = logging.getLogger(__name__)

_RETRY_MS = 60_000


class HostAddresses:
    def __init__(
        self, threads: Executor, clock: Clock, timers: Timers, on_found: Callable[[], None], setting: str
    ) -> None:
        """`on_found` is called when addresses have come that were waited for; `setting` is what names the hosts."""
        self._threads = threads
        self._clock = clock
        self._timers = timers
        self._on_found = on_found
        self._setting = setting
        self._known: dict[str, Sequence[str]] = {}
        self._looking: dict[str, asyncio.Future[Sequence[str]]] = {}
        self._again: dict[str, Timer] = {}
        """Of those that were not found."""

    def of(self, host: str) -> Sequence[str]:
        """Empty as long as none is known."""
        return self._known.get(host, ())

    def look_up(self, host: str) -> None:
        """Now, or again. What is known of it holds until something is found."""
        self._forget_failure(host)
        address = _address(host)
        if address is not None:
            self._known[host] = (address,)
        else:
            self._ask(host)

    def forget(self, host: str) -> None:
        self._forget_failure(host)
        self._known.pop(host, None)
        self._looking.pop(host, None)

    async def all_found(self, patience_ms: float) -> None:
        """Also those that are not there. It does not wait longer than that, and says which ones are still looked up."""
        enough = asyncio.Event()
        timer = self._timers.at(self._clock.monotonic_ms() + patience_ms, enough.set)
        impatient = asyncio.create_task(enough.wait())
        try:
            while self._looking and not enough.is_set():
                either: list[asyncio.Future[Any]] = [impatient, *self._looking.values()]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            impatient.cancel()
        if self._looking:
            names = ", ".join(self._looking)
            log.warning("%s: no name server has answered yet for %s; it is not waited for", self._setting, names)

    def _ask(self, host: str) -> None:
        asked = asyncio.get_running_loop().run_in_executor(self._threads, _addresses_of, host)
        self._looking[host] = asked
        asked.add_done_callback(partial(self._answered, host))

    def _answered(self, host: str, asked: asyncio.Future[Sequence[str]]) -> None:
        if asked.cancelled() or self._looking.get(host) is not asked:
            return
        del self._looking[host]
        error = asked.exception()
        if error is not None:
            self._failed(host, error)
            return
        self._forget_failure(host)
        self._known[host] = asked.result()
        self._on_found()

    def _failed(self, host: str, error: BaseException) -> None:
        if host not in self._again:
            why = error.strerror if isinstance(error, OSError) else error
            log.warning("%s: no address of %s was found, it is tried again: %s", self._setting, host, why)
        self._again[host] = self._timers.at(self._clock.monotonic_ms() + _RETRY_MS, partial(self._ask, host))

    def _forget_failure(self, host: str) -> None:
        timer = self._again.pop(host, None)
        if timer is not None:
            timer.cancel()


def _address(host: str) -> str | None:
    """In the form in which peers are counted, which is the shortest; None for a name. The module `ipaddress` would take
    3 ms of each start."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, ValueError):
            return unmapped(socket.inet_ntop(family, socket.inet_pton(family, host)))
    return None


def _addresses_of(host: str) -> Sequence[str]:
    return [str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
