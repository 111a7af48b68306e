"""The store over ZooKeeper: the contract on real servers, and sessions that are suspended, lost and renewed."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from random import Random
from typing import Any, TypeVar

import pytest
from kazoo.protocol.serialization import Connect

from kafkad.broker.loop_timers import LoopTimers
from kafkad.clock import SystemClock
from kafkad.meta.kazoo_session import ZooKeeperSettings
from kafkad.meta.store import (
    BadVersion,
    Change,
    Check,
    ConnectionLoss,
    Create,
    Delete,
    MetaError,
    MetaStore,
    MultiFailed,
    NodeExists,
    SessionExpired,
    SessionState,
    Set,
    Stat,
    TooLarge,
    WatchEvent,
    ensure_path,
)
from kafkad.meta.zookeeper import MAX_REQUEST_BYTES, ZooKeeperStore, _Request
from tests.oracle.kafka import free_port
from tests.oracle.zookeeper import MAX_SESSION_MS, Ensemble, ZooKeeper, missing

from .contract import MetaStoreContract

pytestmark = [pytest.mark.slow, pytest.mark.java]

START_MS = 60_000
SESSION_MS = 5_000
_roots = count()
T = TypeVar("T")


async def open_store(servers: str, root: str, session_ms: int = SESSION_MS, in_flight: int = 10) -> ZooKeeperStore:
    clock = SystemClock()
    timers = LoopTimers(asyncio.get_running_loop(), clock).timers
    return await ZooKeeperStore.connect(
        ZooKeeperSettings(servers, root, session_ms, in_flight), START_MS, clock, timers
    )


def new_root() -> str:
    return f"/tests/{next(_roots)}"


def end_session(port: int, session: int, password: bytes) -> None:
    """Ends another client's session, as ZooKeeper does when it has not heard of it for too long."""
    requests = Connect(0, 0, 10_000, session, password, False).serialize(), struct.pack(">ii", 1, -11)
    packed = b"".join(struct.pack(">i", len(request)) + bytes(request) for request in requests)
    while not _has_ended(_answers(port, packed)):
        """The other client may take its session back before the second request is read."""


