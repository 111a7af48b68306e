"""Brokers that the network cuts off from others while all of them reach the metadata store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkad.errors import ErrorCode
from kafkad.meta.embedded import EmbeddedSession
from kafkad.meta.znodes import Partition, Topic
from kafkad.model import PartitionState
from kafkad.names import TopicPartition
from kafkad.net.client import LinkError
from tests.broker_parts.several import MEMORY, Broker, Brokers

A0, A1, A2 = (TopicPartition("a", index) for index in range(3))
LAG_MS = 10_000
STEP_MS = 50


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path, MEMORY, f"replica.lag.time.max.ms={LAG_MS}", "auto.leader.rebalance.enable=false")
    brokers.start(1, 2, 3)
    brokers.until(lambda: all(len(known(brokers, b)) == 3 for b in (1, 2, 3)), advance_ms=10)
    brokers.create("a", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    yield brokers
    brokers.stop()


def known(brokers: Brokers, broker: int) -> set[int]:
    return set(brokers[broker].parts.replicas.metadata.brokers)


def state(brokers: Brokers, tp: TopicPartition) -> PartitionState:
    data, stat = brokers.run(brokers[1].session.get(Partition.path(*tp)))
    return Partition.decode(data, stat.version)


def cut(brokers: Brokers, broker: int, *others: int) -> None:
    brokers.cut.update(frozenset({broker, other}) for other in others)


def moved(brokers: Brokers, ms: int) -> None:
    end = brokers.clock.monotonic_ms() + ms
    brokers.until(lambda: brokers.clock.monotonic_ms() >= end, advance_ms=STEP_MS)


def acknowledged(brokers: Brokers, broker: int, tp: TopicPartition, value: bytes) -> None:
    answer = brokers.ended(brokers[broker].produce(tp, value))
    assert answer.error_code == ErrorCode.NONE


def converged(brokers: Brokers) -> bool:
    parts = [[brokers[b].parts.replicas.find(*tp) for b in (1, 2, 3)] for tp in (A0, A1, A2)]
    return all(
        len({p.log.end_offset for p in replicas if p}) == 1 and set(state(brokers, replicas[0].tp).isr) == {1, 2, 3}
        for replicas in parts
        if replicas[0]
    )


def test_a_leader_that_is_cut_off_gives_way_within_the_lag_time(three: Brokers) -> None:
    """By Kafka's rules its partition stands for as long as the cut: it cannot ask for a smaller ISR, and nobody deposes
    it."""
    acknowledged(three, 3, A2, b"before")
    cut(three, 3, 1, 2)
    stuck = three.run(begun(three[3].produce(A2, b"on the island")))
    began = three.clock.monotonic_ms()
    three.until(lambda: state(three, A2).leader == 1, advance_ms=STEP_MS)
    assert three.clock.monotonic_ms() - began <= LAG_MS
    assert state(three, A2).isr == (1, 2)
    assert state(three, A0).isr == (1, 2), "nor do the others wait for it"
    acknowledged(three, 1, A2, b"after")
    assert known(three, 1) == {1, 2}
    moved(three, 3 * LAG_MS)
    assert three[1].parts.controller.active
    three.cut.clear()
    three.until(lambda: converged(three), advance_ms=STEP_MS)
    assert known(three, 2) == {1, 2, 3}
    assert not three[3].partition(A2).is_leader
    three.until(stuck.done, advance_ms=STEP_MS)
    assert stuck.result().error_code != ErrorCode.NONE
    acknowledged(three, 1, A2, b"last")
    assert three[1].partition(A2).log.end_offset == 3, "what the island took was never acknowledged, and is gone"


async def begun(scenario: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
    return asyncio.ensure_future(scenario)


def test_a_controller_that_is_cut_off_resigns(three: Brokers) -> None:
    """By Kafka's rules everybody else's partitions stand for as long as the cut."""
    assert three[1].parts.controller.active
    cut(three, 1, 2, 3)
    began = three.clock.monotonic_ms()
    three.until(lambda: not three[1].parts.controller.active, advance_ms=STEP_MS)
    three.until(lambda: any(three[b].parts.controller.active for b in (2, 3)), advance_ms=STEP_MS)
    assert three.clock.monotonic_ms() - began <= LAG_MS
    three.until(lambda: state(three, A0).leader == 2, advance_ms=STEP_MS)
    assert three.clock.monotonic_ms() - began <= 2 * LAG_MS
    for tp, leader in ((A0, 2), (A1, 2), (A2, 3)):
        assert state(three, tp).leader == leader
        assert set(state(three, tp).isr) == {2, 3}
        acknowledged(three, leader, tp, b"without it")
    moved(three, 3 * LAG_MS)
    assert not three[1].parts.controller.active
    three.cut.clear()
    three.until(lambda: converged(three), advance_ms=STEP_MS)


def test_a_broker_that_was_given_up_hears_of_a_deletion_from_the_next_controller(three: Brokers) -> None:
    """It has no replica. Nobody waits for it meanwhile."""

    def listed() -> bool:
        return "b" in three[3].parts.replicas.metadata.topics

    three.create("b", (2,))
    three.until(listed, advance_ms=10)
    cut(three, 3, 1, 2)
    three.until(lambda: known(three, 1) == {1, 2}, advance_ms=STEP_MS)
    (deleted,) = three.ended(three[1].parts.controller.delete_topics(["b"], timeout_ms=1000))
    assert deleted.error is None
    assert listed()
    three.leave(1)
    three.until(lambda: three[2].parts.controller.active, advance_ms=STEP_MS)
    three.cut.clear()
    assert three.run(three[2].session.exists(Topic.path("b"))) is None
    three.until(lambda: not listed(), advance_ms=STEP_MS)


def test_a_broker_that_was_cut_off_leads_nothing_that_was_moved_away_meanwhile(three: Brokers) -> None:
    """It is drained while it does not answer, and no StopReplica reaches it."""
    cut(three, 3, 1, 2)
    three.until(lambda: state(three, A2).leader == 1, advance_ms=STEP_MS)
    controller = three[1].parts.controller
    assert three.ended(controller.alter_partition_reassignments({A2: (1, 2)})) == {A2: None}
    assert three.ended(controller.list_partition_reassignments(None)) == {}
    assert three.ended(three[3].produce(A2, b"on the island", acks=1)).error_code == ErrorCode.NONE
    three.cut.clear()
    three.until(lambda: all(3 in state(three, tp).isr for tp in (A0, A1)), advance_ms=STEP_MS)
    answer = three.ended(three[3].produce(A2, b"lost", acks=1))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert three[1].partition(A2).log.end_offset == 0


def test_a_broker_that_was_cut_off_leads_nothing_of_a_topic_that_was_deleted_meanwhile(three: Brokers) -> None:
    """Nor of another one that was made under the same name. Its old logs stay, until somebody removes them."""
    acknowledged(three, 3, A2, b"old")
    cut(three, 3, 1, 2)
    three.until(lambda: state(three, A2).leader == 1, advance_ms=STEP_MS)
    controller = three[1].parts.controller
    for tp in (A0, A1, A2):
        assert three.ended(controller.alter_partition_reassignments({tp: (1, 2)})) == {tp: None}
    (deleted,) = three.ended(controller.delete_topics(["a"], timeout_ms=1000))
    assert deleted.error is None
    three.cut.clear()
    three.until(lambda: known(three, 1) == {1, 2, 3}, advance_ms=STEP_MS)
    moved(three, LAG_MS)
    answer = three.ended(three[3].produce(A2, b"lost", acks=1))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    three.create("a", (1, 2), (1, 2), (1, 2))
    moved(three, LAG_MS)
    answer = three.ended(three[3].produce(A2, b"lost", acks=1))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not list(three[3].parts.replicas)
    old = three[3].parts.platform.logs.get(A2)
    assert old is not None
    assert old.end_offset == 1


def test_a_controller_whose_others_were_dead_is_it_again_as_soon_as_their_sessions_end(three: Brokers) -> None:
    dead = [three.running.pop(broker) for broker in (2, 3)]
    for broker in dead:
        broker.parts.controller._stopped = True
    three.until(lambda: not three[1].parts.controller.active, advance_ms=STEP_MS)
    resigned = three.clock.monotonic_ms()
    moved(three, LAG_MS // 10)
    assert not three[1].parts.controller.active
    for broker in dead:
        three.run(broker.session.close())
    three.until(lambda: state(three, A2).leader == 1, advance_ms=STEP_MS)
    assert three.clock.monotonic_ms() - resigned <= LAG_MS / 5
    three.running.update({broker.parts.replicas.broker_id: broker for broker in dead})


def test_a_controller_between_two_brokers_that_do_not_see_each_other_stays(three: Brokers) -> None:
    cut(three, 2, 3)
    moved(three, 3 * LAG_MS)
    assert three[1].parts.controller.active
    assert known(three, 1) == {1, 2, 3}


def test_an_idle_cluster_and_a_paused_one_elect_nobody(three: Brokers) -> None:
    moved(three, 4 * LAG_MS)
    three.clock.advance(5 * LAG_MS)  # as if all processes had been stopped
    moved(three, LAG_MS)
    assert three[1].parts.controller.active
    assert [state(three, tp).leader_epoch for tp in (A0, A1, A2)] == [0, 0, 0]


def test_a_broker_that_is_cut_off_and_restarted_is_a_new_one(three: Brokers) -> None:
    cut(three, 3, 1, 2)
    three.until(lambda: state(three, A2).leader == 1, advance_ms=STEP_MS)
    three.run(three[3].session.expire())
    three.until(lambda: known(three, 1) == {1, 2}, advance_ms=STEP_MS)
    three.cut.clear()
    three.until(lambda: converged(three), advance_ms=STEP_MS)


def test_brokers_that_have_much_to_do_are_not_taken_for_cut_off(three: Brokers) -> None:
    """They carry out a request for longer than anybody is waited for, and answer a greeting meanwhile."""
    busy = [three[broker].parts.replicas._one_request for broker in (2, 3)]
    for request in busy:
        three.run(request.acquire())
    moved(three, 3 * LAG_MS)
    assert three[1].parts.controller.active
    assert known(three, 1) == {1, 2, 3}
    assert max(three[1].parts.controller.requests_waiting.values()) > 0
    for request in busy:
        request.release()
    three.until(lambda: converged(three), advance_ms=STEP_MS)


SESSIONS = pytest.mark.parametrize("sessions", [0.6, 1.5, 4])
"""In lag times."""


@pytest.fixture
def session_ms(sessions: float, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(EmbeddedSession, "session_timeout_ms", sessions * LAG_MS)
    return sessions * LAG_MS


def record_for(brokers: Brokers, leader: int, tp: TopicPartition) -> None:
    """That no follower gets any more, so that they lag."""
    assert brokers.ended(brokers[leader].produce(tp, b"on the island", acks=1)).error_code == ErrorCode.NONE


@SESSIONS
@pytest.mark.parametrize("is_controller", [True, False])
@pytest.mark.parametrize("both_ways", [True, False])
def test_a_leader_that_is_cut_off_takes_nobody_out_who_could_lead(
    session_ms: float, request: pytest.FixtureRequest, is_controller: bool, both_ways: bool
) -> None:
    """Where the lag time is over before it is given up, too."""
    three: Brokers = request.getfixturevalue("three")
    leader, tp, next_leader = (1, A0, 2) if is_controller else (3, A2, 1)
    others = {1, 2, 3} - {leader}
    if both_ways:
        cut(three, leader, *others)
    else:
        three.cut_ways.update((other, leader) for other in others)
        three.cut_ways.update((leader, other) for other in others if is_controller)  # as its answers get lost
    began = three.clock.monotonic_ms()
    record_for(three, leader, tp)
    three.until(lambda: state(three, tp).leader != leader, advance_ms=STEP_MS)
    assert (state(three, tp).leader, set(state(three, tp).isr)) == (next_leader, others)
    assert three.clock.monotonic_ms() - began <= 2 * max(LAG_MS, session_ms * 5 / 3)
    acknowledged(three, next_leader, tp, b"without it")
    three.cut.clear()
    three.cut_ways.clear()
    three.until(lambda: converged(three), advance_ms=STEP_MS)


@SESSIONS
@pytest.mark.parametrize("replicas", [(1, 2, 3), (1, 3), (2, 4, 1)])
@pytest.mark.parametrize("phase_ms", [0, 1_300, 2_600])
@pytest.mark.usefixtures("session_ms")
def test_two_of_five_that_are_cut_off_together_take_nobody_out(
    tmp_path: Path, replicas: tuple[int, ...], phase_ms: int
) -> None:
    """One of them is the controller, and the other one may be the next."""
    five = Brokers(tmp_path, MEMORY, f"replica.lag.time.max.ms={LAG_MS}", "auto.leader.rebalance.enable=false")
    five.start(1, 2, 3, 4, 5)
    five.until(lambda: all(len(known(five, broker)) == 5 for broker in five.running), advance_ms=10)
    five.create("a", replicas)
    leader = replicas[0]
    moved(five, phase_ms + STEP_MS)
    acknowledged(five, leader, A0, b"before")
    for broker in (1, 2):
        cut(five, broker, 3, 4, 5)
    record_for(five, leader, A0)
    five.until(lambda: state(five, A0).leader not in (1, 2), advance_ms=STEP_MS)
    assert state(five, A0).leader in (3, 4)
    five.stop()


def test_a_controller_that_loses_one_broker_after_the_other_gives_up_none(tmp_path: Path) -> None:
    """Half of them are still there when the first have been silent for long enough."""
    five = Brokers(tmp_path, MEMORY, f"replica.lag.time.max.ms={LAG_MS}", "auto.leader.rebalance.enable=false")
    five.start(1, 2, 3, 4, 5)
    five.until(lambda: all(len(known(five, broker)) == 5 for broker in five.running), advance_ms=10)
    five.create("a", (1, 3))
    acknowledged(five, 1, A0, b"before")
    cut(five, 1, 3, 4)
    cut(five, 2, 3, 4)
    moved(five, LAG_MS // 4)
    cut(five, 1, 5)
    cut(five, 2, 5)
    five.until(lambda: state(five, A0).leader != 1, advance_ms=STEP_MS)
    assert state(five, A0).leader == 3
    five.stop()


def test_a_leader_that_the_controller_hears_takes_others_out(three: Brokers) -> None:
    three.tamper = lost_from(3)
    record_for(three, 3, A2)
    three.until(lambda: state(three, A2).isr == (3,), advance_ms=STEP_MS)


def lost_from(leader: int) -> Callable[[tuple[int, int], object], None]:
    def lose(ends: tuple[int, int], answer: object) -> None:
        if ends[1] == leader:
            raise LinkError("it is lost")

    return lose


def test_brokers_that_are_busy_and_greet_are_heard(three: Brokers) -> None:
    """They have to carry out the first LeaderAndIsr of a new controller, which has all their replicas."""
    busy = [three[broker].parts.replicas._one_request for broker in (1, 3)]
    for each in busy:
        three.run(each.acquire())
    three.run(three[1].session.expire())
    three.until(lambda: three[2].parts.controller.active, advance_ms=STEP_MS)
    three.tamper = lost_from(2)
    record_for(three, 2, A1)
    began = three.clock.monotonic_ms()
    three.until(lambda: three.run(isr(three[2], A1)) == (2,), advance_ms=STEP_MS)
    assert three.clock.monotonic_ms() - began <= 2 * LAG_MS
    for each in busy:
        each.release()


async def isr(broker: Broker, tp: TopicPartition) -> tuple[int, ...]:
    data, stat = await broker.session.get(Partition.path(*tp))
    return Partition.decode(data, stat.version).isr
