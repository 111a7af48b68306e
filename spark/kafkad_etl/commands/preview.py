"""`kctl etl preview`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkad_etl.commands import options
from kafkad_etl.commands.base import EtlCommand, for_people
from kafkad_etl.errors import EtlExit
from kctl.command.verb import pass_settings
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Writer

if TYPE_CHECKING:
    from kafkad_etl.messages import Rows

_ROWS = 20


@click.command("preview", cls=EtlCommand)
@click.argument("job", type=click.Path(path_type=Path))
@options.variables
@options.sets
@click.option(
    "--from",
    "begin",
    type=click.Choice(("earliest", "latest")),
    default="latest",
    show_default=True,
    help="Preview the first or the last rows.",
)
@options.master
@options.java_home
@click.option("--no-transform", is_flag=True, help="Show the raw records, without Spark.")
@pass_settings
def preview(
    settings: Settings,
    /,
    job: Path,
    variables: Mapping[str, str],
    sets: Sequence[str],
    no_transform: bool,
    **given: Any,
) -> int:
    """Show what the sink would receive for the last rows.

    Sends 20 rows (or --limit) through the job's schema and SQL. Nothing is written or committed. With --no-transform,
    neither Spark nor Java is needed.

    Example: kctl etl preview orders.yaml --limit 5
    """
    from kafkad_etl.model.loading import JobFile
    from kafkad_etl.tasks import previewing

    request = previewing.Request(JobFile(job, variables, sets), rows=settings.limit or _ROWS, **given)
    if no_transform:
        from kafkad_etl.tasks.last_records import last_records

        _print(settings, last_records(settings, request))
        return EtlExit.DONE
    with for_people(settings) as stream:
        done = previewing.preview(settings, request, stream)
    if done.rows is not None:
        _print(settings, done.rows)
    return done.ends


def _print(settings: Settings, found: Rows) -> None:
    columns = [Column(name, "", header=name) for name in found.columns]
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    Writer(settings, columns, Document(settings.command)).write(rows)
