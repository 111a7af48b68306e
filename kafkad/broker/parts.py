"""The parts of a broker while it runs: started, told of new settings, and stopped. `broker/building` makes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkad.api.context import Context
from kafkad.api.dispatch import Dispatcher
from kafkad.api.fetch import FetchApi
from kafkad.api.produce import ProduceApi
from kafkad.api.verifier import Verifier
from kafkad.broker import metering
from kafkad.broker.controlled_shutdown import ControlledShutdown
from kafkad.broker.coordinators import Coordinators
from kafkad.broker.findings import tell_of_strays
from kafkad.broker.lifecycle import Lifecycle
from kafkad.broker.membership import Membership
from kafkad.broker.quotas import QuotasInForce
from kafkad.broker.settings import Settings
from kafkad.broker.starting import Identity, Platform, apply_settings, stop_following
from kafkad.broker.takeover import pass_over_known_producers
from kafkad.cleaner.cleaner import Cleaner
from kafkad.cluster.features import FinalizedFeatures
from kafkad.controller.adoption import has_topics
from kafkad.controller.controller import Controller
from kafkad.controller.link import CurrentController
from kafkad.log.batch_workers import BatchWorkers
from kafkad.meta.retrying import until_answered
from kafkad.metrics import Registry, RequestProbe
from kafkad.replica.durable import Durable
from kafkad.replica.manager import ReplicaManager
from kafkad.upkeep.moves import ReplicaMoves
from kafkad.upkeep.upkeep import Upkeep

if TYPE_CHECKING:
    from kafkad.api.logins import Logins
    from kafkad.broker.issuers import Issuers
    from kafkad.broker.own_password import OwnPassword
    from kafkad.broker.replication import Replication
    from kafkad.cluster.tokens import DelegationTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of one broker."""

    platform: Platform
    identity: Identity
    replicas: ReplicaManager
    controller: Controller
    controller_link: CurrentController
    replication: Replication | None
    """None where there can be no other broker."""
    membership: Membership
    features: FinalizedFeatures
    tokens: DelegationTokens | None
    """None without `delegation.token.secret.key`."""
    durable: Durable
    moves: ReplicaMoves
    coordinators: Coordinators
    batch_workers: BatchWorkers
    verifier: Verifier
    produce: ProduceApi
    fetch: FetchApi
    probes: dict[int, RequestProbe]
    context: Context
    dispatcher: Dispatcher
    issuers: Issuers | None
    """None where no listener asks for a login."""
    logins: Logins | None
    own_password: OwnPassword | None
    quotas: QuotasInForce
    upkeep: Upkeep
    cleaner: Cleaner

    @property
    def settings(self) -> Settings:
        return self.identity.settings

    async def start(self, before_serving: Callable[[], None] = lambda: None) -> None:
        """Joins the cluster, and serves what its controller gives to this broker."""
        await self.identity.limits.hosts_found()
        self.replicas.cuts.begin()
        await self.membership.join()
        await self._compare_with_store()
        await self.controller.start()
        await self.features.start()
        if self.tokens is not None:
            await self.tokens.start()
        if self.issuers is not None:
            self.issuers.start()
        self.upkeep.start()
        self.cleaner.start()
        self.moves.resume()
        self.coordinators.start()
        before_serving()
        self.platform.server.start(self.dispatcher)

    async def _compare_with_store(self) -> None:
        """Before there is a request: the membership, from its beginning on, gets a new session where one expires."""
        platform = self.platform
        store = platform.store

        async def compare() -> None:
            if platform.links is not None:
                self.replicas.metadata.expects_topics = await has_topics(store)
            await pass_over_known_producers(store, self.identity.broker_id, platform.logs)

        await until_answered(compare, "compare the logs with what the store knows", platform.clock, platform.timers)

    async def wait_until_ready(self) -> None:
        """Returns when the controller has told this broker of the cluster, so that it can tell clients, and when the
        issuers of tokens have been asked for their keys."""
        await self.replicas.metadata.is_here.wait()
        if self.issuers is not None:
            await self.issuers.asked()
        tell_of_strays(self.platform.logs, self.replicas.metadata, self.identity.broker_id)

    async def leave(self) -> None:
        """Hands the leadership of partitions over to other brokers, if there can be any; clients are still answered."""
        if self.replication is not None:
            self.replication.fetchers.leave()
        if self.platform.links is not None and self.settings.config.bool("controlled.shutdown.enable"):
            await ControlledShutdown(
                self.controller_link,
                self.controller,
                self.replicas,
                self.platform.store,
                self.settings.config,
                clock=self.platform.clock,
                timers=self.platform.timers,
            ).run()

    async def stop_taking(self) -> None:
        """Takes no more connections and coordinates nothing more; what was asked may still be answered."""
        self.platform.server.stop_accepting()
        await self.verifier.stop()
        await self.coordinators.stop()

    @property
    def idle(self) -> bool:
        """True if no answer is still being worked out, and the audit trail is written."""
        return self.dispatcher.idle and self.produce.idle and self.context.audit.idle

    @property
    def oldest_wait_for_followers(self) -> object | None:
        """The produce that has waited longest for other brokers; None while something else is being worked out."""
        return self.produce.oldest_wait_for_followers if self.dispatcher.idle else None

    async def stop(self) -> None:
        """After `stop_taking`. Leaves the log directories as after a clean stop; the store's session stays open."""
        if self.replication is not None:
            await self.replication.stop()
        await self.cleaner.stop()
        await self.upkeep.stop()
        await self.moves.stop()
        await self.membership.stop()
        await self.features.stop()
        if self.tokens is not None:
            await self.tokens.stop()
        if self.issuers is not None:
            await self.issuers.stop()
        await stop_following(self.identity.configs, self.identity.rights)
        await self.controller.stop()
        self.controller_link.close()
        self.replicas.cuts.stop()
        await self.dispatcher.stop()
        await self.produce.stop()
        loop, threads = asyncio.get_running_loop(), self.platform.threads.others
        self.platform.logs.finish_work_in_pieces()
        high_watermarks = self.replicas.high_watermarks(self.platform.logs.logs)
        await loop.run_in_executor(threads, self.platform.logs.close, high_watermarks)
        await loop.run_in_executor(threads, self.batch_workers.close)

    def overrides_changed(self, *, every_store: bool = False) -> None:
        """The store's settings of this broker, or the static ones beneath them, are others now. `every_store`: as in
        `BrokerTls.refresh`."""
        configs, settings = self.identity.configs, self.settings
        settings.override(cluster_wide=configs.cluster, per_broker=configs.broker)
        config = settings.config
        self.context.config = config
        if self.logins is not None:  # first, so that users who are gone are closed whatever fails below
            self.logins.settings_changed()
        self.fetch.max_bytes = config.int("fetch.max.bytes")
        self.produce.verifies = config.bool("transaction.partition.verification.enable")
        apply_settings(self.platform, config, self.identity.limits, every_store=every_store)
        self.quotas.settings_changed()
        self.cleaner.settings_changed()
        self.replicas.all_configs_changed()
        self.controller.configs_changed(None)
        if self.replication is not None:
            self.replication.settings_changed(config)
        if self.own_password is not None:
            self.own_password.settings_changed()

    def metrics(self, lifecycle: Lifecycle, with_users: Callable[[], bool]) -> Registry:
        """`with_users`: whether names of users may be told at that moment."""
        return metering.registry(
            lifecycle=lifecycle,
            probes=self.probes.values(),
            server=self.platform.server,
            logs=self.platform.logs,
            cleaner=self.cleaner,
            replicas=self.replicas,
            controller=self.controller,
            sessions=self.fetch.sessions,
            groups=self.coordinators.classic_groups,
            offsets=self.coordinators.offsets,
            verifier=self.verifier,
            transactions=self.coordinators.transaction_families,
            quotas=lambda: self.quotas.collect(with_users=with_users()),
            config=lambda: self.settings.config,
            logins=self.logins,
        )
