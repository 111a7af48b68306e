"""`kctl etl test`: runs the cases of jobs in one Spark and judges what came. No cluster is contacted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, tzinfo
from pathlib import Path
from typing import NamedTuple, TextIO

from msgspec.structs import replace

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.job import Job, Retries, Sink, Source, StopAfter
from kafkad_etl.machine import environment
from kafkad_etl.machine.environment import Environment
from kafkad_etl.messages import Case, CaseResult, Failed, Plan, Reading, SampleBatch
from kafkad_etl.model.cases import CaseSource, cases_path, job_path, load_cases, samples
from kafkad_etl.model.differences import LETTER, differences
from kafkad_etl.model.effective import Effective, effective
from kafkad_etl.model.inspection import inspect
from kafkad_etl.model.loading import JobFile, Loaded, in_mode, load, masked
from kafkad_etl.planning.sharing import shared_settings
from kafkad_etl.process.launching import located
from kafkad_etl.process.logs import log_of
from kafkad_etl.process.working import SparkStart, Work, run_work
from kafkad_etl.reporting.collecting import Collector
from kafkad_etl.tasks.diagnosis import place, unexplained
from kctl.errors import did_you_mean

_NAME = "etl-test"
"""The name of the Spark application and the log."""
_LOCAL = "local[*]"


class Request(NamedTuple):
    """The command line's arguments."""

    files: Sequence[Path]
    variables: Mapping[str, str] = {}
    sets: Sequence[str] = ()
    names: Sequence[str] = ()
    """The cases to run; all of them if empty."""
    master: str = ""
    java_home: str = ""


class PlannedCase(NamedTuple):
    source: CaseSource
    loaded: Loaded
    case: Case


class CaseReport(NamedTuple):
    job: Path
    name: str
    where: str
    seconds: float
    differences: tuple[str, ...]


class TestReport(NamedTuple):
    cases: tuple[CaseReport, ...]
    notes: tuple[str, ...]
    ends: EtlExit


def test(request: Request, stream: TextIO) -> TestReport:
    """Runs the cases. Raises EtlError for mistakes in the files, and if Spark cannot run."""
    jobs = list(dict.fromkeys(map(job_path, request.files)))
    without = [job for job in jobs if not cases_path(job).is_file()]
    notes = tuple(f"{job} has no tests: {cases_path(job)} does not exist" for job in without)
    if len(without) == len(jobs):
        hint = "kctl etl init --example topic-to-parquet --tests shows what a file of cases looks like"
        raise EtlError(notes[0], EtlExit.USAGE, hints=(*notes[1:], hint))
    planned = list(_planned(request, [job for job in jobs if job not in without]))
    spark = shared_settings([each.loaded for each in planned], master=request.master or _LOCAL)
    found = _environment({each.loaded.path: each.case.plan.job for each in planned}.values(), request.java_home)
    carrier = Job(version=1, name=_NAME, source=Source(), sink=Sink(type="none"), spark=spark)
    plan = Plan(task="test", job=carrier, mode="batch", reading=None, cases=tuple(each.case for each in planned))
    secrets = frozenset().union(*(each.loaded.secrets for each in planned))
    secret_variables = frozenset().union(*(each.loaded.variables.secret_variables for each in planned))
    shown = Collector(CaseResult, stream)
    ends = run_work(
        SparkStart(found, log_of(carrier)), Work(plan, secrets, shown, unexplained, secret_variables=secret_variables)
    )
    reports = [_report(planned[result.case], result) for result in shown.found]
    failed = any(each.differences for each in reports)
    return TestReport(tuple(reports), notes, EtlExit.FAILED if failed and ends == EtlExit.DONE else ends)


def _planned(request: Request, jobs: Sequence[Path]) -> Iterator[PlannedCase]:
    sources = {job: load_cases(cases_path(job)) for job in jobs}
    known = [source.block.name for found in sources.values() for source in found]
    for name in request.names:
        if name not in known:
            hints = did_you_mean(name, known) or tuple(f"there is: {each}" for each in known)
            raise EtlError(f'--case: there is no case "{name}"', EtlExit.USAGE, hints=hints)
    ready: dict[tuple[Path, tuple[tuple[str, str], ...]], tuple[Loaded, Effective]] = {}
    for job, found in sources.items():
        for source in found:
            if request.names and source.block.name not in request.names:
                continue
            variables = {**source.variables, **request.variables}
            key = (job, tuple(sorted(variables.items())))
            if key not in ready:
                ready[key] = _ready(
                    JobFile(job, variables, (*source.sets, *request.sets), is_one_of_several=len(jobs) > 1)
                )
            loaded, effect = ready[key]
            with loaded.locating_errors():
                yield PlannedCase(source, loaded, _case(source, effect))


