"""Records as Spark's Kafka source gives them, and plans to parse them by."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from kafkad_etl.driver.terms import BatchId, DataFrame, Written
from kafkad_etl.job import Job, Mode, Offsets
from kafkad_etl.messages import Batch, Event, Plan, Reading, Schema, Stop

IN_PROCESS = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Py4J leaves sockets to be collected
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

RECORD = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
Bytes = bytes | None
T = TypeVar("T")


def records(spark: Any, *values: Bytes | tuple[Bytes, Bytes]) -> Any:
    """Values, or keys and values, of `orders-0` from offset 0."""
    pairs = [each if isinstance(each, tuple) else (None, each) for each in values]
    time = datetime(2026, 11, 1, tzinfo=UTC)
    rows = [(key, value, "orders", 0, offset, time, 0, None) for offset, (key, value) in enumerate(pairs)]
    return spark.createDataFrame(rows, RECORD)


def plan_of(blocks: dict[str, Any], *, mode: Mode = "batch", schema: Schema | None = None) -> Plan:
    """`blocks` of the job file, beside those that every file has."""
    file = {"version": 1, "name": "a", "source": {"topics": ["orders"]}, "sink": {"type": "none"}} | blocks
    job = msgspec.convert(file, Job)
    orders = Reading(
        client={}, how="subscribe", what="orders", start={"orders": {0: 0}}, end={}, fail_on_data_loss=True
    )

    def declared(part: Any) -> Schema | None:
        return Schema("ddl", part.schema) if part.schema else None

    return Plan(
        task="run",
        job=job,
        mode=mode,
        reading=None if job.source.files else orders,
        value_schema=schema or declared(job.value),
        key_schema=declared(job.key),
    )


def produced(bootstrap: str, topic: str, records: list[tuple[int, Bytes, Bytes]], *, partitions: int) -> None:
    """A new topic with these: partition, key and value of each."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)
    added(bootstrap, topic, records)


def added(bootstrap: str, topic: str, records: list[tuple[int, Bytes, Bytes]]) -> None:
    """These at the end of a topic."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 10**6})
    for partition, key, value in records:
        producer.produce(topic, key=key, value=value, partition=partition)
    assert producer.flush(30) == 0


def ends(bootstrap: str, topic: str, partitions: int) -> Offsets:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    try:
        marks = [consumer.get_watermark_offsets(TopicPartition(topic, p), 20) for p in range(partitions)]
    finally:
        consumer.close()
    return {topic: {p: high for p, (_, high) in enumerate(marks)}}


def live_plan(
    bootstrap: str, topic: str, partitions: int, blocks: dict[str, Any], checkpoint: Path, *, limit: int = 0
) -> Plan:
    """Of a job that reads a whole topic."""
    plan = plan_of({"source": {"topics": [topic], "rows_per_batch": 500}, "run": {"mode": "available-now"}} | blocks)
    client = {"bootstrap.servers": bootstrap}
    reading = Reading(
        client=client,
        how="subscribe",
        what=topic,
        start={topic: dict.fromkeys(range(partitions), 0)},
        end=ends(bootstrap, topic, partitions),
        fail_on_data_loss=True,
    )
    return msgspec.structs.replace(
        plan,
        mode=plan.job.run.mode,
        reading=reading,
        checkpoint=str(checkpoint),
        owner=str(checkpoint),
        checkpoint_id="0123abcd",
        dead_letter_client=client,
        sink_client=client,
        limit=limit,
    )


class Front:
    """Keeps what it is told; `stop_at`: what it says when it hears of that batch."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.events: list[Event] = []
        self.stop: Stop | None = None
        self._stop_at = stop_at

    def send(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Batch) and event.batch == self._stop_at:
            self.stop = Stop()

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]


class Kept:
    """A sink that keeps rows in memory, and fails when it is told to."""

    def __init__(self, *failures: Exception) -> None:
        self.batches: dict[int, list[Any]] = {}
        self._failures = list(failures)

    @property
    def rows(self) -> list[Any]:
        return [row for batch in self.batches.values() for row in batch]

    def prepare(self, columns: list[tuple[str, str]]) -> None:
        """Takes all columns."""

    def finished(self, batch: BatchId) -> Written | None:
        return None

    def write(self, rows: DataFrame, batch: BatchId) -> Written:
        self.batches[batch.number] = rows.collect()
        if self._failures:
            raise self._failures.pop(0)
        return Written(len(self.batches[batch.number]))
