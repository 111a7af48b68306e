from __future__ import annotations

from collections.abc import Generator
from typing import Any, cast

import pytest

from kafkad.api.context import Request
from kafkad.api.metadata import handle
from kafkad.controller.topics import MorePartitions
from kafkad.errors import ErrorCode
from kafkad.net.connection import Connection
from kafkad.turns import Pieces, at_once
from kafkad.wire.frames import RequestHeader
from kafkad.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.one_broker import CLUSTER_ID, OneBroker

UNKNOWN_ID = b"0123456789abcdef"


def ask(broker: OneBroker, version: int, *names: str | None, create: bool = True) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    response = broker.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=create), version)
    assert isinstance(response, MetadataResponse)
    return response


def begin(broker: OneBroker, version: int) -> Pieces[Any]:
    """An answer about all topics."""
    header = RequestHeader(MetadataRequest.__schema__.key, version, 1, "test")
    asked = Request(header, cast(Connection, broker.connection), memoryview(b""))
    answer = handle(broker.context, asked, MetadataRequest(topics=None if version else []))
    assert isinstance(answer, Generator)
    return answer


@pytest.mark.parametrize("version", range(14))
def test_a_missing_topic_is_created_and_described_at_once(broker: OneBroker, version: int) -> None:
    response = ask(broker, version, "new")
    [node] = response.brokers
    assert (node.node_id, node.host, node.port) == (1, "inside", 9092)
    [topic] = response.topics
    assert (topic.error_code, topic.name) == (0, "new")
    [partition] = topic.partitions
    assert (partition.partition_index, partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (
        0,
        1,
        [1],
        [1],
    )
    if version >= 1:
        assert (response.controller_id, node.rack) == (1, "r1")
    if version >= 2:
        assert response.cluster_id == CLUSTER_ID
    if version >= 7:
        assert partition.leader_epoch == 0
    if version >= 10:
        assert topic.topic_id == broker.replicas.metadata.topics["new"].id


def test_what_an_answer_in_pieces_saw_of_a_deleted_topic_is_not_kept_for_the_next_of_its_name(
    broker: OneBroker,
) -> None:
    for name in ("first", "second"):
        broker.create(name)
    answer = begin(broker, 12)
    next(answer)
    [deleted] = broker.run(broker.controller.delete_topics(["second"], timeout_ms=5_000))
    assert deleted.error is None
    broker.create("second", partitions=2)
    at_once(answer)
    [topic] = ask(broker, 12, "second").topics
    assert [partition.partition_index for partition in topic.partitions] == [0, 1]


@pytest.mark.parametrize(
    "topics",
    [
        [MetadataRequestTopic(name=None, topic_id=number.to_bytes(16)) for number in range(1, 101)],
        [MetadataRequestTopic(name=f"bad name {number}") for number in range(100)],
    ],
    ids=["ids", "names"],
)
def test_thousands_of_topics_that_are_not_there_are_looked_for_in_pieces(
    broker: OneBroker, topics: list[MetadataRequestTopic]
) -> None:
    assert broker.stops(MetadataRequest(topics=topics), 12) >= 100


def test_what_is_said_of_a_few_small_topics_waits_for_nobody(broker: OneBroker) -> None:
    broker.create("small")
    broker.create("large", partitions=65)
    here, gone, large = (MetadataRequestTopic(name=name) for name in ("small", "gone", "large"))
    here_by_id = MetadataRequestTopic(topic_id=broker.replicas.metadata.topics["small"].id, name=None)
    for topics in ([here], [here, gone], [here_by_id]):
        assert broker.stops(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12) == 0
    assert broker.stops(MetadataRequest(topics=[large]), 12) > 0
    large_by_id = MetadataRequestTopic(topic_id=broker.replicas.metadata.topics["large"].id, name="small")
    assert broker.stops(MetadataRequest(topics=[large_by_id]), 12) > 0
    assert broker.stops(MetadataRequest(topics=None), 12) > 0


def test_topics_beyond_those_that_one_request_creates_are_not_available_yet(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkad.api.metadata._MOST_CREATED", 2)
    names = ["a", "bad name", "b", "c"]
    codes = {topic.name: topic.error_code for topic in ask(broker, 9, *names).topics}
    bad = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes == {"a": 0, "bad name": bad, "b": 0, "c": ErrorCode.LEADER_NOT_AVAILABLE}
    assert {topic.name: topic.error_code for topic in ask(broker, 9, *names).topics} == codes | {"c": 0}


@pytest.mark.parametrize("version", [0, 12])
def test_answers_share_what_is_said_of_a_topic_until_it_changes(broker: OneBroker, version: int) -> None:
    """Hundreds of them at once are not hundreds times all topics."""

    def said() -> MetadataResponseTopic:
        answer = at_once(begin(broker, version))
        assert isinstance(answer, MetadataResponse)
        [topic] = answer.topics
        return topic

    broker.create("t")
    first = said()
    assert said() is first
    broker.run(broker.controller.create_partitions([MorePartitions(name="t", count=2)], timeout_ms=5_000))
    assert len(said().partitions) == 2


def test_nothing_is_created_for_who_does_not_want_it(broker: OneBroker) -> None:
    [topic] = ask(broker, 4, "new", create=False).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not broker.replicas.metadata.topics


def test_who_cannot_refuse_creation_gets_it(broker: OneBroker) -> None:
    assert ask(broker, 3, "new").topics[0].error_code == 0


def test_bad_names_and_collisions_have_their_own_error(broker: OneBroker) -> None:
    ask(broker, 9, "a.b")
    names = ("bad name", "..", "x" * 250, "", "a_b")
    for create in (True, False):
        codes = {topic.name: topic.error_code for topic in ask(broker, 9, *names, create=create).topics}
        expected = dict.fromkeys(names, ErrorCode.INVALID_TOPIC_EXCEPTION)
        if not create:
            expected["a_b"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == expected


def test_an_internal_topic_is_not_created_for_who_does_not_want_it(broker: OneBroker) -> None:
    [topic] = ask(broker, 9, "__consumer_offsets", create=False).topics
    assert (topic.error_code, topic.is_internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)


def test_all_topics_are_those_of_an_empty_list_first_and_of_null_later(broker: OneBroker) -> None:
    ask(broker, 9, "one", "two")
    assert {topic.name for topic in ask(broker, 0).topics} == {"one", "two"}
    assert ask(broker, 1).topics == []
    response = broker.ask(MetadataRequest(topics=None), 1)
    assert {topic.name for topic in response.topics} == {"one", "two"}


def test_a_topic_is_found_by_its_id(broker: OneBroker) -> None:
    topic_id = ask(broker, 12, "new").topics[0].topic_id
    ids = [MetadataRequestTopic(name=None, topic_id=asked) for asked in (topic_id, UNKNOWN_ID)]
    found = {topic.topic_id: topic for topic in broker.ask(MetadataRequest(topics=ids), 12).topics}
    assert (found[topic_id].name, found[topic_id].error_code) == ("new", 0)
    assert (found[UNKNOWN_ID].name, found[UNKNOWN_ID].error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize(
    ("version", "topic"),
    [
        (10, MetadataRequestTopic(name="new", topic_id=UNKNOWN_ID)),
        (11, MetadataRequestTopic(name=None, topic_id=UNKNOWN_ID)),
        (12, MetadataRequestTopic(name=None)),
    ],
)
def test_a_topic_without_a_usable_key_is_refused(broker: OneBroker, version: int, topic: MetadataRequestTopic) -> None:
    [answer] = broker.ask(MetadataRequest(topics=[topic]), version).topics
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_addresses_are_those_of_the_listener_that_was_used(broker: OneBroker) -> None:
    broker.connection.peer.listener = "OUTSIDE"
    [node] = ask(broker, 9, "new").brokers
    assert (node.host, node.port) == ("outside", 19092)


def test_who_came_through_a_listener_that_leaders_lack_is_told_so(broker: OneBroker) -> None:
    ask(broker, 9, "new")
    broker.connection.peer.listener = "ELSEWHERE"
    response = ask(broker, 9, "new")
    [partition] = response.topics[0].partitions
    assert (response.brokers, partition.leader_id, partition.error_code) == ([], -1, ErrorCode.LISTENER_NOT_FOUND)


def test_operations_are_told_when_they_are_asked_for(broker: OneBroker) -> None:
    topics = [MetadataRequestTopic(name=name) for name in ("new", "bad name")]
    asking = MetadataRequest(
        topics=topics, include_cluster_authorized_operations=True, include_topic_authorized_operations=True
    )
    response = broker.ask(asking, 8)
    assert response.cluster_authorized_operations == 8096
    assert [topic.topic_authorized_operations for topic in response.topics] == [3576, 3576]
    response = broker.ask(MetadataRequest(topics=topics), 8)
    assert response.cluster_authorized_operations == -(2**31)


def test_answers_follow_what_the_controller_says(broker: OneBroker) -> None:
    broker.create("t")
    assert len(ask(broker, 9, "t").topics[0].partitions) == 1
    more = MorePartitions(name="t", count=3)
    broker.run(broker.controller.create_partitions([more], timeout_ms=5_000))
    assert len(ask(broker, 9, "t").topics[0].partitions) == 3
    broker.run(broker.controller.delete_topics(["t"], timeout_ms=5_000))
    assert ask(broker, 9, "t", create=False).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
