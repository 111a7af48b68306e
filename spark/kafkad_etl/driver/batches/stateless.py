"""One batch of a stateless job: parsed once, bad rows apart, through the SQL, to the sink."""

from __future__ import annotations

from collections.abc import Callable

from kafkad_etl.driver.batches.batch import BatchResult, Phases, count_bad, good, unmarked, write
from kafkad_etl.driver.batches.transform import first_of_each, has_limit, result
from kafkad_etl.driver.columns import columns_of
from kafkad_etl.driver.counting import Counted, counted
from kafkad_etl.driver.source.bad_rows import Tally
from kafkad_etl.driver.source.parser import Parser
from kafkad_etl.driver.terms import BatchId, DataFrame, JobFailed, Sink, WriteLetters
from kafkad_etl.facts import BAD, FILES, TABLES
from kafkad_etl.messages import Plan


class StatelessBatches:
    """Processes stateless batches: parsed once, bad rows set apart, through the SQL, to the sink.

    Rows are counted as they pass. They are cached only if a second look at them is needed.
    """

    def __init__(
        self, plan: Plan, parser: Parser, sink: Sink, write_letters: WriteLetters, warn: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._parser = parser
        self._sink = sink
        self._write_letters = write_letters
        self._warn = warn
        self._tally = Tally(plan.job.value.bad_rows)
        self._cuts_short = True
        """True if not all rows may pass, so that they cannot be counted on the way: a LIMIT, or the console's first
        few."""

    def prepare(self, empty: DataFrame) -> list[tuple[str, str]]:
        """Checks the SQL on an empty frame of records. Returns the result's columns."""
        out = result(good(self._parser.parsed(empty, explained=False), self._parser), self._plan.job)
        self._cuts_short = self._plan.job.sink.type == "console" or has_limit(out)
        return columns_of(out)

    def process(self, raw: DataFrame, batch: BatchId) -> BatchResult:
        phases = Phases()
        done = self._sink.finished(batch)
        if done is not None:
            return BatchResult(batch, 0, done, phases.total(), phases.seconds, replayed=True)
        if not self._cuts_short and (not self._parser.can_be_bad or needs_one_look(self._plan)):
            try:
                return self._passing(raw, batch, phases)
            except Exception as error:
                if not met_bad_row(error):
                    raise
                self._sink.finished(batch)  # lets it clear away what was cut off; now all bad rows are counted
        rows = self._parser.parsed(raw).persist()
        try:
            with phases.phase("parse"):
                read, bad = count_bad(rows) if self._parser.can_be_bad else (rows.count(), 0)
                if bad and self._parser.learn(rows):
                    rows.unpersist()
                    rows = self._parser.parsed(raw).persist()
                    read, bad = count_bad(rows)
            return self._kept(rows, read, bad, batch, phases)
        finally:
            rows.unpersist()

    def _kept(self, rows: DataFrame, read: int, bad: int, batch: BatchId, phases: Phases) -> BatchResult:
        """Writes parsed rows that are cached in memory or on disk."""
        self._tally.meet(batch.number, rows, bad, read)
        if bad and self._plan.job.value.bad_rows.action == "dead_letter":
            with phases.phase("bad rows"):
                self._write_letters(rows)
        left = counted(self._deduplicated(good(rows, self._parser)), whole=not self._cuts_short)
        written = write(self._plan, self._sink, result(left.rows, self._plan.job), batch, phases, self._warn)
        return BatchResult(
            batch, read, written, phases.total(), phases.seconds, bad, duplicates=self._duplicates(left, read - bad)
        )

    def _passing(self, raw: DataFrame, batch: BatchId, phases: Phases) -> BatchResult:
        """Writes rows in one pass from source to sink. Where bad rows stop the job, the first one ends the pass."""
        rows = self._parser.parsed(raw, explained=False)
        fails = self._plan.job.value.bad_rows.action == "fail"
        metric = [f"count(IF({BAD} IS NOT NULL, {STOPS}, NULL))"] if fails else [f"count({BAD})"]
        read = counted(rows, *(metric if self._parser.can_be_bad else []))
        rest = (unmarked if fails else good)(read.rows, self._parser)
        left = counted(self._deduplicated(rest)) if self._plan.job.transform.deduplicate else None
        out = result(rest if left is None else left.rows, self._plan.job)
        written = write(self._plan, self._sink, out, batch, phases, self._warn)
        rows_read, bad = [*read.totals(), 0][:2]
        self._tally.meet(batch.number, rows, bad, rows_read)
        duplicates = 0 if left is None else rows_read - bad - left.total()
        return BatchResult(batch, rows_read, written, phases.total(), phases.seconds, bad, duplicates=duplicates)

    def _deduplicated(self, rows: DataFrame) -> DataFrame:
        """Drops duplicates. `within` has no meaning here, since the whole batch is within reach."""
        deduplicate = self._plan.job.transform.deduplicate
        return first_of_each(rows, deduplicate.keys) if deduplicate else rows

    def _duplicates(self, left: Counted, before: int) -> int:
        return before - left.total() if self._plan.job.transform.deduplicate else 0


MET_BAD_ROW = "a row that does not parse stops this job"
STOPS = f"CAST(raise_error('{MET_BAD_ROW}') AS INT)"
ATOMIC = (*FILES, "jdbc", *TABLES, "none")
"""Sinks that show nothing of an interrupted batch."""


def needs_one_look(plan: Plan) -> bool:
    """True if it is early enough to find bad rows on the way to the sink."""
    policy = plan.job.value.bad_rows
    if plan.job.value.registry or plan.job.key.registry:  # a schema that is unknown may be there when it is asked for
        return False
    if policy.action == "fail":
        return plan.job.sink.type in ATOMIC
    return policy.action == "drop" and policy.max is None and policy.max_ratio is None


def met_bad_row(error: BaseException | None) -> bool:
    """True if a bad row caused the error; sinks may have wrapped it in errors of their own."""
    while error is not None:
        if MET_BAD_ROW in str(error) or (isinstance(error, JobFailed) and MET_BAD_ROW in error.failed.trace):
            return True
        error = error.__cause__ or error.__context__
    return False
