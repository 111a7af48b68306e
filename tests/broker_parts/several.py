"""Several brokers on one event loop and one clock, over one metadata store; they reach each other by links."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, ClassVar, TypeVar, cast

from kafkad.api.dispatch import Dispatcher
from kafkad.api.routes import BETWEEN_BROKERS, BY_KEY, FETCH
from kafkad.broker.building import build
from kafkad.broker.links import network_links
from kafkad.broker.parts import Parts
from kafkad.broker.settings import Settings
from kafkad.broker.starting import Platform, identify, load
from kafkad.config import load as load_config
from kafkad.controller.topics import NewTopic
from kafkad.errors import KafkaError
from kafkad.log.files import Files
from kafkad.log.manager import LogManager
from kafkad.meta.embedded import EmbeddedSession, EmbeddedStore
from kafkad.model import BrokerInfo
from kafkad.names import TopicPartition
from kafkad.net.client import Answer, FrameLink, GoOn, LinkError
from kafkad.net.connection import Connection, DeferredReply
from kafkad.net.reply import Pending, Reply
from kafkad.net.server import Server
from kafkad.replica.disk_threads import DiskThreads
from kafkad.replica.partition import Partition
from kafkad.timers import Timers
from kafkad.wire.apis import response_class
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.messages.fetch import FetchResponse
from kafkad.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkad.wire.records import Record, build_batch
from kafkad.wire.schema import encode, read
from tests.fakes import FakeClock
from tests.one_broker import FakeConnection, NoSync, handled

T = TypeVar("T")
MEMORY, NETWORK = "in memory", "over loopback"
CONTROL_PLANE = "control.plane.listener.name="
_DEADLINE_S = 20
_PEERS_FETCH = 17
"""The version that Kafka 3.9 has."""
_LAST = {route.key: route.last for route in (*BY_KEY.values(), *BETWEEN_BROKERS)}


class FrameConnection(FakeConnection):
    """To a broker, through its dispatcher; for one frame at a time."""

    waited_us = 0

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__()
        self.dispatcher = dispatcher
        self.peer = dispatcher.peer(cast(Connection, self))
        self.closed = False
        self.answered: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        self.later: DeferredReply | None = None

    def own(self, frame: memoryview) -> memoryview:
        return memoryview(bytearray(frame))

    def measure(self, spent: object) -> None:
        """Nobody has quotas here."""

    def reply(self, reply: Reply | None) -> None:
        if not self.answered.done():
            self.answered.set_result(reply)

    def settled(self) -> None:
        assert self.later is not None
        self.reply(self.later.reply)

    def close(self) -> None:
        """As when the other side has gone."""
        self.closed = True
        self.answered.cancel()
        if self.peer.on_close is not None:
            self.peer.on_close()


class Broker:
    def __init__(self, parts: Parts, session: EmbeddedSession) -> None:
        self.parts = parts
        self.session = session

    async def ask_by_frame(self, message: Any, version: int, connection: FrameConnection) -> Any:
        """As `ask`, for what the dispatcher hands to no handler: Produce and Fetch."""
        data, at = await self.frame_for(message, version, connection)
        return read(response_class(message.__schema__.key), version, memoryview(data), at)[0]

    async def frame_for(self, message: Any, version: int, connection: FrameConnection) -> tuple[bytes, int]:
        """The answer with its length, and where its body starts."""
        key = message.__schema__.key
        connection.answered = asyncio.get_running_loop().create_future()
        frame = encode_request(RequestHeader(key, version, 1, "test"), message)
        reply = self.parts.dispatcher(cast(Connection, connection), memoryview(frame), 4, len(frame))
        if isinstance(reply, DeferredReply):
            connection.later = reply
        elif not isinstance(reply, Pending):
            connection.reply(reply)
        whole = await connection.answered
        parts = whole if isinstance(whole, list) else [whole]
        data = b"".join(
            os.pread(part.file.fd, part.length, part.position) if hasattr(part, "file") else bytes(cast(bytes, part))
            for part in parts
        )
        _, at = read_response_header(key, version, data, 4)
        return data, at

    async def produce(self, tp: TopicPartition, *values: bytes, acks: int = -1, timeout_ms: int = 30_000) -> Any:
        """The partition's answer."""
        batch = build_batch([Record(at, 1_700_000_000_000, None, value) for at, value in enumerate(values)])
        data = PartitionProduceData(index=tp.partition, records=bytes(batch))
        topic = TopicProduceData(name=tp.topic, partition_data=[data])
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])
        response = await self.ask_by_frame(request, 11, FrameConnection(self.parts.dispatcher))
        return response.responses[0].partition_responses[0]

    def partition(self, tp: TopicPartition) -> Partition:
        found = self.parts.replicas.find(*tp)
        assert found is not None
        return found

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


