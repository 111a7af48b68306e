"""`kctl etl validate`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkad_etl.commands import options
from kafkad_etl.commands.base import EtlCommand
from kafkad_etl.errors import EtlExit, exit_of
from kctl.command.verb import pass_settings
from kctl.errors import KctlError
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Row, Writer, render_error

if TYPE_CHECKING:
    from kafkad_etl.model.effective import Effective
    from kafkad_etl.model.loading import JobFile, Loaded

COLUMNS = (
    Column("file", "The job file."),
    Column("state", "ok, or error.", "state"),
    Column("name", "The job's name."),
    Column("delivery", "The delivery guarantee."),
    Column("because", "The reason for it, and its limits.", wide=True),
    Column("mistakes", "All mistakes, one line each.", "list", machine=True),
    Column("warnings", "Things that may not be intended.", "list", machine=True),
)


@click.command("validate", cls=EtlCommand, columns=COLUMNS)
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.variables
@options.sets
@click.option("--offline", is_flag=True, help="Do not contact any cluster to check topics and permissions.")
@pass_settings
def validate(
    settings: Settings, jobs: Sequence[Path], variables: Mapping[str, str], sets: Sequence[str], offline: bool
) -> int:
    """Check job files without running them.

    Checks keys, variables, files, schemas and SQL, then topics, permissions and sinks in the cluster. Spark is not
    started. All mistakes are reported, each with its line; the exit code is that of the first one.

    Example: kctl etl validate --offline jobs/*.yaml
    """
    from kafkad_etl.model.loading import JobFile

    rows: list[Row] = []
    errors: list[KctlError] = []
    unknown: set[str] = set(variables)
    for path in jobs:
        file = JobFile(path, variables, sets, is_one_of_several=len(jobs) > 1)
        row, error = _checked(settings, file, offline, unknown)
        rows.append(row)
        errors += [error] if error else []
    if len(jobs) > 1 and not errors:
        errors += [_unknown(name) for name in sorted(unknown)]
    Writer(settings, COLUMNS, Document(settings.command)).write(rows, errors)
    sys.stdout.flush()
    for row in rows:
        for warning in row.get("warnings", ()):
            print(f"warning: {warning}", file=sys.stderr)
    for error in errors:
        render_error(error, settings, sys.stderr)
    return exit_of(errors[0]) if errors else EtlExit.DONE


def _unknown(name: str) -> KctlError:
    from kafkad_etl.errors import EtlError

    return EtlError(f'--var {name}: none of the files declares a variable "{name}"', EtlExit.USAGE)


def _checked(settings: Settings, file: JobFile, offline: bool, unknown: set[str]) -> tuple[Row, KctlError | None]:
    """The file's row and its error, if any; removes the variables that the file declares from `unknown`."""
    try:
        return _valid_row(settings, file, offline, unknown), None
    except KctlError as error:
        return {"file": str(file.path), "state": "error", "mistakes": getattr(error, "mistakes", (error.what,))}, error


def _valid_row(settings: Settings, file: JobFile, offline: bool, unknown: set[str]) -> Row:
    from kafkad_etl.checkpoint import overlaps
    from kafkad_etl.model.effective import effective
    from kafkad_etl.model.guarantee import guarantee
    from kafkad_etl.model.inspection import inspect
    from kafkad_etl.model.loading import load

    loaded = load(file)
    job = effective(loaded)
    unknown.intersection_update(loaded.variables.unused())
    if not offline:
        job = _asked_of_registries(loaded, job)
    warnings = inspect(loaded, job, strict=True)
    with loaded.locating_errors():
        overlaps.refuse(job.job, job.files, os.environ)
    if not offline:
        with loaded.locating_errors():
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


def _asked_of_registries(loaded: Loaded, job: Effective) -> Effective:
    """The job with the schemas of its registries; raises EtlError for what they lack or refuse."""
    from kafkad_etl.planning.registries import asked

    with loaded.locating_errors():
        return asked(job)


def _asked_of_clusters(settings: Settings, path: Path, job: Effective) -> Sequence[str]:
    """Returns warnings; raises EtlError if anything the job needs is missing or not permitted."""
    from kafkad_etl.cluster.clusters import Clusters
    from kafkad_etl.planning.readiness import check

    with Clusters(settings, path.parent) as clusters:
        return check(clusters, job.job, job.secrets)
