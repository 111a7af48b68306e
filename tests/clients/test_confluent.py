"""confluent-kafka (librdkafka): produce, consume by assignment, admin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import (
    Consumer,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.clients.conftest import Broker
from tests.clients.sample import CODECS, START_MS, Message, sample

SECONDS = 20

pytestmark = pytest.mark.client("confluent-kafka")


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Consumer]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "assigned", "enable.auto.commit": False,
         "auto.offset.reset": "error", "enable.partition.eof": True, "fetch.wait.max.ms": 20}
    )  # fmt: skip
    yield consumer
    consumer.close()


def create(admin: AdminClient, topic: str, partitions: int = 1, **config: str) -> str:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(SECONDS)
    return topic


def produce(broker: Broker, topic: str, messages: list[Message], **settings: object) -> list[int]:
    """Produces to partition 0 and returns the acknowledged offsets."""
    options = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "enable.idempotence": True, **options})
    offsets: list[int] = []
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: object) -> None:
        errors.append(error) if error else offsets.append(message.offset())  # type: ignore[attr-defined]

    for m in messages:
        producer.produce(
            topic, m.value, m.key, 0, on_delivery=delivered, timestamp=m.timestamp, headers=list(m.headers)
        )
    assert producer.flush(SECONDS) == 0
    if errors:
        raise KafkaException(errors[0])
    return offsets


def consume(consumer: Consumer, topic: str, offset: int = 0) -> list[Message]:
    """Everything from the offset to the end of partition 0."""
    consumer.assign([TopicPartition(topic, 0, offset)])
    messages = []
    while True:
        polled = consumer.poll(SECONDS)
        assert polled is not None, "no end of the partition was reached"
        if polled.error():
            if polled.error().code() == KafkaError._PARTITION_EOF:
                return messages
            raise KafkaException(polled.error())
        headers = tuple(polled.headers() or ())
        timestamp = polled.timestamp()[1]
        messages.append(Message(key=polled.key(), value=polled.value(), headers=headers, timestamp=timestamp))


@pytest.mark.parametrize("codec", CODECS)
def test_produce_and_consume(
    broker: Broker, admin: AdminClient, consumer: Consumer, name: Callable[[], str], codec: str
) -> None:
    topic = create(admin, name())
    messages = sample()
    assert produce(broker, topic, messages, compression_type=codec) == list(range(len(messages)))
    assert consume(consumer, topic) == messages
    assert consume(consumer, topic, 50) == messages[50:]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_produce_without_idempotence(
    broker: Broker, admin: AdminClient, consumer: Consumer, name: Callable[[], str], acks: str
) -> None:
    topic = create(admin, name())
    produce(broker, topic, sample(10), enable_idempotence=False, acks=acks)
    deadline = time.monotonic() + SECONDS
    while (found := consume(consumer, topic)) != sample(10):
        assert acks == "0" and time.monotonic() < deadline, found


def test_create_a_topic_by_producing(broker: Broker, consumer: Consumer, name: Callable[[], str]) -> None:
    topic = name()
    produce(broker, topic, sample(3))
    assert consume(consumer, topic) == sample(3)


def test_large_messages(broker: Broker, admin: AdminClient, consumer: Consumer, name: Callable[[], str]) -> None:
    topic = create(admin, name(), max_message_bytes="3000000")
    messages = [Message(key=None, value=bytes([n]) * 2_500_000, headers=(), timestamp=START_MS) for n in range(3)]
    produce(broker, topic, messages, message_max_bytes=5_000_000)
    assert consume(consumer, topic) == messages
    too_large = [Message(key=None, value=bytes(3_500_000), headers=(), timestamp=START_MS)]
    with pytest.raises(KafkaException) as refused:
        produce(broker, topic, too_large, message_max_bytes=5_000_000)
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_offset_out_of_range(broker: Broker, admin: AdminClient, consumer: Consumer, name: Callable[[], str]) -> None:
    topic = create(admin, name())
    produce(broker, topic, sample(3))
    with pytest.raises(KafkaException) as refused:
        consume(consumer, topic, 99)
    assert refused.value.args[0].code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


def test_watermarks_and_offsets_for_times(
    broker: Broker, admin: AdminClient, consumer: Consumer, name: Callable[[], str]
) -> None:
    topic = create(admin, name())
    messages = [Message(key=None, value=b"x", headers=(), timestamp=START_MS + i * 1000) for i in range(10)]
    produce(broker, topic, messages)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), SECONDS) == (0, 10)

    def at(timestamp: int) -> int:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], SECONDS)
        return int(found.offset)

    assert [at(START_MS), at(START_MS + 3500), at(START_MS + 9000), at(START_MS + 9001)] == [0, 4, 9, -1]


def test_metadata(broker: Broker, admin: AdminClient, name: Callable[[], str]) -> None:
    topic = create(admin, name(), partitions=3)
    metadata = admin.list_topics(timeout=SECONDS)
    assert [f"{b.host}:{b.port}" for b in metadata.brokers.values()] == [broker.bootstrap]
    assert metadata.controller_id in metadata.brokers
    assert metadata.cluster_id
    partitions = metadata.topics[topic].partitions
    assert {p: (x.leader, x.replicas, x.isrs) for p, x in partitions.items()} == {
        p: (metadata.controller_id, [metadata.controller_id], [metadata.controller_id]) for p in range(3)
    }


def code_of(future: object) -> int:
    with pytest.raises(KafkaException) as refused:
        future.result(SECONDS)  # type: ignore[attr-defined]
    return int(refused.value.args[0].code())


def test_create_topics_and_their_errors(admin: AdminClient, name: Callable[[], str]) -> None:
    topic = create(admin, name(), partitions=2, retention_ms="1000")
    cases = {
        NewTopic(topic, 1, 1): KafkaError.TOPIC_ALREADY_EXISTS,
        NewTopic(name(), 1, 5): KafkaError.INVALID_REPLICATION_FACTOR,
        NewTopic(name(), 0, 1): KafkaError.INVALID_PARTITIONS,
        NewTopic("no spaces", 1, 1): KafkaError.TOPIC_EXCEPTION,
        NewTopic("x" * 250, 1, 1): KafkaError.TOPIC_EXCEPTION,
        NewTopic("..", 1, 1): KafkaError.TOPIC_EXCEPTION,
        NewTopic(name(), 1, 1, config={"retention.ms": "soon"}): KafkaError.INVALID_CONFIG,
        NewTopic(name(), 1, 1, config={"no.such.setting": "1"}): KafkaError.INVALID_CONFIG,
    }
    for new, code in cases.items():
        assert code_of(admin.create_topics([new])[new.topic]) == code, new


def test_create_topics_validate_only(admin: AdminClient, name: Callable[[], str]) -> None:
    topic = name()
    admin.create_topics([NewTopic(topic, 4, 1)], validate_only=True)[topic].result(SECONDS)
    assert topic not in admin.list_topics(timeout=SECONDS).topics


def test_create_topics_with_manual_assignment(admin: AdminClient, name: Callable[[], str]) -> None:
    topic, other = name(), name()
    new = NewTopic(topic, 2, replica_assignment=[[1], [1]])
    admin.create_topics([new])[topic].result(SECONDS)
    assert len(admin.list_topics(topic, SECONDS).topics[topic].partitions) == 2
    wrong = NewTopic(other, 1, replica_assignment=[[1, 1]])
    assert code_of(admin.create_topics([wrong])[other]) == KafkaError.INVALID_REPLICA_ASSIGNMENT


def test_delete_topics(admin: AdminClient, name: Callable[[], str]) -> None:
    topic = create(admin, name())
    admin.delete_topics([topic])[topic].result(SECONDS)
    deadline = time.monotonic() + SECONDS
    while topic in admin.list_topics(timeout=SECONDS).topics:
        assert time.monotonic() < deadline
    missing = name()
    assert code_of(admin.delete_topics([missing])[missing]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_create_partitions(broker: Broker, admin: AdminClient, name: Callable[[], str]) -> None:
    topic = create(admin, name())
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(SECONDS)
    deadline = time.monotonic() + SECONDS
    while len(admin.list_topics(topic, SECONDS).topics[topic].partitions) != 4:
        assert time.monotonic() < deadline
    fewer = admin.create_partitions([NewPartitions(topic, 2)])[topic]
    assert code_of(fewer) == KafkaError.INVALID_PARTITIONS


def described(admin: AdminClient, kind: ResourceType, resource: str) -> dict[str, ConfigEntry]:
    (future,) = admin.describe_configs([ConfigResource(kind, resource)]).values()
    return dict(future.result(SECONDS))


def alter(admin: AdminClient, kind: ResourceType, resource: str, **changes: str | None) -> object:
    entries = [
        ConfigEntry(
            setting.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for setting, value in changes.items()
    ]
    (future,) = admin.incremental_alter_configs([ConfigResource(kind, resource, incremental_configs=entries)]).values()
    return future


def eventually(found: Callable[[], object], wanted: object) -> None:
    deadline = time.monotonic() + SECONDS
    while (seen := found()) != wanted:
        assert time.monotonic() < deadline, seen


def test_topic_configs(admin: AdminClient, name: Callable[[], str]) -> None:
    topic = create(admin, name(), cleanup_policy="delete")
    before = described(admin, ResourceType.TOPIC, topic)
    assert (before["retention.ms"].value, before["retention.ms"].is_default) == ("604800000", True)
    assert not before["cleanup.policy"].is_default
    alter(admin, ResourceType.TOPIC, topic, retention_ms="12345", max_message_bytes="2000").result(SECONDS)  # type: ignore[attr-defined]
    eventually(lambda: described(admin, ResourceType.TOPIC, topic)["retention.ms"].value, "12345")
    alter(admin, ResourceType.TOPIC, topic, retention_ms=None).result(SECONDS)  # type: ignore[attr-defined]
    eventually(lambda: described(admin, ResourceType.TOPIC, topic)["retention.ms"].value, "604800000")
    assert described(admin, ResourceType.TOPIC, topic)["max.message.bytes"].value == "2000"
    assert code_of(alter(admin, ResourceType.TOPIC, topic, retention_ms="soon")) == KafkaError.INVALID_CONFIG
    assert code_of(alter(admin, ResourceType.TOPIC, name(), retention_ms="1")) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_altered_topic_config_takes_effect(broker: Broker, admin: AdminClient, name: Callable[[], str]) -> None:
    topic = create(admin, name())
    large = [Message(key=None, value=bytes(5000), headers=(), timestamp=START_MS)]
    produce(broker, topic, large)
    alter(admin, ResourceType.TOPIC, topic, max_message_bytes="1000").result(SECONDS)  # type: ignore[attr-defined]
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            produce(broker, topic, large)
        except KafkaException as refused:
            assert refused.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
            return
        assert time.monotonic() < deadline


def test_broker_configs(admin: AdminClient) -> None:
    (node,) = admin.list_topics(timeout=SECONDS).brokers
    before = described(admin, ResourceType.BROKER, str(node))
    assert before["log.segment.bytes"].value == "1073741824"
    assert before["broker.id"].is_read_only
    alter(admin, ResourceType.BROKER, str(node), log_cleaner_backoff_ms="16000").result(SECONDS)  # type: ignore[attr-defined]
    eventually(lambda: described(admin, ResourceType.BROKER, str(node))["log.cleaner.backoff.ms"].value, "16000")
    alter(admin, ResourceType.BROKER, str(node), log_cleaner_backoff_ms=None).result(SECONDS)  # type: ignore[attr-defined]
    eventually(lambda: described(admin, ResourceType.BROKER, str(node))["log.cleaner.backoff.ms"].value, "15000")
    assert code_of(alter(admin, ResourceType.BROKER, str(node), broker_id="9")) == KafkaError.INVALID_REQUEST


def test_delete_records(broker: Broker, admin: AdminClient, consumer: Consumer, name: Callable[[], str]) -> None:
    topic = create(admin, name())
    produce(broker, topic, sample(20))
    partition = TopicPartition(topic, 0, 7)
    assert admin.delete_records([partition])[partition].result(SECONDS).low_watermark == 7
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), SECONDS) == (7, 20)
    assert consume(consumer, topic, 7) == sample(20)[7:]
    beyond = TopicPartition(topic, 0, 99)
    assert code_of(admin.delete_records([beyond])[beyond]) == KafkaError.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("isolation", list(IsolationLevel), ids=lambda level: level.name.lower().replace("_", " "))
def test_list_offsets(broker: Broker, admin: AdminClient, name: Callable[[], str], isolation: IsolationLevel) -> None:
    topic = create(admin, name())
    times = [0, 5000, 9000, 3000]
    produce(broker, topic, [Message(key=None, value=b"x", headers=(), timestamp=START_MS + t) for t in times])

    def offset(spec: OffsetSpec) -> int:
        (future,) = admin.list_offsets({TopicPartition(topic, 0): spec}, isolation_level=isolation).values()
        return int(future.result(SECONDS).offset)

    specs = [OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp()]
    assert [offset(spec) for spec in specs] == [0, 4, 2]
    assert offset(OffsetSpec.for_timestamp(START_MS + 4000)) == 1


def test_describe_cluster(broker: Broker, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(SECONDS)
    assert cluster.cluster_id
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [broker.bootstrap]
    assert cluster.controller.id == cluster.nodes[0].id


def test_describe_topics(admin: AdminClient, name: Callable[[], str]) -> None:
    topic, unknown = create(admin, name(), partitions=2), name()
    futures = admin.describe_topics(TopicCollection([topic, unknown]))
    description = futures[topic].result(SECONDS)
    assert (description.name, len(description.partitions), description.is_internal) == (topic, 2, False)
    assert str(description.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"
    assert code_of(futures[unknown]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_elect_leaders(admin: AdminClient, name: Callable[[], str]) -> None:
    topic = create(admin, name())
    result = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(SECONDS)
    (error,) = result.values()
    assert error.code() == KafkaError.ELECTION_NOT_NEEDED


def test_two_producers_keep_their_order(
    broker: Broker, admin: AdminClient, consumer: Consumer, name: Callable[[], str]
) -> None:
    topic = create(admin, name())
    first, second = sample(30), [Message(key=b"2", value=b"b%d" % i, headers=(), timestamp=START_MS) for i in range(30)]
    produce(broker, topic, first, batch_num_messages=3)
    produce(broker, topic, second, batch_num_messages=4, compression_type="lz4")
    assert consume(consumer, topic) == first + second