def _answers(port: int, requests: bytes) -> list[bytes]:
    """Until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(requests)
        data, found = b"", []
        with suppress(ConnectionResetError):
            while some := connection.recv(4096):
                data += some
    while len(data) >= 4 and len(data) >= 4 + (size := int.from_bytes(data[:4], "big")):
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return found


def _has_ended(answers: list[bytes]) -> bool:
    """It was closed, or there was none to be closed: then it has no time-out."""
    return len(answers) > 1 or (len(answers) == 1 and int.from_bytes(answers[0][4:8], "big", signed=True) <= 0)


async def expire(store: ZooKeeperStore, port: int) -> None:
    """Returns when the store knows that its session is over."""
    expired = asyncio.Event()
    store.listen(lambda state: expired.set() if state is SessionState.EXPIRED else None)
    session, password = store._session.client.client_id
    await asyncio.get_running_loop().run_in_executor(None, end_session, port, session, password)
    await expired.wait()


class OnZooKeeper(MetaStoreContract):
    servers: str
    ports: list[int]
    root: str
    sessions: list[ZooKeeperStore]

    async def start(self) -> None:
        self.root = new_root()
        self.sessions = []

    async def stop(self) -> None:
        for session in self.sessions:
            await session.close()

    async def connect(self) -> MetaStore:
        session = await open_store(self.servers, self.root)
        self.sessions.append(session)
        return session

    async def expire(self, session: MetaStore) -> None:
        assert isinstance(session, ZooKeeperStore)
        await expire(session, self.ports[0])

    async def settle(self) -> None:
        """The reply to a write comes after everything that its server knew before."""
        for _ in range(2):
            for session in self.sessions:
                with suppress(SessionExpired):
                    await session.set("/", b"")
        await asyncio.sleep(0)


class TestOn38(OnZooKeeper):
    @pytest.fixture(scope="class", autouse=True)
    @staticmethod
    def server(request: pytest.FixtureRequest) -> Iterator[None]:
        yield from alone("3.8", request)


class TestOn39(OnZooKeeper):
    @pytest.fixture(scope="class", autouse=True)
    @staticmethod
    def server(request: pytest.FixtureRequest) -> Iterator[None]:
        yield from alone("3.9", request)


class TestOnThree(OnZooKeeper):
    @pytest.fixture(scope="class", autouse=True)
    @staticmethod
    def server(request: pytest.FixtureRequest) -> Iterator[None]:
        yield from together("3.8", request)


@pytest.mark.slow
class TestOnThreeOf39(OnZooKeeper):
    @pytest.fixture(scope="class", autouse=True)
    @staticmethod
    def server(request: pytest.FixtureRequest) -> Iterator[None]:
        yield from together("3.9", request)


def skip_without(release: str) -> None:
    reason = missing(release)
    if reason:
        pytest.skip(reason)


def together(release: str, request: pytest.FixtureRequest) -> Iterator[None]:
    skip_without(release)
    with Ensemble(release) as ensemble:
        request.cls.servers = ensemble.connect
        request.cls.ports = [server.port for server in ensemble.servers]
        yield


def alone(release: str, request: pytest.FixtureRequest) -> Iterator[None]:
    skip_without(release)
    with ZooKeeper(release) as server:
        request.cls.servers = server.connect
        request.cls.ports = [server.port]
        yield


# One session through a relay that the test cuts, and another beside it.


class Relay:
    """Passes bytes on to a server until it is `cut`; `deafen` drops what the server says."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._open = True
        self._deaf = False
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self.cut()
        assert self._server is not None
        self._server.close()
        await asyncio.sleep(0)

    def cut(self) -> None:
        self._open = False
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def deafen(self) -> None:
        self._deaf = True

    def mend(self) -> None:
        self._open, self._deaf = True, False

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, to_server]
        await asyncio.gather(self._pass(reader, to_server, from_client=True), self._pass(from_server, writer))

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, from_client: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if from_client or not self._deaf:
                    writer.write(data)
        writer.transport.abort()


class Pair:
    """`store` is the session whose relay is cut, `other` the one beside it; `states` is what `store` told."""

    store: ZooKeeperStore
    other: ZooKeeperStore

    def __init__(self, server: ZooKeeper) -> None:
        self.server = server
        self.relay = Relay(server.port)
        self.states: list[SessionState] = []

    async def wait_for(self, state: SessionState) -> None:
        async with asyncio.timeout(30):
            while not self.states or self.states[-1] is not state:
                await asyncio.sleep(0.01)


def on_a_pair(test: Callable[[Pair], Awaitable[None]], session_ms: int = 15_000) -> Callable[[ZooKeeper], None]:
    """The sessions of most tests last longer than a busy machine keeps them waiting."""

    def run(server: ZooKeeper) -> None:
        async def whole() -> None:
            pair = Pair(server)
            await pair.relay.start()
            root = new_root()
            pair.other = await open_store(server.connect, root)
            pair.store = await open_store(f"127.0.0.1:{pair.relay.port}", root, session_ms)
            pair.store.listen(pair.states.append)
            try:
                await test(pair)
            finally:
                await pair.store.close()
                await pair.other.close()
                await pair.relay.stop()

        asyncio.run(whole())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeper]:
    skip_without("3.8")
    with ZooKeeper("3.8") as running:
        yield running


@on_a_pair
async def test_a_broken_connection_does_not_end_the_session(pair: Pair) -> None:
    store = pair.store
    await store.create("/mine", ephemeral=True)
    session = store.session_id
    pair.relay.cut()
    await pair.wait_for(SessionState.SUSPENDED)
    waiting = asyncio.create_task(store.create("/later"))
    reading = asyncio.create_task(store.get_many(["/mine", "/later", "/none"]))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    pair.relay.mend()
    assert await waiting == "/later"
    assert [found is not None for found in await reading] == [True, True, False]
    assert store.session_id == session
    assert pair.states == [SessionState.SUSPENDED, SessionState.CONNECTED]


