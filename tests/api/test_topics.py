"""CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkad.errors import ErrorCode
from kafkad.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kafkad.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from kafkad.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState
from tests.one_broker import OneBroker

UNKNOWN_ID = b"0123456789abcdef"


def create(
    broker: OneBroker, version: int, *topics: CreatableTopic, validate: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=5_000, validate_only=validate)
    results: list[CreatableTopicResult] = broker.ask(request, version).topics
    return results


def topic(name: str = "t", partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    settings = [CreatableTopicConfig(name=n.replace("_", "."), value=value) for n, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=settings)


def assigned(*replicas: list[int], first: int = 0) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=first + index, broker_ids=ids) for index, ids in enumerate(replicas)
    ]
    return CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=assignments)


@pytest.mark.parametrize("version", range(8))
def test_a_topic_is_created_with_its_settings(broker: OneBroker, version: int) -> None:
    [result] = create(broker, version, topic(partitions=3, retention_ms="7200000"))
    assert (result.name, result.error_code) == ("t", 0)
    assert sorted(broker.replicas.metadata.topics["t"].partitions) == [0, 1, 2]
    assert broker.replicas.leader("t", 2).log.config.retention_ms == 7_200_000
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        settings = {config.name: (config.value, config.config_source) for config in result.configs or ()}
        assert settings["retention.ms"] == ("7200000", 1)
        assert settings["segment.bytes"] == ("1073741824", 5)
    if version >= 7:
        assert result.topic_id == broker.replicas.metadata.topics["t"].id


def test_a_topic_that_is_only_judged_is_not_created(broker: OneBroker) -> None:
    [result] = create(broker, 7, topic(partitions=-1, factor=-1), validate=True)
    assert (result.error_code, result.num_partitions, result.topic_id) == (0, 1, bytes(16))
    assert not broker.replicas.metadata.topics


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (topic(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (topic(factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(name=".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(name="x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(name="a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(name="a.b"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic(bogus="1"), ErrorCode.INVALID_CONFIG),
        (topic(retention_ms="x"), ErrorCode.INVALID_CONFIG),
        (topic(retention_ms=None), ErrorCode.INVALID_CONFIG),
        (assigned([9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned([1], first=1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned([1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned([]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_created(broker: OneBroker, wrong: CreatableTopic, code: ErrorCode) -> None:
    broker.create("a.b")
    [result] = create(broker, 7, wrong)
    assert (result.error_code, result.num_partitions) == (code, -1)
    assert result.error_message
    assert list(broker.replicas.metadata.topics) == ["a.b"]


def test_replicas_may_be_given(broker: OneBroker) -> None:
    [result] = create(broker, 7, assigned([1], [1]))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)


def test_a_count_and_an_assignment_do_not_go_together(broker: OneBroker) -> None:
    both = assigned([1])
    both.num_partitions = 1
    assert create(broker, 7, both)[0].error_code == ErrorCode.INVALID_REQUEST


def repeating() -> CreatableTopic:
    """A topic with two assignments of its partition 0."""
    wrong = assigned([1], [1])
    wrong.assignments[1].partition_index = 0
    return wrong


def test_an_assignment_names_a_partition_once(broker: OneBroker) -> None:
    results = create(broker, 7, repeating(), topic("good"))
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REPLICA_ASSIGNMENT, 0]


def test_a_topic_that_is_named_twice_is_not_created_even_if_one_of_the_two_is_wrong(broker: OneBroker) -> None:
    results = create(broker, 7, repeating(), topic(repeating().name))
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert not broker.replicas.metadata.topics


def test_one_bad_topic_leaves_the_others_alone(broker: OneBroker) -> None:
    results = create(broker, 7, topic("twice"), topic("twice"), topic("good"))
    assert [(result.name, result.error_code) for result in results] == [
        ("twice", ErrorCode.INVALID_REQUEST),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("good", 0),
    ]


def delete(broker: OneBroker, version: int, *names: str) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(timeout_ms=5_000)
    if version < 6:
        request.topic_names = list(names)
    else:
        request.topics = [DeleteTopicState(name=name) for name in names]
    results: list[DeletableTopicResult] = broker.ask(request, version).responses
    return results


@pytest.mark.parametrize("version", range(7))
def test_a_topic_is_deleted_by_name(broker: OneBroker, version: int) -> None:
    broker.create("t", partitions=2)
    assert [(result.name, result.error_code) for result in delete(broker, version, "t", "missing")] == [
        ("t", 0),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert not broker.replicas.metadata.topics
    assert not broker.replicas.logs.logs


def test_a_topic_is_deleted_by_id(broker: OneBroker) -> None:
    broker.create("t")
    topic_id = broker.replicas.metadata.topics["t"].id
    asked = [DeleteTopicState(name=None, topic_id=each) for each in (topic_id, UNKNOWN_ID)]
    results = broker.ask(DeleteTopicsRequest(topics=asked, timeout_ms=5_000), 6).responses
    assert [(result.name, result.topic_id, result.error_code) for result in results] == [
        ("t", topic_id, 0),
        (None, UNKNOWN_ID, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_a_topic_to_delete_has_a_name_or_an_id(broker: OneBroker) -> None:
    broker.create("t")
    asked = [DeleteTopicState(name=None), DeleteTopicState(name="t")]
    results = broker.ask(DeleteTopicsRequest(topics=asked, timeout_ms=5_000), 6).responses
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST, 0]


def test_nothing_is_deleted_if_a_topic_has_both_a_name_and_an_id(broker: OneBroker) -> None:
    broker.create("t")
    asked = [DeleteTopicState(name="u", topic_id=UNKNOWN_ID), DeleteTopicState(name="t"), DeleteTopicState(name=None)]
    results = broker.ask(DeleteTopicsRequest(topics=asked, timeout_ms=5_000), 6).responses
    assert [(result.name, result.error_code) for result in results] == [
        (name, ErrorCode.INVALID_REQUEST) for name in ("u", "t", None)
    ]
    assert "t" in broker.replicas.metadata.topics


def test_deletion_can_be_disabled(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "delete.topic.enable=false")
    try:
        broker.create("t")
        assert delete(broker, 2, "t")[0].error_code == ErrorCode.INVALID_REQUEST
        assert delete(broker, 6, "t")[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED
        assert "t" in broker.replicas.metadata.topics
    finally:
        broker.stop()


def grow(
    broker: OneBroker, version: int, count: int, *replicas: list[int], name: str = "t", validate: bool = False
) -> int:
    assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in replicas] or None
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=assignments)],
        timeout_ms=5_000,
        validate_only=validate,
    )
    [result] = broker.ask(request, version).results
    assert (result.error_code == 0) == (result.error_message is None)
    code: int = result.error_code
    return code


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows(broker: OneBroker, version: int) -> None:
    broker.create("t")
    assert grow(broker, version, 3) == 0
    assert grow(broker, version, 5, [1], [1]) == 0
    assert sorted(broker.replicas.metadata.topics["t"].partitions) == [0, 1, 2, 3, 4]
    assert broker.replicas.leader("t", 4).log.end_offset == 0


def test_growth_that_is_only_judged(broker: OneBroker) -> None:
    broker.create("t")
    assert grow(broker, 3, 3, validate=True) == 0
    assert sorted(broker.replicas.metadata.topics["t"].partitions) == [0]


@pytest.mark.parametrize(
    ("count", "replicas", "code"),
    [
        (1, [], ErrorCode.INVALID_PARTITIONS),
        (0, [], ErrorCode.INVALID_PARTITIONS),
        (-3, [], ErrorCode.INVALID_PARTITIONS),
        (3, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1], [9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (2, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (2, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_growth_that_cannot_be(broker: OneBroker, count: int, replicas: list[list[int]], code: ErrorCode) -> None:
    broker.create("t")
    assert grow(broker, 3, count, *replicas) == code
    assert grow(broker, 3, 2, name="missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_is_to_grow_twice_is_refused_once(broker: OneBroker) -> None:
    broker.create("t")
    twice = [CreatePartitionsTopic(name="t", count=count, assignments=None) for count in (2, 3)]
    results = broker.ask(CreatePartitionsRequest(topics=twice, timeout_ms=5_000), 3).results
    assert [(result.name, result.error_code) for result in results] == [("t", ErrorCode.INVALID_REQUEST)]
