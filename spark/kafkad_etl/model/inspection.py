"""Reports what `sql` finds in a job, and settings that nothing takes, with places in its file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkad_etl.job import Job, Transform
from kafkad_etl.model.effective import Effective
from kafkad_etl.model.loading import JobError, Loaded, masked
from kafkad_etl.model.rules.clients import unknown

if TYPE_CHECKING:
    from kafkad_etl.model.sql import Finding


def inspect(loaded: Loaded, effective: Effective, *, strict: bool = False, trusts: bool = False) -> list[str]:
    """Returns warnings. Raises JobError for definite mistakes and, if `strict`, for those only Spark could decide.
    With `trusts`, all are left to Spark."""
    found = [*_ignored(effective.job), *_of_sql(effective)]
    levels = () if trusts else ("wrong", "doubt") if strict else ("wrong",)
    refused = [finding for finding in found if finding.level in levels]
    lines = {
        finding: masked("; ".join((f"{_place(loaded, finding)}: {finding.text}", *finding.hints)), effective.secrets)
        for finding in found
    }
    if refused:
        raise JobError(loaded.path, [lines[finding] for finding in refused])
    return list(lines.values())


def _ignored(job: Job) -> Iterator[Finding]:
    from kafkad_etl.model.sql.terms import Finding

    for note in unknown(job):
        yield Finding("note", note.path, note.text, note.hints)


def _of_sql(effective: Effective) -> list[Finding]:
    if not _has_sql(effective.job):
        return []
    from kafkad_etl.model.sql import findings

    return findings(effective)


def _has_sql(job: Job) -> bool:
    blocks = (job.value, job.key)
    has_schema = job.source.files is not None or any(block.schema or block.registry for block in blocks)
    return (
        has_schema
        or job.sink.topic is not None
        or job.transform != Transform()
        or bool(job.checks or job.sink.partition_by)
    )


def _place(loaded: Loaded, finding: Finding) -> str:
    """The place in the job file, or in the SQL file it names."""
    file = sql_file(loaded.job, finding.path)
    if not file:
        return loaded.within(finding.path, finding.line, finding.column)
    position = "".join(f":{number}" for number in (finding.line, finding.column) if number)
    return f"{loaded.path.parent / file}{position}"


def sql_file(job: Job, path: str) -> str:
    """The file that this key's SQL comes from; empty if it is in the job file."""
    for key, file in (("transform.sql", job.transform.file), *_step_files(job)):
        if key == path:
            return file
    return ""


def _step_files(job: Job) -> Iterator[tuple[str, str]]:
    yield from ((f"transform.steps.{index}.sql", step.file) for index, step in enumerate(job.transform.steps))
