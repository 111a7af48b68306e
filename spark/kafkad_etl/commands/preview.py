"""`kctl etl preview`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from kafkad_etl.commands.asking import sets, variables
from kafkad_etl.commands.base import EtlCommand
from kctl.command import pass_settings
from kctl.output import Column, Document, Writer
from kctl.settings import Settings

_ROWS = 20


@click.command("preview", cls=EtlCommand)
@click.argument("job", type=click.Path(path_type=Path))
@variables
@sets
@click.option(
    "--from",
    "begin",
    type=click.Choice(("earliest", "latest")),
    default="latest",
    show_default=True,
    help="Which rows.",
)
@click.option("--master", metavar="URL", default="", help="Instead of spark.master: local[2], yarn, spark://….")
@click.option("--java-home", metavar="DIR", default="", help="The Java that runs Spark.")
@pass_settings
def preview(settings: Settings, /, job: Path, **given: Any) -> int:
    """Show what the sink would get of the last rows.

    20 of them, or as many as --limit says, go through the job's schema and SQL. Nothing is written or committed.

    Example: kctl etl preview orders.yaml --limit 5
    """
    from kafkad_etl import previewing

    request = previewing.Request(job, rows=settings.limit or _ROWS, **given)
    with open(os.devnull, "w") as nowhere:
        done = previewing.preview(settings, request, nowhere if settings.quiet else sys.stderr)
    if done.rows is not None:
        columns = [Column(name, "", header=name) for name in done.rows.columns]
        rows = [dict(zip(done.rows.columns, row, strict=True)) for row in done.rows.rows]
        Writer(settings, columns, Document(settings.command)).write(rows)
    return done.ends
