"""Puts the limits of connections that are set in force at the server, where hosts may stand under a name."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Executor

from kafkad.broker.host_addresses import HostAddresses
from kafkad.broker.settings import Settings
from kafkad.clock import Clock
from kafkad.net.server import Server
from kafkad.timers import Timers

log = logging.getLogger(__name__)

_PATIENCE_MS = 10_000
"""Of the start: a resolver asks the second name server after 5 s."""


class ConnectionLimits:
    """Names are looked up, in `threads`, when the setting changes that has them; nobody waits for that."""

    def __init__(self, settings: Settings, server: Server, threads: Executor, clock: Clock, timers: Timers) -> None:
        self._settings = settings
        self._server = server
        self._per_host: Mapping[str, int] = {}
        self._hosts = HostAddresses(threads, clock, timers, self._apply, "max.connections.per.ip.overrides")

    def settings_changed(self) -> None:
        before, self._per_host = self._per_host, self._configured()
        if before != self._per_host:
            for host in before.keys() - self._per_host.keys():
                self._hosts.forget(host)
            for host in self._per_host:
                self._hosts.look_up(host)
        self._apply()

    async def hosts_found(self) -> None:
        """For the start: nobody who has a limit of its own comes before it is known, unless the name server is away."""
        await self._hosts.all_found(_PATIENCE_MS)

    def _apply(self) -> None:
        per_address = {address: most for host, most in self._per_host.items() for address in self._hosts.of(host)}
        self._server.apply(self._settings.limits(per_address))

    def _configured(self) -> Mapping[str, int]:
        """Empty where the metadata store has something else in this setting, which only a hand can have put there."""
        try:
            return self._settings.config.max_connections_per_ip_overrides()
        except ValueError as error:
            log.warning("%s; the setting is left out", error)
            return {}
