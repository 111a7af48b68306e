"""`kctl etl preview`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkad_etl.commands.asking import sets, variables
from kafkad_etl.commands.base import EtlCommand
from kafkad_etl.errors import EtlExit
from kctl.command import pass_settings
from kctl.output import Column, Document, Writer
from kctl.settings import Settings

if TYPE_CHECKING:
    from kafkad_etl.messages import Rows

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
@click.option("--no-transform", is_flag=True, help="The records as they are, without Spark.")
@pass_settings
def preview(settings: Settings, /, job: Path, no_transform: bool, **given: Any) -> int:
    """Show what the sink would get of the last rows.

    20 of them, or as many as --limit says, go through the job's schema and SQL. Nothing is written or committed. With
    --no-transform no Java is needed.

    Example: kctl etl preview orders.yaml --limit 5
    """
    from kafkad_etl import previewing

    request = previewing.Request(job, rows=settings.limit or _ROWS, **given)
    if no_transform:
        from kafkad_etl.last_records import last_records

        _print(settings, last_records(settings, request))
        return EtlExit.DONE
    with open(os.devnull, "w") as nowhere:
        done = previewing.preview(settings, request, nowhere if settings.quiet else sys.stderr)
    if done.rows is not None:
        _print(settings, done.rows)
    return done.ends


def _print(settings: Settings, found: Rows) -> None:
    columns = [Column(name, "", header=name) for name in found.columns]
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    Writer(settings, columns, Document(settings.command)).write(rows)
