"""A broker's registration: found taken, lost with its session, made again."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

import pytest

from kafkad.broker.membership import DuplicateBroker, Membership
from kafkad.controller.registration import cluster_id, prepare, register
from kafkad.meta.embedded import EmbeddedSession, EmbeddedStore
from kafkad.meta.store import ConnectionLoss, SessionExpired
from kafkad.meta.znodes import Broker, ClusterId
from kafkad.model import BrokerInfo, Endpoint
from kafkad.timers import Timers
from tests.fakes import FakeClock, turns

HERE, ELSEWHERE = "here", "elsewhere"
CLUSTER = "Jh2Wm3JjTRWIVYq4X8V7Cg"
PATIENCE_MS = 27_000


def registration(host: str = HERE) -> Broker:
    endpoint = Endpoint(listener="PLAINTEXT", host=host, port=9092)
    return Broker(broker=BrokerInfo(id=1, endpoints=(endpoint,)), timestamp_ms=1)


class Follower:
    def __init__(self) -> None:
        self.renewed = 0
        self.failures: list[Exception] = []
        self.before: Callable[[], Awaitable[None]] | None = None

    async def session_renewed(self) -> None:
        if self.before is not None:
            before, self.before = self.before, None
            await before()
        if self.failures:
            raise self.failures.pop()
        self.renewed += 1


class Scene:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timers = Timers()
        self.store = EmbeddedStore.in_memory(self.clock)
        self.epochs: list[int] = []
        self.halted: list[str] = []
        self.asked_before = 0
        self.follower = Follower()
        self.session = self.store.session()
        self.membership = self.member(self.session)

    def member(self, session: EmbeddedSession, patience_ms: int = PATIENCE_MS) -> Membership:
        return Membership(
            session,
            registration,
            clock=self.clock,
            timers=self.timers,
            patience_ms=patience_ms,
            before_registering=self.before_registering,
            on_epoch=self.epochs.append,
            followers=[self.follower],
            cluster_id=CLUSTER,
            halt=self.halted.append,
        )

    async def before_registering(self) -> None:
        self.asked_before += 1

    async def registered(self) -> int | None:
        """Whose session the registration belongs to."""
        stat = await self.store.session().exists(Broker.path(1))
        return None if stat is None else stat.ephemeral_owner

    async def pass_ms(self, ms: int) -> None:
        await turns()
        self.clock.advance(ms)
        self.timers.expire(self.clock.monotonic_ms())
        await turns()


def scene(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs the test in a loop; besides the scene it may ask for fixtures."""

    def run(**fixtures: object) -> None:
        async def whole() -> None:
            made = Scene()
            await prepare(made.session)
            await cluster_id(made.session, CLUSTER)
            await test(made, **fixtures)
            await made.membership.stop()

        asyncio.run(whole())

    parameters = list(inspect.signature(test).parameters.values())[1:]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


@scene
async def test_a_broker_waits_for_the_session_of_its_last_process(scene: Scene) -> None:
    before = scene.store.session()
    old = await register(before, registration())
    joining = asyncio.create_task(scene.membership.join())
    await scene.pass_ms(PATIENCE_MS - 1)
    assert not joining.done()
    await before.expire()
    await joining
    assert await scene.registered() == scene.session.session_id
    assert isinstance(old, int)
    assert scene.epochs > [old]
    assert scene.asked_before == 2, "what has to be ahead of the registration may have changed meanwhile"


@scene
async def test_a_registration_that_stays_is_that_of_another_broker(scene: Scene) -> None:
    other = scene.store.session()
    await register(other, registration())
    joining = asyncio.create_task(scene.membership.join())
    await scene.pass_ms(PATIENCE_MS)
    with pytest.raises(DuplicateBroker, match=r"/brokers/ids/1 .* at here:9092: is the same broker\.id used twice"):
        await joining
    assert await scene.registered() == other.session_id
    assert scene.epochs == []


@scene
async def test_nobody_waits_for_a_broker_at_another_address_or_in_new_directories(scene: Scene) -> None:
    other = scene.store.session()
    await register(other, registration(ELSEWHERE))
    with pytest.raises(
        DuplicateBroker, match=r"/brokers/ids/1 belongs to another live process, at elsewhere:9092: is "
    ):
        await scene.membership.join()
    await other.expire()
    await register(scene.store.session(), registration())
    with pytest.raises(DuplicateBroker):
        await scene.member(scene.session, patience_ms=0).join()


@scene
async def test_after_a_lost_session_the_broker_registers_again(scene: Scene) -> None:
    await scene.membership.join()
    await scene.session.expire()
    assert await scene.registered() is None
    await turns()
    assert await scene.registered() == scene.session.session_id
    assert scene.epochs == sorted(set(scene.epochs))
    assert len(scene.epochs) == 2
    assert scene.follower.renewed == 1