@on_a_pair
async def test_a_read_whose_reply_was_lost_is_sent_again(pair: Pair) -> None:
    await pair.store.create("/a", b"1")
    pair.relay.deafen()
    reading = asyncio.create_task(pair.store.get("/a"))
    await asyncio.sleep(0.2)
    pair.relay.cut()
    pair.relay.mend()
    assert (await reading)[0] == b"1"


async def lose_the_reply(pair: Pair, write: Coroutine[Any, Any, T], done: Callable[[], Awaitable[bool]]) -> T:
    """The result of a write that was carried out before its connection broke."""
    pair.relay.deafen()
    writing = asyncio.create_task(write)
    while not await done():
        await asyncio.sleep(0.01)
    pair.relay.cut()
    pair.relay.mend()
    return await writing


@on_a_pair
async def test_a_write_whose_reply_was_lost_has_the_result_of_the_first_time(pair: Pair) -> None:
    store, other = pair.store, pair.other

    async def there() -> bool:
        return await other.exists("/a") is not None

    async def written() -> bool:
        return (await other.get("/a"))[0] == b"2"

    async def gone() -> bool:
        return not await there()

    assert await lose_the_reply(pair, store.create("/a", b"1", ephemeral=True), there) == "/a"
    assert await lose_the_reply(pair, store.set("/a", b"2", 0), written) == await other.exists("/a")
    await lose_the_reply(pair, store.delete("/a", 1), gone)


@on_a_pair
async def test_a_node_that_was_made_anew_is_not_deleted_when_a_reply_was_lost(pair: Pair) -> None:
    store, other = pair.store, pair.other

    async def made_anew() -> bool:
        if await other.exists("/a") is not None:
            return False
        await other.create("/a", b"another")
        return True

    await store.create("/a")
    with pytest.raises(BadVersion):
        await lose_the_reply(pair, store.delete("/a", 0), made_anew)
    with pytest.raises(MultiFailed) as refused:
        await lose_the_reply(pair, store.multi([Create("/b"), Delete("/a", 0)]), made_anew)
    assert (refused.value.index, type(refused.value.cause)) == (1, BadVersion)
    assert (await other.get("/a"))[0] == b"another"


@on_a_pair
async def test_a_transaction_whose_reply_was_lost_has_the_results_of_the_first_time(pair: Pair) -> None:
    store, other = pair.store, pair.other
    await store.create("/fence")
    await store.create("/count", b"0")
    await store.create("/wish")

    async def done() -> bool:
        return await other.exists("/topic/state") is not None

    operations = [
        Check("/fence", 0),
        Create("/topic", b"id"),
        Create("/topic/state"),
        Set("/topic/state", b"leader"),
        Set("/count", b"1", 0),
        Delete("/wish"),
    ]
    results = await lose_the_reply(pair, store.multi(operations), done)
    state, count = await other.exists("/topic/state"), await other.exists("/count")
    assert results == [None, "/topic", "/topic/state", state, count, None]


@on_a_pair
async def test_a_write_that_somebody_else_forestalled_is_refused_also_after_a_lost_connection(pair: Pair) -> None:
    """Of all that it would have done nothing may be taken for done, whoever wrote the same."""
    store, other = pair.store, pair.other
    await store.create("/fence")

    async def forestall() -> None:
        await other.set("/fence", b"")
        for path in ("/mine", "/block"):
            await other.create(path, b"1", ephemeral=True)

    async def refused(write: Coroutine[Any, Any, object]) -> None:
        pair.relay.cut()
        await pair.wait_for(SessionState.SUSPENDED)
        pair.states.clear()
        writing = asyncio.create_task(write)
        await asyncio.sleep(0)
        next(iter(store._waiting)).in_doubt = True  # as if it had been sent, and had not arrived
        await forestall()
        pair.relay.mend()
        with pytest.raises((MultiFailed, NodeExists)):
            await writing
        for path in ("/mine", "/block"):
            await other.delete(path)

    await refused(store.multi([Check("/fence", 0), Create("/block", b"1")]))
    await refused(store.create("/mine", b"1", ephemeral=True))
    await refused(store.create("/mine", b"2"))


