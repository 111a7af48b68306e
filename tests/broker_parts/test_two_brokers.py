"""Two brokers on one loop and a clock of the test's own answer each other, in memory and over loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkad.broker.lifecycle import Lifecycle
from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import PartitionState, WantedIsr
from kafkad.names import TopicPartition
from kafkad.wire.messages.api_versions import ApiVersionsRequest
from kafkad.wire.messages.find_coordinator import FindCoordinatorRequest
from kafkad.wire.messages.init_producer_id import InitProducerIdRequest
from kafkad.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker_parts.several import MEMORY, NETWORK, Broker, Brokers
from tests.one_broker import OneBroker

A0 = TopicPartition("a", 0)
ASKED = ApiVersionsRequest(client_software_name="a", client_software_version="1")


@pytest.fixture(params=[MEMORY, NETWORK])
def two(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path, request.param)
    brokers.start(1, 2)
    brokers.meet()
    yield brokers
    brokers.stop()


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path)
    brokers.start(1, 2)
    brokers.meet()
    yield brokers
    brokers.stop()


def metadata(brokers: Brokers, broker: int, topic: str | None = None) -> Any:
    topics = None if topic is None else [MetadataRequestTopic(name=topic)]
    return brokers.run(brokers[broker].ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12))


def leader_here(broker: Broker, tp: TopicPartition) -> bool:
    partition = broker.parts.replicas.find(*tp)
    return partition is not None and partition.is_leader


def test_a_broker_hears_of_its_partitions_from_the_controller_on_another(two: Brokers) -> None:
    assert two[1].parts.controller.active
    two.create("a", (2, 1), (1, 2))
    two.until(lambda: leader_here(two[2], A0))
    assert leader_here(two[1], TopicPartition("a", 1))
    assert not leader_here(two[1], A0)
    assert metadata(two, 1) == metadata(two, 2)
    assert [broker.node_id for broker in metadata(two, 2).brokers] == [1, 2]
    assert metadata(two, 2).controller_id == 1


def test_producer_ids_come_from_blocks_of_the_one_controller(two: Brokers) -> None:
    ids = [two.run(_producer_id(two, broker)) for broker in (1, 2, 2, 1)]
    assert ids == [0, 1000, 1001, 1]


async def _producer_id(brokers: Brokers, broker: int) -> int:
    answer = await brokers[broker].ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4)
    assert answer.error_code == 0
    producer_id: int = answer.producer_id
    return producer_id


def test_topics_that_somebody_asks_for_are_made_by_the_controller(two: Brokers) -> None:
    metadata(two, 2, "asked-for")
    two.until(lambda: "asked-for" in two[2].parts.replicas.metadata.topics)
    [topic] = metadata(two, 2, "asked-for").topics
    assert (topic.error_code, topic.name) == (0, "asked-for")
    assert metadata(two, 1) == metadata(two, 2)


def test_the_topic_of_the_groups_has_as_many_replicas_as_there_are_brokers(two: Brokers) -> None:
    asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])
    two.run(two[2].ask(asked, 4))
    two.until(lambda: "__consumer_offsets" in two[2].parts.replicas.metadata.topics)
    partitions = two[2].parts.replicas.metadata.topics["__consumer_offsets"].partitions
    assert sorted(sorted(state.replicas) for state in partitions.values()) == [[1, 2], [1, 2]]
    nodes = {two.run(two[broker].ask(asked, 4)).coordinators[0].node_id for broker in (1, 2)}
    assert len(nodes) == 1
    assert nodes <= {1, 2}


def wanted(brokers: Brokers, *members: int, partition_epoch: int = 0) -> WantedIsr:
    return WantedIsr(
        members={member: brokers[member].epoch for member in members}, leader_epoch=0, partition_epoch=partition_epoch
    )


@pytest.mark.parametrize("leader", [1, 2])
def test_a_leader_asks_for_another_isr_wherever_the_controller_is(two: Brokers, leader: int) -> None:
    two.create("a", (leader, 3 - leader))
    link = two[leader].parts.controller_link
    answers = two.run(link.alter_isr({A0: wanted(two, leader), TopicPartition("a", 7): wanted(two, leader)}))
    state, missing = answers[A0], answers[TopicPartition("a", 7)]
    assert isinstance(state, PartitionState)
    assert (state.leader, state.isr, state.partition_epoch) == (leader, (leader,), 1)
    assert isinstance(missing, KafkaError)
    assert missing.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    two.until(lambda: all(two[b].parts.replicas.metadata.partition(*A0).isr == [leader] for b in (1, 2)))
    behind = two.run(link.alter_isr({A0: wanted(two, leader, 3 - leader)}))[A0]
    assert isinstance(behind, KafkaError)
    assert behind.code == ErrorCode.INVALID_UPDATE_VERSION


def test_a_broker_of_before_its_restart_is_refused(two: Brokers) -> None:
    for broker in (1, 2):
        two[broker].parts.replicas.broker_epoch -= 1
        with pytest.raises(KafkaError) as refused:
            two.run(two[broker].parts.controller_link.alter_isr({}))
        assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH
        two[broker].parts.replicas.broker_epoch += 1


def test_a_broker_that_is_to_stop_gives_its_partitions_away(two: Brokers) -> None:
    two.create("a", (2, 1))
    two.create("alone", (2,))
    left = two.run(two[2].parts.controller_link.controlled_shutdown())
    assert left == []
    two.until(lambda: leader_here(two[1], A0))
    assert metadata(two, 1, "alone").topics[0].partitions[0].leader_id == 2


def test_when_the_controller_loses_its_session_the_other_takes_over(two: Brokers) -> None:
    two.create("a", (1, 2))
    before = two[1].epoch
    two.run(two[1].session.expire())
    two.until(
        lambda: two[2].parts.controller.active and len(two[2].parts.replicas.metadata.brokers) == 2, advance_ms=10
    )
    two.until(lambda: two[1].parts.replicas.metadata.controller_id == 2)
    assert not two[1].parts.controller.active
    assert two[1].epoch > before
    two.until(lambda: metadata(two, 1) == metadata(two, 2))
    two.until(lambda: leader_here(two[2], A0))
    assert two.run(_producer_id(two, 1)) == 0
    two.create("b", (1, 2))
    two.until(lambda: leader_here(two[1], TopicPartition("b", 0)))
    assert two.halted == []


def test_what_cannot_be_delivered_is_sent_again_by_the_clock(in_memory: Brokers) -> None:
    brokers = in_memory
    brokers.cut.add(frozenset({1, 2}))
    brokers.sent.clear()
    brokers.run(brokers[1].ask(MetadataRequest(topics=[MetadataRequestTopic(name="a")]), 12))
    brokers.until(lambda: brokers[1].parts.replicas.metadata.topics.keys() == {"a"})
    for _ in range(50):
        brokers.run(brokers.turn(0))
    assert len(brokers.sent) == 1, "the clock stands still"
    brokers.clock.advance(100)
    brokers.until(lambda: len(brokers.sent) == 2)
    assert brokers[2].parts.replicas.metadata.topics == {}
    brokers.cut.clear()
    brokers.until(lambda: brokers[2].parts.replicas.metadata.topics.keys() == {"a"}, advance_ms=10)
    assert {(source, target) for source, target, _ in brokers.sent} == {(1, 2)}


def test_what_a_broker_has_not_answered_is_counted_by_the_controller(in_memory: Brokers) -> None:
    in_memory.cut.add(frozenset({1, 2}))
    in_memory.run(in_memory[1].ask(MetadataRequest(topics=[MetadataRequestTopic(name="a")]), 12))
    names = ("totalqueuesize", 'queuesize{broker_id="1"}', 'queuesize{broker_id="2"}')
    counted = metrics(in_memory[1])
    waiting = [counted[f"kafka_controller_controllerchannelmanager_{name}"] for name in names]
    assert waiting[2] > 0
    assert waiting == [waiting[2], 0, waiting[2]]
    assert metrics(in_memory[2])["kafka_controller_controllerchannelmanager_totalqueuesize"] == 0


def metrics(broker: Broker) -> dict[str, float]:
    """The values of one scrape by name and labels."""
    text = "".join(broker.parts.metrics(Lifecycle(), lambda: True).pieces())
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def test_a_controller_that_cannot_be_reached_is_none(in_memory: Brokers) -> None:
    in_memory.cut.add(frozenset({1, 2}))
    with pytest.raises(KafkaError, match="does not answer: broker 1 cannot be reached") as refused:
        in_memory.run(in_memory[2].parts.controller_link.allocate_producer_ids())
    assert refused.value.code == ErrorCode.NOT_CONTROLLER
    answer = in_memory.run(in_memory[2].ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4))
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "which producers ask again on"


def test_only_a_broker_that_can_have_others_answers_them(in_memory: Brokers, tmp_path: Path) -> None:
    between = {4, 5, 6, 7, 56, 67}
    told = in_memory.run(in_memory[1].ask(ASKED, 3)).api_keys
    assert between <= {api.api_key for api in told}
    alone = OneBroker(tmp_path / "alone")
    assert not between & {api.api_key for api in alone.ask(ASKED, 3).api_keys}
    alone.stop()


def leader_moves_home(directory: Path, *settings: str) -> bool:
    """Broker 1 leads what broker 2 should, and is in sync; a few seconds go by after the first look at the leaders."""
    brokers = Brokers(directory, MEMORY, *settings)
    brokers.start(1, 2)
    try:
        brokers.until(lambda: len(brokers[2].parts.replicas.metadata.brokers) == 2, advance_ms=100)
        brokers.create("a", (1, 2))
        brokers.work_for(6_000)
        controller = brokers.controller.parts.controller
        assert brokers.run(controller.alter_partition_reassignments({A0: (2, 1)})) == {A0: None}
        state = brokers[1].parts.replicas.metadata.partition
        brokers.until(lambda: state(*A0).replicas == [2, 1])
        assert state(*A0).leader == 1
        brokers.work_for(3_000)
        return state(*A0).leader == 2
    finally:
        brokers.stop()


OFTEN = "leader.imbalance.check.interval.seconds=1"


@pytest.mark.parametrize(
    ("settings", "moves"),
    [
        ((OFTEN,), True),
        (("leader.imbalance.check.interval.seconds=60",), False),
        ((OFTEN, "leader.imbalance.per.broker.percentage=100"), False),
        ((OFTEN, "auto.leader.rebalance.enable=false"), False),
    ],
)
def test_leaders_go_home_by_themselves_as_the_settings_say(
    tmp_path: Path, settings: tuple[str, ...], moves: bool
) -> None:
    assert leader_moves_home(tmp_path, *settings) == moves
