"""The rates of connections that addresses have in the metadata store, where they may stand under a name."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from ipaddress import ip_address

from kafkad.model import DEFAULT, Entity
from kafkad.security.quotas.keys import Quota
from kafkad.security.quotas.levels import Overrides, number

log = logging.getLogger(__name__)


class AddressRates:
    """Names are looked up once, when they get a rate, in `threads`: it holds for their addresses when these are known,
    which `on_found` is told."""

    def __init__(self, threads: Executor, on_found: Callable[[], None]) -> None:
        self.others: float | None = None
        """Of every address without a rate of its own."""
        self._threads = threads
        self._on_found = on_found
        self._rates: dict[str, float] = {}
        self._addresses: dict[str, Sequence[str]] = {}

    def put(self, entity: Entity, overrides: Overrides) -> None:
        """All that an address, or all others, has from now on."""
        rate = number(overrides.get(Quota.CONNECTION))
        host = entity.ip
        if host is DEFAULT:
            self.others = rate
        elif isinstance(host, str) and rate is None:
            self._rates.pop(host, None)
            self._addresses.pop(host, None)
        elif isinstance(host, str) and rate is not None:
            self._rates[host] = rate
            if host not in self._addresses:
                self._look_up(host)

    def by_address(self) -> Mapping[str, float]:
        return {address: rate for host, rate in self._rates.items() for address in self._addresses[host]}

    def _look_up(self, host: str) -> None:
        try:
            self._addresses[host] = (str(ip_address(host)),)
        except ValueError:
            self._addresses[host] = ()
            looking = asyncio.get_running_loop().run_in_executor(self._threads, _addresses_of, host)
            looking.add_done_callback(partial(self._found, host))

    def _found(self, host: str, looking: asyncio.Future[list[str]]) -> None:
        if host in self._rates and not looking.cancelled():
            self._addresses[host] = looking.result()
            self._on_found()


def _addresses_of(host: str) -> list[str]:
    try:
        return [str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        log.warning("the connection_creation_rate of %s holds for nobody: it has no address: %s", host, error)
        return []
