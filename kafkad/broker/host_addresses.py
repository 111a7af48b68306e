"""The addresses of hosts that settings and quotas name: a name server may take its time, so it is asked in a thread."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial

log = logging.getLogger(__name__)


class HostAddresses:
    def __init__(self, threads: Executor, on_found: Callable[[], None], setting: str) -> None:
        """`on_found` is called when addresses have come that were waited for; `setting` is what names the hosts."""
        self._threads = threads
        self._on_found = on_found
        self._setting = setting
        self._known: dict[str, Sequence[str]] = {}
        self._looking: dict[str, asyncio.Future[Sequence[str]]] = {}

    def of(self, host: str) -> Sequence[str]:
        """None as long as it is not known."""
        return self._known.get(host, ())

    def look_up(self, host: str) -> None:
        """Now, or again. What is known of it holds until something is found."""
        address = _address(host)
        if address is not None:
            self._known[host] = (address,)
        else:
            asked = asyncio.get_running_loop().run_in_executor(self._threads, _addresses_of, host, self._setting)
            self._looking[host] = asked
            asked.add_done_callback(partial(self._found, host))

    def forget(self, host: str) -> None:
        self._known.pop(host, None)
        self._looking.pop(host, None)

    async def all_found(self) -> None:
        """Also those that are not there."""
        while self._looking:
            await asyncio.wait(self._looking.values())

    def _found(self, host: str, asked: asyncio.Future[Sequence[str]]) -> None:
        if self._looking.get(host) is not asked:
            return
        del self._looking[host]
        if not asked.cancelled() and (found := asked.result()):
            self._known[host] = found
            self._on_found()


def _address(host: str) -> str | None:
    """In its shortest form; None for a name. The module `ipaddress` would take 3 ms of each start."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, ValueError):
            return socket.inet_ntop(family, socket.inet_pton(family, host))
    return None


def _addresses_of(host: str, setting: str) -> Sequence[str]:
    try:
        return [str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:  # UnicodeError: it cannot be the name of a host
        why = error.strerror if isinstance(error, OSError) else error
        log.warning("%s: no address of %s was found: %s", setting, host, why)
        return ()
