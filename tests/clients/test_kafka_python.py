"""kafka-python 3: produce, consume by assignment, and an admin client that speaks nearly every API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.admin import ConfigResource, NewTopic, OffsetSpec, OffsetTimestamp

from tests.clients.conftest import Broker
from tests.clients.sample import CODECS, START_MS, Message, sample

SECONDS = 20

pytestmark = pytest.mark.client("kafka-python")


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield admin
    admin.close()


@pytest.fixture
def consumer(broker: Broker) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="none", enable_auto_commit=False)
    yield consumer
    consumer.close()


def create(admin: KafkaAdminClient, topic: str, partitions: int = 1) -> str:
    admin.create_topics([NewTopic(topic, partitions, 1)], wait_for_metadata=True)
    return topic


def produce(broker: Broker, topic: str, messages: list[Message], **settings: object) -> list[int]:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=20, **settings)
    try:
        sent = [
            producer.send(topic, m.value, m.key, headers=list(m.headers), partition=0, timestamp_ms=m.timestamp)
            for m in messages
        ]
        return [future.get(SECONDS).offset for future in sent]
    finally:
        producer.close()


def consume(consumer: KafkaConsumer, topic: str, offset: int = 0) -> list[Message]:
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, offset)
    end = consumer.end_offsets([partition])[partition]
    messages: list[Message] = []
    deadline = time.monotonic() + SECONDS
    while consumer.position(partition) < end:
        assert time.monotonic() < deadline
        messages += [
            Message(key=r.key, value=r.value, headers=tuple(r.headers), timestamp=r.timestamp)
            for r in consumer.poll(500).get(partition, ())
        ]
    return messages


@pytest.mark.parametrize("codec", CODECS)
def test_produce_and_consume(
    broker: Broker, admin: KafkaAdminClient, consumer: KafkaConsumer, name: Callable[[], str], codec: str
) -> None:
    topic = create(admin, name())
    compression = None if codec == "none" else codec
    assert produce(broker, topic, sample(), compression_type=compression) == list(range(len(sample())))
    assert consume(consumer, topic) == sample()
    assert consume(consumer, topic, 33) == sample()[33:]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_produce_without_idempotence(
    broker: Broker, admin: KafkaAdminClient, consumer: KafkaConsumer, name: Callable[[], str], acks: int | str
) -> None:
    topic = create(admin, name())
    produce(broker, topic, sample(10), enable_idempotence=False, acks=acks)
    deadline = time.monotonic() + SECONDS
    while (found := consume(consumer, topic)) != sample(10):
        assert acks == 0 and time.monotonic() < deadline, found


def test_large_messages(
    broker: Broker, admin: KafkaAdminClient, consumer: KafkaConsumer, name: Callable[[], str]
) -> None:
    topic = create(admin, name())
    messages = [Message(key=None, value=bytes([n]) * 900_000, headers=(), timestamp=START_MS) for n in range(4)]
    produce(broker, topic, messages)
    assert consume(consumer, topic) == messages
    too_large = [Message(key=None, value=bytes(1_500_000), headers=(), timestamp=START_MS)]
    with pytest.raises(errors.MessageSizeTooLargeError):
        produce(broker, topic, too_large, max_request_size=5_000_000)


def test_offset_out_of_range(
    broker: Broker, admin: KafkaAdminClient, consumer: KafkaConsumer, name: Callable[[], str]
) -> None:
    topic = create(admin, name())
    produce(broker, topic, sample(3))
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 99)
    deadline = time.monotonic() + SECONDS
    with pytest.raises(errors.OffsetOutOfRangeError):
        while time.monotonic() < deadline:
            consumer.poll(500)


def test_offsets_by_consumer(
    broker: Broker, admin: KafkaAdminClient, consumer: KafkaConsumer, name: Callable[[], str]
) -> None:
    topic = create(admin, name())
    partition = TopicPartition(topic, 0)
    produce(
        broker, topic, [Message(key=None, value=b"x", headers=(), timestamp=START_MS + i * 1000) for i in range(10)]
    )
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 10}
    found = consumer.offsets_for_times({partition: START_MS + 3500})[partition]
    assert (found.offset, found.timestamp, found.leader_epoch) == (4, START_MS + 4000, 0)
    assert consumer.offsets_for_times({partition: START_MS + 60_000}) == {partition: None}
    assert topic in consumer.topics()
    assert consumer.partitions_for_topic(topic) == {0}


def test_topics(admin: KafkaAdminClient, name: Callable[[], str]) -> None:
    topic = create(admin, name(), 2)
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert described["topic_id"] != "00000000-0000-0000-0000-000000000000"
    assert [(p["leader_id"], p["replica_nodes"], p["leader_epoch"]) for p in described["partitions"]] == [
        (1, [1], 0)
    ] * 2
    assert "DESCRIBE_CONFIGS" in described["authorized_operations"]
    with pytest.raises(errors.TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, 1, 1)])
    admin.create_partitions({topic: 4})
    admin.wait_for_topics([topic])
    admin.delete_topics([topic])
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.delete_topics([name()])


def test_describe_cluster(broker: Broker, admin: KafkaAdminClient) -> None:
    cluster = admin.describe_cluster()
    assert [f"{b['host']}:{b['port']}" for b in cluster["brokers"]] == [broker.bootstrap]
    assert cluster["controller_id"] == 1
    assert cluster["cluster_id"]
    assert set(cluster["authorized_operations"]) == {
        "CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE",
    }  # fmt: skip


def configs(admin: KafkaAdminClient, topic: str) -> dict[str, dict[str, object]]:
    resource = ConfigResource("topic", topic)
    return admin.describe_configs([resource], include_synonyms=True, config_filter="all")["topic"][topic]  # type: ignore[no-any-return]


def test_topic_configs(admin: KafkaAdminClient, name: Callable[[], str]) -> None:
    topic = create(admin, name())
    default = configs(admin, topic)["retention.ms"]
    assert (default["value"], default["config_source"], default["config_type"]) == (
        "604800000", "DEFAULT_CONFIG", "LONG"
    )  # fmt: skip
    admin.alter_configs([ConfigResource("topic", topic, configs={"retention.ms": "5000"})])
    deadline = time.monotonic() + SECONDS
    while (changed := configs(admin, topic)["retention.ms"])["value"] != "5000":
        assert time.monotonic() < deadline
    assert changed["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    assert changed["synonyms"][0] == {"name": "retention.ms", "value": "5000", "source": "DYNAMIC_TOPIC_CONFIG"}  # type: ignore[index]
    admin.reset_configs([ConfigResource("topic", topic, configs={"retention.ms": "5000"})])
    deadline = time.monotonic() + SECONDS
    while configs(admin, topic)["retention.ms"]["value"] != "604800000":
        assert time.monotonic() < deadline


def test_describe_log_dirs(broker: Broker, admin: KafkaAdminClient, name: Callable[[], str]) -> None:
    topic = create(admin, name())
    produce(broker, topic, sample(10))
    (described,) = admin.describe_log_dirs()
    (directory,) = described["log_dirs"]
    assert directory["log_dir"] == str(broker.log_directory())
    assert directory["total_bytes"] >= directory["usable_bytes"] > 0
    (found,) = [t["partitions"] for t in directory["topics"] if t["name"] == topic]
    size = (broker.log_directory() / f"{topic}-0" / f"{0:020}.log").stat().st_size
    assert found == [{"partition_index": 0, "partition_size": size, "offset_lag": 0, "is_future_key": False}]


def test_describe_producers(broker: Broker, admin: KafkaAdminClient, name: Callable[[], str]) -> None:
    topic = create(admin, name())
    produce(broker, topic, sample(7), enable_idempotence=True)
    (state,) = admin.describe_producers([TopicPartition(topic, 0)]).values()
    (producer,) = state.active_producers
    assert (producer.producer_epoch, producer.last_sequence) == (0, 6)
    assert (producer.coordinator_epoch, producer.current_transaction_start_offset) == (-1, -1)


def test_list_offsets(broker: Broker, admin: KafkaAdminClient, name: Callable[[], str]) -> None:
    topic = create(admin, name())
    partition = TopicPartition(topic, 0)
    times = (0, 9000, 4000)
    produce(broker, topic, [Message(key=None, value=b"x", headers=(), timestamp=START_MS + t) for t in times])

    def at(spec: object) -> tuple[int, int, int]:
        found = admin.list_partition_offsets({partition: spec})[partition]
        return found.offset, found.timestamp, found.leader_epoch

    assert at(OffsetSpec.EARLIEST) == (0, -1, 0)
    assert at(OffsetSpec.LATEST) == (3, -1, 0)
    assert at(OffsetSpec.MAX_TIMESTAMP) == (1, START_MS + 9000, 0)
    assert at(OffsetTimestamp(START_MS + 1)) == (1, START_MS + 9000, 0)


def test_delete_records(
    broker: Broker, admin: KafkaAdminClient, consumer: KafkaConsumer, name: Callable[[], str]
) -> None:
    topic = create(admin, name())
    partition = TopicPartition(topic, 0)
    produce(broker, topic, sample(10))
    assert admin.delete_records({partition: 4})[partition]["low_watermark"] == 4
    assert consume(consumer, topic, 4) == sample(10)[4:]
    assert admin.delete_records({partition: -1})[partition]["low_watermark"] == 10
    assert consumer.beginning_offsets([partition]) == {partition: 10}


def test_reassignments_of_one_broker(admin: KafkaAdminClient, name: Callable[[], str]) -> None:
    partition = TopicPartition(create(admin, name()), 0)
    assert admin.alter_partition_reassignments({partition: [1]}) == {partition: None}
    assert admin.list_partition_reassignments() == {}


def test_features(admin: KafkaAdminClient) -> None:
    assert isinstance(admin.describe_features(), dict)
