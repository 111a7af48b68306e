"""Task `run`: processes batches until there are no more or a stop is requested, and retries after transient errors."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any, NamedTuple

from kafkad_etl.driver.batches import offset_log, transform
from kafkad_etl.driver.batches.batch import BatchResult
from kafkad_etl.driver.batches.open_windows import open_windows
from kafkad_etl.driver.batches.stateful import Learned, StatefulBatches, observed_of
from kafkad_etl.driver.batches.stateless import StatelessBatches
from kafkad_etl.driver.columns import columns_of
from kafkad_etl.driver.failures import failure_of, sql_failed
from kafkad_etl.driver.paths import join, storage_of
from kafkad_etl.driver.source.bad_rows import write_dead_letters
from kafkad_etl.driver.source.parser import Parser
from kafkad_etl.driver.source.reader import PlannedSource
from kafkad_etl.driver.tasks.executors import Executors
from kafkad_etl.driver.tasks.limits import enough, idle_since, limits_of
from kafkad_etl.driver.tasks.progress import batch_of, recent, tasks_of
from kafkad_etl.driver.terms import BatchId, Front, JobFailed, Renewing, Sink, Source, WriteLetters
from kafkad_etl.facts import duration_ms, is_stateful, topics_text
from kafkad_etl.messages import EndReason, Failed, Plan, Query, Retrying, Warned

POLL_SECONDS = 0.1
TASKS_EVERY = 0.5


class Halted(Exception):
    """A batch started after a stop was requested; it will be repeated by the next run."""


class Edges(NamedTuple):
    """What a run reads from and writes to."""

    source: Source
    sink: Sink
    write_letters: WriteLetters


def edges_of(spark: Any, plan: Plan, sink: Sink) -> Edges:
    """Those that the Plan names."""
    return Edges(PlannedSource(spark, plan), sink, partial(write_dead_letters, plan))


def run(spark: Any, plan: Plan, front: Front, edges: Edges) -> EndReason:
    retries = plan.job.run.retries
    attempt = 0
    job_run = _BatchRun(spark, plan, front, edges) if plan.mode == "batch" else _StreamRun(spark, plan, front, edges)
    job_run.prepare()
    while True:
        batches = job_run.finished
        try:
            return job_run.run()
        except Learned:
            continue
        except JobFailed as error:
            failed = error.failed
            attempt = attempt + 1 if job_run.finished == batches else 1
            if not failed.retriable or attempt > retries.max or front.stop:
                raise
            wait = duration_ms(retries.backoff) / 1000 * 2 ** (attempt - 1)
            front.send(Retrying(text=failed.text, seconds=wait, attempt=attempt, most=retries.max))
            _sleep(wait, front)


def _sleep(seconds: float, front: Front) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not front.stop:
        time.sleep(POLL_SECONDS)


class _Run:
    """The setup shared by both kinds of runs."""

    def __init__(self, spark: Any, plan: Plan, front: Front, edges: Edges) -> None:
        self._spark, self._plan, self._front = spark, plan, front
        self._source, self._sink, self._write_letters = edges
        self._told = 0.0
        self._columns: list[tuple[str, str]] | None = None
        """Of what is written, until the front has been told that the query runs."""
        self.finished = 0
        """Number of finished batches, so that a batch failing after successful ones gets as many attempts as the
        first."""
        self._parser = Parser(spark, plan)
        self._executors = Executors(spark, self._warn)
        self._stateless = StatelessBatches(plan, self._parser, self._sink, self._write_letters, self._warn)

    def prepare(self) -> None:
        """Finds errors in the SQL, and mismatches with the sink, without reading anything."""
        transform.create_lookups(self._spark, self._plan.job)
        self._columns = self._result_columns()
        self._sink.prepare(self._columns)

    def _tell_running(self) -> None:
        """Once: a retry is still the same run."""
        if self._columns is not None:
            self._front.send(Query(self._columns))
            self._columns = None

    def _result_columns(self) -> list[tuple[str, str]]:
        read = self._source.everything if self._plan.mode == "batch" else self._source.stream
        return self._stateless.prepare(self._spark.createDataFrame([], read().schema))

    def _warn(self, text: str) -> None:
        self._front.send(Warned(text))

    def _tell_tasks(self, batch: int, group: str) -> None:
        if time.monotonic() - self._told >= TASKS_EVERY:
            self._told = time.monotonic()
            tasks = tasks_of(self._spark, batch, group)
            if tasks:
                self._front.send(tasks)
                self._executors.look(time.monotonic())


class _BatchRun(_Run):
    """A run in mode batch: a single read from start to end, in a thread, so that the main thread can watch and
    report."""

    def run(self) -> EndReason:
        outcomes: list[BatchResult] = []
        errors: list[BaseException] = []

        group = self._plan.job.name

        def work() -> None:
            self._spark.sparkContext.setJobGroup(group, group)
            try:
                outcomes.append(self._read())
            except BaseException as error:  # handed to the main thread
                errors.append(error)

        from pyspark import InheritableThread

        worker = InheritableThread(target=work, daemon=True)
        worker.start()
        self._tell_running()
        while worker.is_alive():
            worker.join(POLL_SECONDS)
            self._tell_tasks(0, group)
        if errors:
            raise JobFailed(failure_of(errors[0])) from errors[0]
        self._front.send(batch_of(outcomes[0], None))
        return "done"

    def _read(self) -> BatchResult:
        reading = self._plan.reading
        start, end = (reading.start, reading.end) if reading else ({}, {})
        return self._stateless.process(self._source.everything(), BatchId(0, self._plan.checkpoint_id, start, end))


class _StreamRun(_Run):
    """A run of micro-batches. Spark calls back for each batch; this class watches over the query."""

    def __init__(self, spark: Any, plan: Plan, front: Front, edges: Edges) -> None:
        super().__init__(spark, plan, front, edges)
        self._files = storage_of(spark, plan.checkpoint)
        self._deleted = plan.reading.deleted if plan.reading else []
        self._stateful = None
        if is_stateful(plan.job):
            self._stateful = StatefulBatches(plan, self._parser, *edges, self._warn)
        self._query: Any = None
        self._limits = limits_of(plan.job, plan.limit)
        self._started = threading.Event()
        self._outcomes: dict[int, BatchResult] = {}
        self._error: BaseException | None = None
        self._was_stopped = False
        """True once this run has stopped its query, whose errors are then of no interest."""
        self._kept_plan = -1
        """The batch that is repeated without topics."""
        self._entered = -1
        self._told_batch = -1
        self._rows = 0
        self._began = time.monotonic()
        self._idle_since: float | None = None

    def prepare(self) -> None:
        super().prepare()
        if self._plan.committed is not None:
            self._need_batch(self._plan.committed)

    def _need_batch(self, known: int) -> None:
        """Fails if a committed batch is missing: Spark would start over, and reuse batch numbers that the sink
        already has."""
        there = self._files.under(join(self._plan.checkpoint, "commits"))
        last = max((int(entry.path) for entry in there if entry.path.isdecimal()), default=None)
        if last is None or last < known:
            raise JobFailed(_lacks(self._plan.checkpoint, known, last))

    def run(self) -> EndReason:
        try:
            self._take_plan_back()
            alone = self._repeats_alone()
        except Exception as error:
            raise JobFailed(failure_of(error)) from error
        reason = self._run_query({"once": True}) if alone else "done"
        return self._run_query(self._trigger()) if reason == "done" else reason

    def _repeats_alone(self) -> bool:
        """True if a planned batch has to be repeated before Spark looks for more: AvailableNow refuses one that lacks
        topics or partitions which are there now."""
        if self._plan.mode == "continuous" or self._plan.reading is None:
            return False
        return offset_log.uncommitted(self._files, self._plan.checkpoint) is not None

    def _trigger(self) -> dict[str, Any]:
        if self._plan.mode == "continuous":
            return {"processingTime": f"{duration_ms(self._plan.job.run.every)} milliseconds"}
        return {"availableNow": True}

    def _run_query(self, trigger: dict[str, Any]) -> EndReason:
        self._error = None
        self._rows -= sum(outcome.rows_read for outcome in self._outcomes.values())  # they come again
        self._outcomes.clear()
        self._started.clear()
        self._idle_since = None
        query = self._query = self._start(trigger)
        self._started.set()
        self._tell_running()
        reason: EndReason | None = None
        while not self._ended(query):
            self._tell_batches(query)
            self._tell_tasks(self._entered, str(query.runId))
            self._look_for_idleness(query)
            if isinstance(self._sink, Renewing):
                self._sink.renew()
            reason = reason or self._reason()
            if reason and (self._entered <= self._told_batch or self._entered < 0):
                self._was_stopped = True
                query.stop()
        self._tell_batches(query)
        return self._end(self._error or query.exception(), reason)

    def _end(self, error: BaseException | None, reason: EndReason | None) -> EndReason:
        ended = self._ended_by(error, reason)
        committed = self._files.under(join(self._plan.checkpoint, "commits"))
        if self._stateful and committed and self._plan.job.run.output == "append":
            self._tell_open_windows()
        return ended

    def _tell_open_windows(self) -> None:
        try:
            left = open_windows(self._spark, self._plan.checkpoint)
        except Exception as error:  # what was to be done is done
            self._warn(f"cannot list the windows that are still open: {failure_of(error).text}")
        else:
            if left:
                self._front.send(left)

    def _ended_by(self, error: BaseException | None, reason: EndReason | None) -> EndReason:
        if isinstance(error, Halted):
            return reason or self._reason() or "stopped"
        if error is not None and not self._was_stopped:
            if isinstance(error, Learned):
                raise error
            raise JobFailed(self._failure_of(error)) from error
        return reason or "done"

    def _failure_of(self, error: BaseException) -> Failed:
        """Spark takes topics that it does not see for lost data."""
        failed = failure_of(error)
        planned = self._planned_without() if failed.kind == "data-loss" else None
        return _sees_no_more(planned.topics) if planned and planned.batch != self._kept_plan else failed

    def _planned_without(self) -> offset_log.PlannedWithout | None:
        return offset_log.planned_without(self._files, self._plan.checkpoint, self._deleted)

    def _take_plan_back(self) -> None:
        """Lets Spark plan a batch anew that was planned without topics, unless the sink has finished it."""
        planned = self._planned_without()
        if planned and not offset_log.take_back(self._files, self._plan.checkpoint, planned, self._is_finished):
            self._kept_plan = planned.batch
            self._warn(_written_without(planned))

    def _is_finished(self, number: int, offsets: offset_log.BatchRange) -> bool:
        return self._sink.finished(self._identified(number, offsets)) is not None

    def _identified(self, number: int, offsets: offset_log.BatchRange) -> BatchId:
        return BatchId(number, self._plan.checkpoint_id, offsets.start, offsets.end, offsets.planned_ms)

    def _ended(self, query: Any) -> bool:
        from pyspark.errors import StreamingQueryException

        try:
            return bool(query.awaitTermination(POLL_SECONDS))
        except StreamingQueryException:
            return True

    def _result_columns(self) -> list[tuple[str, str]]:
        if self._stateful is None:
            return super()._result_columns()
        return columns_of(self._stateful.query(self._source.stream()))

    def _start(self, trigger: dict[str, Any]) -> Any:
        from pyspark.errors import AnalysisException

        job = self._plan.job
        frame = self._source.stream()
        if self._stateful:
            frame = self._stateful.query(frame)
        writer = frame.writeStream.foreachBatch(self._batch).option("checkpointLocation", self._plan.checkpoint)
        if self._stateful:
            writer = writer.outputMode(job.run.output)
        try:
            return writer.queryName(job.name).trigger(**trigger).start()
        except AnalysisException as error:  # of what streams cannot do
            raise sql_failed(error, transform.queries(job)[-1].name) from error
        except Exception as error:
            raise JobFailed(failure_of(error)) from error

    def _batch(self, rows: Any, number: int) -> None:
        """Processes one batch; called by Spark in its own thread."""
        try:
            if self._reason():
                raise Halted
            self._entered = number
            offsets = offset_log.range_of(self._files, self._plan.checkpoint, number)
            offset_log.sync(self._files, self._plan.checkpoint, number)
            without = offset_log.without(offsets, self._deleted)
            if without and number != self._kept_plan:
                raise JobFailed(_sees_no_more(without))
            outcome = self._process(rows, self._identified(number, offsets), offsets.late_before_ms)
            self._outcomes[number] = outcome
            self._rows += outcome.rows_read
        except BaseException as error:
            self._error = error  # Spark would make a text of it
            raise

    def _process(self, rows: Any, batch: BatchId, late_before_ms: int) -> BatchResult:
        if self._stateful is None:
            return self._stateless.process(rows, batch)
        self._started.wait()  # the first batch may come before its query is known here
        return self._stateful.process(rows, batch, late_before_ms, lambda: observed_of(self._query))

    def _reason(self) -> EndReason | None:
        if self._front.stop:
            return "stopped"
        now = time.monotonic()
        idle = now - self._idle_since if self._idle_since is not None else 0.0
        return "limit" if enough(self._limits, self._rows, now - self._began, idle) else None

    def _look_for_idleness(self, query: Any) -> None:
        if self._limits.idle_seconds:
            self._idle_since = idle_since(query.status, self._idle_since, time.monotonic())

    def _tell_batches(self, query: Any) -> None:
        """Reports batches once Spark has committed them."""
        if not self._outcomes:
            return
        for progress in recent(query, min(self._outcomes)):
            outcome = self._outcomes.pop(progress.batch, None) if progress.ran else None
            if outcome:
                self._front.send(batch_of(outcome, progress))
                self._told_batch = progress.batch
                self.finished += 1


def _lacks(checkpoint: str, known: int, last: int | None) -> Failed:
    there = "it now has no batches" if last is None else f"its last batch is now {last}"
    return Failed(
        kind="checkpoint",
        text=f"the checkpoint {checkpoint} is incomplete: batch {known} was committed, but {there}",
        hints=["restore it, or set another run.checkpoint to start over at source.start"],
    )


def _written_without(planned: offset_log.PlannedWithout) -> str:
    return (
        f"batch {planned.batch} was planned and written without {topics_text(planned.topics)}, which the checkpoint "
        "has: what is there is read from its start again"
    )


def _sees_no_more(topics: list[str]) -> Failed:
    return Failed(
        kind="topic",
        text=f"Spark does not see {topics_text(topics)} any more, which the checkpoint has: deleted, or not authorised",
        hints=["nothing was written without it; the next run goes on where the checkpoint stands"],
        retriable=True,
    )