@on_a_pair
async def test_watches_outlive_a_connection_and_tell_what_was_missed(pair: Pair) -> None:
    """Once each, and nothing of what did not change."""
    store, other = pair.store, pair.other
    for path in ("/changed", "/deleted", "/parent", "/same", "/gone", "/again"):
        await store.create(path)
    seen: list[WatchEvent] = []
    for path in ("/changed", "/deleted", "/same", "/again"):
        await store.get(path, seen.append)
    for path in ("/created", "/never"):
        await store.exists(path, seen.append)
    for path in ("/parent", "/gone", "/same"):
        await store.children(path, seen.append)
    pair.relay.cut()
    await pair.wait_for(SessionState.SUSPENDED)
    await other.set("/changed", b"1")
    await other.create("/created")
    await other.create("/parent/child")
    for path in ("/deleted", "/gone", "/again"):
        await other.delete(path)
    await other.create("/again")
    store.listen(lambda state: time.sleep(0.5))  # so that all replies come at once

    async def seen_before_a_write() -> list[WatchEvent]:
        await store.set("/", b"")
        return list(seen)

    writing = asyncio.create_task(seen_before_a_write())
    await asyncio.sleep(0)
    pair.relay.mend()
    assert sorted(await writing, key=lambda event: event.path) == [
        WatchEvent(Change.CHANGED, "/again"),
        WatchEvent(Change.CHANGED, "/changed"),
        WatchEvent(Change.CREATED, "/created"),
        WatchEvent(Change.DELETED, "/deleted"),
        WatchEvent(Change.DELETED, "/gone"),
        WatchEvent(Change.CHILDREN, "/parent"),
    ]
    seen.clear()
    await other.set("/same", b"1")
    await other.create("/same/child")
    await other.create("/never")
    await other.set("/changed", b"2")
    await store.set("/", b"")
    assert seen == [
        WatchEvent(Change.CHANGED, "/same"),
        WatchEvent(Change.CHILDREN, "/same"),
        WatchEvent(Change.CREATED, "/never"),
    ]


@on_a_pair
async def test_no_change_is_missed_while_the_connection_breaks_again_and_again(pair: Pair) -> None:
    store, other = pair.store, pair.other
    await store.create("/n", b"0")
    seen: list[int] = []

    news = asyncio.Event()

    async def follow() -> None:
        while True:
            news.clear()
            data, _ = await store.get("/n", lambda event: news.set())
            seen.append(int(data))
            await news.wait()

    following = asyncio.create_task(follow())
    random = Random(1)
    for n in range(1, 301):
        if n % 20 == 0:
            pair.relay.cut()
        await other.set("/n", str(n).encode())
        if n % 20 == 10:
            pair.relay.mend()
        await asyncio.sleep(random.random() * 0.04)
    pair.relay.mend()
    async with asyncio.timeout(30):
        while seen[-1] < 300:
            await asyncio.sleep(0.01)
    following.cancel()
    assert seen == sorted(seen)
    assert pair.states.count(SessionState.SUSPENDED) > 5
    assert SessionState.EXPIRED not in pair.states