@scene
async def test_a_session_that_is_lost_again_meanwhile(scene: Scene) -> None:
    await scene.membership.join()
    scene.follower.before = scene.session.expire
    scene.follower.failures = [SessionExpired("/")]
    await scene.session.expire()
    await scene.pass_ms(1_000)
    assert await scene.registered() == scene.session.session_id
    assert len(scene.epochs) == 3
    assert scene.follower.renewed == 1


@scene
async def test_a_store_that_cannot_be_reached_is_tried_again(scene: Scene) -> None:
    await scene.membership.join()
    scene.follower.failures = [ConnectionLoss("/"), ConnectionLoss("/")]
    await scene.session.expire()
    await turns()
    assert scene.follower.renewed == 0
    await scene.pass_ms(999)
    assert scene.follower.renewed == 0
    await scene.pass_ms(1)
    assert scene.follower.renewed == 0
    await scene.pass_ms(1_000)
    assert scene.follower.renewed == 1


@scene
async def test_a_session_that_expires_before_the_broker_has_joined_is_renewed(scene: Scene) -> None:
    """Loading logs takes longer than ZooKeeper waits for a broker that cannot reach it."""
    await scene.session.expire()
    await scene.membership.join()
    assert await scene.registered() == scene.session.session_id
    assert scene.follower.renewed == 1
    await scene.session.expire()
    await turns()
    assert scene.follower.renewed == 2


@scene
async def test_the_log_says_whether_a_broker_registers_again_or_for_the_first_time(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    other = scene.store.session()
    await other.delete(ClusterId.PATH)
    await scene.session.expire()
    joining = asyncio.create_task(scene.membership.join())
    await turns()
    assert "this broker could not register; retrying: /cluster/id" in caplog.text
    await cluster_id(other, CLUSTER)
    await scene.pass_ms(1_000)
    await joining
    assert "could not register again" not in caplog.text
    scene.follower.failures = [ConnectionLoss("/")]
    await scene.session.expire()
    await turns()
    assert "this broker could not register again; retrying: /: ConnectionLoss" in caplog.text


@scene
async def test_an_error_that_nobody_expects_is_told_and_does_not_end_the_membership(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, and it is tried again less and less often."""
    await scene.membership.join()
    scene.follower.failures = [ValueError("not a znode of Kafka's") for _ in range(3)]
    await scene.session.expire()
    await turns()
    for pause_ms in (1_000, 2_000, 4_000):
        await scene.pass_ms(pause_ms - 1)
        assert scene.follower.renewed == 0
        await scene.pass_ms(1)
    assert scene.follower.renewed == 1
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["not a znode of Kafka's"]


@scene
async def test_a_store_that_has_lost_the_cluster_is_not_joined(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody may bring its data back."""
    await scene.membership.join()
    other = scene.store.session()
    await other.delete(ClusterId.PATH)
    await scene.session.expire()
    await turns()
    assert f"/cluster/id: does not exist, and this broker belongs to cluster {CLUSTER}" in caplog.text
    await cluster_id(other, "another")
    await scene.pass_ms(1_000)
    assert f"/cluster/id: is another, and this broker belongs to cluster {CLUSTER}" in caplog.text
    assert await scene.registered() is None
    await other.set(ClusterId.PATH, ClusterId.encode(CLUSTER))
    await scene.pass_ms(1_000)
    assert await scene.registered() == scene.session.session_id
    assert scene.halted == []


class LastingSession(EmbeddedSession):
    """The store has ended it, and keeps its registration all the same (ZOOKEEPER-2985)."""

    async def expire(self) -> None:
        text = registration().encode()
        ghost = EmbeddedSession(self._store)
        await super().expire()
        ghost.number = self.number
        await ghost.create(Broker.path(1), text, ephemeral=True)


@scene
async def test_what_an_expired_session_left_behind_is_removed(scene: Scene) -> None:
    session = LastingSession(scene.store)
    membership = scene.member(session)
    await membership.join()
    await session.expire()
    await turns()
    assert await scene.registered() == session.session_id
    assert len(scene.epochs) == 2
    await membership.stop()


@scene
async def test_a_session_that_expires_while_the_broker_stops_is_not_renewed(scene: Scene) -> None:
    await scene.membership.join()
    await scene.membership.stop()
    await scene.session.expire()
    await turns()
    assert await scene.registered() is None


@scene
async def test_a_broker_whose_id_was_taken_meanwhile_ends(scene: Scene) -> None:
    await scene.membership.join()

    async def taken() -> None:
        await register(scene.store.session(), registration(ELSEWHERE))

    await asyncio.gather(scene.session.expire(), taken())
    await turns()
    assert len(scene.halted) == 1
    assert "is the same broker.id used twice?" in scene.halted[0]
    assert scene.follower.renewed == 0
