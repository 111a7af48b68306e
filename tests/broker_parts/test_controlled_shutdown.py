"""Brokers that are told to stop hand over what they lead first, and clients are answered meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkad.broker.daemon import Daemon
from kafkad.broker.metadata_store import MetadataStore
from kafkad.config import load
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.embedded import EmbeddedSession
from kafkad.meta.znodes import Partition
from kafkad.model import WantedIsr
from kafkad.names import TopicPartition
from kafkad.replica.isr import has_fetched
from kafkad.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker_parts.several import MEMORY, NETWORK, Brokers

A0 = TopicPartition("a", 0)


@pytest.fixture(params=[MEMORY, NETWORK])
def two(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Brokers]:
    brokers = started(tmp_path, request.param)
    yield brokers
    brokers.stop()


def started(directory: Path, links: str = MEMORY, *settings: str) -> Brokers:
    brokers = Brokers(directory, links, *settings)
    brokers.start(1, 2)
    brokers.meet()
    return brokers


def leave(brokers: Brokers, broker: int, *, at_most_ms: int, step_ms: int = 1) -> None:
    """Lets the broker leave; each millisecond the clock goes on by `step_ms`."""

    async def whole() -> None:
        leaving = asyncio.create_task(brokers[broker].parts.leave())
        before_ms = brokers.clock.monotonic_ms()
        while not leaving.done():
            await asyncio.sleep(0.001)
            brokers.clock.advance(step_ms)
            brokers.timers.expire(brokers.clock.monotonic_ms())
            assert brokers.clock.monotonic_ms() - before_ms <= at_most_ms
        await leaving

    brokers.run(whole())


def leader_of(brokers: Brokers, broker: int, topic: str = "a") -> tuple[int, int]:
    """Whom clients of `broker` are told, and what the broker says when they produce there."""
    answer = brokers.run(brokers[broker].ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12))
    partition = brokers[broker].parts.replicas.find(topic, 0)
    leads = partition is not None and partition.is_leader
    return answer.topics[0].partitions[0].leader_id, ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("leaving", [1, 2])
def test_it_has_handed_everything_over_when_it_goes_on_stopping(two: Brokers, leaving: int) -> None:
    """Also where it is the controller itself, which still has to tell the others."""
    other = 3 - leaving
    two.create("a", (leaving, other))
    two.create("b", (other, leaving))
    two.create("alone", (leaving,))
    leave(two, leaving, at_most_ms=1_900)
    assert leader_of(two, leaving) == (other, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert leader_of(two, other) == (other, ErrorCode.NONE)
    assert leader_of(two, leaving, "alone") == (leaving, ErrorCode.NONE), "clients go on until the end"
    state = two[other].parts.replicas.metadata.partition
    assert state("a", 0).isr == state("b", 0).isr == [other]
    replicas = two[leaving].parts.replicas
    two.until(lambda: replicas.find("b", 0) is None)


def test_who_leads_next_does_not_wait_for_it(two: Brokers) -> None:
    """It lives a while longer, as a follower that would keep up, but is not in sync any more."""
    two.start(3)
    two.meet()
    two.create("a", (1, 2, 3))
    leave(two, 1, at_most_ms=1_900)
    two.work_for(1_000)
    assert two.ended(two[2].produce(A0, b"value")).error_code == 0
    leading = two[2].partition(A0).leading
    assert leading is not None
    assert not has_fetched(leading.followers[1])
    assert [broker.parts.replicas.isr_failures for broker in two.running.values()] == [0, 0, 0], "nobody proposed it"


def test_it_waits_for_another_broker_to_be_in_sync(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    brokers = started(tmp_path)
    brokers.create("a", (2, 1))
    link = brokers[2].parts.controller_link
    wanted = WantedIsr(members={2: brokers[2].epoch}, leader_epoch=0, partition_epoch=0)
    brokers.run(link.alter_isr({A0: wanted}))
    before_ms = brokers.clock.monotonic_ms()
    leave(brokers, 2, at_most_ms=20_000, step_ms=20)
    assert 10_000 <= brokers.clock.monotonic_ms() - before_ms < 11_000, "three tries, five seconds apart"
    assert caplog.messages.count("controlled shutdown, attempt 3 of 3: no other broker is in sync for a-0") == 1
    brokers.stop()


def test_the_settings_say_how_long_it_tries(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    brokers = started(tmp_path, MEMORY, "controlled.shutdown.max.retries=2", "controlled.shutdown.retry.backoff.ms=300")
    brokers.create("a", (2, 1))
    brokers.cut.add(frozenset({1, 2}))
    leave(brokers, 2, at_most_ms=400)
    assert [m for m in caplog.messages if "attempt 2 of 2: The controller does not answer" in m]
    assert brokers[2].parts.replicas.find("a", 0) is not None
    brokers.cut.clear()
    brokers.stop()


def test_it_tries_again_as_soon_as_there_is_another_controller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As when all brokers are told to stop at once."""
    brokers = started(tmp_path)
    brokers.start(3)
    brokers.meet()
    brokers.create("a", (2, 3))
    assert brokers.controller is brokers[1]
    brokers.cut.add(frozenset({1, 2}))
    leaving = brokers.begun(brokers[2].parts.leave())
    brokers.until(lambda: any("attempt 1 of 3" in message for message in caplog.messages), advance_ms=1)
    before_ms = brokers.clock.monotonic_ms()
    brokers.leave(1)
    brokers.until(leaving.done, advance_ms=1)
    assert brokers.clock.monotonic_ms() - before_ms < 2_000, "it does not wait for controlled.shutdown.retry.backoff.ms"
    assert leader_of(brokers, 3) == (3, ErrorCode.NONE)
    brokers.stop()