def _ready(file: JobFile) -> tuple[Loaded, Effective]:
    loaded = load(file)
    effect = effective(loaded)
    inspect(loaded, effect)
    return loaded, effect


def _case(source: CaseSource, effect: Effective) -> Case:
    _need_schemas(effect)
    batches = samples(source, effect.job)
    job = _testable(effect.job)
    value, key, sink, *_ = effect.schemas
    plan = Plan(
        task="run",
        job=job,
        mode=job.run.mode,
        reading=None if job.source.files else _reading(batches),
        value_schema=value,
        key_schema=key,
        sink_schema=sink,
    )
    return Case(plan=located(plan), batches=batches, lookups=dict(source.lookups))


def _testable(job: Job) -> Job:
    """The job as its cases run it: to the end of the records, once, without a registry and without a limit on the share
    of bad rows, which a few records cannot have."""
    if job.run.mode == "continuous":
        job = in_mode(job, "available-now")
    value = replace(job.value, bad_rows=replace(job.value.bad_rows, max_ratio=None), registry=None)
    sink = replace(job.sink, topic=replace(job.sink.topic, registry=None)) if job.sink.topic else job.sink
    run = replace(job.run, retries=Retries(max=0), stop_after=StopAfter())
    return replace(job, run=run, key=replace(job.key, registry=None), value=value, sink=sink)


def _need_schemas(effect: Effective) -> None:
    """Raises EtlError USAGE if the job leaves a schema to a registry, which is not asked here."""
    job, (value, key, sink, *_) = effect.job, effect.schemas
    for path, asks, schema in (
        ("value", job.value.registry, value),
        ("key", job.key.registry, key),
        ("sink.topic", job.sink.topic and job.sink.topic.registry, sink),
    ):
        if asks and schema is None:
            hint = f"give cases the schema: set: {{{path}.schema: …}}"
            raise EtlError("tests ask no registry", EtlExit.USAGE, key=f"{path}.registry", hints=(hint,))


def _reading(batches: Sequence[SampleBatch]) -> Reading:
    start: dict[str, dict[int, int]] = {}
    for batch in batches:
        for record in batch.records:
            start.setdefault(record.topic, {})[record.partition] = 0
    return Reading(client={}, how="subscribe", what="", start=start, end={}, fail_on_data_loss=True)


def _environment(jobs: Iterable[Job], java_home: str) -> Environment:
    """One with the jars that all jobs need to read and to make rows; only topics have rows of a form of their own."""
    reading = [job if job.sink.topic else replace(job, sink=Sink(type="none")) for job in jobs]
    found = [environment.find(job, java_home) for job in reading]
    return found[0]._replace(jars=tuple(dict.fromkeys(jar for each in found for jar in each.jars)))


def _report(planned: PlannedCase, result: CaseResult) -> CaseReport:
    source, loaded = planned.source, planned.loaded
    found = verdict(source, result, _zone(loaded.job), loaded)
    return CaseReport(
        loaded.path,
        source.block.name,
        source.where,
        result.seconds,
        tuple(masked(text, loaded.secrets) for text in found),
    )


def verdict(source: CaseSource, result: CaseResult, zone: tzinfo, loaded: Loaded) -> list[str]:
    """The differences between what the case expects and what came; none if it holds."""
    block = source.block
    found = list(_of_error(block.fails, result.failed, loaded))
    if found:
        return found
    for name, expected, came, schema in (
        ("rows", source.rows, result.rows, result.schema),
        ("dead letters", source.dead_letters, result.dead_letters, LETTER),
    ):
        if expected is not None and (told := differences(expected, came, schema, zone)):
            found.append(f"{name}: {len(expected)} expected, {len(came)} came")
            found += [f"  {text}" for text in told]
    for name in ("bad", "late", "duplicates"):
        wanted, has = getattr(block, name), getattr(result, name)
        if wanted is not None and wanted != has:
            found.append(f"{name}: expected {wanted}, came {has}")
    if block.warns and not any(block.warns in text for text in result.warnings):
        said = [f"  {text}" for text in result.warnings] or ["  it did not warn"]
        found += [f'expected a warning with "{block.warns}"', *said]
    return found


def _of_error(expected: str, failed: Failed | None, loaded: Loaded) -> Iterator[str]:
    if failed is None:
        if expected:
            yield f'it did not fail; expected an error with "{expected}"'
        return
    if expected and expected in failed.text:
        return
    where = place(failed, loaded)
    yield f"it failed: {f'{where}: ' if where else ''}{failed.text}"
    yield from (f"  {hint}" for hint in failed.hints)
    if expected:
        yield f'expected an error with "{expected}"'


def _zone(job: Job) -> tzinfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(str(job.spark.conf.get("spark.sql.session.timeZone", "UTC")))
    except (ZoneInfoNotFoundError, ValueError):  # Spark knows more names than we do
        return UTC
