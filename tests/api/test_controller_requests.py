"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments, UpdateFeatures."""

from __future__ import annotations

from typing import cast

import pytest

from kafkad.api import list_partition_reassignments
from kafkad.api.context import Request
from kafkad.errors import ErrorCode, Guard
from kafkad.meta.znodes import Features
from kafkad.model import PartitionAssignment
from kafkad.names import TopicPartition
from kafkad.net.connection import Connection
from kafkad.wire.frames import RequestHeader
from kafkad.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkad.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from kafkad.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kafkad.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from kafkad.wire.primitives import MAX_STRING
from kafkad.wire.schema import encode
from tests.one_broker import OneBroker

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
UPGRADE, SAFE_DOWNGRADE = 1, 2


@pytest.fixture
def with_topic(broker: OneBroker) -> OneBroker:
    broker.create("t", partitions=2)
    return broker


def elect(broker: OneBroker, version: int, kind: int, topics: dict[str, list[int]] | None) -> ElectLeadersResponse:
    asked = None
    if topics is not None:
        asked = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics.items()]
    response = broker.ask(ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=5_000), version)
    assert isinstance(response, ElectLeadersResponse)
    return response


@pytest.mark.parametrize(("version", "kind"), [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)])
def test_who_leads_already_needs_no_election(with_topic: OneBroker, version: int, kind: int) -> None:
    response = elect(with_topic, version, kind, {"t": [0, 9], "missing": [0]})
    assert response.error_code == 0
    results = {
        (topic.topic, result.partition_id): result.error_code
        for topic in response.replica_election_results
        for result in topic.partition_result
    }
    assert results == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED, ("t", 9): UNKNOWN, ("missing", 0): UNKNOWN}


def test_an_election_everywhere_tells_only_what_it_did(with_topic: OneBroker) -> None:
    response = elect(with_topic, 2, 0, None)
    assert (response.error_code, response.replica_election_results) == (0, [])


def test_there_are_two_kinds_of_election(with_topic: OneBroker) -> None:
    response = elect(with_topic, 2, 2, {"t": [0]})
    assert response.error_code == ErrorCode.INVALID_REQUEST
    [result] = response.replica_election_results[0].partition_result
    assert result.error_code == ErrorCode.INVALID_REQUEST


def reassign(
    broker: OneBroker, index: int, replicas: list[int] | None, topic: str = "t", version: int = 0, fixed: bool = False
) -> int:
    asked = [ReassignablePartition(partition_index=index, replicas=replicas)]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=asked)], allow_replication_factor_change=not fixed
    )
    response = broker.ask(request, version)
    assert response.error_code == 0
    [answer] = response.responses[0].partitions
    assert (answer.error_code == 0) == (answer.error_message is None)
    code: int = answer.error_code
    return code


