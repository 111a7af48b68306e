"""What a start does before there are parts.

`identify` asks the metadata store who the broker is, and `load` reads its logs. Then `broker/building`
makes all parts from that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafkad.broker.adoption_guard import refuse_partial_adoption
from kafkad.broker.connection_limits import ConnectionLimits
from kafkad.broker.findings import tell_of_foreign, tell_of_kraft, tell_of_mended
from kafkad.broker.identity import StartError, choose_broker_id, claim_directories, login_secret
from kafkad.broker.settings import Settings
from kafkad.broker.stored_topics import StoredTopics
from kafkad.broker.takeover import take_over
from kafkad.clock import Clock
from kafkad.cluster.configs import DynamicConfigs
from kafkad.config import Config, ConfigError
from kafkad.config.checks import of_keys_and_logins
from kafkad.controller.configs import encrypt_anew
from kafkad.controller.registration import cluster_id, prepare
from kafkad.log.loading import LoadingProgress
from kafkad.log.manager import LogManager
from kafkad.meta.retrying import in_any_session
from kafkad.meta.store import MetaStore
from kafkad.model import BrokerInfo
from kafkad.names import TopicId, TopicPartition
from kafkad.net.server import Server
from kafkad.replica.disk_threads import DiskThreads
from kafkad.security.gssapi import keytab_problem
from kafkad.timers import Timers

if TYPE_CHECKING:
    from kafkad.broker.rights import Rights
    from kafkad.broker.tls import BrokerTls
    from kafkad.net.client import FrameLink

log = logging.getLogger(__name__)

LinkFactory = Callable[[BrokerInfo], "FrameLink"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """The platform that a broker is built on. The caller closes it.

    `store` is this broker's session with the metadata store; `logs` are locked and not loaded yet; `server` has its
    listeners bound; `links` reach other brokers, and are None where there can be none; `control_links` are those
    between the controller and brokers, where these have a listener of their own; `halt` ends the broker when nothing is
    left to serve from. `threads` are for the disks; those of `blocking_calls` wait for others, such as an
    issuer of tokens.
    """

    clock: Clock
    timers: Timers
    threads: DiskThreads
    blocking_calls: Executor
    random: Random
    store: MetaStore
    logs: LogManager
    server: Server
    links: LinkFactory | None = None
    control_links: LinkFactory | None = None
    tls: BrokerTls | None = None
    """None where no listener is encrypted."""
    halt: Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Identity:
    """Who this broker is, and what the metadata store has set for it.

    `was_here` says that its log directories were this broker's before.
    """

    cluster_id: str
    broker_id: int
    was_here: bool
    settings: Settings
    configs: DynamicConfigs
    limits: ConnectionLimits
    rights: Rights | None
    """None without an authorizer."""
    login_secret: bytes
    """Empty where no listener asks for a login."""
    stored_topics: StoredTopics
    """As they were before this broker wrote any; once logs are loaded, of a store of its own alone."""
    directories_since: int
    """The transaction since which its log directories are as they are."""
    left_alone: Mapping[str, str] = field(default_factory=dict)
    """Topics that are not the cluster's, with a directory of each that is here; not asked where there can be other
    brokers."""
    missing: Mapping[TopicPartition, TopicId] = field(default_factory=dict)
    """Replicas that were assigned to it before that, and were in no directory when logs were loaded; none where one is
    offline. Asked only where there can be other brokers."""


async def identify(platform: Platform, settings: Settings) -> Identity:
    """Identity, then settings. Waits for a store that is away, and begins over where its session expires; no log is
    open before it ends."""
    limits = ConnectionLimits(settings, platform.server, platform.blocking_calls, platform.clock, platform.timers)
    read = partial(_identify, platform, settings, limits)
    return await in_any_session(platform.store, read, "find out who this broker is", platform.clock, platform.timers)


async def _identify(platform: Platform, settings: Settings, limits: ConnectionLimits) -> Identity:
    store, logs = platform.store, platform.logs
    known_cluster, known_broker = logs.identity()
    await prepare(store)
    cluster = await cluster_id(store, known_cluster)
    broker = await choose_broker_id(store, settings.config, known_broker)
    alone = platform.links is None
    if alone:
        await refuse_partial_adoption(store, cluster, broker, logs.directories, settings.config.metadata_dir)
    since = await claim_directories(store, logs, cluster, broker, alone=alone)
    if settings.static.value("password.encoder.old.secret"):
        await encrypt_anew(store, broker, settings.static)
    configs = DynamicConfigs(store, broker, platform.clock, platform.timers)
    rights = None
    try:
        await configs.start()
        secret = await login_secret(store) if settings.config.login_listeners else b""
        if settings.config.str("authorizer.class.name"):
            from kafkad.broker.rights import load_rights

            rights = await load_rights(settings.config, store, platform.clock, platform.timers)
        settings.follow(configs.topic)
        settings.override(cluster_wide=configs.cluster, per_broker=configs.broker)
        begin_keys_and_logins(settings, platform.tls)
        if rights is not None:
            rights.tell_of_doubtful(settings.config, alone=alone)
        apply_settings(platform, settings.config, limits)
        stored_topics = await StoredTopics.read(store)
    except BaseException:
        await stop_following(configs, rights)
        raise
    return Identity(
        cluster_id=cluster,
        broker_id=broker,
        was_here=broker == known_broker,
        settings=settings,
        configs=configs,
        limits=limits,
        rights=rights,
        login_secret=secret,
        stored_topics=stored_topics,
        directories_since=since,
    )


async def load(platform: Platform, identity: Identity, on_progress: Callable[[LoadingProgress], None]) -> None:
    """Reads the logs in a thread; `on_progress` is called there, and may end it. Where there can be other brokers the
    metadata store is not asked: the session may expire meanwhile, and is renewed when the broker registers."""
    logs, stored_topics = platform.logs, identity.stored_topics
    try:
        read = partial(logs.load, identity.settings.of_topic, on_progress, stored_topics.id_of)
        await asyncio.get_running_loop().run_in_executor(platform.threads.others, read)
        tell_of_mended(logs)
        tell_of_foreign(logs)
        tell_of_kraft(logs)
        if platform.links is not None:
            held = await stored_topics.held_before(identity.directories_since, identity.broker_id)
            identity.missing = logs.missing(held)
            identity.stored_topics = StoredTopics({})
        else:
            try:
                identity.left_alone = await take_over(
                    platform.store, stored_topics, identity.broker_id, logs, identity.settings.config
                )
            except StartError:
                await asyncio.get_running_loop().run_in_executor(
                    platform.threads.others, logs.close
                )  # as they were found
                raise
    except BaseException:
        await stop_following(identity.configs, identity.rights)
        raise


def begin_keys_and_logins(settings: Settings, tls: BrokerTls | None) -> None:
    """By the settings in force: as in Kafka, the store may have what the file lacks. Or else by the file alone: where
    the store spoils that, the broker is to run all the same, for only then it can be set right. Raises ConfigError or
    StartError."""
    config, static = settings.config, settings.static
    missing, missing_in_file = of_keys_and_logins(config), of_keys_and_logins(static)
    if missing and missing_in_file:
        raise ConfigError(*missing)
    problem = None if missing else keytab_problem(config)
    if problem is not None:
        if missing_in_file or keytab_problem(static) is not None:
            raise StartError(problem)
        log.error("%s; no ticket is accepted by it: set the dynamic setting that names it right, or remove it", problem)
    if tls is not None:
        try:
            tls.begin(config, static)
        except ValueError as error:
            raise StartError(f"{error}") from error


def apply_settings(platform: Platform, config: Config, limits: ConnectionLimits, *, every_store: bool = False) -> None:
    """To what is there before the parts are. `every_store`: as in `BrokerTls.refresh`."""
    limits.settings_changed()
    if platform.tls is not None:
        platform.tls.refresh(config, every=every_store)
    platform.logs.expire_producers_after(config.int("producer.id.expiration.ms"))


async def stop_following(configs: DynamicConfigs, rights: Rights | None) -> None:
    await configs.stop()
    if rights is not None:
        await rights.acls.stop()
