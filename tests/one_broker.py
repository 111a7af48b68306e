"""A broker built from its parts, without sockets: requests go straight to the handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, TypeVar, cast

from kafkad.api.context import Context, Request
from kafkad.api.peer import Peer
from kafkad.api.prepared import Grounds
from kafkad.api.routes import BY_KEY
from kafkad.broker.building import build
from kafkad.broker.parts import Parts
from kafkad.broker.settings import Settings
from kafkad.broker.starting import Platform, identify, load
from kafkad.clock import SystemClock
from kafkad.config import Config
from kafkad.config import load as load_config
from kafkad.controller.topics import NewTopic
from kafkad.errors import KafkaError
from kafkad.log.files import Files
from kafkad.log.manager import LogManager
from kafkad.meta.embedded import EmbeddedStore
from kafkad.model import Endpoint
from kafkad.net.connection import Connection
from kafkad.net.server import Server
from kafkad.replica.disk_threads import DiskThreads
from kafkad.security.authorizer import ALLOW_ALL
from kafkad.timers import Timers
from kafkad.turns import at_once
from kafkad.wire.frames import RequestHeader
from kafkad.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kafkad.wire.records import BATCH_HEADER, Record, build_batch
from kafkad.wire.schema import decode, encode
from tests.fakes import FakeClock, turns

T = TypeVar("T")
CLUSTER_ID = "fXmphK5_SnixAJrWTHuQUQ"
ENDPOINTS = (
    Endpoint(listener="PLAINTEXT", host="inside", port=9092),
    Endpoint(listener="OUTSIDE", host="outside", port=19092),
)


class _Listener:
    name = "PLAINTEXT"
    apart = False


class FakeConnection:
    """As much of a connection as handlers look at."""

    subject = None

    def __init__(self) -> None:
        self.listener = _Listener()
        self.host = "127.0.0.1"
        self.address = "127.0.0.1:50123"
        self.peer = Peer(self.listener.name, self.host, ALLOW_ALL, Grounds())
        self.lost_client = False

    def has_lost_client(self) -> bool:
        return self.lost_client


class NoSync(Files):
    """Nothing here is to survive the machine."""

    def sync(self, fd: int) -> None:  # type: ignore[override]
        pass


class OneBroker:
    """`ask` sends a message as a client would: encoded and decoded on both ways, so that versions count."""

    def __init__(self, directory: Path, *settings: str, directories: Sequence[str] = ("first", "second")) -> None:
        self._runner = asyncio.Runner()
        self.connection = FakeConnection()
        self.directories = [str(directory / name) for name in directories]
        self.threads = ThreadPoolExecutor(1)
        self.timers = Timers()
        listeners = ",".join(f"{e.listener}://{e.host}:{e.port}" for e in ENDPOINTS)
        self.static: Config = load_config(
            None,
            [
                f"log.dirs={','.join(self.directories)}",
                "broker.id=1",
                "broker.rack=r1",
                f"listeners={listeners}",
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
                "kafkad.placement.start=0",
                *settings,
            ],
            {},
        )
        self.parts = self.run(self._start())
        self.replicas = self.parts.replicas
        self.controller = self.parts.controller
        self.context = self.parts.context
        self.coordinators = self.parts.coordinators
        self.configs = self.parts.identity.configs
        self.durable = self.parts.durable

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(scenario)

    @property
    def config(self) -> Config:
        return self.parts.settings.config

    async def _start(self) -> Parts:
        clock = SystemClock()
        self.store = EmbeddedStore.in_memory(clock).session()
        logs = LogManager(self.directories, NoSync(), clock)
        logs.lock()
        logs.claim(CLUSTER_ID, 1)
        settings = Settings(self.static)
        platform = Platform(
            clock=clock,
            timers=self.timers,
            threads=DiskThreads({}, self.threads),
            blocking_calls=self.threads,
            random=Random(1),
            store=self.store,
            logs=logs,
            server=Server(asyncio.get_running_loop(), settings.limits(), clock, self.timers),
            halt=lambda why: None,
        )
        identity = await identify(platform, settings)
        await load(platform, identity, lambda progress: None)
        parts = build(platform, identity)
        await parts.start()
        return parts

    def stop(self) -> None:
        self.run(self.parts.stop_taking())
        self.run(self.parts.stop())
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

    def pieces(self, message: Any, version: int) -> int:
        """In how many pieces the handler does its work."""

        async def count() -> int:
            answered = _Handler(self.context, message, version, self.connection)()
            return sum(1 for _ in answered) if isinstance(answered, Generator) else 1

        return self.run(count())

    async def answer(self, message: Any, version: int) -> Any:
        return await handled(self.context, message, version, self.connection)

    def stops(self, message: Any, version: int) -> int:
        """How often the handler stops for others until it has its answer, or waits for somebody else's."""
        route = BY_KEY[message.__schema__.key]
        asked = Request(
            RequestHeader(route.key, version, 1, "test"), cast(Connection, self.connection), memoryview(b"")
        )
        path, _, name = route.handler.partition(":")
        working = getattr(import_module(path), name)(self.context, asked, message)
        stops = 0
        while isinstance(working, Generator):
            try:
                next(working)
            except StopIteration as end:
                if isinstance(end.value, Coroutine):
                    end.value.close()
                break
            stops += 1
        return stops

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        [result] = self.run(
            self.controller.create_topics(
                [NewTopic(name=topic, partitions=partitions, replication_factor=1, configs=configs or {})],
                timeout_ms=60_000,
            )
        )
        assert result.error is None

    def lead(self, topic: str, index: int, leader: int, isr: Sequence[int] = (), epochs: int = 1) -> None:
        """The controller says who leads a partition that is here, in the next leader epoch or so many later."""
        role, topic_id = self.replicas.get(topic, index).role, self.replicas.metadata.topic(topic).id
        state = LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=leader,
            leader_epoch=role.leader_epoch + epochs,
            isr=list(isr) or [leader],
            partition_epoch=role.partition_epoch + 1,
            replicas=sorted({1, leader, *isr}),
        )
        request = LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=self.replicas.controller_epoch,
            broker_epoch=self.replicas.broker_epoch,
            topic_states=[LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=[state])],
        )
        response = self.run(self.replicas.leader_and_isr(request))
        assert not response.error_code
        assert not any(each.error_code for each in response.topics[0].partition_errors)

    def settle(self) -> None:
        """Until watches that fired have been followed."""
        self.run(turns(5))

    def work(self, clock: FakeClock, timers: Timers, after_ms: int) -> None:
        """Have who goes by this clock and these timers do what there is to do after so long."""

        async def expire() -> None:
            timers.expire(clock.monotonic_ms())

        clock.advance(after_ms)
        for _ in range(20):
            self.run(expire())
            self.threads.submit(int).result()  # when what was given to the thread before is done
            self.settle()

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Let tasks of the broker run, its threads and its timers, until something holds."""
        while not condition():
            self.run(asyncio.sleep(0))
            self.run(self._expire())

    async def _expire(self) -> None:
        self.timers.expire(self.context.clock.monotonic_ms())

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


async def handled(context: Context, message: Any, version: int, connection: object) -> Any:
    """The handler's answer."""
    handler = _Handler(context, message, version, connection)
    try:
        response = handler()
        while isinstance(response, Generator | Coroutine | asyncio.Future):
            response = at_once(response) if isinstance(response, Generator) else await response
    except KafkaError as error:
        if not hasattr(handler.module, "refused"):
            raise
        response = handler.module.refused(handler.asked, handler.request, error)
    context.audit.note(handler.asked, handler.request, response)
    return decode(type(response), version, encode(response, version))


class _Handler:
    """A handler with a request for it."""

    def __init__(self, context: Context, message: Any, version: int, connection: object) -> None:
        key = message.__schema__.key
        self.request = decode(type(message), version, encode(message, version))
        route = BY_KEY.get(key) or next(route for route in context.between_brokers if route.key == key)
        assert route.first <= version <= route.last, f"{route.name} {version} is not served"
        path, _, self._name = route.handler.partition(":")
        self.module = import_module(path)
        self.asked = Request(RequestHeader(key, version, 1, "test"), cast(Connection, connection), memoryview(b""))
        self._context = context

    def __call__(self) -> Any:
        return getattr(self.module, self._name)(self._context, self.asked, self.request)
