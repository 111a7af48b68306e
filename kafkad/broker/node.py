"""The composition root: builds the parts, starts them in order, stops them in reverse."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from time import monotonic

from kafkad import STARTED, loggers
from kafkad.api.audit import Audit, note_change
from kafkad.api.context import Context
from kafkad.api.dispatch import Dispatcher
from kafkad.api.fetch import FetchApi
from kafkad.api.fetch_session import FetchSessions
from kafkad.api.produce import ProduceApi
from kafkad.api.routes import FETCH, PRODUCE, ROUTES
from kafkad.broker import metering
from kafkad.broker.coordinators import Coordinators
from kafkad.broker.directory_events import reporter
from kafkad.broker.identity import StartError, choose_broker_id, claim_directories, refuse_lost_store
from kafkad.broker.lifecycle import BrokerState, Lifecycle
from kafkad.broker.loop_timers import LoopTimers
from kafkad.broker.progress import RecoveryProgress
from kafkad.broker.settings import Settings, max_open_files
from kafkad.broker.takeover import (
    stored_ids,
    take_over,
    tell_of_damage,
    tell_of_mended,
    tell_of_offline,
    tell_of_strays,
)
from kafkad.cleaner.cleaner import Cleaner
from kafkad.clock import SystemClock
from kafkad.cluster.configs import DynamicConfigs
from kafkad.cluster.features import FinalizedFeatures
from kafkad.cluster.producer_ids import ProducerIds
from kafkad.config import Config, ConfigError, validate_topic_configs
from kafkad.controller.channel import LocalChannel
from kafkad.controller.configs import ConfigAlterer
from kafkad.controller.controller import Controller
from kafkad.controller.registration import DuplicateBroker, cluster_id, prepare, register
from kafkad.controller.term import ControllerSettings
from kafkad.controller.topics import TopicDefaults
from kafkad.log.checkpoint import CheckpointError
from kafkad.log.directories import DirectoryLockedError, ForeignDirectoryError
from kafkad.log.loading import DuplicatePartitionError, IdOf, LoadingStopped
from kafkad.log.manager import LogManager, NoLogDirectoryError
from kafkad.log.open_files import LimitedFiles
from kafkad.log.recompress import SlowPath
from kafkad.meta.embedded import EmbeddedStore
from kafkad.meta.journal import JournalError
from kafkad.meta.store import MetaStore
from kafkad.meta.znodes import Broker as Registration
from kafkad.meta.znodes import Config as ConfigNode
from kafkad.metrics import Registry, RequestProbe
from kafkad.model import BrokerInfo, Endpoint
from kafkad.net import http
from kafkad.net.http import Condition, Endpoints, HttpServer
from kafkad.net.server import Server
from kafkad.replica.durable import Durable
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.waits import Waits
from kafkad.systemd import Notifier
from kafkad.turns import Jobs
from kafkad.upkeep.moves import ReplicaMoves
from kafkad.upkeep.upkeep import Upkeep

log = logging.getLogger(__name__)

_THREADS = 4
_IDLE_CHECK_S = 10
_DRAIN_S = 30
_SESSION_EVICTION_MS = 120_000
_FAILED = 1

_REFUSALS = (
    CheckpointError,
    DirectoryLockedError,
    DuplicateBroker,
    DuplicatePartitionError,
    ForeignDirectoryError,
    JournalError,
    NoLogDirectoryError,
    StartError,
)


class Node:
    """One broker. `serve` runs through its whole life."""

    def __init__(self, config: Config, read_config: Callable[[], Config]) -> None:
        self._read_config = read_config
        self._loop = asyncio.get_running_loop()
        self._clock = SystemClock()
        self._settings = Settings(config)
        self._notifier = Notifier.from_environment(os.environ)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="disk")
        self._timers = LoopTimers(self._loop, self._clock)
        self._stopping = asyncio.Event()
        self._lifecycle = Lifecycle()
        self._exit_code = 0
        self._chores: list[asyncio.Task[None]] = []
        self._http: HttpServer | None = None
        self._registry: Registry = metering.starting(self._lifecycle)

    async def serve(self) -> int:
        try:
            await self._start()
        except _REFUSALS as refusal:
            log.error("cannot start: %s", refusal)
            return _FAILED
        except LoadingStopped:
            await self._stop_loading()
            return 0
        await self._stopping.wait()
        await self._stop()
        return self._exit_code

    # -- start -----------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        config = self._settings.config
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stopping.set)
        self._server = Server(self._loop, self._settings.limits(), self._clock, self._timers.timers)
        self._bind(config)
        self._logs = LogManager(
            config.log_dirs,
            LimitedFiles(max_open_files(config)),
            self._clock,
            on_failure=tell_of_offline,
            on_damage=tell_of_damage,
        )
        await self._serve_http()
        self._logs.lock()
        await self._open_store(config.metadata_dir)
        session = self._store.session()
        await self._identify(session)
        await self._follow_configs(session)
        await self._load_logs(await stored_ids(session))
        await take_over(session, self._broker_id, self._logs, self._settings.config)
        await self._join(session)
        tell_of_strays(self._logs, self._replicas)
        self._serve_clients(session)
        self._serve_metrics()
        self._chores = [asyncio.create_task(chore) for chore in (self._close_idle(), self._feed_watchdog())]
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)
        self._announce()

    async def _open_store(self, directory: str) -> None:
        refuse_lost_store(directory, self._logs.directories)
        try:
            self._store = await self._loop.run_in_executor(self._threads, EmbeddedStore.open, directory, self._clock)
        except OSError as error:
            problem = f"{error.filename or directory}: {error.strerror}"
            raise StartError(f"cannot open the metadata store: {problem}; see kafkad.metadata.dir, log.dirs") from error
        self._store.is_starting = True

    def _bind(self, config: Config) -> None:
        """Before any data is touched: an address that is taken ends the start."""
        for endpoint in config.listeners:
            try:
                self._server.listen(endpoint.listener, endpoint.host, endpoint.port)
            except OSError as error:
                where = f"{endpoint.listener}://{endpoint.host}:{endpoint.port}"
                raise StartError(f"cannot listen on {where}: {error.strerror}; see the setting listeners") from error

    async def _identify(self, session: MetaStore) -> None:
        known_cluster, known_broker = self._logs.identity()
        await prepare(session)
        self._cluster_id = await cluster_id(session, known_cluster)
        self._broker_id = await choose_broker_id(session, self._settings.config, known_broker)
        await claim_directories(session, self._logs, self._cluster_id, self._broker_id)

    async def _follow_configs(self, session: MetaStore) -> None:
        self._configs = DynamicConfigs(session, self._broker_id, self._clock)
        await self._configs.start()
        self._settings.follow(self._configs.topic)
        self._settings.override(cluster_wide=self._configs.cluster, per_broker=self._configs.broker)
        config = self._settings.config
        self._server.limits = self._settings.limits()
        self._logs.expire_producers_after(config.int("producer.id.expiration.ms"))
        loggers.set_default_level(config.str("kafkad.log.level"))

    async def _load_logs(self, id_of: IdOf) -> None:
        """In a thread, so that the loop can tell systemd and the terminal how far it is."""
        self._lifecycle.enter(BrokerState.RECOVERY, "loading logs")
        progress = RecoveryProgress(self._loop, self._notifier, self._loading, self._stopping.is_set)
        load = partial(self._logs.load, self._settings.of_topic, progress.update, id_of)
        await self._loop.run_in_executor(self._threads, load)
        progress.done()
        tell_of_mended(self._logs)
        self._lifecycle.enter(BrokerState.STARTING, "logs are loaded; taking over their partitions")

    def _loading(self, doing: str) -> None:
        self._lifecycle.enter(BrokerState.RECOVERY, doing)

    async def _join(self, session: MetaStore) -> None:
        """Register, become the controller or find it, and take over what it says is this broker's."""
        waits = Waits(self._timers.timers, self._clock, self._loop.call_soon)
        self._durable = Durable(self._logs.files, self._threads)
        self._replicas = ReplicaManager(
            self._broker_id,
            self._logs,
            waits,
            self._durable,
            self._settings.of_topic,
            self._configs.load_topics,
            self._fail,
        )
        self._controller = Controller(
            session,
            ControllerSettings(
                broker=self._broker_id,
                unclean=self._settings.unclean,
                listener=self._settings.config.inter_broker_listener,
                topics=self._topic_defaults,
            ),
            connect=lambda broker: LocalChannel(self._replicas),
            check_config=validate_topic_configs,
            clock=self._clock,
        )
        self._replicas.on_replicas_changed = reporter(self._loop, session, self._broker_id)
        self._replicas.broker_epoch = await register(session, self._registration(), patience_seconds=0)
        await self._controller.start()
        self._features = FinalizedFeatures(session)
        await self._features.start()
        self._alterer = ConfigAlterer(
            session,
            self._broker_id,
            config=lambda: self._settings.config,
            topic_exists=lambda topic: topic in self._replicas.metadata.topics,
        )
        self._replicas.on_topics_deleted.append(self._configs.forget_topics)
        self._configs.listen(ConfigNode.TOPICS, lambda topic, overrides: self._replicas.topic_config_changed(topic))
        self._configs.listen(ConfigNode.BROKERS, lambda name, overrides: self._brokers_changed())

    def _topic_defaults(self) -> TopicDefaults:
        config = self._settings.config
        start = config.int("kafkad.placement.start")
        return TopicDefaults(
            partitions=config.int("num.partitions"),
            replication_factor=config.int("default.replication.factor"),
            placement_start=start if start >= 0 else None,
        )

    def _registration(self) -> Registration:
        """What other brokers and clients are told: the advertised listeners, with the ports that were really bound."""
        config = self._settings.config
        bound = {listener.name: listener.port for listener in self._server.listeners}
        endpoints = tuple(
            Endpoint(listener=e.listener, host=e.host, port=e.port or bound[e.listener], protocol=e.protocol)
            for e in config.advertised_listeners
        )
        rack = config.value("broker.rack")
        info = BrokerInfo(id=self._broker_id, endpoints=endpoints, rack=str(rack) if rack else None)
        return Registration(broker=info, timestamp_ms=self._clock.now_ms())

    def _serve_clients(self, session: MetaStore) -> None:
        config = self._settings.config
        self._moves = ReplicaMoves(self._replicas, self._durable)
        self._slow_path = SlowPath()
        self._coordinators = Coordinators(
            self._replicas,
            self._controller,
            session,
            config=lambda: self._settings.config,
            clock=self._clock,
            timers=self._timers.timers,
        )
        sessions = FetchSessions(
            config.int("max.incremental.fetch.session.cache.slots"), _SESSION_EVICTION_MS, Random()
        )
        self._context = Context(
            cluster_id=self._cluster_id,
            broker_id=self._broker_id,
            config=config,
            clock=self._clock,
            replicas=self._replicas,
            controller=self._controller,
            configs=self._configs,
            alterer=self._alterer,
            features=self._features,
            producer_ids=ProducerIds(
                lambda: self._controller.allocate_producer_ids(self._broker_id, self._replicas.broker_epoch)
            ),
            moves=self._moves,
            group_coordination=self._coordinators.groups,
            groups=self._coordinators.classic_groups,
            offsets=self._coordinators.offsets,
            stored_offsets=self._coordinators.stored_offsets,
            audit=Audit(),
        )
        self._probes = {route.key: RequestProbe(route.name) for route in ROUTES}
        jobs = Jobs(self._server.lane)
        self._fetch = FetchApi(self._replicas, sessions, self._clock, self._probes[FETCH], jobs)
        self._fetch.max_bytes = config.int("fetch.max.bytes")
        self._produce = ProduceApi(
            self._replicas, self._clock, self._timers.timers, self._slow_path, self._probes[PRODUCE], jobs
        )
        self._dispatcher = Dispatcher(self._context, self._produce, self._fetch, self._probes, jobs)
        self._upkeep = Upkeep(self._logs, self._replicas, self._durable, lambda: self._settings.config, self._threads)
        self._upkeep.start()
        self._cleaner = Cleaner(self._replicas, lambda: self._settings.config, self._threads)
        self._cleaner.start()
        self._moves.resume()
        self._coordinators.start()
        self._server.start(self._dispatcher)

    async def _serve_http(self) -> None:
        address = self._settings.config.http_listener
        if address is None:
            return
        endpoints = Endpoints(lambda: self._registry.pieces(), self._health, self._lifecycle.ready)
        try:
            self._http = await http.serve(address, endpoints)
        except OSError as error:
            raise StartError(f"cannot serve HTTP on {address}: {error.strerror}; see http.listener") from error

    def _serve_metrics(self) -> None:
        """Those of the running broker, in place of the few that there are before."""
        self._registry = metering.registry(
            lifecycle=self._lifecycle,
            probes=self._probes.values(),
            server=self._server,
            logs=self._logs,
            cleaner=self._cleaner,
            replicas=self._replicas,
            controller=self._controller,
            sessions=self._fetch.sessions,
            groups=self._coordinators.classic_groups,
            offsets=self._coordinators.offsets,
            config=lambda: self._settings.config,
        )

    def _health(self) -> Condition:
        offline = [directory.path for directory in self._logs.directories if directory.failure is not None]
        if offline:
            return Condition(False, f"log directories are offline: {', '.join(offline)}")
        health = self._lifecycle.health()
        damaged = [f"damaged: {damage.text(tp)}" for tp, damage in self._logs.damages.kept()]
        return Condition(health.good, "\n".join([health.text, *damaged]))

    def _announce(self) -> None:
        self._lifecycle.enter(BrokerState.RUNNING)
        listeners = ", ".join(map(str, self._server.listeners))
        topics = len(self._replicas.metadata.topics)
        partitions = sum(1 for _ in self._replicas)
        text = f"{topics} topics, {partitions} partitions" if topics else "no topics yet"
        log.info(
            "ready in %.2f s: broker %d of cluster %s listens on %s; data in %s; %s",
            monotonic() - STARTED,
            self._broker_id,
            self._cluster_id,
            listeners,
            ", ".join(directory.path for directory in self._logs.directories),
            text,
        )
        self._store.is_starting = False
        if self._store.is_behind:
            log.error("no room for the metadata in %s: changes are refused until there is", self._store.path)
        self._notifier.ready(f"listening on {listeners}; {text}")

    # -- while it runs ---------------------------------------------------------------------------------------------

    def _brokers_changed(self) -> None:
        self._settings.override(cluster_wide=self._configs.cluster, per_broker=self._configs.broker)
        self._apply_settings()

    def _apply_settings(self) -> None:
        config = self._settings.config
        self._context.config = config
        self._fetch.max_bytes = config.int("fetch.max.bytes")
        self._server.apply(self._settings.limits())
        self._logs.expire_producers_after(config.int("producer.id.expiration.ms"))
        self._cleaner.settings_changed()
        loggers.set_default_level(config.str("kafkad.log.level"))
        self._replicas.all_configs_changed()

    def _reload(self) -> None:
        """SIGHUP: read the configuration anew; what cannot change while running waits for a restart, and is named."""
        self._notifier.reloading()
        try:
            reload = self._settings.static.with_file(self._read_config())
        except ConfigError as error:
            log.error("the configuration stays as it is, the file cannot be used: %s", "; ".join(error.problems))
        else:
            self._settings.static = reload.config
            self._settings.override(cluster_wide=self._configs.cluster, per_broker=self._configs.broker)
            self._apply_settings()
            log.info("configuration reloaded; changed: %s", ", ".join(reload.changed) or "nothing")
            if reload.changed:
                note_change(
                    f"settings in {self._settings.static.file} changed: {', '.join(reload.changed)}", by="SIGHUP"
                )
            if reload.restart:
                log.warning("these need a restart to change: %s", ", ".join(reload.restart))
        self._notifier.ready("configuration reloaded")

    def _fail(self, why: str) -> None:
        """Nothing is left to serve from."""
        log.critical("stopping: %s", why)
        self._exit_code = _FAILED
        self._stopping.set()

    async def _close_idle(self) -> None:
        tick = 0
        while True:
            await asyncio.sleep(_IDLE_CHECK_S)
            tick += 1
            idle_ms = self._settings.config.long("connections.max.idle.ms")
            if idle_ms >= 0:
                self._server.close_idle(tick, tick - idle_ms // (_IDLE_CHECK_S * 1000))

    async def _feed_watchdog(self) -> None:
        interval_s = self._notifier.watchdog_interval_s
        while interval_s is not None:
            self._notifier.watchdog()
            await asyncio.sleep(interval_s)

    # -- stop ------------------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        """Take nothing new, answer what was asked, and leave the directories as after a clean stop."""
        begun = monotonic()
        log.info("stopping")
        self._lifecycle.enter(BrokerState.SHUTTING_DOWN, "stopping")
        self._notifier.stopping("finishing requests")
        for chore in self._chores:
            chore.cancel()
        self._server.stop_accepting()
        await self._coordinators.stop()
        await self._drain()
        self._server.close()
        await self._cleaner.stop()
        await self._upkeep.stop()
        await self._moves.stop()
        await self._features.stop()
        await self._configs.stop()
        if self._http is not None:
            await self._http.close()
        await self._controller.stop()
        self._notifier.status("writing logs and checkpoints")
        high_watermarks = self._replicas.high_watermarks()
        await self._loop.run_in_executor(self._threads, self._logs.close, high_watermarks)
        await self._store.close()
        await self._loop.run_in_executor(self._threads, self._slow_path.close)
        self._threads.shutdown()
        log.info("stopped cleanly in %.2f s", monotonic() - begun)

    async def _stop_loading(self) -> None:
        """No client has seen this broker yet, and nothing was changed: it goes at once."""
        log.info("told to stop while loading logs; log directories are left as they were found")
        self._lifecycle.enter(BrokerState.SHUTTING_DOWN, "stopping")
        self._notifier.stopping("told to stop while loading logs")
        if self._http is not None:
            await self._http.close()
        await self._configs.stop()
        await self._store.close()
        self._server.close()
        self._threads.shutdown()

    async def _drain(self) -> None:
        """Fetches that wait for data are not worth waiting for; everything else gets its answer."""
        deadline = monotonic() + _DRAIN_S
        while self._server.close_quiet() and monotonic() < deadline:
            if self._dispatcher.idle and self._produce.idle:
                return
            await asyncio.sleep(0.01)
