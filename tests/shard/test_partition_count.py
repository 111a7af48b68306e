"""Over how many partitions the keys are spread: what was counted first holds, and none is guessed."""

from __future__ import annotations

import pytest

from kafkad.controller.topics import MorePartitions
from kafkad.errors import ErrorCode, KafkaError
from kafkad.names import NO_TOPIC_ID, home_partition
from tests.one_broker import OneBroker
from tests.shard.coordinator import PARTITIONS, TOPIC, Coordinator


def test_partitions_that_are_added_take_no_keys_from_the_others(broker: OneBroker, coordinator: Coordinator) -> None:
    coordinator.create_and_load()
    keys = [f"key {number}" for number in range(100)]
    before = [coordinator.coordination.partition_for(key) for key in keys]
    more = MorePartitions(name=TOPIC, count=PARTITIONS + 3)
    broker.run(broker.controller.create_partitions([more], timeout_ms=5_000))
    assert [coordinator.coordination.partition_for(key) for key in keys] == before
    metadata = broker.replicas.metadata
    known = metadata.topics.pop(TOPIC)

    async def be_told_again() -> None:
        metadata._topic(TOPIC, known.id).partitions |= known.partitions
        await coordinator.coordination.prepare()

    broker.run(be_told_again())
    assert [coordinator.coordination.partition_for(key) for key in keys] == before


def test_no_key_is_given_to_a_shard_while_the_number_of_partitions_is_not_known(
    broker: OneBroker, coordinator: Coordinator
) -> None:
    """A leader may be told of its role before the metadata with the topic come."""
    broker.create(TOPIC, PARTITIONS + 1)
    broker.run(coordinator.start())
    topics = broker.replicas.metadata.topics
    topic = topics.pop(TOPIC)
    keys = [f"key {number}" for number in range(20)]
    assert {coordinator.refusal(key) for key in keys} == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    broker.run_until(lambda: not coordinator.coordination.loading)
    assert {coordinator.refusal(key) for key in keys} == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert {coordinator.who(key) for key in keys} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    topics[TOPIC] = topic
    found = [coordinator.coordination.shard(key).index for key in keys]
    assert found == [home_partition(key, PARTITIONS + 1) for key in keys]


def test_a_partition_that_the_controller_does_not_tell_of_is_counted_as_well(
    broker: OneBroker, coordinator: Coordinator
) -> None:
    """Nobody is told of one whose state cannot be read."""
    broker.create(TOPIC, PARTITIONS)
    told = broker.replicas.metadata.topics[TOPIC].partitions
    untold = told.pop(PARTITIONS - 1)
    broker.run(coordinator.start())
    broker.run_until(lambda: not coordinator.coordination.loading)
    keys = [f"key {number}" for number in range(100)]
    homes = [home_partition(key, PARTITIONS) for key in keys]
    assert [coordinator.coordination.partition_for(key) for key in keys] == homes
    lost = keys[homes.index(PARTITIONS - 1)]
    assert coordinator.who(lost) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    told[PARTITIONS - 1] = untold
    assert [coordinator.coordination.partition_for(key) for key in keys] == homes
    assert coordinator.who(lost) == 1


def test_partitions_are_counted_although_the_controller_tells_no_topic_ids(
    broker: OneBroker, coordinator: Coordinator
) -> None:
    coordinator.create_and_load()
    assert broker.replicas.metadata.topics[TOPIC].id != NO_TOPIC_ID
    broker.replicas.metadata.topics[TOPIC].id = NO_TOPIC_ID
    assert coordinator.coordination.partition_for("a") == home_partition("a", PARTITIONS)


def test_nothing_is_found_in_a_topic_whose_assignment_cannot_be_read(
    broker: OneBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create(TOPIC, PARTITIONS)
    path = f"/brokers/topics/{TOPIC}"
    assignment, _ = broker.run(broker.store.get(path))
    broker.run(broker.store.set(path, b"{"))
    coordinator = Coordinator(broker)
    broker.run(coordinator.start())
    broker.run_until(lambda: not coordinator.coordination.loading)

    async def ask() -> tuple[ErrorCode, int | ErrorCode]:
        await coordinator.coordination.prepare()
        return coordinator.refusal("a"), coordinator.who("a")

    assert broker.run(ask()) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert caplog.text.count(f"it is not known how many partitions {TOPIC} has: {path}: cannot be read") == 1
    broker.run(broker.store.set(path, assignment))
    broker.run(coordinator.coordination.prepare())
    assert coordinator.who("a") == 1
    assert coordinator.creations == 0
    coordinator.stop()


def test_where_nothing_is_led_no_number_of_partitions_is_guessed(broker: OneBroker, coordinator: Coordinator) -> None:
    broker.run(coordinator.start())
    with pytest.raises(KafkaError) as refused:
        coordinator.coordination.partition_for("a")
    assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert coordinator.refusal("a") == ErrorCode.NOT_COORDINATOR


def test_the_number_of_partitions_is_that_of_the_same_topic_before(broker: OneBroker, coordinator: Coordinator) -> None:
    coordinator.create_and_load()
    keys = [f"key {number}" for number in range(100)]
    before = [coordinator.coordination.partition_for(key) for key in keys]
    topics = broker.replicas.metadata.topics
    topic = topics.pop(TOPIC)
    coordinator.refusal("a")
    topics[TOPIC] = topic
    more = MorePartitions(name=TOPIC, count=PARTITIONS + 3)
    broker.run(broker.controller.create_partitions([more], timeout_ms=5_000))
    assert [coordinator.coordination.partition_for(key) for key in keys] == before
