"""`kctl etl validate`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkad_etl.commands import asking
from kafkad_etl.commands.base import EtlCommand
from kafkad_etl.errors import EtlExit, exit_of
from kctl.command.verb import pass_settings
from kctl.errors import KctlError
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Row, Writer, render_error

if TYPE_CHECKING:
    from kafkad_etl.model.effective import Effective
    from kafkad_etl.model.loading import JobFile

COLUMNS = (
    Column("file", "The job file."),
    Column("state", "ok, or error.", "state"),
    Column("name", "The job's name."),
    Column("delivery", "How often a row gets to the sink."),
    Column("because", "Why, and what is left out on purpose.", wide=True),
    Column("mistakes", "What is wrong, one line each.", "list", machine=True),
    Column("warnings", "What may be meant otherwise.", "list", machine=True),
)


@click.command("validate", cls=EtlCommand, columns=COLUMNS)
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, type=click.Path(path_type=Path))
@asking.variables
@asking.sets
@click.option("--offline", is_flag=True, help="Do not ask any cluster whether topics and rights are there.")
@pass_settings
def validate(
    settings: Settings, jobs: Sequence[Path], variables: Mapping[str, str], sets: Sequence[str], offline: bool
) -> int:
    """Check job files without running them.

    Keys, variables, files, schemas and SQL; then topics, rights and sinks in the cluster. Spark is not started.
    All mistakes are told, each with its line; the exit code says of which kind the first one is.

    Example: kctl etl validate --offline jobs/*.yaml
    """
    from kafkad_etl.model.loading import JobFile

    rows: list[Row] = []
    errors: list[KctlError] = []
    strange: set[str] = set(variables)
    for path in jobs:
        file = JobFile(path, variables, sets, is_one_of_several=len(jobs) > 1)
        row, error = _checked(settings, file, offline, strange)
        rows.append(row)
        errors += [error] if error else []
    if len(jobs) > 1 and not errors:
        errors += [_strange(name) for name in sorted(strange)]
    Writer(settings, COLUMNS, Document(settings.command)).write(rows, errors)
    sys.stdout.flush()
    for row in rows:
        for warning in row.get("warnings", ()):
            print(f"warning: {warning}", file=sys.stderr)
    for error in errors:
        render_error(error, settings, sys.stderr)
    return exit_of(errors[0]) if errors else EtlExit.DONE


def _strange(name: str) -> KctlError:
    from kafkad_etl.errors import EtlError

    return EtlError(f'--var {name}: none of the files has a variable "{name}"', EtlExit.USAGE)


def _checked(settings: Settings, file: JobFile, offline: bool, strange: set[str]) -> tuple[Row, KctlError | None]:
    """Takes from `strange` the variables that the file knows."""
    try:
        return _right(settings, file, offline, strange), None
    except KctlError as error:
        return {"file": str(file.path), "state": "error", "mistakes": getattr(error, "mistakes", (error.what,))}, error


def _right(settings: Settings, file: JobFile, offline: bool, strange: set[str]) -> Row:
    from kafkad_etl.model.effective import effective
    from kafkad_etl.model.guarantee import guarantee
    from kafkad_etl.model.inspection import inspect
    from kafkad_etl.model.loading import load

    loaded = load(file)
    job = effective(loaded)
    strange.intersection_update(loaded.variables.unused())
    warnings = inspect(loaded, job, strict=True)
    if not offline:
        with loaded.telling_places():
            warnings += _asked_of_clusters(settings, file.path, job)
    promised = guarantee(job.job)
    return {
        "file": str(file.path),
        "state": "ok",
        "name": job.job.name,
        "delivery": promised.level,
        "because": promised.text,
        "mistakes": (),
        "warnings": warnings,
    }


def _asked_of_clusters(settings: Settings, path: Path, job: Effective) -> Sequence[str]:
    """Warnings; EtlError if what the job needs is not there, or may not be used."""
    from kafkad_etl.cluster.clusters import Clusters
    from kafkad_etl.planning.readiness import check

    with Clusters(settings, path.parent) as clusters:
        return check(clusters, job.job)
