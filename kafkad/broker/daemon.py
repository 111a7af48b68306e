"""The daemon around a broker: signals, systemd, HTTP, the metadata store, reloads, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from itertools import count
from math import ceil
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from kafkad import STARTED
from kafkad.api.audit import note_change
from kafkad.api.dispatch import Dispatcher
from kafkad.broker import metering
from kafkad.broker.building import build
from kafkad.broker.draining import drain
from kafkad.broker.findings import Deletions, tell_of_damage, tell_of_kept, tell_of_offline
from kafkad.broker.identity import StartError, refuse_lost_store
from kafkad.broker.lifecycle import BrokerState, Lifecycle
from kafkad.broker.loop_timers import LoopTimers
from kafkad.broker.membership import DuplicateBroker
from kafkad.broker.metadata_store import MetadataStore
from kafkad.broker.parts import Parts
from kafkad.broker.progress import RecoveryProgress
from kafkad.broker.settings import Settings, max_open_files
from kafkad.broker.starting import LinkFactory, Platform, identify, load
from kafkad.broker.supervised import Supervised
from kafkad.broker.thread_per_call import ThreadPerCall
from kafkad.clock import SystemClock
from kafkad.config import Config, ConfigError, ZooKeeperAddress
from kafkad.config.exposed import exposed, has_open_metrics
from kafkad.config.reloading import settled
from kafkad.controller.registration import OtherCluster, refuse_other_cluster
from kafkad.exit_status import BAD_CONFIGURATION, FAILED
from kafkad.garbage import no_collections
from kafkad.log.checkpoint import CheckpointError
from kafkad.log.directories import DirectoryLockedError, ForeignDirectoryError
from kafkad.log.duplicates import DuplicatePartitionError
from kafkad.log.loading import LoadingStopped
from kafkad.log.manager import LogManager, NoLogDirectoryError
from kafkad.log.open_files import LimitedFiles
from kafkad.meta.embedded import EmbeddedStore, cannot_open
from kafkad.meta.journal import JournalError
from kafkad.meta.left_brokers import partitions_left_behind
from kafkad.meta.retrying import in_any_session
from kafkad.meta.store import ConnectionLoss, MetaError, MetaStore
from kafkad.metrics import Registry
from kafkad.net import http
from kafkad.net.http import DAMAGED, EXPOSED, Condition, Endpoints, HttpServer
from kafkad.net.server import CannotListen, Server
from kafkad.replica.disk_threads import DiskThreads, NoThreads
from kafkad.systemd import NOT_RELOADED, RELOADED, STOP_ALL, Notifier, reload_on_sighup
from kafkad.timers import every, sleep
from kafkad.turns import in_turns

if TYPE_CHECKING:
    from kafkad.broker.tls import BrokerTls

log = logging.getLogger(__name__)

_IDLE_CHECK_MS = 10_000
_IMPORT_AGAIN_MS = 1_000
_TIME_TO_STOP_S = 120
_ASK_FOR_TIME_S = 30

_REFUSALS = (
    CheckpointError,
    DirectoryLockedError,
    DuplicatePartitionError,
    ForeignDirectoryError,
    JournalError,
    MetaError,
    NoLogDirectoryError,
    NoThreads,
    StartError,
)


T = TypeVar("T")


class _StoppedEarly(Exception):
    """The broker was told to stop while it waited for something."""


def _contents(topics: int, partitions: int, *, among_others: bool) -> str:
    """What there is at the start. `partitions` are those in the log directories: in a cluster the controller says only
    later which of them this broker leads or follows."""
    if not topics and not partitions:
        return "no topics yet"
    if among_others:
        return f"{topics} topics in the cluster, {partitions} partitions here"
    return f"{topics} topics, {partitions} partitions"


async def _unless(told: asyncio.Event, waiting: Coroutine[Any, Any, T]) -> T:
    """Cancels `waiting` and raises _StoppedEarly when the event is set before it has ended."""
    task, telling = asyncio.create_task(waiting), asyncio.create_task(told.wait())
    await asyncio.wait([task, telling], return_when=asyncio.FIRST_COMPLETED)
    telling.cancel()
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.wait([task])
    raise _StoppedEarly


class Daemon:
    """One broker as a process of its own. `serve` runs through its whole life."""

    def __init__(self, config: Config, read_config: Callable[[], Config], supervised: Supervised | None) -> None:
        self._read_config = read_config
        self._supervised = supervised
        self._loop = asyncio.get_running_loop()
        self._clock = SystemClock()
        self._settings = Settings(config)
        self._notifier = Notifier.from_environment(os.environ, None if supervised is None else supervised.notices)
        self._blocking_calls = ThreadPerCall()
        self._timers = LoopTimers(self._loop, self._clock).timers
        self._server = Server(self._loop, self._settings.limits(), self._clock, self._timers)
        self._deletions = Deletions(self._clock.monotonic_ms, self._timers.at)
        self._logs = LogManager(
            config.log_dirs,
            LimitedFiles(max_open_files(config)),
            self._clock,
            on_failure=tell_of_offline,
            on_damage=tell_of_damage,
            on_deleted=self._deletions.note,
            on_kept=tell_of_kept,
        )
        self._threads = DiskThreads.of_each(directory.path for directory in self._logs.directories)
        self._tls: BrokerTls | None = None
        self._stopping = asyncio.Event()
        self._reload_asked = asyncio.Event()
        self._lifecycle = Lifecycle()
        self._registry: Registry = metering.starting(self._lifecycle)
        self._all_stop = asyncio.Event()
        self._exit_code = 0
        self._store: MetadataStore | None = None

    async def serve(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stopping.set)
        if self._supervised is not None:
            self._loop.add_signal_handler(STOP_ALL, self._stop_with_all)
        reload_on_sighup(self._loop, self._reload_asked.set)
        try:
            return await self._serve()
        except _REFUSALS as refusal:
            log.error("cannot start: %s", refusal)
            return FAILED
        except ConfigError as error:
            log.error("cannot start: %s", "; ".join(error.problems))
            return BAD_CONFIGURATION

    async def _serve(self) -> int:
        """Addresses are bound before any data is touched: one that is taken ends the start."""
        self._threads.start()
        chores = [] if self._supervised is None else [asyncio.create_task(self._feed_watchdog())]
        config = self._settings.config
        self._tls = self._make_tls(config)
        self._bind(config)
        health = await self._serve_http(config)
        self._logs.lock()
        try:
            store = self._store = await self._open_store(config)
            parts = await self._start(store)
        except (LoadingStopped, _StoppedEarly):
            await self._stop_loading(health)
            return self._exit_code
        if not self._stopping.is_set():
            self._announce(parts, store)
        imports = self._import_handlers(parts.dispatcher)
        work = [self._close_idle(), self._reload_when_asked(parts), imports]
        if self._supervised is None:
            work.append(self._feed_watchdog())
        if self._tls is not None:
            work.append(self._tls.follow_files())
        chores += [asyncio.create_task(chore) for chore in work]
        await self._stopping.wait()
        for chore in chores:
            chore.cancel()
        await self._stop(parts, store, health)
        return self._exit_code

    # -- start -----------------------------------------------------------------------------------------------------

    def _make_tls(self, config: Config) -> BrokerTls | None:
        """None where nothing is encrypted: then none of it is imported either."""
        if not config.encrypted_listeners:
            return None
        from kafkad.broker.tls import BrokerTls

        return BrokerTls(config, self._loop, self._clock, self._timers)

    def _bind(self, config: Config) -> None:
        for endpoint in config.listeners:
            try:
                self._server.listen(
                    *(endpoint.listener, endpoint.host, endpoint.port),
                    apart=endpoint.listener == config.control_plane_listener,
                    protected=endpoint.listener == config.protected_listener,
                    tls=self._tls.server(endpoint.listener) if self._tls is not None else None,
                    login=endpoint.listener in config.login_listeners,
                )
            except OSError as error:
                where = f"{endpoint.listener}://{endpoint.host}:{endpoint.port}"
                raise StartError(f"cannot listen on {where}: {error.strerror}; see the setting listeners") from error

    async def _serve_http(self, config: Config) -> HttpServer | None:
        address = config.http_listener
        endpoints = Endpoints(lambda: self._registry.pieces(), self._health, self._lifecycle.ready)
        tls = self._tls.server("HTTP") if self._tls is not None else None

        def token() -> str | None:
            value = self._settings.config.value("kafkad.http.token")
            return str(value) if value else None

        supervised = self._supervised
        if supervised is not None:
            if supervised.http is None:
                return None
            # the supervisor asks it, and is asked by others
            server = HttpServer(endpoints, token=lambda: supervised.http_token)
            await server.listen_on(supervised.http)
            return server
        if address is None:
            return None
        try:
            return await http.serve(address, endpoints, tls=tls, token=token)
        except OSError as error:
            where = config.value("http.listener")
            # of an address Python says a whole sentence
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
            raise StartError(f"cannot serve HTTP on {where}: {why}; see the setting http.listener") from error

    async def _open_store(self, config: Config) -> MetadataStore:
        if self._supervised is not None:
            from kafkad.meta.remote import RemoteSession

            try:
                session = await RemoteSession.connect(self._supervised.store, self._orphaned)
            except ConnectionLoss as error:
                raise StartError(str(error)) from error
            return MetadataStore(session=session)
        address = config.zookeeper
        if address is not None:
            self._lifecycle.enter(BrokerState.STARTING, f"waiting for ZooKeeper at {address.servers}")
            return await self._unless_stopped(self._zookeeper(address, config))
        embedded = await self._open_embedded(config.metadata_dir)
        own = embedded.session()
        problem = await partitions_left_behind(own, config.log_dirs, ())
        if problem is not None:
            raise StartError(problem)
        return MetadataStore(session=own, embedded=embedded)

    async def _zookeeper(self, address: ZooKeeperAddress, config: Config) -> MetadataStore:
        from kafkad.broker.zookeeper_access import zookeeper_settings
        from kafkad.meta.zookeeper import ZooKeeperStore

        try:
            settings = zookeeper_settings(config, address)
        except ValueError as error:
            raise StartError(str(error)) from error
        timeout_ms = config.zookeeper_connection_timeout_ms
        try:
            store = await ZooKeeperStore.connect(settings, timeout_ms, self._clock, self._timers)
        except MetaError as error:
            advice = "see zookeeper.connect and zookeeper.connection.timeout.ms"
            raise StartError(
                f"cannot begin a session with ZooKeeper within {timeout_ms} ms: {error}; {advice}"
            ) from error
        await self._refuse_lost_cluster(store, address)
        return MetadataStore(session=store, collect=store.collect)

    async def _refuse_lost_cluster(self, store: MetaStore, address: ZooKeeperAddress) -> None:
        """A ZooKeeper without the cluster of the log directories has lost its data, or is the wrong one. To begin a new
        cluster in it would leave all partitions behind, for one broker after the other."""
        known, _ = self._logs.identity()
        if known is None:
            return
        look = partial(refuse_other_cluster, store, known)
        try:
            await in_any_session(store, look, "find the cluster", self._clock, self._timers)
        except OtherCluster as error:
            await store.close()
            where = address.servers + address.root
            raise StartError(
                f"in ZooKeeper at {where}, {error} by {self._logs.file_with_cluster_id()}; "
                "is the path after the servers in zookeeper.connect right, and the id in that file?"
            ) from error

    async def _open_embedded(self, directory: str) -> EmbeddedStore:
        refuse_lost_store(directory, self._logs.directories)
        try:
            with no_collections():
                store = await self._loop.run_in_executor(
                    self._threads.others, EmbeddedStore.open, directory, self._clock
                )
        except OSError as error:
            raise StartError(cannot_open(directory, error)) from error
        store.is_starting = True
        store.when_broken = self._store_broke
        return store

    async def _start(self, store: MetadataStore) -> Parts:
        """Logs are loaded in a thread, so that the loop can tell systemd and the terminal how far it is."""
        config = self._settings.config
        platform = Platform(
            clock=self._clock,
            timers=self._timers,
            threads=self._threads,
            blocking_calls=self._blocking_calls,
            random=Random(),
            store=store.session,
            logs=self._logs,
            server=self._server,
            links=self._links(store),
            control_links=self._links(store, control_plane=True) if config.control_plane_listener else None,
            tls=self._tls,
            halt=self._halt,
        )
        with no_collections():
            self._lifecycle.enter(BrokerState.STARTING, "reading the metadata store")
            identity = await self._unless_stopped(identify(platform, self._settings))
            self._lifecycle.enter(BrokerState.RECOVERY, "loading logs")
            progress = RecoveryProgress(self._loop, self._notifier, self._loading, self._stopping.is_set)
            await load(platform, identity, progress.update)
        progress.done()
        self._lifecycle.enter(BrokerState.STARTING, "logs are loaded; taking over their partitions")
        parts = build(platform, identity)
        try:
            await self._unless_stopped(self._join(parts, store))
        except _StoppedEarly:
            log.info("told to stop before the broker was ready")
        except (DuplicateBroker, MetaError, StartError) as refusal:
            log.error("cannot start: %s", refusal)
            self._exit_code = FAILED
            self._stopping.set()
        return parts

    async def _join(self, parts: Parts, store: MetadataStore) -> None:
        with no_collections():
            try:
                await parts.start(before_serving=store.will_serve)
            except CannotListen as error:
                raise StartError(f"{error}; see the setting listeners") from error
        self._registry = parts.metrics(self._lifecycle, self._may_tell_of_users)
        if store.collect is not None:
            self._registry.add(store.collect)
        if self._tls is not None:
            self._registry.add(self._tls.collect)
        self._lifecycle.enter(BrokerState.STARTING, "waiting for the controller to tell this broker of the cluster")
        await parts.wait_until_ready()

    def _links(self, store: MetadataStore, *, control_plane: bool = False) -> LinkFactory | None:
        """To the other brokers; there are none where the store is this broker's own."""
        if not store.is_shared:
            return None
        from kafkad.broker.links import network_links

        config = self._settings.config
        return network_links(
            *(config, config.broker_id, self._clock, self._timers),
            control_plane=control_plane,
            tls=self._tls,
            config_now=lambda: self._settings.config,
            threads=self._blocking_calls,
        )

    async def _unless_stopped(self, waiting: Coroutine[Any, Any, T]) -> T:
        return await _unless(self._stopping, waiting)

    def _loading(self, doing: str) -> None:
        self._lifecycle.enter(BrokerState.RECOVERY, doing)

    def _health(self, in_full: bool) -> Condition:
        offline = self._offline()
        if offline:
            which = ", ".join(offline) if in_full else f"{len(offline)} of {len(self._logs.directories)}"
            return Condition(False, f"log directories are offline: {which}")
        health = self._lifecycle.health(in_full)
        damaged = [f"{DAMAGED}{damage.text(tp)}" for tp, damage in self._logs.damages.kept()]
        if damaged and not in_full:
            damaged = [f"{DAMAGED}places in logs: {len(damaged)}; the log names them"]
        problem = None if self._store is None else self._store.problem_told(in_full=in_full)
        open_to_all = [f"{EXPOSED}{why}" for why in exposed(self._settings.config)]
        return Condition(health.good, "\n".join([health.text, *damaged, *([problem] if problem else []), *open_to_all]))

    def _may_tell_of_users(self) -> bool:
        if self._supervised is not None:
            return not self._supervised.has_open_metrics
        return not has_open_metrics(self._settings.config)

    def _offline(self) -> list[str]:
        return [directory.path for directory in self._logs.directories if directory.failure is not None]

    def _announce(self, parts: Parts, store: MetadataStore) -> None:
        for why in exposed(self._settings.config):
            log.warning("%s", why)
        self._lifecycle.enter(BrokerState.RUNNING)
        listeners = ", ".join(map(str, self._server.listeners))
        text = _contents(len(parts.replicas.metadata.topics), len(self._logs.logs), among_others=store.is_shared)
        log.info(
            "ready in %.2f s: broker %d of cluster %s listens on %s; data in %s; %s",
            monotonic() - STARTED,
            parts.identity.broker_id,
            parts.identity.cluster_id,
            listeners,
            ", ".join(directory.path for directory in self._logs.directories),
            text,
        )
        if store.problem is not None:
            log.error("%s", store.problem)
        self._tell_ready(f"listening on {listeners}; {text}")

    def _tell_ready(self, status: str) -> None:
        self._notifier.ready(status, not_blank=not self._settings.static.file_is_blank)

    # -- while it runs ---------------------------------------------------------------------------------------------

    async def _reload_when_asked(self, parts: Parts) -> None:
        """SIGHUP. One that comes before the broker is ready has its effect then."""
        while True:
            await self._reload_asked.wait()
            self._reload_asked.clear()
            self._notifier.reloading()
            try:
                is_reloaded = await self._reload(parts)
            except Exception:
                log.exception("internal error: the configuration could not be reloaded")
                is_reloaded = False
            self._tell_ready(RELOADED if is_reloaded else NOT_RELOADED)

    async def _reload(self, parts: Parts) -> bool:
        """Take the configuration as it is now, and read the TLS stores again; what cannot change while running waits
        for a restart, and is named. False if anything is invalid, or does not go with what stays, and the present one
        is kept; or if logins or TLS have to be kept: who was to come in no more still may."""
        is_valid = False
        try:
            pause = partial(sleep, clock=self._clock, timers=self._timers)
            fresh = await settled(self._read_config, self._settings.static.file, pause)
            reload = self._settings.reread(fresh)
        except ConfigError as error:
            log.error(
                "the configuration file was not taken; keeping the current configuration: %s", "; ".join(error.problems)
            )
            if self._tls is not None:
                self._tls.refresh(self._settings.config, every=True)
        else:
            is_valid = not reload.held
            parts.overrides_changed(every_store=True)
            log.info("configuration reloaded; changed: %s", ", ".join(reload.changed) or "nothing")
            if reload.changed:
                note_change(
                    f"settings in {self._settings.static.file} changed: {', '.join(reload.changed)}", by="SIGHUP"
                )
            if reload.held:
                log.error(
                    "these settings of logins and TLS are as they were, for they are of a listener that only a restart "
                    "can close or change: %s",
                    ", ".join(reload.held),
                )
            if reload.restart:
                log.warning("these settings need a restart to change: %s", ", ".join(reload.restart))
        return is_valid and (self._tls is None or self._tls.is_up_to_date)

    def _halt(self, why: str) -> None:
        """Nothing is left to serve from."""
        log.critical("stopping: %s", why)
        self._exit_code = FAILED
        self._stopping.set()

    def _stop_with_all(self) -> None:
        """All brokers of the cluster are told to stop: there is nobody to hand leaderships over to."""
        self._all_stop.set()
        self._stopping.set()

    def _orphaned(self) -> None:
        self._all_stop.set()
        self._halt("the supervisor, which has the metadata store, is gone")

    def _store_broke(self, why: str) -> None:
        """Only a process that reads the file again knows what is in it."""
        self._all_stop.set()
        self._halt(why)

    async def _import_handlers(self, dispatcher: Dispatcher) -> None:
        """Soon after the start, and again where the broker has no file or memory left for it."""
        told = False
        while lacking := await in_turns(dispatcher.import_handlers()):
            if not told:
                name, error = next(iter(lacking.items()))
                log.error(
                    "%d APIs cannot be answered yet: importing what answers %s failed: %s; trying again each second",
                    *(len(lacking), name, error),
                )
                told = True
            await sleep(_IMPORT_AGAIN_MS, self._clock, self._timers)

    async def _close_idle(self) -> None:
        ticks = count(1)

        async def close() -> None:
            tick = next(ticks)
            idle_ms = self._settings.config.long("connections.max.idle.ms")
            oldest_allowed = tick - max(ceil(idle_ms / _IDLE_CHECK_MS), 1) if idle_ms >= 0 else 0
            self._server.close_idle(tick, oldest_allowed)

        await every(lambda: _IDLE_CHECK_MS, "the search for idle connections", close, self._clock, self._timers)

    async def _feed_watchdog(self) -> None:
        """A supervisor's from the beginning on, for it kills a start that hangs. systemd's only once the broker is
        ready: until then TimeoutStartSec watches it."""
        interval_s = self._notifier.watchdog_interval_s
        while interval_s is not None:
            self._notifier.watchdog()
            await asyncio.sleep(interval_s)

    # -- stop ------------------------------------------------------------------------------------------------------

    async def _stop(self, parts: Parts, store: MetadataStore, health: HttpServer | None) -> None:
        """Take nothing new, answer what was asked, and leave the directories as after a clean stop."""
        begun = monotonic()
        log.info("stopping")
        self._lifecycle.enter(BrokerState.SHUTTING_DOWN, "stopping")
        self._notifier.stopping("handing leaderships over")
        asking = asyncio.create_task(self._ask_for_time())
        await self._leave(parts)
        self._notifier.status("finishing requests")
        await parts.stop_taking()
        await drain(self._server, parts, self._clock, self._timers)
        asking.cancel()
        self._server.close()
        if health is not None:
            await health.close()
        self._notifier.status("writing logs and checkpoints")
        self._notifier.extend_timeout(_TIME_TO_STOP_S)
        await parts.stop()
        await store.close()
        self._threads.end()
        self._deletions.tell()
        took_s, offline = monotonic() - begun, self._offline()
        if offline:
            log.info("stopped in %.2f s, without what is offline: %s", took_s, ", ".join(offline))
        else:
            log.info("stopped cleanly in %.2f s", took_s)

    async def _ask_for_time(self) -> None:
        """While others are waited for. That ends by itself, but perhaps later than systemd waits for a whole stop, and
        logs are written only then."""
        while True:
            self._notifier.extend_timeout(_TIME_TO_STOP_S)
            await asyncio.sleep(_ASK_FOR_TIME_S)

    async def _leave(self, parts: Parts) -> None:
        """Hands leaderships over, unless all brokers stop, which may become known only meanwhile. Nobody is left to
        lead then: a controller goes first, or it would take brokers that end before it out of the ISRs. So does one
        whose store is out of reach, or the stop would wait for what others have asked of it."""
        if not self._all_stop.is_set():
            with suppress(_StoppedEarly):
                await _unless(self._all_stop, parts.leave())
        if self._all_stop.is_set() or parts.platform.store.problem is not None:
            await parts.controller.stop()

    async def _stop_loading(self, health: HttpServer | None) -> None:
        """No client has seen this broker yet, and nothing was changed: it goes at once."""
        doing = "loading logs" if self._lifecycle.state is BrokerState.RECOVERY else self._lifecycle.doing
        log.info("told to stop while %s; log directories are left as they were found", doing)
        self._lifecycle.enter(BrokerState.SHUTTING_DOWN, "stopping")
        self._notifier.stopping(f"told to stop while {doing}")
        if health is not None:
            await health.close()
        if self._store is not None:
            await self._store.close()
        self._server.close()
        self._threads.end()