@pytest.mark.parametrize("version", [0, 1])
def test_a_move_to_where_it_is_ends_at_once(with_topic: OneBroker, version: int) -> None:
    assert reassign(with_topic, 0, [1], version=version) == 0
    for topics in (None, [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 1])]):
        response = with_topic.ask(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (response.error_code, response.topics) == (0, [])


@pytest.mark.parametrize(
    ("topic", "index", "replicas", "code"),
    [
        ("t", 0, [9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, [1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, [-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 9, [1], UNKNOWN),
        ("missing", 0, [1], UNKNOWN),
        ("missing", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_moves_that_cannot_be(
    with_topic: OneBroker, topic: str, index: int, replicas: list[int] | None, code: ErrorCode
) -> None:
    assert reassign(with_topic, index, replicas, topic) == code


def test_of_a_partition_that_is_named_twice_the_last_target_counts(with_topic: OneBroker) -> None:
    def asked(*replicas: list[int]) -> ReassignableTopic:
        partitions = [ReassignablePartition(partition_index=0, replicas=each) for each in replicas]
        return ReassignableTopic(name="t", partitions=partitions)

    request = AlterPartitionReassignmentsRequest(topics=[asked([1], [9]), asked([9], [1])])
    [topic] = with_topic.ask(request, 1).responses
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [(0, 0)]


def test_a_request_may_forbid_another_number_of_replicas(with_topic: OneBroker) -> None:
    assert reassign(with_topic, 0, [1, 2], version=1, fixed=True) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(with_topic, 0, [1], version=1, fixed=True) == 0


def update(
    broker: OneBroker, version: int, name: str, level: int, *, kind: int = UPGRADE, validate: bool = False
) -> UpdateFeaturesResponse:
    feature = FeatureUpdateKey(feature=name, max_version_level=level)
    if version == 0:
        feature.allow_downgrade = kind != UPGRADE
    else:
        feature.upgrade_type = kind
    response = broker.ask(UpdateFeaturesRequest(feature_updates=[feature], validate_only=validate), version)
    assert isinstance(response, UpdateFeaturesResponse)
    return response


@pytest.mark.parametrize(("name", "level", "kind"), [("x", 1, 1), ("", 1, 1), ("x", 0, 1), ("x", 0, 2), ("x", 1, 9)])
def test_features_that_cannot_be(broker: OneBroker, name: str, level: int, kind: int) -> None:
    for version in (0, 1) if kind < 9 else (1,):
        response = update(broker, version, name, level, kind=kind)
        [result] = response.results
        assert (response.error_code, result.feature, result.error_code) == (0, name, ErrorCode.INVALID_REQUEST)
    response = update(broker, 2, name, level, kind=kind)
    assert (response.error_code, response.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert response.error_message


def test_the_level_of_transactions_is_said_to_follow_from_the_brokers(broker: OneBroker) -> None:
    [result] = update(broker, 1, "transaction.version", 2).results
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "kafkad.transaction.version" in (result.error_message or "")


def test_an_answer_can_hold_what_is_wrong_with_a_feature_of_any_name(broker: OneBroker) -> None:
    assert encode(update(broker, 2, "f" * MAX_STRING, 1), 2)


def finalized(broker: OneBroker) -> dict[str, int]:
    return dict(Features.decode(broker.run(broker.store.get(Features.path()))[0]).levels)


@pytest.mark.parametrize("version", range(3))
def test_a_feature_that_kafka_left_is_removed(broker: OneBroker, version: int) -> None:
    broker.run(broker.store.set(Features.path(), Features({"x": 3}).encode()))
    if version >= 1:
        assert update(broker, version, "x", 0, kind=SAFE_DOWNGRADE, validate=True).error_code == 0
        assert finalized(broker) == {"x": 3}
    response = update(broker, version, "x", 0, kind=SAFE_DOWNGRADE)
    assert (response.error_code, [result.error_code for result in response.results]) == (0, [0][: version < 2])
    assert finalized(broker) == {}


def test_of_a_feature_that_is_named_twice_the_last_update_counts(broker: OneBroker) -> None:
    def ask(*updates: FeatureUpdateKey) -> list[tuple[str, int]]:
        response = broker.ask(UpdateFeaturesRequest(feature_updates=list(updates)), 1)
        assert isinstance(response, UpdateFeaturesResponse)
        return [(result.feature, result.error_code) for result in response.results]

    broker.run(broker.store.set(Features.path(), Features({"x": 3, "y": 1}).encode()))
    removal = FeatureUpdateKey(feature="x", max_version_level=0, upgrade_type=SAFE_DOWNGRADE)
    upgrade = FeatureUpdateKey(feature="x", max_version_level=4, upgrade_type=UPGRADE)
    assert ask(removal, upgrade) == [("x", ErrorCode.INVALID_REQUEST)]
    assert finalized(broker) == {"x": 3, "y": 1}
    assert ask(upgrade, removal, removal) == [("x", 0)]
    assert finalized(broker) == {"y": 1}


def test_many_reassignments_are_listed_in_pieces(with_topic: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def under_way(asked: object, guard: Guard) -> dict[TopicPartition, PartitionAssignment]:
        return {TopicPartition("t", index): PartitionAssignment(replicas=(1, 2), adding=(2,)) for index in range(50)}

    monkeypatch.setattr(with_topic.controller, "list_partition_reassignments", under_way)
    message = ListPartitionReassignmentsRequest(topics=None)
    request = Request(RequestHeader(46, 0, 1, None), cast(Connection, None), memoryview(b""))
    pieces = with_topic.run(list_partition_reassignments.handle(with_topic.context, request, message))
    assert sum(1 for _ in pieces) >= 50
