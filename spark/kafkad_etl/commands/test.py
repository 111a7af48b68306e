"""`kctl etl test`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkad_etl.commands import options
from kafkad_etl.commands.base import EtlCommand, for_people
from kafkad_etl.errors import EtlError, EtlExit
from kctl.command.verb import pass_settings
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Row, Writer, note

if TYPE_CHECKING:
    from kafkad_etl.tasks.testing import CaseReport

COLUMNS = (
    Column("job", "The job file."),
    Column("case", "The case's name."),
    Column("state", "ok, or error.", "state"),
    Column("seconds", "How long it took, without the start of Spark.", "number"),
    Column("where", "The case's place in its file.", wide=True),
    Column("differences", "What differs from what the case expects, one line each.", "list", machine=True),
)


@click.command("test", cls=EtlCommand, columns=COLUMNS)
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--case", "names", metavar="NAME", multiple=True, help="Run only the case of this name.")
@options.variables
@options.sets
@click.option("--junit", metavar="FILE", type=click.Path(path_type=Path), help="Also write results as JUnit XML.")
@options.master
@options.java_home
@pass_settings
def test(
    settings: Settings,
    jobs: Sequence[Path],
    names: Sequence[str],
    variables: Mapping[str, str],
    sets: Sequence[str],
    junit: Path | None,
    master: str,
    java_home: str,
) -> int:
    """Run the tests of jobs.

    The cases of jobs/orders.yaml are in jobs/tests/orders.yaml. Each gives records and the rows, dead letters or errors
    that the job makes of them. They run in one Spark on this machine; no cluster is contacted and nothing is written.
    The exit code is 1 if a case fails.

    Example: kctl etl test jobs/*.yaml
    """
    from kafkad_etl.tasks import testing

    request = testing.Request(jobs, variables, sets, names, master, java_home)
    with for_people(settings) as stream:
        done = testing.test(request, stream)
    for text in done.notes:
        note(settings, text)
    if junit is not None:
        _write_junit(junit, done.cases)
    Writer(settings, COLUMNS, Document(settings.command)).write([_row(each) for each in done.cases])
    sys.stdout.flush()
    for each in done.cases:
        _explain(each)
    return done.ends


def _row(report: CaseReport) -> Row:
    return {
        "job": str(report.job),
        "case": report.name,
        "state": "error" if report.differences else "ok",
        "seconds": report.seconds,
        "where": report.where,
        "differences": report.differences,
    }


def _explain(report: CaseReport) -> None:
    if report.differences:
        print(f"\n{report.where}: {report.name}", file=sys.stderr)
        for text in report.differences:
            print(f"  {text}", file=sys.stderr)


def _write_junit(file: Path, cases: Sequence[CaseReport]) -> None:
    from kafkad_etl.reporting.junit import TestCase, junit

    try:
        file.write_bytes(junit([TestCase(each.job, each.name, each.seconds, each.differences) for each in cases]))
    except OSError as error:
        raise EtlError(f"cannot write {file}: {error.strerror}", EtlExit.USAGE) from error
