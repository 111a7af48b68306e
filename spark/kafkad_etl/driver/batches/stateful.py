"""Processes batches of a stateful job, whose groups live from batch to batch.

Parsing and SQL are part of Spark's streaming query here. Its output is cached while the batch's rows are examined
again, which happens only if some are bad or late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kafkad_etl.driver.batches import transform
from kafkad_etl.driver.batches.batch import BatchResult, Phases, good, write
from kafkad_etl.driver.batches.late_rows import Group, groups_of, late_rows
from kafkad_etl.driver.source.bad_rows import Tally
from kafkad_etl.driver.source.parser import Parser
from kafkad_etl.driver.terms import BatchId, DataFrame, JobFailed, Sink, Source, WriteLetters
from kafkad_etl.facts import BAD, duration_ms
from kafkad_etl.messages import Failed, Plan
from kafkad_etl.sql_text import named

INPUT = "input"


class Observed(NamedTuple):
    """Metrics observed over all rows of a batch as they passed."""

    rows: int
    bad: int
    first_ms: int | None
    """The earliest time in the watermark column."""
    timeless: int
    """Rows without a time, which belong to no window."""


class Learned(Exception):
    """Records named schemas that the query had not been made with. The batch succeeds once it is started anew."""


class StatefulBatches:
    def __init__(
        self,
        plan: Plan,
        parser: Parser,
        source: Source,
        sink: Sink,
        write_letters: WriteLetters,
        warn: Callable[[str], None],
    ) -> None:
        self._plan, self._parser, self._source, self._sink = plan, parser, source, sink
        self._write_letters, self._warn = write_letters, warn
        self._tally = Tally(plan.job.value.bad_rows)
        self._groups: list[Group] = []
        self._warned = False

    def query(self, raw: DataFrame) -> DataFrame:
        """The streaming query whose output the sink receives."""
        from pyspark.sql import functions as f

        job = self._plan.job
        rows = self._parser.parsed(raw, explained=False)  # bad ones are read again
        watermark, bad = job.transform.watermark, f.lit(0)
        time = f.col(named(watermark.column)) if watermark else f.lit(None).cast("timestamp")
        if self._parser.can_be_bad:
            bad = f.count(BAD)
        timeless = (
            f.count_if(time.isNull() & f.col(BAD).isNull()) if self._parser.can_be_bad else f.count_if(time.isNull())
        )
        rows = rows.observe(INPUT, f.count(f.lit(1)), bad, f.unix_millis(f.min(time)), timeless)
        out = transform.result(self._remembered(good(rows, self._parser)), job)
        self._groups = groups_of(out) if job.run.output != "complete" else []
        return out

    def _remembered(self, rows: DataFrame) -> DataFrame:
        watermark, deduplicate = self._plan.job.transform.watermark, self._plan.job.transform.deduplicate
        if watermark:
            delay_ms = duration_ms(watermark.delay)
            if deduplicate and deduplicate.within:
                delay_ms = max(delay_ms, duration_ms(deduplicate.within))  # Spark remembers rows for as long
            rows = rows.withWatermark(named(watermark.column), f"{delay_ms} milliseconds")
        if not deduplicate:
            return rows
        if not watermark:
            text = "transform.deduplicate would have to remember every row forever"
            hints = ["give it `within`, and the job a watermark", "or set run.output to append"]
            raise JobFailed(Failed(kind="sql", text=text, hints=hints))
        return rows.dropDuplicatesWithinWatermark(list(deduplicate.keys))

    def process(
        self, out: DataFrame, batch: BatchId, late_before_ms: int, observed: Callable[[], Observed]
    ) -> BatchResult:
        phases = Phases()
        done = self._sink.finished(batch)
        out = out.persist()
        try:
            with phases.phase("query"):
                out.count()  # Spark's state has to go on, written or not
            passed = observed()
            again = self._again(batch) if passed.rows else None
            with phases.phase("bad rows"):
                self._bad(again, batch, passed)
            with phases.phase("late rows"):
                is_late = passed.first_ms is not None and passed.first_ms <= late_before_ms
                late = self._late(again, late_before_ms) if again is not None and is_late else 0
            written = done if done is not None else write(self._plan, self._sink, out, batch, phases, self._warn)
        finally:
            out.unpersist()
        return BatchResult(
            batch, passed.rows, written, phases.total(), phases.seconds, passed.bad, late, replayed=done is not None
        )

    def _again(self, batch: BatchId) -> DataFrame | None:
        """The batch's rows, read and parsed again; None for files, which are not read again."""
        raw = self._source.again(batch)
        return None if raw is None else self._parser.parsed(raw)

    def _bad(self, rows: DataFrame | None, batch: BatchId, passed: Observed) -> None:
        if passed.bad and self._parser.learn(rows):
            raise Learned
        self._tally.meet(batch.number, rows, passed.bad, passed.rows)
        if passed.bad and self._plan.job.value.bad_rows.action == "dead_letter":
            self._write_letters(rows)
        watermark = self._plan.job.transform.watermark
        if passed.timeless and self._groups and watermark and not self._warned:
            self._warned = True
            text = (
                f"have no {watermark.column} and so belong to no window; this is not reported again for later batches"
            )
            self._warn(f"batch {batch.number}: {passed.timeless:,} rows {text}")

    def _late(self, rows: DataFrame, before_ms: int) -> int:
        rows = good(rows, self._parser)
        job = self._plan.job
        if job.transform.deduplicate and job.transform.watermark:
            return int(rows.where(f"{named(job.transform.watermark.column)} <= timestamp_millis({before_ms})").count())
        result = transform.result(rows, job)
        return sum(late_rows(result, group, before_ms) for group in self._groups)


def observed_of(query: Any) -> Observed:
    """The metrics of the current batch, which Spark's progress shows only after the commit."""
    metrics = query._jsq.streamingQuery().lastExecution().observedMetrics()
    row = metrics.apply(INPUT)
    values = [None if row.isNullAt(at) else int(row.get(at)) for at in range(4)]
    rows, bad, first_ms, timeless = values
    return Observed(rows or 0, bad or 0, first_ms, timeless or 0)
