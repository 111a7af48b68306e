"""Several brokers on one event loop and one clock, over one metadata store; they reach each other by links."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, TypeVar

from kafkad.api.routes import BETWEEN_BROKERS, BY_KEY
from kafkad.broker.links import network_links
from kafkad.broker.parts import Parts, Platform, build, load
from kafkad.broker.settings import Settings
from kafkad.config import load as load_config
from kafkad.controller.topics import NewTopic
from kafkad.errors import KafkaError
from kafkad.log.manager import LogManager
from kafkad.meta.embedded import EmbeddedSession, EmbeddedStore
from kafkad.model import BrokerInfo
from kafkad.net.client import Link, LinkError
from kafkad.net.server import Server
from kafkad.timers import Timers
from tests.fakes import FakeClock
from tests.one_broker import FakeConnection, NoSync, handled

T = TypeVar("T")
MEMORY, NETWORK = "in memory", "over loopback"
_DEADLINE_S = 20
_LAST = {route.key: route.last for route in (*BY_KEY.values(), *BETWEEN_BROKERS)}


class Broker:
    def __init__(self, parts: Parts, session: EmbeddedSession) -> None:
        self.parts = parts
        self.session = session

    @property
    def epoch(self) -> int:
        return self.parts.replicas.broker_epoch

    async def ask(self, message: Any, version: int = -1) -> Any:
        version = _LAST[message.__schema__.key] if version < 0 else version
        try:
            return await handled(self.parts.context, message, version, FakeConnection())
        except KafkaError as error:
            answer = type(message).__name__.replace("Request", "Response")
            module = __import__(type(message).__module__, fromlist=[answer])
            return getattr(module, answer)(error_code=error.code)


class MemoryLink:
    """To a broker on the same loop. `Brokers.cut` makes it lose everything."""

    def __init__(self, brokers: Brokers, source: int, target: int) -> None:
        self._brokers = brokers
        self._ends = source, target
        self.closed = False

    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        assert timeout_ms > 0
        self._brokers.sent.append((*self._ends, type(request).__name__))
        await asyncio.sleep(0)
        if self.closed or frozenset(self._ends) in self._brokers.cut or self._ends[1] not in self._brokers.running:
            raise LinkError(f"broker {self._ends[1]} cannot be reached")
        return await self._brokers[self._ends[1]].ask(request)

    def close(self) -> None:
        self.closed = True


class Brokers:
    def __init__(self, directory: Path, links: str = MEMORY, *settings: str) -> None:
        self.clock = FakeClock()
        self.timers = Timers()
        self.cut: set[frozenset[int]] = set()
        self.sent: list[tuple[int, int, str]] = []
        self.running: dict[int, Broker] = {}
        self.halted: list[str] = []
        self._directory = directory
        self._links = links
        self._settings = settings
        self._runner = asyncio.Runner()
        self._threads = ThreadPoolExecutor(1)
        self._store = EmbeddedStore.in_memory(self.clock)

    def __getitem__(self, broker: int) -> Broker:
        return self.running[broker]

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(scenario)

    def start(self, *brokers: int) -> None:
        for broker in brokers:
            self.running[broker] = self.run(self._start(broker))

    async def _start(self, broker: int) -> Broker:
        directory = str(self._directory / str(broker))
        over_network = self._links == NETWORK
        listener = "PLAINTEXT://127.0.0.1:0" if over_network else f"PLAINTEXT://broker-{broker}:9092"
        config = load_config(
            None,
            [
                f"log.dirs={directory}",
                f"broker.id={broker}",
                f"listeners={listener}",
                "kafkad.placement.start=0",
                "offsets.topic.num.partitions=2",
                *self._settings,
            ],
            {},
        )
        logs = LogManager([directory], NoSync(), self.clock)
        logs.lock()
        settings = Settings(config)
        server = Server(asyncio.get_running_loop(), settings.limits(), self.clock, self.timers)
        if over_network:
            server.listen("PLAINTEXT", "127.0.0.1", 0)

        def link(target: BrokerInfo) -> Link:
            return MemoryLink(self, broker, target.id)

        session = self._store.session()
        platform = Platform(
            clock=self.clock,
            timers=self.timers,
            threads=self._threads,
            random=Random(broker),
            store=session,
            logs=logs,
            server=server,
            links=network_links(config, broker, self.clock, self.timers) if over_network else link,
            halt=self.halted.append,
        )
        parts = build(platform, await load(platform, settings, lambda progress: None))
        await parts.start()
        return Broker(parts, session)

    def stop(self) -> None:
        for broker in self.running.values():
            self.run(broker.parts.stop_taking())
        for broker in self.running.values():
            broker.parts.platform.server.close()
            self.run(broker.parts.stop())
        self._threads.shutdown()
        self._runner.close()

    def until(self, condition: Callable[[], bool], *, advance_ms: int = 0) -> None:
        """Let the brokers work until something holds; each turn the clock moves by `advance_ms`."""
        deadline = monotonic() + _DEADLINE_S
        while not condition():
            assert monotonic() < deadline
            self.run(self._turn(advance_ms))

    async def _turn(self, advance_ms: int) -> None:
        await asyncio.sleep(0)
        self.clock.advance(advance_ms)
        self.timers.expire(self.clock.monotonic_ms())

    @property
    def controller(self) -> Broker:
        [active] = [broker for broker in self.running.values() if broker.parts.controller.active]
        return active

    def create(self, topic: str, *replicas: tuple[int, ...]) -> None:
        """Until all brokers know it."""
        new = NewTopic(name=topic, assignment=dict(enumerate(replicas)))
        [result] = self.run(self.controller.parts.controller.create_topics([new], timeout_ms=5_000))
        assert result.error is None
        self.until(lambda: all(topic in b.parts.replicas.metadata.topics for b in self.running.values()))
