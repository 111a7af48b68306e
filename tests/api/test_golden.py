"""Requests that a real Kafka 3.9.2 answered, answered again: the same error codes in the same places.

The recorded cluster had three brokers and a history; here is one broker, and of the history what the request needs.
What is compared is an answer's outline: codes, names, offsets and settings as they are, of the rest whether it says
something. Texts are our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkad.api.routes import BY_KEY
from kafkad.wire.apis import request_class, response_class
from kafkad.wire.frames import read_request_header, read_response_header
from kafkad.wire.records import Record
from kafkad.wire.schema import Message, decode
from tests.one_broker import OneBroker
from tests.wire.recorded import Exchange, exchanges

EXACT = {
    *("error_code", "topic_config_error_code", "resource_type", "resource_name", "feature"),
    *("name", "topic", "topic_name", "partition", "partition_index", "partition_id", "is_internal"),
    *("value", "source", "config_source", "config_type", "read_only", "is_sensitive"),
    *("timestamp", "offset", "leader_epoch", "end_offset", "low_watermark", "offset_lag", "is_future_key"),
    *("num_partitions", "replication_factor", "producer_epoch", "last_sequence"),
    *("topic_authorized_operations", "cluster_authorized_operations"),
}
TEXTS = ("error_message", "documentation")
RECORDS = 28
"""In the recorded topic: offsets 0 to 27, the timestamps of 4 and later at or after 1700000000000."""
Prepare = Callable[[OneBroker, Any, Any], None]
"""Gets the broker, the request and the recorded answer; may change all three to what fits one broker."""


def outline(value: Any) -> Any:
    """Lists as sets: their order means nothing in these answers, and three replicas look like one."""
    if isinstance(value, Message):
        fields = [field.name for field in value.__schema__.fields]
        return tuple((name, _field(name, getattr(value, name))) for name in fields)
    if isinstance(value, list):
        return frozenset(outline(item) for item in value if not _is_ours(item))
    return None if value is None else type(value).__name__


def _is_ours(item: Any) -> bool:
    """A setting that Kafka does not have."""
    return str(getattr(item, "name", "")).startswith("kafkad.")


def _field(name: str, value: Any) -> Any:
    if name in EXACT:
        return value
    return "text" if name in TEXTS else outline(value)


def fill(broker: OneBroker, topic: str) -> None:
    broker.create(topic)
    for offset in range(RECORDS):
        timestamp = 1_600_000_000_000 if offset < 4 else 1_700_000_000_000
        broker.append(topic, 0, Record(0, timestamp, None, b"x"))


def known_topics(broker: OneBroker, request: Any, answer: Any) -> None:
    for topic in answer.topics:
        if topic.error_code == 0 and topic.name is not None:
            broker.create(topic.name)
    by_id = {topic.topic_id: topic.name for topic in answer.topics if getattr(topic, "topic_id", None)}
    for asked in request.topics or ():
        if asked.name is None and by_id[asked.topic_id] is not None:
            asked.topic_id = broker.replicas.metadata.topics[by_id[asked.topic_id]].id


def metadata(broker: OneBroker, request: Any, answer: Any) -> None:
    """Kafka says that the topic it creates has no leader yet; kafkad has waited for one."""
    known_topics(broker, request, answer)
    created = [topic.name for topic in answer.topics if topic.error_code == 5]
    answer.topics = [topic for topic in answer.topics if topic.error_code != 5]
    request.topics = [topic for topic in request.topics if topic.name not in created]


def filled_topics(broker: OneBroker, request: Any, answer: Any) -> None:
    for topic in answer.topics:
        if all(partition.error_code in (0, 75) for partition in topic.partitions):
            fill(broker, getattr(topic, "name", None) or topic.topic)


def only_counted(broker: OneBroker, request: Any, answer: Any) -> None:
    """Without the topics whose replicas are given: they name three brokers. What came out of nothing differs, too."""
    request.topics = [topic for topic in request.topics if not topic.assignments]
    kept = {topic.name for topic in request.topics}
    answer.topics = [topic for topic in answer.topics if topic.name in kept]


def deleted_topics(broker: OneBroker, request: Any, answer: Any) -> None:
    for topic in answer.responses:
        if topic.error_code == 0:
            broker.create(topic.name)


def grown_topics(broker: OneBroker, request: Any, answer: Any) -> None:
    for topic in answer.results:
        if topic.error_code == 0:
            broker.create(topic.name)


def described_resources(broker: OneBroker, request: Any, answer: Any) -> None:
    for result in answer.results:
        if result.resource_type == 2 and result.error_code == 0:
            broker.create(result.resource_name, configs={"retention.ms": "7200000"})


def altered_resources(broker: OneBroker, request: Any, answer: Any) -> None:
    for response in answer.responses:
        if response.error_code in (0, 40):
            broker.create(response.resource_name)


def elected_topics(broker: OneBroker, request: Any, answer: Any) -> None:
    for topic in answer.replica_election_results:
        if topic.topic != "nope":
            broker.create(topic.topic)


def reassigned_topics(broker: OneBroker, request: Any, answer: Any) -> None:
    for topic in request.topics:
        for partition in topic.partitions:
            partition.replicas = partition.replicas and [1]
        if topic.name != "nope":
            broker.create(topic.name)


def moved_topics(broker: OneBroker, request: Any, answer: Any) -> None:
    broker.create("raw-topic")


def directories(broker: OneBroker, request: Any, answer: Any) -> None:
    for result in answer.results:
        for topic in result.topics:
            broker.create(topic.name)


def producing_topic(broker: OneBroker, request: Any, answer: Any) -> None:
    broker.create("raw-topic")
    broker.append("raw-topic", 0, Record(0, 1, None, b"x"), Record(1, 1, None, b"x"), producer_id=7)


def as_it_is(broker: OneBroker, request: Any, answer: Any) -> None:
    pass


PREPARED: dict[str, Prepare] = {
    "ListOffsets": filled_topics,
    "Metadata": metadata,
    "CreateTopics": only_counted,
    "DeleteTopics": deleted_topics,
    "DeleteRecords": filled_topics,
    "InitProducerId": as_it_is,
    "OffsetForLeaderEpoch": filled_topics,
    "DescribeConfigs": described_resources,
    "AlterConfigs": altered_resources,
    "AlterReplicaLogDirs": moved_topics,
    "DescribeLogDirs": directories,
    "CreatePartitions": grown_topics,
    "ElectLeaders": elected_topics,
    "IncrementalAlterConfigs": altered_resources,
    "AlterPartitionReassignments": reassigned_topics,
    "UpdateFeatures": as_it_is,
    "DescribeCluster": as_it_is,
    "DescribeProducers": producing_topic,
}


@pytest.fixture
def recorded_broker(tmp_path: Path) -> Iterator[OneBroker]:
    """With the settings of the recorded one that show in answers."""
    broker = OneBroker(tmp_path, "log.segment.delete.delay.ms=1000", "log.index.size.max.bytes=65536")
    yield broker
    broker.stop()


def replayable() -> list[Exchange]:
    found = []
    for api in PREPARED:
        for exchange in exchanges()[api]:
            route = BY_KEY[exchange.key]
            served = route.first <= exchange.version <= route.last
            if served and exchange.label.startswith("raw") and not _is_transactional(exchange):
                found.append(exchange)
    return found


def _is_transactional(exchange: Exchange) -> bool:
    """The producer was one of that broker."""
    return bool(exchange.decoded["request"].get("transactionalId"))


@pytest.mark.parametrize("exchange", [pytest.param(each, id=each.label) for each in replayable()])
def test_an_answer_looks_like_kafkas(recorded_broker: OneBroker, exchange: Exchange) -> None:
    key, version = exchange.key, exchange.version
    _, at = read_request_header(exchange.request)
    request = decode(request_class(key), version, exchange.request[at:])
    assert exchange.response is not None
    _, at = read_response_header(key, version, exchange.response)
    recorded = decode(response_class(key), version, exchange.response[at:])
    PREPARED[BY_KEY[key].name](recorded_broker, request, recorded)
    assert outline(recorded_broker.ask(request, version)) == outline(recorded)