def _name(request: Any) -> str:
    """Of its API, whoever packs it."""
    return "FetchRequest" if request.__schema__.key == FETCH else type(request).__name__


class MemoryLink:
    """To a broker on the same loop. `Brokers.cut` makes it lose everything."""

    def __init__(self, brokers: Brokers, source: int, target: int) -> None:
        self._brokers = brokers
        self._ends = source, target
        self._connection: FrameConnection | None = None
        """The one for fetches."""
        self._waiting: set[FrameConnection] = set()
        self.closed = False

    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        if request.__schema__.key == FETCH:
            return self.read(request, await self.exchange(request, timeout_ms=timeout_ms))
        assert timeout_ms > 0
        self._brokers.sent.append((*self._ends, _name(request)))
        await asyncio.sleep(0)
        self._check()
        answer = await self._brokers[self._ends[1]].ask(request)
        self._check()
        return answer

    async def open(self, *, timeout_ms: int) -> None:
        pass

    async def exchange(self, request: Any, *, timeout_ms: int, go_on: GoOn | None = None) -> Answer:
        """Of fetches alone, which go through a connection that is kept."""
        assert timeout_ms > 0
        assert request.__schema__.key == FETCH
        while True:
            self._brokers.sent.append((*self._ends, _name(request)))
            await asyncio.sleep(0)
            self._check()
            frame, body_at = await self._fetch(self._brokers[self._ends[1]], request)
            self._check()
            answer = Answer(frame, body_at, _PEERS_FETCH)
            request = None if go_on is None else go_on(answer)
            if request is None:
                return answer

    def read(self, request: Any, answer: Answer) -> Any:
        return read(response_class(request.__schema__.key), answer.version, memoryview(answer.frame), answer.body_at)[0]

    async def _fetch(self, target: Broker, request: Any) -> tuple[bytes, int]:
        connection = self._connection
        if connection is None or connection.closed or connection.dispatcher is not target.parts.dispatcher:
            connection = self._connection = FrameConnection(target.parts.dispatcher)
        self._waiting.add(connection)
        try:
            frame, body_at = await target.frame_for(request, _PEERS_FETCH, connection)
            answer, _ = read(FetchResponse, _PEERS_FETCH, memoryview(frame), body_at)
            self._brokers.tamper(self._ends, answer)
            return frame[:body_at] + encode(answer, _PEERS_FETCH), body_at
        except asyncio.CancelledError:
            if connection.closed:
                raise LinkError(f"broker {self._ends[1]} broke off") from None
            connection.close()
            raise
        finally:
            self._waiting.discard(connection)

    def _check(self) -> None:
        brokers = self._brokers
        is_cut = frozenset(self._ends) in brokers.cut or self._ends in brokers.cut_ways
        if self.closed or is_cut or self._ends[1] not in brokers.running:
            raise LinkError(f"broker {self._ends[1]} cannot be reached")

    def target_left(self, broker: int) -> None:
        if broker == self._ends[1]:
            self._break_off()

    def close(self) -> None:
        self.closed = True
        self._break_off()

    def _break_off(self) -> None:
        for connection in list(self._waiting):
            connection.close()


class Disk(ThreadPoolExecutor):
    """The thread for blocking work. Its work takes real time, for which the clock of the test waits."""

    def __init__(self) -> None:
        super().__init__(1)
        self._going: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        going = super().submit(fn, *args, **named)
        self._going.add(going)
        going.add_done_callback(self._going.discard)
        return going

    @property
    def is_busy(self) -> bool:
        return bool(self._going)


