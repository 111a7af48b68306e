"""Topics written exactly once: what the mark says, and real transactions on a real Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafkad_etl.driver.failures import failure_of
from kafkad_etl.driver.sinks.transactional import Mark, TransactionalSink, mark_of, was_written
from kafkad_etl.driver.terms import BatchId, JobFailed, Written
from kafkad_etl.job import Job, TopicSink
from kafkad_etl.messages import Plan
from tests.oracle.kafka import Kafka
from tests.spark.driver.rows import IN_PROCESS, plan_of

ID = "1f2e3d"


@pytest.mark.parametrize(
    ("following", "number", "doubtful", "written"),
    [
        (None, 0, None, False),
        (0, 0, None, False),
        (0, 0, 0, False),
        (1, 0, 0, True),
        (5, 5, 5, False),
        (6, 5, 5, True),
        (6, 5, None, True),
        (None, 5, None, False),
        (3, 5, None, False),
    ],
)
def test_the_mark_says_whether_a_batch_is_there(
    following: int | None, number: int, doubtful: int | None, written: bool
) -> None:
    mark = None if following is None else Mark(following, 7)
    assert was_written(mark, number, doubtful, "g") is written


@pytest.mark.parametrize(
    ("following", "number", "doubtful", "told"),
    [
        (None, 0, 0, "batch 0 was interrupted, and nobody knows whether it was written: the mark in group g is gone"),
        (3, 5, 5, "the mark in group g is of batch 2"),
        (8, 5, None, "the checkpoint is at batch 5, but group g says that batch 7 was written"),
        (8, 5, 5, "the checkpoint is at batch 5, but group g says that batch 7 was written"),
    ],
)
def test_where_the_mark_does_not_say_nothing_is_written(
    following: int | None, number: int, doubtful: int | None, told: str
) -> None:
    mark = None if following is None else Mark(following, 7)
    with pytest.raises(JobFailed) as error:
        was_written(mark, number, doubtful, "g")
    assert (error.value.failed.kind, error.value.failed.retriable) == ("checkpoint", False)
    assert told in error.value.failed.text


def test_a_mark_as_it_is_found() -> None:
    marks = [mark_of(text) for text in ("4 1200", "4 ", None)]
    assert [mark and (mark.following, mark.rows) for mark in marks] == [(4, 1200), (4, 0), None]


class Marks:
    """In place of the publisher: what it marks, and whether it is closed."""

    def __init__(self, *failures: Exception) -> None:
        self.marked: list[int] = []
        self.is_closed = False
        self._failures = list(failures)

    def mark(self, following: int) -> None:
        self.marked.append(following)
        if self._failures:
            raise self._failures.pop(0)

    def close(self) -> None:
        self.is_closed = True


def idle_sink(now: list[float], publisher: Marks) -> TransactionalSink:
    """Whose last batch was number 4."""
    settings = TopicSink(topic="t", delivery="exactly-once")
    sink = TransactionalSink(None, plan_of({}), settings, lambda: now[0])
    sink._publisher, sink._mark = publisher, Mark(5, 7)
    return sink


def test_without_batches_the_mark_is_made_anew_once_a_day() -> None:
    now, marks = [0.0], Marks()
    sink = idle_sink(now, marks)
    for hour in range(60):
        now[0] = hour * 3600.0
        sink.renew()
    assert marks.marked == [5, 5]


def test_a_mark_that_cannot_be_made_anew_has_the_next_batch_take_over() -> None:
    now, marks = [0.0], Marks(OSError("no broker"))
    sink = idle_sink(now, marks)
    now[0] = 86_400.0
    sink.renew()
    assert (marks.marked, marks.is_closed, sink._publisher) == ([5], True, None)


def test_a_mark_is_not_made_anew_in_the_middle_of_a_batch() -> None:
    now, marks = [0.0], Marks()
    sink = idle_sink(now, marks)
    now[0] = 86_400.0
    with sink._using:
        sink.renew()
    assert marks.marked == []
    sink.renew()
    assert marks.marked == [5]


class Sinks:
    """One job's sinks, each as if in a new process."""

    def __init__(self, spark: Any, kafka: Kafka, checkpoint: Path, topic: str, **options: object) -> None:
        sink = {"type": "topic", "topic": {"topic": topic, "delivery": "exactly-once", "key": "id", "options": options}}
        job = {"version": 1, "name": "orders", "source": {"topics": ["t"]}, "sink": sink}
        self.spark = spark
        self.topic = topic
        self.kafka = kafka
        self.checkpoint = checkpoint
        self.plan = Plan(
            task="run",
            job=msgspec.convert(job, Job),
            mode="available-now",
            reading=None,
            checkpoint=str(checkpoint),
            checkpoint_id=f"{ID}-{topic}",
            sink_client={"bootstrap.servers": kafka.bootstrap},
        )
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)

    def rows(self, first: int, last: int) -> Any:
        return self.spark.range(first, last, 1, 3)

    def begun(self) -> TransactionalSink:
        assert self.plan.job.sink.topic is not None
        sink = TransactionalSink(self.spark, self.plan, self.plan.job.sink.topic)
        sink.prepare([("id", "bigint")])
        return sink

    def spark_has(self, planned: int, committed: int) -> None:
        for name, last in (("offsets", planned), ("commits", committed)):
            for number in range(last + 1):
                (self.checkpoint / name).mkdir(parents=True, exist_ok=True)
                (self.checkpoint / name / str(number)).touch()

    def read(self) -> list[int]:
        """The keys of all records that readers of committed ones see."""
        settings = {"bootstrap.servers": self.kafka.bootstrap, "group.id": "reader", "enable.partition.eof": True}
        consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
        consumer.assign([TopicPartition(self.topic, partition, 0) for partition in (0, 1)])
        found, ends = [], 0
        while ends < 2:
            for message in consumer.consume(1000, 1):
                if message.error():
                    ends += 1
                else:
                    found.append(int(message.key() or b""))
        consumer.close()
        return sorted(found)


