"""Builds a whole broker from what it is handed: by the daemon, or by a test with its own clock, store and links.

`broker/starting` comes before. The parts do nothing before `Parts.start`.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from kafkad.api.audit import Audit
from kafkad.api.context import Context
from kafkad.api.dispatch import Dispatcher
from kafkad.api.fetch import FetchApi
from kafkad.api.fetch_session import FetchSessions
from kafkad.api.produce import ProduceApi
from kafkad.api.routes import BETWEEN_BROKERS, FETCH, PRODUCE, ROUTES
from kafkad.api.verifier import Verifier
from kafkad.broker.coordinators import Coordinators
from kafkad.broker.log_dir_events import leader_and_isr_asker
from kafkad.broker.membership import Follower, Membership
from kafkad.broker.parts import Parts
from kafkad.broker.quotas import QuotasInForce
from kafkad.broker.settings import Settings
from kafkad.broker.starting import Identity, Platform, apply_settings
from kafkad.cleaner.cleaner import Cleaner
from kafkad.cluster.features import FinalizedFeatures, registered
from kafkad.cluster.producer_ids import ProducerIds
from kafkad.config import Config, validate_topic_configs
from kafkad.controller.channel import Channel, LocalChannel, RemoteChannel
from kafkad.controller.configs import ConfigAlterer
from kafkad.controller.controller import Controller
from kafkad.controller.entities import EntityAlterer
from kafkad.controller.link import ClosableLink, CurrentController, LocalController
from kafkad.controller.settings import Balance, ControllerSettings, Patience, TopicDefaults
from kafkad.log.batch_workers import BatchWorkers
from kafkad.meta.znodes import Broker as Registration
from kafkad.meta.znodes import Config as ConfigNode
from kafkad.metrics import RequestProbe
from kafkad.model import OWN_SOFTWARE, BrokerInfo, Endpoint
from kafkad.replica.durable import Durable
from kafkad.replica.isr import LagLimits
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import ReplicaParts
from kafkad.replica.waits import Waits
from kafkad.security.authorizer import ALLOW_ALL
from kafkad.turns import Backlog, Jobs
from kafkad.upkeep.moves import ReplicaMoves
from kafkad.upkeep.upkeep import Upkeep

if TYPE_CHECKING:
    from kafkad.api.logins import Logins
    from kafkad.broker.issuers import Issuers
    from kafkad.broker.own_password import OwnPassword
    from kafkad.broker.replication import Replication
    from kafkad.cluster.tokens import DelegationTokens
    from kafkad.net.server import Server

log = logging.getLogger(__name__)

_SESSION_EVICTION_MS = 120_000


def build(platform: Platform, identity: Identity) -> Parts:
    """With the settings that the store has now: they may have changed while logs were loaded."""
    settings, threads = identity.settings, platform.threads
    settings.override(cluster_wide=identity.configs.cluster, per_broker=identity.configs.broker)
    apply_settings(platform, settings.config, identity.limits)

    def config() -> Config:
        return settings.config

    durable = Durable(platform.logs.files, threads)
    replicas = _replicas(platform, identity, durable)
    controller = _controller(platform, identity, replicas)
    link = _controller_link(platform, identity, replicas, controller)
    features = FinalizedFeatures(
        platform.store,
        platform.clock,
        platform.timers,
        alone=platform.links is None,
        wanted_transaction_version=settings.config.int("kafkad.transaction.version"),
    )
    features.on_lowered.append(lambda: _have_clients_ask_again(platform.server, features))
    tokens = _tokens(platform, settings.static)
    moves = ReplicaMoves(
        replicas,
        durable,
        platform.timers,
        lambda: settings.config.long("replica.alter.log.dirs.io.max.bytes.per.second"),
    )
    producer_ids = ProducerIds(link.allocate_producer_ids)
    coordinators = Coordinators(
        replicas,
        link,
        platform.store,
        config=config,
        clock=platform.clock,
        timers=platform.timers,
        connect=platform.links,
        take_producer_id=producer_ids.take,
        level=lambda: features.transaction_version,
        lane=platform.server.lane,
    )
    verifier = Verifier(
        coordinators.transactions,
        identity.broker_id,
        platform.links,
        platform.clock,
        platform.timers,
        lambda: settings.config.int("request.timeout.ms"),
    )
    replicas.metadata.on_brokers_changed.append(lambda: verifier.brokers_changed(replicas.metadata.brokers))
    between_brokers = BETWEEN_BROKERS if platform.links is not None else ()
    batch_workers = BatchWorkers()
    context = Context(
        cluster_id=identity.cluster_id,
        broker_id=identity.broker_id,
        between_brokers=between_brokers,
        config=settings.config,
        clock=platform.clock,
        timers=platform.timers,
        replicas=replicas,
        controller=controller,
        controller_link=link,
        configs=identity.configs,
        acls=None if identity.rights is None else identity.rights.acls,
        alterer=ConfigAlterer(
            platform.store,
            identity.broker_id,
            config=config,
            topic_exists=lambda topic: topic in replicas.metadata.topics,
            check_broker=None if platform.tls is None else platform.tls.check,
        ),
        entity_alterer=EntityAlterer(platform.store),
        tokens=tokens,
        features=features,
        producer_ids=producer_ids,
        moves=moves,
        group_coordination=coordinators.groups,
        leadership=coordinators.leadership,
        groups=coordinators.classic_groups,
        offsets=coordinators.offsets,
        stored_offsets=coordinators.stored_offsets,
        markers=coordinators.markers,
        verifier=verifier,
        batch_workers=batch_workers,
        transactions=coordinators.transactions,
        audit=Audit(platform.clock.monotonic_ms, platform.timers.at),
    )
    jobs = Jobs(platform.server.lane)
    probes = {route.key: RequestProbe(route.name) for route in (*ROUTES, *between_brokers)}
    produce = ProduceApi(replicas, platform.clock, platform.timers, batch_workers, probes[PRODUCE], jobs, verifier)
    produce.verifies = settings.config.bool("transaction.partition.verification.enable")
    fetch = _fetch(platform, settings, replicas, probes[FETCH], jobs)
    issuers = _issuers(platform, settings.static)
    logins = _logins(platform, identity, issuers, tokens)
    rights = identity.rights
    authorizer = ALLOW_ALL if rights is None else rights.authorizer
    dispatcher = Dispatcher(context, produce, fetch, probes, jobs, authorizer, logins)
    followers: list[Follower] = [identity.configs, features, controller]
    if rights is not None:
        rights.acls.on_change += [dispatcher.permissions_changed, fetch.sessions.rights_changed]
        followers.insert(0, rights.acls)
    if tokens is not None:
        followers.append(tokens)
    parts = Parts(
        platform=platform,
        identity=identity,
        replicas=replicas,
        controller=controller,
        controller_link=link,
        replication=_replication(platform, settings, replicas, link),
        membership=_membership(platform, identity, replicas, followers),
        features=features,
        tokens=tokens,
        durable=durable,
        moves=moves,
        coordinators=coordinators,
        batch_workers=batch_workers,
        verifier=verifier,
        produce=produce,
        fetch=fetch,
        probes=probes,
        context=context,
        dispatcher=dispatcher,
        issuers=issuers,
        logins=logins,
        own_password=None if logins is None else _own_password(identity),
        quotas=QuotasInForce(
            identity.configs.entities,
            dispatcher,
            platform.server,
            config,
            clock=platform.clock,
            timers=platform.timers,
            blocking_calls=platform.blocking_calls,
        ),
        upkeep=Upkeep(platform.logs, replicas, durable, config, platform.timers),
        cleaner=Cleaner(replicas, config, threads.others, platform.timers),
    )
    identity.configs.listen(ConfigNode.TOPICS, lambda topic, overrides: replicas.topic_config_changed(topic))
    identity.configs.listen(ConfigNode.TOPICS, lambda topic, overrides: controller.configs_changed(topic))
    identity.configs.listen(ConfigNode.BROKERS, lambda name, overrides: parts.overrides_changed())
    parts.quotas.follow()
    return parts


def _replicas(platform: Platform, identity: Identity, durable: Durable) -> ReplicaManager:
    loop = asyncio.get_running_loop()
    parts = ReplicaParts(
        broker_id=identity.broker_id,
        clock=platform.clock,
        waits=Waits(platform.timers, platform.clock, Backlog(platform.server.lane).add),
        durable=durable,
        lag=_lag_limits(identity.settings.config),
    )
    configs = identity.configs
    replicas = ReplicaManager(parts, platform.logs, identity.settings.of_topic, configs.load_topics, platform.halt)
    replicas.ask_for_leader_and_isr = leader_and_isr_asker(
        loop, platform.store, identity.broker_id, platform.clock, platform.timers
    )
    replicas.on_topics_deleted.append(configs.forget_topics)
    return replicas


def _issuers(platform: Platform, config: Config) -> Issuers | None:
    """None where no listener asks for a login: any other may get OAUTHBEARER while the broker runs."""
    if not config.login_listeners:
        return None
    from kafkad.broker.issuers import Issuers

    return Issuers(platform.blocking_calls, platform.clock, platform.timers)


def _logins(
    platform: Platform, identity: Identity, issuers: Issuers | None, tokens: DelegationTokens | None
) -> Logins | None:
    """None where no listener asks for one."""
    if issuers is None:
        return None
    from kafkad.broker.logins import logins

    return logins(
        identity.settings,
        identity.login_secret,
        identity.configs.entities,
        platform.server.connections,
        platform.clock,
        issuers,
        tokens,
    )


def _own_password(identity: Identity) -> OwnPassword:
    from kafkad.broker.own_password import OwnPassword

    return OwnPassword(identity.settings, identity.configs.entities)


def _lag_limits(config: Config) -> LagLimits:
    messages = config.long("kafkad.replica.lag.max.messages")
    return LagLimits(config.long("replica.lag.time.max.ms"), messages if messages >= 0 else inf)


def _controller(platform: Platform, identity: Identity, replicas: ReplicaManager) -> Controller:
    settings = identity.settings
    return Controller(
        platform.store,
        ControllerSettings(
            broker=identity.broker_id,
            unclean=settings.unclean,
            listener=settings.config.inter_broker_listener,
            topics=lambda: _topic_defaults(settings.config),
            balance=_balance(settings.config) if platform.links is not None else None,
            patience=_patience(platform, settings.config) if platform.links is not None else None,
            left_alone=identity.left_alone,
            known_topic=identity.stored_topics.take,
            deletes_topics=lambda: settings.config.bool("delete.topic.enable"),
            load_configs=identity.configs.load_topics,
            fewest_leaders=lambda: settings.config.str("kafkad.leader.election") == "fewest-leaders",
        ),
        connect=partial(_channel, platform, identity, replicas),
        check_config=lambda configs: validate_topic_configs(configs, settings.config),
        clock=platform.clock,
        timers=platform.timers,
        random=platform.random,
    )


def _patience(platform: Platform, config: Config) -> Patience:
    return Patience.of(config.long("replica.lag.time.max.ms"), platform.store.session_timeout_ms)


def _channel(platform: Platform, identity: Identity, replicas: ReplicaManager, broker: BrokerInfo) -> Channel:
    links = platform.control_links or platform.links
    if broker.id == identity.broker_id or links is None:
        return LocalChannel(replicas)
    return RemoteChannel(links(broker), identity.settings.config.int("controller.socket.timeout.ms"))


def _controller_link(
    platform: Platform, identity: Identity, replicas: ReplicaManager, controller: Controller
) -> CurrentController:
    broker, links = identity.broker_id, platform.control_links or platform.links
    timeout_ms = identity.settings.config.int("controller.socket.timeout.ms")

    def epoch() -> int:
        return replicas.broker_epoch

    def remote(found: BrokerInfo) -> ClosableLink:
        from kafkad.controller.remote import RemoteController

        assert links is not None
        return RemoteController(links(found), broker, epoch, replicas.metadata, timeout_ms)

    return CurrentController(
        controller,
        LocalController(controller, broker, epoch),
        lambda active: replicas.metadata.brokers.get(active),
        remote if links is not None else None,
    )


def _balance(config: Config) -> Balance | None:
    if not config.bool("auto.leader.rebalance.enable"):
        return None
    seconds = config.long("leader.imbalance.check.interval.seconds")
    return Balance(seconds * 1000, config.int("leader.imbalance.per.broker.percentage"))


def _replication(
    platform: Platform, settings: Settings, replicas: ReplicaManager, link: CurrentController
) -> Replication | None:
    if platform.links is None:
        return None
    from kafkad.broker.replication import Replication

    return Replication(
        replicas,
        platform.links,
        link.alter_isr,
        config=settings.config,
        clock=platform.clock,
        timers=platform.timers,
    )


def _tokens(platform: Platform, config: Config) -> DelegationTokens | None:
    if not config.value("delegation.token.secret.key") and not config.value("delegation.token.master.key"):
        return None
    from kafkad.cluster.tokens import DelegationTokens, TokenSettings

    return DelegationTokens(platform.store, TokenSettings.of(config), platform.clock, platform.timers)


def _topic_defaults(config: Config) -> TopicDefaults:
    start = config.int("kafkad.placement.start")
    return TopicDefaults(
        partitions=config.int("num.partitions"),
        replication_factor=config.int("default.replication.factor"),
        placement_start=start if start >= 0 else None,
    )


def _membership(
    platform: Platform, identity: Identity, replicas: ReplicaManager, followers: list[Follower]
) -> Membership:
    def on_epoch(epoch: int) -> None:
        replicas.broker_epoch = epoch

    longest_session_ms = platform.store.session_timeout_ms * 3 // 2

    async def before_registering() -> None:
        lost = platform.logs.lost_tails()
        missing = {tp: topic_id for tp, topic_id in identity.missing.items() if platform.logs.get(tp) is None}
        if (lost or missing) and platform.links is not None:
            from kafkad.broker.leave_isr import OtherBrokers, gone_replicas, leave_isrs

            gone = await gone_replicas(platform.store, missing, identity.directories_since)
            replicas.lost_tails.gone = gone
            others = OtherBrokers(
                platform.store,
                platform.links,
                clock=platform.clock,
                timers=platform.timers,
                patience_ms=longest_session_ms,
            )
            await leave_isrs(platform.store, identity.broker_id, lost, gone, others)

    return Membership(
        platform.store,
        lambda: _registration(platform, identity),
        clock=platform.clock,
        timers=platform.timers,
        patience_ms=longest_session_ms if identity.was_here else 0,
        before_registering=before_registering,
        on_epoch=on_epoch,
        followers=followers,
        cluster_id=identity.cluster_id,
        halt=platform.halt,
    )


def _registration(platform: Platform, identity: Identity) -> Registration:
    """The advertised listeners, with the ports that were really bound."""
    config = identity.settings.config
    bound = {listener.name: listener.port for listener in platform.server.listeners}
    endpoints = tuple(
        Endpoint(listener=e.listener, host=e.host, port=e.port or bound[e.listener], protocol=e.protocol)
        for e in config.advertised_listeners
    )
    rack = config.value("broker.rack")
    info = BrokerInfo(id=identity.broker_id, endpoints=endpoints, rack=str(rack) if rack else None)
    features = registered(config.int("kafkad.transaction.version"))
    return Registration(broker=info, timestamp_ms=platform.clock.now_ms(), features=features)


def _have_clients_ask_again(server: Server, features: FinalizedFeatures) -> None:
    """Those that were told the transaction version: a Kafka 3.9 may lead soon, and would refuse what producers of 4.x
    go on to send. No broker begins transactions."""
    told = [each for each in server.connections() if (each.peer.software or (OWN_SOFTWARE,))[0] != OWN_SOFTWARE]
    log.info(
        "transaction.version is %d now: %d connections whose clients were told more are closed when nothing is being "
        "answered there, and come back",
        *(features.transaction_version, len(told)),
    )
    server.renewal.begin(told)


def _fetch(
    platform: Platform, settings: Settings, replicas: ReplicaManager, probe: RequestProbe, jobs: Jobs
) -> FetchApi:
    config = settings.config
    slots = config.int("max.incremental.fetch.session.cache.slots")
    sessions = FetchSessions(slots, _SESSION_EVICTION_MS, platform.random, jobs.do)
    fetch = FetchApi(replicas, sessions, platform.clock, probe, jobs)
    fetch.max_bytes = config.int("fetch.max.bytes")
    fetch.reads_nearest = config.value("replica.selector.class") is not None
    return fetch
