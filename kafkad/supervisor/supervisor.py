"""The process above several brokers of one host: it owns their metadata store, starts them, restarts one that ends, and
speaks for all of them to systemd, to Prometheus and to whoever sends signals. There is no broker in it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from errno import EADDRINUSE
from time import monotonic
from typing import NamedTuple

from kafkad import STARTED
from kafkad.clock import SystemClock
from kafkad.config import Config, ConfigError
from kafkad.config.exposed import has_open_metrics
from kafkad.config.reloading import settled
from kafkad.config.several import given_to_brokers, settings_of
from kafkad.exit_status import BAD_CONFIGURATION, FAILED
from kafkad.log.checkpoint import META_PROPERTIES, CheckpointError, KraftError, MetaProperties, read_meta_properties
from kafkad.log.files import Files
from kafkad.meta.embedded import EmbeddedStore, cannot_open, lost_store
from kafkad.meta.journal import JournalError
from kafkad.meta.left_brokers import partitions_left_behind
from kafkad.meta.znodes import ClusterId
from kafkad.metrics import Registry
from kafkad.net import http
from kafkad.net.http import OPEN_METRICS_VARIABLE, Condition, Endpoints, HttpServer
from kafkad.supervisor.broker_http import PAGE_S, HttpAnswer, told_of
from kafkad.supervisor.file_in_use import FileInUse
from kafkad.supervisor.metrics import merged, own_families
from kafkad.supervisor.process import BrokerProcess
from kafkad.systemd import NOT_RELOADED, RELOADED, Notifier, reload_on_sighup
from kafkad.together import together

log = logging.getLogger(__name__)

_MICROSECONDS = 1_000_000
_TICK_S = 15.0
"""How often brokers say that they live where the service manager has no watchdog: as often as by that of the units."""


class CannotStart(Exception):
    """The reason that no broker can be started, in words for people."""


class _Judged(NamedTuple):
    """A file that kafkad could start by, and what it says."""

    file: FileInUse
    config: Config


class Supervisor:
    """`serve` runs through its whole life. `command` starts a broker with this configuration."""

    def __init__(self, config: Config, read_config: Callable[[], Config], command: Sequence[str]) -> None:
        self._config = config
        self._read_config = read_config
        self._command = command
        self._file_in_use = FileInUse.at(config.file)
        self._loop = asyncio.get_running_loop()
        self._notifier = Notifier.from_environment(os.environ)
        self._tick_s = self._notifier.watchdog_interval_s or _TICK_S
        self._brokers: list[BrokerProcess] = []
        self._stopping = asyncio.Event()
        self._store: EmbeddedStore | None = None
        self._lost_store = False
        self._announced = False
        self._reloading = False
        self._judging: asyncio.Task[None] | None = None
        """Of the file of a reload that no broker has been told of yet."""
        self._judged: _Judged | None = None
        """The file of the last reload; None if it is none to start by."""
        self._problem = ""
        """That stands until the next reload."""

    async def serve(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stopping.set)
        reload_on_sighup(self._loop, self._reload)
        try:
            health = await self._serve_http()
            known = self._identities()
            self._store = store = self._open_store()
            try:
                return await self._supervise(store, await self._first_id(store, known))
            finally:
                await store.close()
                if health is not None:
                    await health.close()
        except (CannotStart, JournalError) as refusal:
            log.error("cannot start: %s", refusal)
            return FAILED

    async def _supervise(self, store: EmbeddedStore, first_id: int) -> int:
        count = self._config.int("kafkad.brokers")
        self._brokers = [self._process(store, index, first_id) for index in range(count)]
        running = asyncio.create_task(together(broker.keep_running() for broker in self._brokers))
        watching = asyncio.create_task(self._watch())
        await self._stopping.wait()
        begun = monotonic()
        log.info("stopping %d brokers", count)
        if self._judging is not None:
            self._judging.cancel()
        self._notifier.stopping("stopping all brokers")
        for broker in self._brokers:
            broker.stop()
        try:
            await running
        finally:
            watching.cancel()
        return self._exit_code(monotonic() - begun)

    def _exit_code(self, seconds: float) -> int:
        if self._is_misconfigured:
            return BAD_CONFIGURATION
        if self._lost_store:
            return FAILED
        failed = [str(broker.broker_id) for broker in self._brokers if broker.failed_at_stop]
        if failed:
            log.error("stopped in %.2f s, but not cleanly: see the last lines of broker %s", seconds, ", ".join(failed))
            return FAILED
        log.info("all brokers stopped in %.2f s", seconds)
        return 0

    def _store_broke(self, why: str) -> None:
        """Only a process that reads the file again knows what is in it."""
        log.critical("stopping: %s", why)
        self._lost_store = True
        self._stopping.set()

    # -- start -----------------------------------------------------------------------------------------------------

    async def _serve_http(self) -> HttpServer | None:
        address, token = self._config.http_listener, self._config.value("kafkad.http.token")
        if address is None:
            return None
        endpoints = Endpoints(self._metrics, self._health, self._ready)
        try:
            return await http.serve(address, endpoints, token=lambda: str(token) if token else None)
        except OSError as error:
            why = os.strerror(EADDRINUSE) if error.errno == EADDRINUSE else error.strerror or error
            where = self._config.value("http.listener")
            raise CannotStart(f"cannot serve HTTP on {where}: {why}; see the setting http.listener") from error

    def _open_store(self) -> EmbeddedStore:
        directory, log_dirs = self._config.metadata_dir, self._config.log_dirs
        used = [path for path in log_dirs if os.path.exists(os.path.join(path, META_PROPERTIES))]
        if (problem := lost_store(directory, log_dirs, used)) is not None:
            raise CannotStart(problem)
        try:
            store = EmbeddedStore.open(directory, SystemClock())
        except OSError as error:
            raise CannotStart(cannot_open(directory, error)) from error
        store.is_starting = True
        store.when_broken = self._store_broke
        return store

    def _identities(self) -> list[MetaProperties]:
        """Those of directories that have been used before. What is wrong with one that does not tell its own broker
        says, unless no other tells. CannotStart for one of a Kafka in KRaft mode."""
        known: list[MetaProperties] = []
        unreadable: list[str] = []
        for path in self._config.log_dirs:
            file = os.path.join(path, META_PROPERTIES)
            try:
                meta = read_meta_properties(file, Files())
            except KraftError as error:
                raise CannotStart(str(error)) from error
            except (OSError, CheckpointError) as error:
                unreadable.append(f"{file}: {error.strerror}" if isinstance(error, OSError) else str(error))
            else:
                known += [meta] if meta is not None else []
        if unreadable and not known:
            raise CannotStart(unreadable[0])
        return known

    async def _first_id(self, store: EmbeddedStore, known: Sequence[MetaProperties]) -> int:
        """The id that is set, or that of the broker whose directories these have been, or 0."""
        session = store.session()
        if known and await session.exists(ClusterId.PATH) is None:
            raise CannotStart(
                f"{self._config.log_dirs[0]} has been used before, perhaps by Kafka, and has no metadata store yet. "
                "Start kafkad without kafkad.brokers once: it adopts the topics that it finds. Then start several"
            )
        first = self._config.broker_id
        if first < 0:
            first = next((meta.broker_id for meta in known if meta.broker_id is not None), 0)
        ids = range(first, first + self._config.int("kafkad.brokers"))
        problem = await partitions_left_behind(session, self._config.log_dirs, ids)
        if problem is not None:
            raise CannotStart(problem)
        return first

    def _process(self, store: EmbeddedStore, index: int, first_id: int) -> BrokerProcess:
        settings = settings_of(self._config, index, first_id)
        words = [word for setting in settings for word in ("--set", setting)]
        open_to_others = has_open_metrics(self._config)
        watchdog_us = round(2 * self._tick_s * _MICROSECONDS)
        return BrokerProcess(
            first_id + index,
            [*self._command, *words],
            {"WATCHDOG_USEC": str(watchdog_us), **({OPEN_METRICS_VARIABLE: "1"} if open_to_others else {})},
            store,
            self._changed,
            self._advice,
            self._may_be_blank,
            self._judge_for,
            extend_timeout=self._notifier.extend_timeout,
            with_http=self._config.http_listener is not None,
        )

    def _advice(self) -> str:
        return self._file_in_use.advice()

    def _may_be_blank(self) -> bool:
        return self._config.file_is_blank and not any(broker.has_run_by_settings for broker in self._brokers)

    async def _judge_for(self, broker_id: int) -> None:
        """Before a broker is started by a file that was edited meanwhile. Raises ConfigError for one that a SIGHUP
        would give to nobody; by a good one it runs, though not by what the others do."""
        if not self._file_in_use.is_another_now:
            return
        await self._settled()
        log.warning(
            "broker %d is started by %s as it is now, which is another file than kafkad was started by or has "
            "reloaded: send SIGHUP, and all brokers take it",
            *(broker_id, self._config.file),
        )

    # -- while brokers run -----------------------------------------------------------------------------------------

    def _changed(self) -> None:
        if self._stopping.is_set():
            return
        if self._is_misconfigured:
            log.error("no broker can use its configuration; the lines above say why")
            self._stopping.set()
            return
        self._take_no_more_without_room()
        if not self._announced and self._is_up:
            self._announce()
        elif self._reloading and self._judging is None and not any(broker.reloading for broker in self._brokers):
            self._reloading = False
            self._problem = "" if self._end_reload() else NOT_RELOADED
            if self._announced:  # systemd takes the end of a reload for that of the start, which is still to come
                self._notifier.ready(self._problem or RELOADED)
        else:
            self._notifier.status(self._missing() or self._problem or f"{len(self._brokers)} brokers are ready")

    def _take_no_more_without_room(self) -> None:
        """From the first broker on that is ready: what its clients are told of has to be on the disk."""
        store = self._store
        if store is None or not store.is_starting or not any(broker.ready for broker in self._brokers):
            return
        store.is_starting = False
        if store.problem is not None:
            log.error("%s", store.problem)

    @property
    def _is_misconfigured(self) -> bool:
        """Where some can use theirs it is not the file that is at fault, but what the store has for single brokers."""
        return all(broker.bad_configuration for broker in self._brokers)

    @property
    def _is_up(self) -> bool:
        """A broker that cannot be started is tried again and again, and the others serve meanwhile."""
        tried = all(broker.ready or broker.restarts for broker in self._brokers)
        return tried and any(broker.ready for broker in self._brokers)

    def _announce(self) -> None:
        self._announced = True
        ids = [str(broker.broker_id) for broker in self._brokers if broker.ready]
        ready = f"brokers {', '.join(ids)} are ready" if len(ids) > 1 else f"broker {ids[0]} is ready"
        missing = self._missing().replace("\n", "; ")
        if missing:
            log.error("%s in %.2f s, but not all: %s", ready, monotonic() - STARTED, missing)
        else:
            log.info("all brokers are ready in %.2f s: %s", monotonic() - STARTED, ", ".join(ids))
        self._notifier.ready(f"{ready}; {missing}" if missing else ready)

    def _reload(self) -> None:
        """SIGHUP: each broker reads the configuration again, and says what a restart is needed for, of what it sees.
        One that comes amid another has the file judged anew."""
        if not self._brokers or self._stopping.is_set():
            return  # those that are about to be started read it anyway
        self._reloading = True
        if self._announced:
            self._notifier.reloading()
        if self._judging is not None:
            self._judging.cancel()
        self._judging = self._loop.create_task(self._judge())

    async def _judge(self) -> None:
        """No broker is told where kafkad could not start by the file: each sees a part of it, and some would take it.
        Nor is any before nobody writes it: they wait for that themselves, but a part of it may be good or bad."""
        self._judged = None
        try:
            self._judged = await self._settled()
        except ConfigError as error:
            busy = ", ".join(str(broker.broker_id) for broker in self._brokers if broker.reloading)
            but = f", but broker {busy}, still at an earlier SIGHUP, may" if busy else ""
            log.error("no broker reads the configuration file again%s: %s", but, "; ".join(error.problems))
        else:
            for broker in self._brokers:
                broker.reload()
        self._judging = None
        self._changed()

    async def _settled(self) -> _Judged:
        """Raises ConfigError. What is written while it is read is another file."""
        file = self._file_in_use

        def read() -> Config:
            nonlocal file
            file = FileInUse.at(self._config.file)
            return self._read_config()

        try:
            config = await settled(read, self._config.file, self._pause)
        except ConfigError:
            raise
        except Exception as error:
            log.exception("internal error: the configuration file could not be read")
            raise ConfigError("reading it failed, see above") from error
        return _Judged(file, config)

    @staticmethod
    async def _pause(ms: float) -> None:
        await asyncio.sleep(ms / 1000)

    def _end_reload(self) -> bool:
        """What no broker sees of a file that they have taken is looked at here. False where it is none to start by, or
        not the one that all of them have taken."""
        judged = self._judged
        if judged is None:
            return False
        if judged.file.is_another_now:
            self._tell_of_change()
            return False
        said = {broker.doing for broker in self._brokers}
        if NOT_RELOADED in said:
            return False  # who did not take it has said why
        self._file_in_use = judged.file
        if RELOADED not in said:
            return True  # none runs that could have; those that are started read it anyway
        given = given_to_brokers(self._config)
        restart = [name for name in self._config.with_file(judged.config).restart if name in given]
        if restart:
            log.warning("these settings need a restart to change: %s", ", ".join(restart))
        return True

    def _tell_of_change(self) -> None:
        """Of the file, after it was judged: a broker that was busy has taken what it says now."""
        try:
            self._read_config()
        except ConfigError as error:
            log.error("kafkad can no longer start by the configuration file: %s", "; ".join(error.problems))
        else:
            log.error(
                "%s has changed while brokers took it, and some may have taken what it said before: send SIGHUP again",
                self._config.file,
            )

    async def _watch(self) -> None:
        """Is a watchdog to the brokers, whoever started this process, and feeds that of the service manager, if any."""
        while True:
            if self._notifier.watchdog_interval_s is not None:
                self._notifier.watchdog()
            for broker in self._brokers:
                broker.tick()
            await asyncio.sleep(self._tick_s)

    # -- one answer for all ----------------------------------------------------------------------------------------

    def _missing(self) -> str:
        waiting = [f"broker {broker.broker_id}: {broker.doing}" for broker in self._brokers if not broker.ready]
        return "\n".join(waiting)

    async def _ready(self, in_full: bool) -> Condition:
        answers = await self._ask_all("/ready", in_full=in_full)
        bad = [
            f"broker {broker.broker_id}: {broker.unanswered(in_full) if answer is None else answer.text.rstrip()}"
            for broker, answer in answers
            if answer is None or not answer.good
        ]
        if bad and (problem := self._problem_of_store(in_full)) is not None:
            bad.append(problem)
        return Condition(not bad, "\n".join(bad) or "ok")

    async def _health(self, in_full: bool) -> Condition:
        """A broker that hangs or is being started again is no reason to kill them all: it is named, and that is all."""
        good, lines = True, []
        for broker, answer in await self._ask_all("/health", in_full=in_full):
            if answer is None:
                lines.append(f"broker {broker.broker_id}: {broker.unanswered(in_full)}")
            else:
                good = good and answer.good
                lines += told_of(broker.broker_id, answer.text)
        if (problem := self._problem_of_store(in_full)) is not None:
            lines.append(problem)
        return Condition(good, "\n".join(lines) or "ok")

    def _problem_of_store(self, in_full: bool) -> str | None:
        return None if self._store is None else self._store.problem_told(in_full=in_full)

    async def _ask_all(self, path: str, *, in_full: bool = True) -> list[tuple[BrokerProcess, HttpAnswer | None]]:
        answers = await together(broker.ask(path, in_full=in_full) for broker in self._brokers)
        return list(zip(self._brokers, answers, strict=True))

    async def _metrics(self) -> AsyncIterator[str]:
        """Whoever hangs is found out first: the pages of the others may take longer than that."""
        answering = [broker for broker, answer in await self._ask_all("/ready") if answer is not None]
        pages = await together(broker.ask("/metrics", PAGE_S) for broker in answering)
        texts = {broker.broker_id: page.text for broker, page in zip(answering, pages, strict=True) if page is not None}
        for piece in merged(texts):
            yield piece
        up = [(broker.broker_id, broker.ready and broker in answering, broker.restarts) for broker in self._brokers]
        own = Registry()
        own.add(lambda: own_families(up))
        for piece in own.pieces():
            yield piece