@pytest.fixture
def silent_store(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, as where ZooKeeper answers nobody."""

    async def wait(*asked: object) -> None:
        await asyncio.Event().wait()

    def fall_silent() -> None:
        monkeypatch.setattr(EmbeddedSession, "multi", wait)
        monkeypatch.setattr(EmbeddedSession, "problem", "no connection to ZooKeeper at zoo: it is silent")

    return fall_silent


@pytest.mark.parametrize("leaving", [1, 2])
def test_it_blames_no_controller_where_the_metadata_store_is_out_of_reach(
    tmp_path: Path, silent_store: Callable[[], None], caplog: pytest.LogCaptureFixture, leaving: int
) -> None:
    """Broker 1 is the controller."""
    brokers = started(tmp_path, MEMORY, "controlled.shutdown.max.retries=1")
    brokers.create("a", (leaving, 3 - leaving))
    silent_store()
    leave(brokers, leaving, at_most_ms=31_000, step_ms=100)
    silent = "no connection to ZooKeeper at zoo: it is silent"
    told = [
        f"controlled shutdown, attempt 1 of 1: {silent}",
        "stopping without handing everything over; the cluster elects leaders when this broker is gone",
    ]
    if leaving == 1:
        assert caplog.messages[-3:] == [
            f"nothing can be handed over before the metadata store answers: {silent}",
            *told,
        ]
    else:
        told[0] = (
            f"controlled shutdown, attempt 1 of 1: the controller does not answer in time; this broker has {silent}"
        )
        assert caplog.messages[-2:] == told
    brokers.stop()


def test_it_does_not_try_where_it_is_not_wanted(tmp_path: Path) -> None:
    brokers = started(tmp_path, MEMORY, "controlled.shutdown.enable=false")
    brokers.create("a", (2, 1))
    leave(brokers, 2, at_most_ms=1)
    assert leader_of(brokers, 2) == (2, ErrorCode.NONE)
    brokers.stop()


def test_the_last_broker_waits_for_nobody(two: Brokers) -> None:
    two.create("a", (1, 2))
    other = two.running.pop(2)
    two.run(other.parts.stop_taking())
    other.parts.platform.server.close()
    two.run(other.parts.stop())
    two.run(other.session.close())
    two.until(lambda: two[1].parts.replicas.metadata.brokers.keys() == {1}, advance_ms=10)
    leave(two, 1, at_most_ms=1)


def process_of(brokers: Brokers, directory: Path) -> Daemon:
    config = load(None, [f"log.dirs={directory}"], {})

    async def made() -> Daemon:
        return Daemon(config, lambda: config, None)

    return brokers.run(made())


def test_who_hears_meanwhile_that_all_stop_waits_for_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As where all processes of a host are told to stop, and the supervisor among them tells its brokers why."""
    brokers = started(tmp_path)
    brokers.create("a", (2, 1))
    brokers.cut.add(frozenset({1, 2}))
    process = process_of(brokers, tmp_path)
    leaving = brokers.begun(process._leave(brokers[2].parts))
    brokers.until(lambda: any("attempt 1 of 3" in message for message in caplog.messages))
    process._stop_with_all()
    brokers.until(leaving.done)
    assert brokers[2].partition(A0).is_leader
    brokers.cut.clear()
    brokers.stop()


def test_systemd_waits_while_others_are_waited_for_and_while_logs_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three tries and two rests may take longer than it waits for a whole stop, and it kills who is late."""
    monkeypatch.setattr("kafkad.broker.daemon._ASK_FOR_TIME_S", 0.001)
    brokers = started(tmp_path)
    brokers.create("a", (2, 1))
    brokers.cut.add(frozenset({1, 2}))
    process = process_of(brokers, tmp_path)
    told: list[object] = []
    monkeypatch.setattr(process._notifier, "stopping", told.append)
    monkeypatch.setattr(process._notifier, "status", told.append)
    monkeypatch.setattr(process._notifier, "extend_timeout", told.append)
    leaving = brokers.running.pop(2)
    stopping = brokers.begun(process._stop(leaving.parts, MetadataStore(session=leaving.session), None))
    brokers.until(lambda: told[-1:] == [120] and len(told) > 3)
    assert told == ["handing leaderships over", *[120] * (len(told) - 1)]
    process._stop_with_all()
    brokers.until(stopping.done)
    assert told[-2:] == ["writing logs and checkpoints", 120]
    brokers.cut.clear()
    brokers.stop()


def test_where_all_stop_nobody_is_taken_out_of_the_isrs(tmp_path: Path) -> None:
    """The controller may well be the last one."""
    brokers = started(tmp_path)
    brokers.create("a", (2, 1))
    assert brokers.controller is brokers[1]
    process = process_of(brokers, tmp_path)
    process._stop_with_all()
    brokers.ended(process._leave(brokers[1].parts))
    brokers.leave(2)
    brokers.work_for(1_000)
    node = brokers.run(brokers.store.session().get(Partition.path("a", 0)))
    assert Partition.decode(node[0], 0).isr == (2, 1)
    brokers.stop()


def test_a_controller_without_its_store_ends_before_the_broker_that_has_it(
    tmp_path: Path, silent_store: Callable[[], None]
) -> None:
    """What others have asked of it would hold up the end, and can be answered by nobody."""
    brokers = started(tmp_path, MEMORY, "controlled.shutdown.max.retries=1")
    brokers.create("a", (1, 2), (2, 1))
    process = process_of(brokers, tmp_path)
    silent_store()
    asked = brokers.begun(brokers[2].parts.controller_link.controlled_shutdown())
    brokers.ended(process._leave(brokers[1].parts), advance_ms=100)
    brokers.until(asked.done)
    refused = asked.exception()
    assert isinstance(refused, KafkaError)
    assert refused.code == ErrorCode.NOT_CONTROLLER
    brokers.stop()


def test_metadata_is_answered_when_it_is_here(tmp_path: Path) -> None:
    """A broker that knows nothing yet would deny topics, and clients believe that."""
    brokers = started(tmp_path)
    brokers.create("a", (1,))
    brokers.cut.add(frozenset({1, 3}))
    brokers.start(3)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="a")], allow_auto_topic_creation=False)

    async def ask_meanwhile(ms: int) -> object:
        asking = asyncio.create_task(brokers[3].ask(asked, 12))
        for _ in range(ms // 10):
            await asyncio.sleep(0)
            brokers.clock.advance(10)
            brokers.timers.expire(brokers.clock.monotonic_ms())
        if asking.done():
            return (await asking).topics[0].error_code
        brokers.cut.clear()
        while not asking.done():
            await asyncio.sleep(0)
            brokers.clock.advance(10)
            brokers.timers.expire(brokers.clock.monotonic_ms())
        return (await asking).topics[0].error_code

    assert brokers.run(ask_meanwhile(9_000)) == ErrorCode.NONE
    ready = brokers.run(asyncio.wait_for(brokers[3].parts.wait_until_ready(), 5))
    assert ready is None
    brokers.stop()
