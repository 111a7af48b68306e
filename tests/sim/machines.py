"""Simulated machines, each with a disk and one broker, which is built from its real parts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import Executor
from random import Random
from typing import Any

from kafkad.broker.building import build
from kafkad.broker.links import network_links
from kafkad.broker.loop_timers import LoopTimers
from kafkad.broker.membership import DuplicateBroker
from kafkad.broker.parts import Parts
from kafkad.broker.settings import Settings
from kafkad.broker.starting import Platform, identify, load
from kafkad.config import load as load_config
from kafkad.log.manager import LogManager, NoLogDirectoryError
from kafkad.meta.store import ConnectionLoss, SessionExpired
from kafkad.net.server import Listener, Server
from kafkad.replica.disk_threads import DiskThreads
from tests.sim.disk import CHECKPOINTS, SimFiles
from tests.sim.network import Host, Network
from tests.sim.store import SimSession, StoreServer
from tests.sim.world import ProcessClock, ProcessLoop, World

RESTART_S = 0.5
SETTINGS = (
    "default.replication.factor=3",
    "min.insync.replicas=2",
    "unclean.leader.election.enable=false",
    "kafkad.placement.start=0",
    "offsets.topic.num.partitions=1",
    "offsets.topic.replication.factor=3",
    "transaction.state.log.num.partitions=1",
    "transaction.state.log.replication.factor=3",
    "log.cleaner.enable=false",
    "log.segment.bytes=16384",
    "log.index.interval.bytes=512",
    "replica.lag.time.max.ms=1500",
    "replica.fetch.wait.max.ms=300",
    "replica.fetch.backoff.ms=200",
    "replica.high.watermark.checkpoint.interval.ms=1000",
    "log.flush.interval.ms=3000",
    "log.flush.offset.checkpoint.interval.ms=2000",
    "controller.socket.timeout.ms=1000",
    "replica.socket.timeout.ms=1000",
)


class NoThreads(Executor):
    """Handed to the loop of a process, which does the work itself."""


class Machine:
    def __init__(
        self,
        world: World,
        network: Network,
        store: StoreServer,
        directory: str,
        broker: int,
        settings: Sequence[str] = (),
    ) -> None:
        """`settings` are some more than those of all simulations."""
        self.broker = broker
        self._settings = (*SETTINGS, *settings)
        self.name = str(broker)
        self.world = world
        self._network = network
        self._store = store
        self.directory = os.path.join(directory, self.name)
        self.clock = ProcessClock(world, skew_ms=world.random.randrange(-500, 500))
        self.files = SimFiles(self.directory, self.clock)
        self.loop: ProcessLoop | None = None
        self.session: SimSession | None = None
        self.parts: Parts | None = None
        """There from the time on at which the broker serves."""
        self.starts = 0
        self.stopping = False
        self._start_again = False
        """Somebody wants it to run, who found it on its way to a clean stop."""
        self._host: Host | None = None
        self._building: Parts | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def running(self) -> bool:
        return self.loop is not None

    @property
    def replicas(self) -> Any:
        """Those of a broker that may not serve yet."""
        return None if self._building is None else self._building.replicas

    # -- its process -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.loop is not None:
            self._start_again = self.stopping
            return
        self.starts += 1
        self.world.note("start", self.name)
        self.loop = loop = self.world.process(self.name)
        self._host = self._network.host(self.name, loop)
        loop.start(self._main(loop, self._host))

    def kill(self) -> None:
        """SIGKILL."""
        loop, host = self.loop, self._host
        if loop is None or host is None:
            return
        self.world.note("kill", self.name)
        self._ended()
        self._network.gone(host)
        loop.die()
        self.files.killed()

    def lose_power(self, kept: float) -> None:
        """And of what was not synced its disk has `kept`, on average."""
        self.kill()
        self.world.note("lost power", self.name, kept)
        self.files.lose_power(self.world.random, kept)

    def stopped(self) -> None:
        again = self._start_again
        self.kill()
        if again:
            self.start()

    def _ended(self) -> None:
        self.stopping = self._start_again = False
        self.loop = self._host = self.parts = self._building = None
        if self.session is not None:
            self.session.break_connection()
            self.session = None

    def pause(self) -> None:
        if self.loop is not None:
            self.world.note("pause", self.name)
            self.loop.paused = True

    def resume(self) -> None:
        if self.loop is not None and self.loop.paused:
            self.world.note("resume", self.name)
            self.loop.paused = False

    def _exit(self, why: str) -> None:
        """The process ends by itself; somebody starts it again."""
        self.world.note("exit", self.name, why)
        self.world.after(0, self.kill)
        self.world.after(RESTART_S, self.start)

    async def _main(self, loop: ProcessLoop, host: Host) -> None:
        try:
            await self._serve(loop, host)
        except (DuplicateBroker, ConnectionLoss, SessionExpired) as error:
            self._exit(f"{type(error).__name__} {error}")
        except NoLogDirectoryError as error:
            self._remove_damaged(str(error))

    def _remove_damaged(self, why: str) -> None:
        """An operator does what the error says: a checkpoint that makes no sense is deleted."""
        damaged = [path for name in CHECKPOINTS if (path := os.path.join(self.directory, name)) in why]
        assert damaged, why
        self.files.unlink(damaged[0])
        self._exit(f"{os.path.basename(damaged[0])} is damaged, and removed")

    async def _serve(self, loop: ProcessLoop, host: Host) -> None:
        config = load_config(
            None,
            [
                f"log.dirs={self.directory}",
                f"broker.id={self.broker}",
                f"listeners=PLAINTEXT://{self.name}:9092",
                *self._settings,
            ],
            {},
        )
        timers = LoopTimers(loop, self.clock).timers
        logs = LogManager([self.directory], self.files, self.clock)
        logs.lock()
        settings = Settings(config)
        server = Server(loop, settings.limits(), self.clock, timers)
        server.awake.clock = server.lane.clock = lambda: self.world.now
        listening = self._network.listen(host, self.name)
        server.listeners.append(Listener(server, "PLAINTEXT", listening, lambda socket: socket))  # type: ignore
        self.session = SimSession(self._store, self.name, loop)
        platform = Platform(
            clock=self.clock,
            timers=timers,
            threads=DiskThreads({}, NoThreads()),
            blocking_calls=NoThreads(),
            random=Random(self.world.random.getrandbits(32)),
            store=self.session,
            logs=logs,
            server=server,
            links=network_links(config, self.broker, self.clock, timers),
            halt=self._exit,
        )
        identity = await identify(platform, settings)
        await load(platform, identity, lambda progress: None)
        parts = self._building = build(platform, identity)
        await parts.start()
        self.world.note("serving", self.name)
        self.parts = parts

    async def stop(self) -> None:
        """Ends the process in an orderly way."""
        parts, session = self.parts, self.session
        assert parts is not None and session is not None
        await parts.stop_taking()
        parts.platform.server.close()
        await parts.stop()
        await session.close()


def stop_cleanly(machine: Machine) -> None:
    loop = machine.loop
    if loop is None or machine.parts is None:
        return
    machine.world.note("stop", machine.name)
    machine.stopping = True
    task = loop.start(machine.stop())

    def stopped(_: asyncio.Task[None]) -> None:
        machine.world.after(0, machine.stopped)

    task.add_done_callback(stopped)
