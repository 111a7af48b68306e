"""Replication between brokers: fetches what this broker follows, and keeps the ISRs of what it leads.

Built only where there can be other brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kafkad.clock import Clock
from kafkad.config import Config
from kafkad.model import BrokerInfo
from kafkad.net.client import FrameLink
from kafkad.replica.fetchers import Fetchers, FetcherSettings
from kafkad.replica.fetching import FetchLimits
from kafkad.replica.isr_changes import AlterIsr, IsrChanges
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.mending import Mender
from kafkad.replica.partition import Partition
from kafkad.timers import Timers


class Replication:
    def __init__(
        self,
        replicas: ReplicaManager,
        connect: Callable[[BrokerInfo], FrameLink],
        alter_isr: AlterIsr,
        *,
        config: Config,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._replicas = replicas
        self.fetchers = Fetchers(replicas, connect, fetcher_settings(config), clock, timers)
        self.isr_changes = IsrChanges(replicas, alter_isr, clock, timers)
        self._clock = clock
        self._mender = Mender(replicas, connect, clock, timers)
        self._mender.start()
        replicas.on_roles_changed = self.fetchers.follow
        replicas.metadata.on_brokers_changed.append(self._brokers_changed)
        replicas.parts.on_isr_change = self.isr_changes.want
        self._set_quotas(config)

    def _brokers_changed(self) -> None:
        self.fetchers.brokers_changed()
        alive = frozenset(self._replicas.metadata.brokers)  # one may be back before all have heard that it was gone
        self._replicas.do_some_at_a_time(self._replicas, partial(Partition.brokers_changed, alive=alive))

    def settings_changed(self, config: Config) -> None:
        self.fetchers.settings_changed(fetcher_settings(config))
        self._set_quotas(config)

    def _set_quotas(self, config: Config) -> None:
        parts, now_ms = self._replicas.parts, self._clock.monotonic_ms()
        parts.leader_quota.limit(config.long("leader.replication.throttled.rate"), now_ms)
        parts.follower_quota.limit(config.long("follower.replication.throttled.rate"), now_ms)

    async def stop(self) -> None:
        await self._mender.stop()
        await self.fetchers.stop()
        await self.isr_changes.stop()


def fetcher_settings(config: Config) -> FetcherSettings:
    return FetcherSettings(
        limits=FetchLimits(
            wait_max_ms=config.int("replica.fetch.wait.max.ms"),
            min_bytes=config.int("replica.fetch.min.bytes"),
            response_max_bytes=config.int("replica.fetch.response.max.bytes"),
            partition_max_bytes=config.int("replica.fetch.max.bytes"),
        ),
        per_leader=config.int("num.replica.fetchers"),
        backoff_ms=config.int("replica.fetch.backoff.ms"),
        timeout_ms=config.int("replica.socket.timeout.ms"),
    )
