"""Handles rows that cannot be parsed: decides when they stop the job, and writes dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkad_etl.driver.failures import sending_to
from kafkad_etl.driver.terms import DataFrame, JobFailed
from kafkad_etl.facts import BAD, FILE
from kafkad_etl.job import BadRows
from kafkad_etl.messages import Failed, Plan

NAMED = 5


class BadRow(NamedTuple):
    place: str
    column: str
    why: str

    def __str__(self) -> str:
        return f"{self.place}: {self.column}: {self.why}" if self.column else f"{self.place}: {self.why}"


def refusal(policy: BadRows, bad: int, read: int) -> str:
    """The reason why the run has to stop after this many bad rows; empty if it continues."""
    if not bad:
        return ""
    rows = f"{bad:,} of {read:,} rows could not be parsed"
    if policy.action == "fail":
        return rows
    if policy.max is not None and bad > policy.max:
        return f"{rows}, more than bad_rows.max allows ({policy.max:,})"
    if policy.max_ratio is not None and bad > policy.max_ratio * read:
        return f"{rows}, more than bad_rows.max_ratio allows ({policy.max_ratio:g})"
    return ""


def refused(text: str, first: Sequence[BadRow], bad: int) -> JobFailed:
    more = [f"and {bad - len(first):,} more in this batch"] if bad > len(first) else []
    lines = [str(row) for row in first] + more
    hints = ["set bad_rows.action to dead_letter or drop to continue without them"] if "allows" not in text else []
    return JobFailed(Failed(kind="bad-rows", text="\n  ".join([text, *lines]), hints=hints))


def first_bad(rows: DataFrame) -> list[BadRow]:
    found = rows.where(f"{BAD} IS NOT NULL")
    if FILE in rows.columns:
        found, place = found.orderBy(FILE), FILE
    else:
        found = found.orderBy("_topic", "_partition", "_offset")
        place = "concat(_topic, '-', _partition, ' at offset ', _offset)"
    return [BadRow(*row) for row in found.limit(NAMED).selectExpr(place, f"{BAD}.column", f"{BAD}.why").collect()]


def dead_letters(rows: DataFrame, plan: Plan) -> DataFrame:
    """The bad rows as records, with their original key and value; headers give their position and the reason."""
    place = {
        "topic": "_topic",
        "partition": "_partition",
        "offset": "_offset",
        "timestamp": "date_format(_timestamp, \"yyyy-MM-dd'T'HH:mm:ss.SSSX\")",
    }
    said = {"error": f"{BAD}.why", "column": f"{BAD}.column", "job": f"'{plan.job.name}'"}
    said |= {"file": FILE} if FILE in rows.columns else place
    headers = ", ".join(
        f"named_struct('key', '{name}', 'value', CAST(CAST({value} AS STRING) AS BINARY))"
        for name, value in said.items()
    )
    return rows.where(f"{BAD} IS NOT NULL").selectExpr(
        "_raw_key AS key", "_raw_value AS value", f"array({headers}) AS headers"
    )


def write_dead_letters(plan: Plan, rows: DataFrame) -> None:
    options = {f"kafka.{name}": value for name, value in plan.dead_letter_client.items()}
    topic = plan.job.value.bad_rows.topic
    with sending_to(topic, "kafka.options"):
        dead_letters(rows, plan).write.format("kafka").options(**options).option("topic", topic).save()


class Met(NamedTuple):
    bad: int
    read: int


class Tally:
    """Counts a run's bad rows over all batches; one that is repeated, which only the last may be, counts once."""

    def __init__(self, policy: BadRows) -> None:
        self._policy = policy
        self._batch = -1
        self._before = self._met = Met(0, 0)
        """What was met before the last batch, and with it."""

    def meet(self, batch: int, rows: Any, bad: int, read: int) -> None:
        if batch != self._batch:
            self._batch, self._before = batch, self._met
        self._met = Met(self._before.bad + bad, self._before.read + read)
        refusal_text = refusal(self._policy, *self._met) if bad else ""
        if refusal_text:
            raise refused(refusal_text, first_bad(rows), bad)
