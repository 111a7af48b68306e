"""DescribeCluster, DescribeTopicPartitions."""

from __future__ import annotations

import pytest

from kafkad.errors import ErrorCode, KafkaError
from kafkad.wire.messages.describe_cluster import DescribeClusterRequest
from kafkad.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.one_broker import CLUSTER_ID, OneBroker


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(broker: OneBroker, version: int) -> None:
    response = broker.ask(DescribeClusterRequest(), version)
    assert (response.cluster_id, response.controller_id) == (CLUSTER_ID, 1)
    assert response.cluster_authorized_operations == -(2**31)
    [node] = response.brokers
    assert (node.broker_id, node.host, node.port, node.rack, node.is_fenced) == (1, "inside", 9092, "r1", False)
    asking = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert broker.ask(asking, version).cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("kind", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_there_are_no_other_endpoints(broker: OneBroker, kind: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refusal:
        broker.ask(DescribeClusterRequest(endpoint_type=kind), 1)
    assert refusal.value.code == code


def describe(
    broker: OneBroker, *topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    start = Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in topics], response_partition_limit=limit, cursor=start
    )
    response = broker.ask(request, 0)
    assert isinstance(response, DescribeTopicPartitionsResponse)
    return response


def page(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [p.partition_index for p in topic.partitions]) for topic in response.topics]


@pytest.fixture
def filled(broker: OneBroker) -> OneBroker:
    for name, partitions in (("b", 3), ("a", 2), ("c", 1)):
        broker.create(name, partitions)
    return broker


def test_topics_come_whole_and_in_order(filled: OneBroker) -> None:
    response = describe(filled)
    assert page(response) == [("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]
    assert response.next_cursor is None
    [partition] = response.topics[2].partitions
    assert (partition.leader_id, partition.leader_epoch, partition.replica_nodes, partition.isr_nodes) == (
        1,
        0,
        [1],
        [1],
    )
    assert (partition.eligible_leader_replicas, partition.last_known_elr, partition.offline_replicas) == ([], [], [])
    assert response.topics[2].topic_id == filled.replicas.metadata.topics["c"].id
    assert response.topics[2].topic_authorized_operations == 3576


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
def test_pages_make_up_the_whole(filled: OneBroker, limit: int) -> None:
    seen: list[tuple[str | None, int]] = []
    cursor: tuple[str, int] | None = None
    while True:
        response = describe(filled, limit=limit, cursor=cursor)
        rows = [(name, index) for name, indexes in page(response) for index in indexes]
        assert 0 < len(rows) <= limit
        seen += rows
        if response.next_cursor is None:
            break
        cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


def test_named_topics_and_those_that_are_not_there(filled: OneBroker) -> None:
    response = describe(filled, "c", "missing", "b ad")
    assert {topic.name: topic.error_code for topic in response.topics} == {
        "b ad": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "c": 0,
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_full_page_ends_before_the_next_topic(filled: OneBroker) -> None:
    response = describe(filled, "c", "missing", limit=1)
    assert page(response) == [("c", [0])]
    assert response.next_cursor == Cursor(topic_name="missing", partition_index=0)


def test_a_cursor_may_be_at_a_topic_that_went(filled: OneBroker) -> None:
    assert page(describe(filled, cursor=("aa", 1))) == [("b", [0, 1, 2]), ("c", [0])]


def test_a_cursor_at_a_topic_that_is_not_asked_for_is_refused(filled: OneBroker) -> None:
    topics = describe(filled, "a", "c", cursor=("b", 0)).topics
    assert [(topic.name, topic.error_code, topic.partitions) for topic in topics] == [
        (name, ErrorCode.INVALID_REQUEST, []) for name in ("a", "c")
    ]


def test_a_cursor_before_the_first_partition_is_refused(filled: OneBroker) -> None:
    [topic] = describe(filled, "a", cursor=("a", -1)).topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.INVALID_REQUEST, [])


def test_many_partitions_are_described_in_pieces(broker: OneBroker) -> None:
    broker.create("large", 300)
    asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="large")], cursor=None)
    assert broker.stops(asked, 0) >= 18
    [topic] = broker.ask(asked, 0).topics
    assert [partition.partition_index for partition in topic.partitions] == list(range(300))


def test_many_topics_are_described_in_pieces(broker: OneBroker) -> None:
    topics = [TopicRequest(name=f"t{number}") for number in range(50)]
    assert broker.stops(DescribeTopicPartitionsRequest(topics=topics, cursor=None), 0) >= 50
