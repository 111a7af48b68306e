"""Task `test`: runs the cases of jobs' tests, one after the other, each in a session of its own.

A case goes the way of a run: the job's parsing, bad rows, SQL and checks. Only the ends differ: samples take the place
of the source, and rows and dead letters are kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.structs import replace

from kafkad_etl.driver.batches import transform
from kafkad_etl.driver.batches.stateless import StatelessBatches
from kafkad_etl.driver.failures import failure_of
from kafkad_etl.driver.session import configured
from kafkad_etl.driver.sinks.keeping import KeptRows, record_text
from kafkad_etl.driver.source.bad_rows import dead_letters
from kafkad_etl.driver.source.parser import Parser
from kafkad_etl.driver.source.samples import SampledFiles, SampledRecords
from kafkad_etl.driver.tasks.run import Edges, run
from kafkad_etl.driver.terms import BatchId, DataFrame, Front
from kafkad_etl.facts import is_stateful
from kafkad_etl.job import Job, Lookup
from kafkad_etl.messages import Batch, Case, CaseResult, EndReason, Event, Plan, Stop, Warned


def run_cases(spark: Any, plan: Plan, front: Front) -> EndReason:
    for number, case in enumerate(plan.cases):
        if front.stop:
            return "stopped"
        with TemporaryDirectory(prefix="case-") as directory:
            front.send(_CaseRun(spark, case, front, Path(directory)).result(number))
    return "done"


class _CaseRun:
    """Runs one case. It is the front of its run: it keeps what would be reported."""

    def __init__(self, spark: Any, case: Case, front: Front, directory: Path) -> None:
        self._front = front
        self._case = case
        job = replace(case.plan.job, transform=_with_lookups(case, directory))
        self._plan = replace(case.plan, job=job, checkpoint=str(directory / "checkpoint"))
        self._directory = directory
        self._spark = configured(spark.newSession(), job.spark.conf)
        self._sink = KeptRows(self._spark, self._plan)
        self._letters: list[str] = []
        self._warnings: list[str] = []
        self._counts = {"bad": 0, "late": 0, "duplicates": 0}

    @property
    def stop(self) -> Stop | None:
        return self._front.stop

    def send(self, event: Event) -> None:
        if isinstance(event, Batch):
            self._count(event)
        elif isinstance(event, Warned):
            self._warnings.append(event.text)

    def result(self, number: int) -> CaseResult:
        began = time.monotonic()
        failed = None
        try:
            self._run()
        except Exception as error:
            failed = failure_of(error)
        return CaseResult(
            case=number,
            schema=self._sink.schema,
            rows=self._sink.rows,
            dead_letters=self._letters,
            warnings=self._warnings,
            failed=failed,
            seconds=round(time.monotonic() - began, 3),
            **self._counts,
        )

    def _run(self) -> None:
        (self._directory / "source").mkdir()
        kind = SampledFiles if self._plan.job.source.files else SampledRecords
        source = kind(self._spark, self._plan, self._case.batches, self._directory / "source")
        with _forgetting_lookups(self._spark, self._plan.job):
            if is_stateful(self._plan.job):
                run(self._spark, self._plan, self, Edges(source, self._sink, self._keep_letters))
            else:
                self._stateless(source)

    def _stateless(self, source: SampledRecords | SampledFiles) -> None:
        parser = Parser(self._spark, self._plan)
        batches = StatelessBatches(self._plan, parser, self._sink, self._keep_letters, self._warnings.append)
        transform.create_lookups(self._spark, self._plan.job)
        self._sink.prepare(batches.prepare(self._spark.createDataFrame([], source.batch(0).schema)))
        for number in range(len(self._case.batches)):
            self._count(batches.process(source.batch(number), BatchId(number, "", {}, {})))

    def _count(self, batch: Any) -> None:
        self._counts = {name: count + getattr(batch, name) for name, count in self._counts.items()}

    def _keep_letters(self, rows: DataFrame) -> None:
        found = dead_letters(rows, self._plan).collect()
        self._letters += [record_text(row.asDict()) for row in found]


def _with_lookups(case: Case, directory: Path) -> Any:
    """The job's transform, whose lookups read the case's rows where it has some."""
    lookups = dict(case.plan.job.transform.lookups)
    for name, lines in case.lookups.items():
        file = directory / f"lookup-{name}.json"
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        lookups[name] = Lookup(format="json", path=str(file), schema=lookups[name].schema)
    return replace(case.plan.job.transform, lookups=lookups)


@contextmanager
def _forgetting_lookups(spark: Any, job: Job) -> Iterator[None]:
    """The next case has others; what is cached is shared by all sessions."""
    try:
        yield
    finally:
        for name in job.transform.lookups:
            if spark.catalog.tableExists(name):
                spark.catalog.uncacheTable(name)