@on_a_pair
async def test_writes_whose_replies_are_lost_now_and_then_are_done_once(pair: Pair) -> None:
    """A counter that one session raises: none of its steps is lost, or done twice."""
    store = pair.store
    await store.create("/n", b"0")
    random = Random(2)
    cuts = 0

    async def disturb() -> None:
        nonlocal cuts
        while True:
            await asyncio.sleep(random.random() * 0.2)
            pair.relay.deafen()
            await asyncio.sleep(random.random() * 0.02)
            pair.relay.cut()
            pair.relay.mend()
            cuts += 1

    disturbing = asyncio.create_task(disturb())
    for step in range(400):
        assert (await store.set("/n", str(step + 1).encode(), step)).version == step + 1
    disturbing.cancel()
    pair.relay.cut()  # it may just have been deafened
    pair.relay.mend()
    assert cuts > 0
    assert (await store.get("/n"))[0] == b"400"


@partial(on_a_pair, session_ms=4_000)
async def test_a_session_that_is_cut_off_for_too_long_has_expired_until_it_is_renewed(pair: Pair) -> None:
    store, other = pair.store, pair.other
    await store.create("/mine", ephemeral=True)
    session = store.session_id
    seen: list[WatchEvent] = []
    await store.get("/mine", seen.append)
    pair.relay.cut()
    await pair.wait_for(SessionState.SUSPENDED)
    waiting = asyncio.create_task(store.create("/later"))
    while await other.exists("/mine") is not None:
        await asyncio.sleep(0.05)
    pair.relay.mend()
    with pytest.raises(SessionExpired):
        await waiting
    await pair.wait_for(SessionState.EXPIRED)
    await asyncio.sleep(0.5)  # kazoo by itself would have connected again
    with pytest.raises(SessionExpired):
        await store.get("/")
    await store.renew()
    assert store.session_id != session
    assert await store.exists("/mine") is None
    await store.create("/mine", ephemeral=True)
    await other.set("/mine", b"1")
    assert await other.exists("/later") is None
    assert seen == []
    assert pair.states == [SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED]


@on_a_pair
async def test_one_who_has_given_up_does_not_disturb_the_next(pair: Pair) -> None:
    reads = [asyncio.create_task(pair.store.get("/")) for _ in range(30)]
    await asyncio.sleep(0)
    for read in reads:
        read.cancel()
    await asyncio.wait(reads)
    assert await pair.store.children("/") == []


@on_a_pair
async def test_many_nodes_are_read_by_few_requests(pair: Pair) -> None:
    store = pair.store
    await store.multi([Create(f"/{n}", b"%d" % n) for n in range(250)])
    await store.delete("/7")
    found = await store.get_many([f"/{n}" for n in range(251)])
    assert [node and node[0] for node in found] == [None if n in (7, 250) else b"%d" % n for n in range(251)]
    assert found[3] == await store.get("/3")
    assert await store.get_many([]) == []


@on_a_pair
async def test_a_node_without_data_is_an_empty_one(pair: Pair) -> None:
    """Kafka writes such nodes."""
    request = _Request("/a", lambda link: link.client.create_async(f"{pair.store._root}/a", None))
    _, error = await pair.store._enqueue(request).reply
    assert error is None
    assert (await pair.store.get("/a"))[0] == b""
    [found] = await pair.store.get_many(["/a"])
    assert found is not None
    assert found[0] == b""


@on_a_pair
async def test_requests_under_way_are_bounded(pair: Pair) -> None:
    store, most = pair.store, 0
    send = store._session.send

    def counted(request: object) -> None:
        nonlocal most
        most = max(most, len(store._sent))
        send(request)  # type: ignore[arg-type]

    store._session.send = counted  # type: ignore[assignment,method-assign]
    await asyncio.gather(*[store.exists("/") for _ in range(500)])
    assert most == 10