def batch(number: int) -> BatchId:
    return BatchId(number, ID, {}, {})


EXHAUSTED = """
public class Exhausted implements java.util.Iterator {
    public boolean hasNext() {
        throw new OutOfMemoryError("no memory is left");
    }
    public Object next() {
        return null;
    }
    public void remove() {
    }
}
"""
"""Rows of which not one comes, for a reason that is no exception but an error."""

IN_KAFKA = [*IN_PROCESS, pytest.mark.java]


class TestOnKafka:
    pytestmark = IN_KAFKA

    def test_a_batch_is_there_once_however_often_it_is_repeated(self, spark: Any, kafka: Kafka, tmp_path: Path) -> None:
        sinks = Sinks(spark, kafka, tmp_path, "exactly-once")
        first = sinks.begun()
        assert first.finished(batch(0)) is None
        assert first.write(sinks.rows(0, 100), batch(0)) == Written(100)
        sinks.spark_has(planned=0, committed=-1)
        second = sinks.begun()  # the driver was killed before Spark noted the batch
        assert second.finished(batch(0)) == Written(100)
        sinks.spark_has(planned=0, committed=0)
        assert second.finished(batch(1)) is None
        with pytest.raises(Exception, match="divide") as error:
            second.write(sinks.rows(100, 200).selectExpr("id", "id / (id - 150) AS no"), batch(1))
        assert not failure_of(error.value).retriable
        assert second.finished(batch(1)) is None
        assert second.write(sinks.rows(100, 200), batch(1)) == Written(100)
        with pytest.raises(Exception) as fenced:
            first.write(sinks.rows(100, 200), batch(1))  # a driver that nobody waits for any more
        assert failure_of(fenced.value).retriable
        assert sinks.read() == list(range(200))

    def test_whatever_fails_in_a_transaction_ends_it(self, spark: Any, kafka: Kafka, tmp_path: Path) -> None:
        sink = Sinks(spark, kafka, tmp_path, "exactly-aborted").begun()
        compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(EXHAUSTED)
        gateway = spark.sparkContext._gateway
        nothing = gateway.new_array(spark._jvm.java.lang.Class, 0), gateway.new_array(spark._jvm.java.lang.Object, 0)
        rows = compiler.getClassLoader().loadClass("Exhausted").getConstructor(nothing[0]).newInstance(nothing[1])
        with pytest.raises(Exception, match="no memory is left"):
            sink._publisher.publish(rows, 0)
        sink._publisher.mark(0)  # a transaction of its own, while none is open

    def test_what_nobody_knows_is_not_written(self, spark: Any, kafka: Kafka, tmp_path: Path) -> None:
        sinks = Sinks(spark, kafka, tmp_path, "exactly-unknown")
        sinks.spark_has(planned=4, committed=3)
        with pytest.raises(JobFailed, match="batch 4 was interrupted, and nobody knows whether it was written"):
            sinks.begun()
        sinks.spark_has(planned=4, committed=4)
        sinks.begun()  # nothing is in doubt, and the mark is made
        sinks.spark_has(planned=5, committed=4)
        sink = sinks.begun()
        assert sink.finished(batch(5)) is None
        assert sinks.read() == []

    def test_a_time_that_brokers_do_not_allow(self, spark: Any, kafka: Kafka, tmp_path: Path) -> None:
        sinks = Sinks(spark, kafka, tmp_path, "exactly-long", **{"transaction.timeout.ms": 10_000_000})
        with pytest.raises(Exception) as error:
            sinks.begun()
        failed = failure_of(error.value)
        assert (failed.kind, failed.retriable) == ("sink", False), failed
        assert failed.text == "the brokers do not allow transactions of that length"
