"""The rates of connections that addresses have in the metadata store, where they may stand under a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor

from kafkad.broker.host_addresses import HostAddresses
from kafkad.clock import Clock
from kafkad.model import DEFAULT, Entity
from kafkad.security.quotas.keys import Quota
from kafkad.security.quotas.levels import Overrides, number
from kafkad.timers import Timers


class AddressRates:
    """Names are looked up when they get a rate, in `threads`, until they are found: it holds for their addresses when
    these are known, which `on_found` is told."""

    def __init__(self, threads: Executor, clock: Clock, timers: Timers, on_found: Callable[[], None]) -> None:
        self.others: float | None = None
        """Of every address without a rate of its own."""
        self._rates: dict[str, float] = {}
        self._hosts = HostAddresses(threads, clock, timers, on_found, Quota.CONNECTION)

    def put(self, entity: Entity, overrides: Overrides) -> None:
        """All that an address, or all others, has from now on."""
        rate = number(overrides.get(Quota.CONNECTION))
        host = entity.ip
        if host is DEFAULT:
            self.others = rate
        elif isinstance(host, str) and rate is None:
            self._rates.pop(host, None)
            self._hosts.forget(host)
        elif isinstance(host, str) and rate is not None:
            if host not in self._rates:
                self._hosts.look_up(host)
            self._rates[host] = rate

    def by_address(self) -> Mapping[str, float]:
        return {address: rate for host, rate in self._rates.items() for address in self._hosts.of(host)}