class Brokers:
    not_stopped: ClassVar[set[Brokers]] = set()

    def __init__(self, directory: Path, links: str = MEMORY, *settings: str) -> None:
        self.clock = FakeClock()
        self.timers = Timers()
        self.cut: set[frozenset[int]] = set()
        self.cut_ways: set[tuple[int, int]] = set()
        """Requests from the first are not answered by the second; the other way round they are."""
        self.tamper: Callable[[tuple[int, int], Any], None] = lambda ends, answer: None
        """What becomes of the answer to a fetch of the first from the second on its way."""
        self.sent: list[tuple[int, int, str]] = []
        self.running: dict[int, Broker] = {}
        self.halted: list[str] = []
        self._memory_links: list[MemoryLink] = []
        self.files: dict[int, Files] = {}
        """The disks of brokers that are started from now on."""
        self._directory = directory
        self._links = links
        self._settings = settings
        self._runner = asyncio.Runner()
        self._threads = Disk()
        self.store = EmbeddedStore.in_memory(self.clock)
        self.not_stopped.add(self)

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
        if control_plane := over_network and any(text.startswith(CONTROL_PLANE) for text in self._settings):
            listener += ",CONTROL://127.0.0.1:0"
        config = load_config(
            None,
            [
                f"log.dirs={directory}",
                f"broker.id={broker}",
                f"broker.rack=rack-{broker}",
                f"listeners={listener}",
                "kafkad.placement.start=0",
                "offsets.topic.num.partitions=2",
                *self._settings,
            ],
            {},
        )
        logs = LogManager([directory], self.files.get(broker, NoSync()), self.clock)
        logs.lock()
        settings = Settings(config)
        server = Server(asyncio.get_running_loop(), settings.limits(), self.clock, self.timers)
        for endpoint in config.listeners if over_network else ():
            server.listen(endpoint.listener, endpoint.host, endpoint.port, apart=endpoint.listener == "CONTROL")

        def link(target: BrokerInfo) -> FrameLink:
            made = MemoryLink(self, broker, target.id)
            self._memory_links.append(made)
            return made

        session = self.store.session()
        platform = Platform(
            clock=self.clock,
            timers=self.timers,
            threads=DiskThreads({}, self._threads),
            blocking_calls=self._threads,
            random=Random(broker),
            store=session,
            logs=logs,
            server=server,
            links=network_links(config, broker, self.clock, self.timers) if over_network else link,
            control_links=(
                network_links(config, broker, self.clock, self.timers, control_plane=True) if control_plane else None
            ),
            halt=self.halted.append,
        )
        identity = await identify(platform, settings)
        await load(platform, identity, lambda progress: None)
        parts = build(platform, identity)
        await parts.start()
        return Broker(parts, session)

    def stop(self) -> None:
        """All at once: nobody takes over from anybody."""
        self.not_stopped.discard(self)
        try:
            for broker in self.running.values():
                self.run(broker.parts.stop_taking())
            for broker in list(self.running.values()):
                self.run(self._stop(broker))
        finally:
            self._threads.shutdown()
            self._runner.close()

    def leave(self, *brokers: int) -> None:
        """These brokers stop; their sessions with the store end, and `start` has them back on their directories."""
        for broker in brokers:
            self.ended(self._leave(self.running.pop(broker)))

    async def _leave(self, broker: Broker) -> None:
        await broker.parts.stop_taking()
        await self._stop(broker)
        await broker.session.close()

    async def _stop(self, broker: Broker) -> None:
        for link in self._memory_links:
            link.target_left(broker.parts.replicas.broker_id)
        broker.parts.platform.server.close()
        await broker.parts.stop()

    def ended(self, scenario: Coroutine[Any, Any, T], *, advance_ms: int = 10) -> T:
        """Its result, while the clock moves on."""
        going = self.begun(scenario)
        self.until(going.done, advance_ms=advance_ms)
        return going.result()

    def begun(self, scenario: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """It goes on while the brokers work."""

        async def begin() -> asyncio.Future[T]:
            return asyncio.ensure_future(scenario)

        return self.run(begin())

    def until(self, condition: Callable[[], bool], *, advance_ms: int = 0) -> None:
        """Let the brokers work until something holds; each turn the clock moves by `advance_ms`."""
        deadline = monotonic() + _DEADLINE_S
        while not condition():
            assert monotonic() < deadline
            self.run(self.turn(advance_ms))

    def meet(self) -> None:
        """Until each broker knows all others, so that the controller has reached them."""
        count = len(self.running)
        self.until(
            lambda: all(len(b.parts.replicas.metadata.brokers) == count for b in self.running.values()), advance_ms=10
        )

    def work_for(self, ms: int) -> None:
        """Let the brokers work for so long by the clock."""
        end_ms = self.clock.monotonic_ms() + ms
        self.until(lambda: self.clock.monotonic_ms() >= end_ms, advance_ms=10)

    async def turn(self, advance_ms: int) -> None:
        await asyncio.sleep(0)
        if not self._threads.is_busy:
            self.clock.advance(advance_ms)
        self.timers.expire(self.clock.monotonic_ms())

    @property
    def controller(self) -> Broker:
        [active] = [broker for broker in self.running.values() if broker.parts.controller.active]
        return active

    def create(self, topic: str, *replicas: tuple[int, ...], **configs: str) -> None:
        """Until all brokers know it."""
        new = NewTopic(name=topic, assignment=dict(enumerate(replicas)), configs=configs)
        [result] = self.run(self.controller.parts.controller.create_topics([new], timeout_ms=5_000))
        assert result.error is None
        self.until(lambda: all(topic in b.parts.replicas.metadata.topics for b in self.running.values()))
