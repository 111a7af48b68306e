"""A whole broker but for its sockets: real logs, the embedded store, the controller; requests go to the handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, TypeVar, cast

from kafkad.api.audit import Audit
from kafkad.api.context import Context, Request
from kafkad.api.routes import BY_KEY
from kafkad.broker.coordinators import Coordinators
from kafkad.broker.directory_events import reporter
from kafkad.clock import SystemClock
from kafkad.cluster.configs import DynamicConfigs
from kafkad.cluster.features import FinalizedFeatures
from kafkad.cluster.producer_ids import ProducerIds
from kafkad.config import Config, LogConfig, load, validate_topic_configs
from kafkad.controller.channel import LocalChannel
from kafkad.controller.configs import ConfigAlterer
from kafkad.controller.controller import Controller
from kafkad.controller.registration import prepare, register
from kafkad.controller.term import ControllerSettings
from kafkad.controller.topics import NewTopic
from kafkad.log.files import Files
from kafkad.log.manager import LogManager
from kafkad.meta.embedded import EmbeddedStore
from kafkad.meta.znodes import Broker
from kafkad.model import BrokerInfo, Endpoint
from kafkad.net.connection import Connection
from kafkad.replica.durable import Durable
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.waits import Waits
from kafkad.timers import Timers
from kafkad.turns import at_once
from kafkad.upkeep.moves import ReplicaMoves
from kafkad.wire.frames import RequestHeader
from kafkad.wire.records import BATCH_HEADER, Record, build_batch
from kafkad.wire.schema import decode, encode

T = TypeVar("T")
CLUSTER_ID = "fXmphK5_SnixAJrWTHuQUQ"
ENDPOINTS = (
    Endpoint(listener="PLAINTEXT", host="inside", port=9092),
    Endpoint(listener="OUTSIDE", host="outside", port=19092),
)


class _Listener:
    name = "PLAINTEXT"


class _Connection:
    """As much of a connection as handlers look at."""

    def __init__(self) -> None:
        self.listener = _Listener()
        self.host = "127.0.0.1"
        self.peer = "127.0.0.1:50123"
        self.client: object = None
        self.repeated_commits: object = None


class _NoSync(Files):
    """Nothing here is to survive the machine."""

    def sync(self, fd: int) -> None:  # type: ignore[override]
        pass


class OneBroker:
    """`ask` sends a message as a client would: encoded and decoded on both ways, so that versions count."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self._runner = asyncio.Runner()
        self.connection = _Connection()
        self.directories = [str(directory / name) for name in ("first", "second")]
        self.threads = ThreadPoolExecutor(1)
        self.static: Config = load(
            None, [f"log.dirs={','.join(self.directories)}", "broker.id=1", "kafkad.placement.start=0", *settings], {}
        )
        self.config = self.static
        self.run(self._start())

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(scenario)

    async def _start(self) -> None:
        clock = SystemClock()
        self.store = EmbeddedStore.in_memory(clock).session()
        await prepare(self.store)
        self.configs = DynamicConfigs(self.store, 1, clock)
        await self.configs.start()
        logs = LogManager(self.directories, _NoSync(), clock)
        logs.lock()
        logs.claim(CLUSTER_ID, 1)
        logs.load(self._topic_config)
        loop = asyncio.get_running_loop()
        self.timers = Timers()
        waits = Waits(self.timers, clock, loop.call_soon)
        self.durable = Durable(logs.files, self.threads)
        self.replicas = ReplicaManager(
            1, logs, waits, self.durable, self._topic_config, self.configs.load_topics, halt=lambda why: None
        )
        self.controller = Controller(
            self.store,
            ControllerSettings(broker=1, unclean=lambda topic: False),
            connect=lambda info: LocalChannel(self.replicas),
            check_config=validate_topic_configs,
            clock=clock,
            random=Random(1),
        )
        self.replicas.on_replicas_changed = reporter(loop, self.store, 1)
        registration = Broker(broker=BrokerInfo(id=1, endpoints=ENDPOINTS, rack="r1"), timestamp_ms=clock.now_ms())
        self.replicas.broker_epoch = await register(self.store, registration, 1.0)
        await self.controller.start()
        features = FinalizedFeatures(self.store)
        await features.start()
        self.coordinators = Coordinators(
            self.replicas,
            self.controller,
            self.store,
            config=lambda: self.config,
            clock=clock,
            timers=self.timers,
        )
        self.coordinators.start()
        self.context = self._make_context(features)
        self.replicas.on_topics_deleted.append(self.configs.forget_topics)
        self.configs.listen("topics", lambda topic, overrides: self.replicas.topic_config_changed(topic))
        self.configs.listen("brokers", lambda name, overrides: self._broker_changed())

    def _make_context(self, features: FinalizedFeatures) -> Context:
        return Context(
            cluster_id=CLUSTER_ID,
            broker_id=1,
            config=self.config,
            clock=SystemClock(),
            replicas=self.replicas,
            controller=self.controller,
            configs=self.configs,
            alterer=ConfigAlterer(
                self.store,
                1,
                config=lambda: self.context.config,
                topic_exists=lambda topic: topic in self.replicas.metadata.topics,
            ),
            features=features,
            producer_ids=ProducerIds(
                lambda: self.controller.allocate_producer_ids(1, self.replicas.broker_epoch),
            ),
            moves=ReplicaMoves(self.replicas, self.durable),
            group_coordination=self.coordinators.groups,
            groups=self.coordinators.classic_groups,
            offsets=self.coordinators.offsets,
            stored_offsets=self.coordinators.stored_offsets,
            audit=Audit(),
        )

    def _broker_changed(self) -> None:
        self.config = self.static.with_overrides(cluster_wide=self.configs.cluster, per_broker=self.configs.broker)
        self.context.config = self.config
        self.replicas.all_configs_changed()

    def _topic_config(self, topic: str) -> LogConfig:
        return LogConfig.resolve(self.configs.topic(topic), self.config)

    def stop(self) -> None:
        for part in (self.coordinators, self.context.moves, self.context.features, self.configs, self.controller):
            self.run(part.stop())
        self.replicas.logs.close(self.replicas.high_watermarks())
        self.threads.shutdown()
        self._runner.close()

    def ask(self, message: Any, version: int) -> Any:
        return self.run(self.answer(message, version))

    def ask_together(self, *questions: tuple[Any, int]) -> list[Any]:
        """For those who have to wait for one another; what is due at once happens meanwhile."""

        async def answers() -> list[Any]:
            asked = [asyncio.ensure_future(self.answer(message, version)) for message, version in questions]
            while not all(one.done() for one in asked):
                await asyncio.sleep(0)
                self.timers.expire(self.context.clock.monotonic_ms())
            return [one.result() for one in asked]

        return self.run(answers())

    async def answer(self, message: Any, version: int) -> Any:
        key = message.__schema__.key
        request = decode(type(message), version, encode(message, version))
        route = BY_KEY[key]
        assert route.first <= version <= route.last, f"{route.name} {version} is not served"
        module, _, name = route.handler.partition(":")
        handler = getattr(import_module(module), name)

        header = RequestHeader(key, version, 1, "test")
        asked = Request(header, cast(Connection, self.connection), memoryview(b""))
        response = handler(self.context, asked, request)
        if isinstance(response, Generator):
            response = at_once(response)
        if isinstance(response, Coroutine | asyncio.Future):
            response = await response
        self.context.audit.note(asked, request, response)
        return decode(type(response), version, encode(response, version))

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        [result] = self.run(
            self.controller.create_topics(
                [NewTopic(name=topic, partitions=partitions, replication_factor=1, configs=configs or {})],
                timeout_ms=5_000,
            )
        )
        assert result.error is None

    def settle(self) -> None:
        """Until watches that fired have been followed."""
        self.run(_a_few_turns())

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Let tasks of the broker run, and its threads, until something holds."""
        while not condition():
            self.run(asyncio.sleep(0))

    def append(
        self, topic: str, partition: int, *records: Record, producer_id: int = -1, transactional: bool = False
    ) -> int:
        """Appends the records as one batch, as a produce would; its base offset."""
        number = 0 if producer_id >= 0 else -1
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=number,
            base_sequence=number,
            transactional=transactional,
        )
        view = memoryview(batch)
        header = BATCH_HEADER.unpack_from(view)
        leader = self.replicas.leader(topic, partition)

        async def append() -> int:
            return leader.append(view, 0, len(view), header)

        return self.run(append())


async def _a_few_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
