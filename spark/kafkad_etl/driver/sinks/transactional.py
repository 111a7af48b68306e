"""Sink `topic` with `delivery: exactly-once`: a batch's rows and its number become visible together, or not at all.

A transaction has one producer, and executors come and go: so executors compute the rows, and the driver's producer
writes them all, one transaction for each batch. In the same transaction it commits the number of the batch that comes
next, as the offset of a consumer group that bears the name of the transactional id: job and checkpoint. A run that
follows a crash takes over that id first, which ends what was left open, and then asks for this mark: it says whether
the interrupted batch is there.

Kafka forgets the offsets of groups without members after offsets.retention.minutes. So each run commits the mark anew,
at its start and once a day without batches, and a batch of which nobody can say whether it was written ends the run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from kafkad_etl.driver.compiling import loaded
from kafkad_etl.driver.failures import sending_to
from kafkad_etl.driver.paths import Storage, join, storage_of
from kafkad_etl.driver.sinks.publisher import CLASS, SOURCE
from kafkad_etl.driver.sinks.topic import OPTIONS, Records, producer
from kafkad_etl.driver.terms import BatchId, DataFrame, JobFailed, Written
from kafkad_etl.facts import delivery_name
from kafkad_etl.job import TopicSink as Settings
from kafkad_etl.messages import Failed, Plan

TIMEOUT_MS = 900_000
"""transaction.timeout.ms: the most that brokers allow by default. Rows are computed before a transaction begins."""
RENEWED_SECONDS = 86_400.0
"""How old a mark gets; brokers keep it for seven days by default."""
COLUMNS = {
    "value": "BINARY",
    "key": "BINARY",
    "partition": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
"""What the publisher takes, in this order."""


class TransactionalSink:
    def __init__(self, spark: Any, plan: Plan, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._spark = spark
        self._plan = plan
        self._settings = settings
        self._records = Records(spark, plan, settings)
        self._name = delivery_name(plan.job.name, plan.checkpoint_id)
        self._publisher: Any = None
        self._class: Any = None
        self._mark: Mark | None = None
        self._doubtful: int | None = None
        """The batch that an earlier run began, and perhaps finished."""
        self._using = threading.Lock()
        """Held by who uses the publisher, which has one transaction at a time."""
        self._clock = clock
        self._marked = clock()

    def prepare(self, columns: list[tuple[str, str]]) -> None:
        self._records.check(columns)
        self._class = loaded(self._spark, SOURCE, CLASS)
        files = storage_of(self._spark, self._plan.checkpoint)
        planned, committed = (newest(files, self._plan.checkpoint, name) for name in ("offsets", "commits"))
        self._doubtful = planned if planned > committed else None
        self._open()
        was_written(self._mark, max(planned, 0), self._doubtful, self._name)
        if self._doubtful is None:
            self._publisher.mark(committed + 1)
            self._mark = Mark(committed + 1, 0)

    def finished(self, batch: BatchId) -> Written | None:
        with self._using:
            if self._publisher is None:
                self._open()
        if was_written(self._mark, batch.number, self._doubtful, self._name):
            assert self._mark is not None
            return Written(self._mark.rows)
        return None

    def write(self, rows: DataFrame, batch: BatchId) -> Written:
        records = self._with_all_columns(rows.select(*self._records.of(rows))).persist()
        try:
            records.count()  # by all executors; from here on the rows are only fetched
            with self._using:
                return Written(self._published(records._jdf.toLocalIterator(), batch.number))
        finally:
            records.unpersist()

    def _published(self, rows: Any, batch: int) -> int:
        if self._publisher is None:
            self._open()
        try:
            with sending_to(self._settings.topic, OPTIONS):
                count = int(self._publisher.publish(rows, batch))
        except BaseException:
            self._close()  # whoever comes next takes over, and sees what became of it
            raise
        self._mark, self._marked = Mark(batch + 1, count), self._clock()
        return count

    def renew(self) -> None:
        if self._clock() - self._marked < RENEWED_SECONDS or not self._using.acquire(blocking=False):
            return  # it is young, or a batch is being written
        self._marked = self._clock()  # also if it fails: the next time is early enough
        try:
            if self._publisher is None:
                self._open()
            if self._mark is not None:
                self._publisher.mark(self._mark.following)
        except Exception:
            self._close()
        finally:
            self._using.release()

    def _with_all_columns(self, records: DataFrame) -> DataFrame:
        there = records.columns
        return records.selectExpr(
            *(f"CAST({name if name in there else 'NULL'} AS {kind}) AS {name}" for name, kind in COLUMNS.items())
        )

    def _open(self) -> None:
        """Takes over the transactional id: what an earlier run has left open is over when this returns."""
        jvm = self._spark._jvm
        settings = jvm.java.util.HashMap()
        options = {"transaction.timeout.ms": str(TIMEOUT_MS), **producer(self._plan.sink_client, self._settings)}
        for name, value in options.items():
            settings.put(name, value)
        gateway = self._spark.sparkContext._gateway
        nothing = gateway.new_array(jvm.java.lang.Class, 0), gateway.new_array(jvm.java.lang.Object, 0)
        publisher = self._class.getConstructor(nothing[0]).newInstance(nothing[1])
        try:
            publisher.open(settings, self._settings.topic, self._name)
            self._mark = mark_of(publisher.find())
        except BaseException:
            publisher.close()
            raise
        self._publisher = publisher

    def _close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None


class Mark:
    """What the group says: the batch that comes next, and how many rows the one before had."""

    def __init__(self, following: int, rows: int) -> None:
        self.following = following
        self.rows = rows


def mark_of(text: str | None) -> Mark | None:
    """As the publisher finds it: the offset and its metadata."""
    if text is None:
        return None
    following, _, rows = text.partition(" ")
    return Mark(int(following), int(rows) if rows.isdecimal() else 0)


def was_written(mark: Mark | None, number: int, doubtful: int | None, name: str) -> bool:
    """True if the mark says that this batch is there. Raises JobFailed if it may be there and the mark does not say,
    or if later ones are."""
    if mark is not None and mark.following > number + 1:
        text = f"the checkpoint is at batch {number}, but group {name} says that batch {mark.following - 1} was written"
        hints = ["restore the checkpoint, or set another run.checkpoint to start over at source.start"]
        raise JobFailed(Failed(kind="checkpoint", text=text, hints=hints))
    if number == doubtful and (mark is None or mark.following < number):
        there = "is gone" if mark is None else f"is of batch {mark.following - 1}"
        text = (
            f"batch {number} was interrupted, and nobody knows whether it was written: the mark in group {name} {there}"
        )
        hints = [
            "brokers forget it after offsets.retention.minutes without a run",
            "a run with --set sink.topic.delivery=at-least-once writes the batch, perhaps a second time",
        ]
        raise JobFailed(Failed(kind="checkpoint", text=text, hints=hints))
    return mark is not None and mark.following == number + 1


def newest(files: Storage, checkpoint: str, name: str) -> int:
    """The last batch in this log of Spark's; -1 if there is none."""
    return max((int(entry.path) for entry in files.under(join(checkpoint, name)) if entry.path.isdecimal()), default=-1)
