"""Transactional producers of all clients: what they commit is read as a whole, and what they abort is not."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

from tests.clients.conftest import Broker
from tests.oracle.kafka import missing, tool

SECONDS = 30


@pytest.fixture
def topic(broker: Broker, name: Callable[[], str]) -> str:
    made = name()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(made, 2, 1)])[made].result(SECONDS)
    return made


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
        }
    )
    yield consumer
    consumer.close()


def committed(consumer: Consumer, topic: str) -> list[bytes]:
    """What a reader finds up to the end of both partitions."""
    consumer.assign([TopicPartition(topic, index, 0) for index in range(2)])
    ends, values = 0, []
    while ends < 2:
        message = consumer.poll(SECONDS)
        assert message is not None, "no end of the partition was reached"
        error = message.error()
        if error is None:
            values.append(message.value() or b"")
        else:
            assert error.code() == KafkaError._PARTITION_EOF
            ends += 1
    return sorted(values)


def transactional(broker: Broker, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(SECONDS)
    return producer


@pytest.mark.client("confluent-kafka", "transactions")
def test_confluent(broker: Broker, topic: str, consumer: Consumer) -> None:
    producer = transactional(broker, topic)
    for number in range(10):
        producer.begin_transaction()
        for index in range(2):
            producer.produce(topic, b"%d-%d" % (number, index), partition=index)
        if number % 3:
            producer.commit_transaction(SECONDS)
        else:
            producer.abort_transaction(SECONDS)
    expected = sorted(b"%d-%d" % (number, index) for number in range(10) if number % 3 for index in range(2))
    assert committed(consumer, topic) == expected


@pytest.mark.client("confluent-kafka", "offsets in transactions")
def test_confluent_commits_offsets_in_transactions(broker: Broker, topic: str, consumer: Consumer) -> None:
    producer = transactional(broker, topic)
    position = [TopicPartition(topic, 0, 7)]
    for commit in (False, True):
        producer.begin_transaction()
        producer.produce(topic, b"v", partition=0)
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), SECONDS)
        if commit:
            producer.commit_transaction(SECONDS)
        else:
            producer.abort_transaction(SECONDS)
        [found] = consumer.committed([TopicPartition(topic, 0)], SECONDS)
        assert found.offset == (7 if commit else -1001)
    assert committed(consumer, topic) == [b"v"]


@pytest.mark.client("confluent-kafka", "fencing")
def test_confluent_fences_the_producer_before(broker: Broker, topic: str, consumer: Consumer) -> None:
    first = transactional(broker, topic)
    first.begin_transaction()
    first.produce(topic, b"first", partition=0)
    first.flush(SECONDS)
    second = transactional(broker, topic)
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(SECONDS)
    assert fenced.value.args[0].fatal()
    second.begin_transaction()
    second.produce(topic, b"second", partition=0)
    second.commit_transaction(SECONDS)
    assert committed(consumer, topic) == [b"second"]


@pytest.mark.client("aiokafka", "transactions")
def test_aiokafka(broker: Broker, topic: str, consumer: Consumer) -> None:
    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic) as producer:
            for number in range(6):
                await producer.begin_transaction()
                for index in range(2):
                    await producer.send_and_wait(topic, b"%d-%d" % (number, index), partition=index)
                if number % 2:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()

    asyncio.run(produce())
    assert committed(consumer, topic) == sorted(b"%d-%d" % (number, index) for number in (1, 3, 5) for index in (0, 1))


@pytest.mark.client("kafka-python", "transactions")
def test_kafka_python(broker: Broker, topic: str, consumer: Consumer) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic)
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        for index in range(2):
            producer.send(topic, b"%d-%d" % (number, index), partition=index)
        if number % 2:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    assert committed(consumer, topic) == [b"1-0", b"1-1", b"3-0", b"3-1"]


def run(*words: str | Path) -> None:
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_franz_go(broker: Broker, topic: str, consumer: Consumer, franz: Path) -> None:
    run(franz, broker.bootstrap, topic, "produce")
    expected = sorted(b"%d-%d" % (number, index) for number in range(10) if number % 3 for index in range(2))
    assert committed(consumer, topic) == expected


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_franz_go_moves_each_record_once(
    broker: Broker, topic: str, name: Callable[[], str], consumer: Consumer, franz: Path
) -> None:
    """With the offsets of what it has read in the same transactions."""
    source = name()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(source, 2, 1)])[source].result(SECONDS)
    producer = transactional(broker, source)
    values = [b"%03d" % number for number in range(200)]
    for begin in range(0, len(values), 50):
        producer.begin_transaction()
        for value in values[begin : begin + 50]:
            producer.produce(source, value, partition=int(value) % 2)
        producer.commit_transaction(SECONDS)
        producer.begin_transaction()
        producer.produce(source, b"aborted", partition=0)
        producer.flush(SECONDS)
        producer.abort_transaction(SECONDS)
    run(franz, broker.bootstrap, topic, "copy", source, str(len(values)))
    assert committed(consumer, topic) == values


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize("release", ["3.9", "4.3"])
@pytest.mark.client("Kafka's Java producer", "transactions")
def test_java(broker: Broker, topic: str, consumer: Consumer, release: str) -> None:
    """4.3 asks in the newest versions, as far as the broker tells it a transaction.version."""
    if reason := missing(release):
        pytest.skip(reason)
    words = (
        f"--topic {topic} --num-records 400 --record-size 20 --throughput 1000 "
        f"--transaction-duration-ms 20 --transactional-id {topic}"
    ).split()
    ran = subprocess.run(
        [*tool(release, "producer-perf", *words), "--producer-props", f"bootstrap.servers={broker.bootstrap}"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert "400 records sent" in ran.stdout
    assert len(committed(consumer, topic)) == 400