@on_a_pair
async def test_what_zookeeper_would_hang_up_on_is_refused(pair: Pair) -> None:
    with pytest.raises(MetaError, match="too large"):
        await pair.store.multi([Create(f"/{n}", b"x" * 1000) for n in range(1_000)])
    with pytest.raises(TooLarge) as refused:
        await pair.store.multi([Create("/a"), Create("/b", b"x" * MAX_REQUEST_BYTES), Create("/c", b"x")])
    assert refused.value.path == "/b"
    with pytest.raises(MetaError, match="too large"):
        await pair.store.create("/a", b"x" * (MAX_REQUEST_BYTES + 1))
    await pair.store.create("/a", b"x" * (MAX_REQUEST_BYTES - 100))
    await pair.store.multi([Create(f"/{n}", b"x" * 1000) for n in range(900)])
    assert pair.states == []


@on_a_pair
async def test_the_epoch_of_a_registration_is_in_the_reply_to_its_transaction(pair: Pair) -> None:
    made, written = await pair.store.multi([Create("/1", b"a", ephemeral=True), Set("/1", b"b")])
    stat = await pair.other.exists("/1")
    assert isinstance(written, Stat)
    assert (made, written) == ("/1", stat)
    assert written.ephemeral_owner == pair.store.session_id


def test_the_root_is_made_and_nothing_is_written_beside_it(server: ZooKeeper) -> None:
    async def whole() -> None:
        root = new_root()
        store, plain = await open_store(server.connect, f"{root}/a/b"), await open_store(server.connect, "")
        await ensure_path(store, "/brokers/ids")
        assert await plain.children(f"{root}/a/b/brokers") == ["ids"]
        made = await store.create("/brokers/n_", sequential=True)
        assert made == "/brokers/n_0000000001"
        assert (await store.multi([Create("/brokers/n_", sequential=True)]))[0] == "/brokers/n_0000000002"
        await store.close()
        await plain.close()

    asyncio.run(whole())


def test_a_zookeeper_that_is_not_there_is_waited_for_and_named(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()

    async def whole() -> None:
        clock = SystemClock()
        settings = ZooKeeperSettings(f"127.0.0.1:{port}", "/cluster", SESSION_MS, 10)
        timers = LoopTimers(asyncio.get_running_loop(), clock).timers
        with pytest.raises(ConnectionLoss, match=f"127.0.0.1:{port}/cluster: .*Connection refused"):
            await ZooKeeperStore.connect(settings, 5_500, clock, timers)

    asyncio.run(whole())
    assert f"waiting for ZooKeeper at 127.0.0.1:{port}/cluster: Connection refused" in caplog.text


def test_a_server_that_hangs_never_blocks_the_loop() -> None:
    skip_without("3.8")

    async def whole(server: ZooKeeper) -> None:
        store = await open_store(server.connect, "", session_ms=10_000)
        server.suspend()
        loop = asyncio.get_running_loop()
        try:
            requests = [asyncio.create_task(store.exists("/")) for _ in range(1_000)]
            longest = 0.0
            for _ in range(30):
                begun = loop.time()
                await asyncio.sleep(0.1)
                longest = max(longest, loop.time() - begun)
            assert not any(request.done() for request in requests)
        finally:
            server.resume()
        await asyncio.gather(*requests)
        assert longest < 1
        await store.close()

    with ZooKeeper("3.8") as server:
        asyncio.run(whole(server))


def test_a_server_that_dies_is_replaced_by_another_of_the_ensemble() -> None:
    skip_without("3.8")

    async def whole(ensemble: Ensemble) -> None:
        store = await open_store(ensemble.connect, "")
        session = store.session_id
        await store.create("/mine", ephemeral=True)
        ensemble.leader.kill()
        await asyncio.wait_for(store.children("/"), 30)
        await asyncio.wait_for(store.set("/mine", b"1"), 30)
        assert store.session_id == session
        await store.close()

    with Ensemble("3.8") as ensemble:
        asyncio.run(whole(ensemble))


def test_the_server_says_how_long_a_session_lives(server: ZooKeeper) -> None:
    async def whole() -> None:
        store = await open_store(server.connect, "", session_ms=10 * MAX_SESSION_MS)
        assert store.session_timeout_ms == MAX_SESSION_MS
        await store.close()

    asyncio.run(whole())
