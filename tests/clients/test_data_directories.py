"""A stopped broker's data directory is served by the other one: kafkad's by real Kafka 3.9, Kafka's by kafkad."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.broker import KafkadProcess
from tests.clients.conftest import Broker
from tests.clients.left_behind import LeftBehind, by_kafka
from tests.clients.sample import CODECS, Message, sample
from tests.oracle.adoption import AdoptingKafka
from tests.oracle.kafka import missing

SECONDS = 30
SETTINGS = {"log.segment.bytes": "20000"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.timeout(300),
]


@pytest.fixture(autouse=True, scope="module")
def needs_kafka() -> None:
    if reason := missing("3.9"):
        pytest.skip(reason)


@pytest.fixture(scope="module")
def of_kafka(tmp_path_factory: pytest.TempPathFactory) -> LeftBehind[dict[str, str]]:
    """With the ids of its topics."""
    return by_kafka(tmp_path_factory.mktemp("of-kafka"), SETTINGS, lambda kafka: write(kafka.bootstrap))


def first_kafkad(scratch: Path) -> KafkadProcess:
    return KafkadProcess(scratch / "first", SETTINGS, log_dirs=[scratch / "data"])


def second_broker(kind: str, scratch: Path) -> AbstractContextManager[Broker]:
    if kind == "kafka":
        return AdoptingKafka(scratch / "data")
    return KafkadProcess(scratch / "second", log_dirs=[scratch / "data"])


def write(bootstrap: str) -> dict[str, str]:
    """Fills a topic for each codec; topic → id."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(codec, 2, 1, config={"segment.bytes": "14000"}) for codec in CODECS]
    for future in admin.create_topics(new).values():
        future.result(SECONDS)
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5, "enable.idempotence": True,
             "batch.num.messages": 20}
        )  # fmt: skip
        for partition in (0, 1):
            for m in sample():
                producer.produce(codec, m.value, m.key, partition, timestamp=m.timestamp, headers=list(m.headers))
        assert producer.flush(SECONDS) == 0
    return topic_ids(admin)


def topic_ids(admin: AdminClient) -> dict[str, str]:
    """Topic → id, as soon as the broker knows all of them (real Kafka accepts connections before it does)."""
    deadline = time.monotonic() + SECONDS
    while True:
        described = admin.describe_topics(TopicCollection(list(CODECS)))
        try:
            return {topic: str(future.result(SECONDS).topic_id) for topic, future in described.items()}
        except KafkaException:
            if time.monotonic() > deadline:
                raise


def read(bootstrap: str, topic: str, partition: int) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True, "enable.auto.commit": False,
         "fetch.wait.max.ms": 20}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0)])
    messages = []
    try:
        while True:
            polled = consumer.poll(SECONDS)
            assert polled is not None
            if polled.error():
                assert polled.error().code() == KafkaError._PARTITION_EOF, polled.error()
                return messages
            headers, timestamp = tuple(polled.headers() or ()), polled.timestamp()[1]
            messages.append(Message(key=polled.key(), value=polled.value(), headers=headers, timestamp=timestamp))
    finally:
        consumer.close()


@pytest.mark.client("data directories", "written by kafka, served by {reader}")
@pytest.mark.parametrize("reader", ["kafkad", pytest.param("kafka", marks=pytest.mark.long)])
def test_directory_of_kafka_is_served(reader: str, of_kafka: LeftBehind[dict[str, str]], tmp_path: Path) -> None:
    of_kafka.copy("stopped", tmp_path / "data")
    check_served(reader, tmp_path, of_kafka.told)


@pytest.mark.client("data directories", "written by kafkad, served by {reader}")
@pytest.mark.parametrize("reader", ["kafka", "kafkad"])
def test_directory_of_kafkad_is_served(reader: str, tmp_path: Path) -> None:
    with first_kafkad(tmp_path) as first:
        ids = write(first.bootstrap)
    check_served(reader, tmp_path, ids)


@pytest.mark.client("data directories", "of a kafka that was killed, served by kafkad")
def test_directory_of_a_killed_kafka_is_served(of_kafka: LeftBehind[dict[str, str]], tmp_path: Path) -> None:
    of_kafka.copy("killed", tmp_path / "data")
    check_served("kafkad", tmp_path, of_kafka.told)


@pytest.mark.client("data directories", "of a kafkad that was killed, served by kafka")
def test_kafka_serves_the_directory_of_a_killed_kafkad(tmp_path: Path) -> None:
    with first_kafkad(tmp_path) as first:
        ids = write(first.bootstrap)
        first.kill()
    check_served("kafka", tmp_path, ids)


def check_served(reader: str, scratch: Path, ids: dict[str, str]) -> None:
    with second_broker(reader, scratch) as second:
        assert topic_ids(AdminClient({"bootstrap.servers": second.bootstrap})) == ids
        for codec in CODECS:
            for partition in (0, 1):
                assert read(second.bootstrap, codec, partition) == sample(), (codec, partition)
        producer = Producer({"bootstrap.servers": second.bootstrap, "enable.idempotence": True})
        producer.produce("none", b"more", partition=0)
        assert producer.flush(SECONDS) == 0
        assert [m.value for m in read(second.bootstrap, "none", 0)[len(sample()) :]] == [b"more"]


@pytest.mark.client("data directories", "of another {difference}: refused")
@pytest.mark.parametrize("difference", ["cluster.id", "broker.id"])
def test_directory_of_another_broker_is_refused(
    difference: str, of_kafka: LeftBehind[dict[str, str]], tmp_path: Path
) -> None:
    of_kafka.copy("stopped", tmp_path / "data")
    if difference == "broker.id":
        kafkad = KafkadProcess(tmp_path / "second", {"broker.id": "2"}, log_dirs=[tmp_path / "data"])
    else:
        own = KafkadProcess(tmp_path / "own")
        with own:
            pass
        kafkad = KafkadProcess(tmp_path / "own", log_dirs=[own.log_directory(), tmp_path / "data"])
    kafkad.start(wait=False)
    assert kafkad.process is not None
    assert kafkad.process.wait(SECONDS) != 0
    assert difference.partition(".")[0] in kafkad.log.rpartition("cannot start")[2]
