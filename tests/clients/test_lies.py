"""Batches with a true CRC and lying contents, sent to kafkad: whoever reads the topic gets past all that was taken."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition

from kafkad.wire.frames import RequestHeader, encode_request
from kafkad.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkad.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker import KafkadProcess, RawClient
from tests.log.consistency import check
from tests.log.lies import COUNT, TOPICS, Lie, key, lies
from tests.log.produced import TOPICS as SETTINGS
from tests.log.test_lies import allowed
from tests.log.test_lies_oracle import end_of
from tests.log.test_validate_oracle import CREATE_TOPICS, PRODUCE, ask, produce

pytestmark = pytest.mark.slow

SECONDS = 60
NO_TEXT = "header key of bad UTF-8"
"""Kafka takes any bytes, and so do Java and librdkafka; kafka-python and confluent-kafka demand text."""
LIES = [lie for lie in lies() if NO_TEXT not in lie.name]


@pytest.fixture(scope="module")
def kafkad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkadProcess]:
    with KafkadProcess(tmp_path_factory.mktemp("lies"), {"log.cleaner.enable": "false"}) as running:
        yield running


@pytest.fixture(scope="module")
def told(kafkad: KafkadProcess) -> dict[str, dict[str, tuple[int, int]]]:
    """By topic and lie, the code and how far the end moved."""
    with RawClient(kafkad.port) as client:
        topics = [topic(name, SETTINGS[name]) for name in TOPICS]
        assert not any(
            one.error_code for one in ask(client, CREATE_TOPICS, 4, CreateTopicsRequest(topics=topics)).topics
        )
        return {name: {key(lie): tell(client, name, lie) for lie in LIES} for name in TOPICS}


def topic(name: str, settings: dict[str, str]) -> CreatableTopic:
    configs = [CreatableTopicConfig(name=setting, value=value) for setting, value in settings.items()]
    return CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)


def tell(client: RawClient, name: str, lie: Lie) -> tuple[int, int]:
    before = end_of(client, name)
    return produce(client, name, lie.batch, 8).error_code, end_of(client, name) - before


@pytest.mark.parametrize("name", TOPICS)
def test_the_end_moves_by_what_can_be_read(told: dict[str, dict[str, tuple[int, int]]], name: str) -> None:
    for lie in LIES:
        code, moved = told[name][key(lie)]
        assert code in allowed(name, lie), key(lie)
        assert moved == (0 if code else COUNT), key(lie)


@pytest.mark.parametrize("name", TOPICS)
def test_librdkafka_reads_to_the_end(
    kafkad: KafkadProcess, told: dict[str, dict[str, tuple[int, int]]], name: str
) -> None:
    end = sum(moved for _, moved in told[name].values())
    consumer = Consumer({"bootstrap.servers": kafkad.bootstrap, "group.id": "lies", "check.crcs": True})
    consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
    offsets: list[int | None] = []
    deadline = time.monotonic() + SECONDS
    while len(offsets) < end and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            assert message.error() is None
            offsets.append(message.offset())
    consumer.close()
    assert offsets == list(range(end))


@pytest.mark.parametrize("name", TOPICS)
def test_kafka_python_reads_to_the_end(
    kafkad: KafkadProcess, told: dict[str, dict[str, tuple[int, int]]], name: str
) -> None:
    end = sum(moved for _, moved in told[name].values())
    consumer = KafkaConsumer(
        bootstrap_servers=kafkad.bootstrap, auto_offset_reset="none", enable_auto_commit=False, check_crcs=True
    )
    partition = PythonTopicPartition(name, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    offsets: list[int] = []
    deadline = time.monotonic() + SECONDS
    while len(offsets) < end and time.monotonic() < deadline:
        offsets += [record.offset for record in consumer.poll(500).get(partition, [])]
    consumer.close()
    assert offsets == list(range(end))


def test_without_answers_the_connection_closes_and_the_end_stays(kafkad: KafkadProcess) -> None:
    poison = next(lie for lie in LIES if key(lie) == "none: 2147483647 records")
    with RawClient(kafkad.port) as client:
        ask(client, CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic("silent", {})]))
        data = [TopicProduceData(name="silent", partition_data=[PartitionProduceData(index=0, records=poison.batch)])]
        request = ProduceRequest(acks=0, timeout_ms=5000, topic_data=data)
        client.send(encode_request(RequestHeader(PRODUCE, 8, 1, "lies"), request))
        assert client.socket.recv(1) == b""
    with RawClient(kafkad.port) as client:
        assert end_of(client, "silent") == 0


def test_a_repeated_request_is_looked_into_as_the_first(kafkad: KafkadProcess) -> None:
    """The same bytes up to the batch find their partition by those bytes: what follows may lie all the same."""
    with RawClient(kafkad.port) as client:
        ask(client, CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic("repeated", {})]))
        true = next(lie for lie in LIES if key(lie) == "none: nothing but the truth")
        for lie in (true, true, *LIES):
            before = end_of(client, "repeated")
            code = produce(client, "repeated", lie.batch, 8).error_code
            assert code in allowed("plain", lie), key(lie)
            assert end_of(client, "repeated") - before == (0 if code else COUNT), key(lie)


def test_what_was_taken_is_sound_on_disk(kafkad: KafkadProcess, told: dict[str, dict[str, tuple[int, int]]]) -> None:
    kafkad.restart()
    for name in TOPICS:
        assert told[name]
        assert check(str(Path(kafkad.log_directory()) / f"{name}-0")) == []
