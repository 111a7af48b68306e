"""A topic written exactly once by a job on executors, whose processes are killed one after another at any moment."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafkad_etl.errors import EtlExit
from tests.oracle.kafka import Kafka
from tests.spark.test_kills import Run, processes
from tests.spark.test_standalone import Standalone, standalone

__all__ = ["standalone"]

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.java, pytest.mark.timeout(1800)]

ROWS, PER_BATCH = 40_000, 1000
PARTITIONS = 2
SEEDED = random.Random(15)
JOB = """version: 1
name: TOPIC
kafka: {bootstrap: [BOOTSTRAP]}
source: {topics: [TOPIC], rows_per_batch: PER_BATCH}
value: {format: json, schema: "id BIGINT"}
sink: {type: topic, topic: {topic: TOPIC-out, key: id, delivery: exactly-once}}
spark: {master: "MASTER", driver_memory: 700m, executor_memory: 512m}
"""


@pytest.fixture
def topic(kafka: Kafka, standalone: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"exactly-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for each in admin.create_topics([NewTopic(name, PARTITIONS, 1), NewTopic(f"{name}-out", PARTITIONS, 1)]).values():
        each.result(30)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(ROWS):
        producer.produce(name, f'{{"id": {number}}}', partition=number % PARTITIONS)
    producer.flush()
    words = {"PER_BATCH": str(PER_BATCH), "TOPIC": name, "BOOTSTRAP": kafka.bootstrap, "MASTER": standalone.url}
    text = JOB
    for word, value in words.items():
        text = text.replace(word, value)
    (tmp_path / "job.yaml").write_text(text)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return f"{name}-out"


def committed(kafka: Kafka, topic: str) -> Counter[int]:
    """What a reader of committed records sees, up to the first open transaction."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: Counter[int] = Counter()
    ends = 0
    while ends < PARTITIONS:
        for message in consumer.consume(1000, 1):
            if message.error():
                ends += 1
            else:
                found[int(message.key() or b"")] += 1
    consumer.close()
    return found


def whole_batches(kafka: Kafka, topic: str) -> bool:
    """A batch reads its share of each partition: so it has a run of numbers, and is there whole."""
    found = committed(kafka, topic)
    return set(found.values()) <= {1} and sorted(found) == list(range(len(found))) and len(found) % PER_BATCH == 0


def executors(directory: Path) -> Iterator[int]:
    return (pid for pid, words in processes(directory).items() if "CoarseGrainedExecutorBackend" in words)


def driver(directory: Path) -> Iterator[int]:
    return (pid for pid, words in processes(directory).items() if "SparkSubmit" in words)


def test_every_row_is_there_once_whatever_was_killed(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    for victims in (executors, driver, executors, driver):
        run = Run()
        try:
            run.until("batch")
            time.sleep(SEEDED.uniform(0, 2))
            for pid in victims(tmp_path):
                os.kill(pid, signal.SIGKILL)
            if victims is executors:
                run.until("batch")  # others take over
            else:
                assert run.end()[0] == EtlExit.FAILED
        finally:
            run.process.send_signal(signal.SIGINT)
            run.end()
        end = time.monotonic() + 60
        while not whole_batches(kafka, topic):
            assert time.monotonic() < end, sorted(committed(kafka, topic).items())[-5:]
            time.sleep(0.5)
    run = Run()
    run.until("summary")  # however many batches are left
    code, said = run.end()
    assert code == EtlExit.DONE, said
    assert committed(kafka, topic) == Counter(range(ROWS))
