"""`kctl etl plan`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkad_etl.commands import options
from kafkad_etl.commands.base import EtlCommand
from kctl.command.verb import pass_settings
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Writer

if TYPE_CHECKING:
    from kafkad_etl.job import Mode
    from kafkad_etl.model.effective import Effective
    from kafkad_etl.planning.planned import PlannedRun

COLUMNS = (
    Column("job", "The job's name."),
    Column("mode", "batch, available-now or continuous."),
    Column("rows", "Number of offsets to read.", "number"),
    Column("partitions", "Partitions, each with from, to and rows.", "list", machine=True),
    Column("checkpoint", "The checkpoint directory; null: none."),
    Column("state", "The checkpoint's progress, or what happens to it."),
    Column("batch", "The last committed batch.", "number"),
    Column("guarantee", "The delivery guarantee."),
    Column("creates", "Topics that a run would create.", "list"),
    Column("warnings", "Things that may not be intended.", "list", machine=True),
    Column("spark_submit", "The spark-submit command that a run would start.", "list", machine=True),
    Column("effective", "The effective job, without secrets.", machine=True),
)
PARTITIONS = (
    Column("topic", ""),
    Column("partition", "", "number", "PART"),
    Column("from", "", "number"),
    Column("to", "", "number"),
    Column("rows", "", "number"),
)


@click.command("plan", cls=EtlCommand, columns=COLUMNS)
@click.argument("job", type=click.Path(path_type=Path))
@options.variables
@options.sets
@options.mode
@click.option("--accept-data-loss", is_flag=True, help="As for run.")
@click.option("--reset-checkpoint", is_flag=True, help="As for run; nothing is moved here.")
@options.master
@options.java_home
@pass_settings
def plan(
    settings: Settings,
    job: Path,
    variables: Mapping[str, str],
    sets: Sequence[str],
    mode: Mode | None,
    accept_data_loss: bool,
    reset_checkpoint: bool,
    master: str,
    java_home: str,
) -> None:
    """Show what a run would do without doing it.

    Shows the effective job, the offsets it would read, its checkpoint's progress, its delivery guarantee, and the
    spark-submit command. Nothing is written, created, downloaded or committed, and Spark is not started.

    Example: kctl etl plan orders.yaml --mode batch
    """
    from kafkad_etl.checkpoint import overlaps
    from kafkad_etl.cluster.clusters import Clusters
    from kafkad_etl.machine import filesystems
    from kafkad_etl.model.effective import effective
    from kafkad_etl.model.guarantee import guarantee
    from kafkad_etl.model.inspection import inspect
    from kafkad_etl.model.loading import JobFile, load
    from kafkad_etl.planning.outlook import plan_row
    from kafkad_etl.planning.plan import plan as planned_of
    from kafkad_etl.planning.planned import RunOptions
    from kafkad_etl.planning.registries import asked as asked_registries

    loaded = load(JobFile(job, variables, sets, mode))
    with loaded.locating_errors():
        found = asked_registries(effective(loaded))
    doubts = inspect(loaded, found)
    asked = RunOptions(accept_data_loss=accept_data_loss, reset_checkpoint=reset_checkpoint, secrets=found.secrets)
    with Clusters(settings, job.parent) as clusters, loaded.locating_errors():
        overlaps.refuse(found.job, found.files, os.environ)
        filesystems.check(found.job)
        planned = planned_of(clusters, found.job, asked, found.schemas)
    planned = planned._replace(warnings=(*doubts, *planned.warnings))
    promised = str(guarantee(planned.plan.job))
    words = _command(found, master, java_home)
    writer = Writer(settings, COLUMNS, Document(settings.command, dry_run=True))
    if settings.is_text and not settings.columns:
        writer.print_text(_lines(settings, planned, promised, words, found))
    else:
        writer.write([plan_row(planned, promised, words, found.secrets)])
    sys.stdout.flush()


def _command(found: Effective, master: str, java_home: str) -> list[str]:
    from kafkad_etl.machine.environment import outlook
    from kafkad_etl.process.submitting import NO_OPTIONS, command

    environment = outlook(found.job, java_home)
    return command(environment, found.job, master or found.job.spark.master, NO_OPTIONS, ["SOCKET"], found.secrets)


def _lines(
    settings: Settings, planned: PlannedRun, promised: str, words: Sequence[str], found: Effective
) -> Iterator[str]:
    from kafkad_etl.model.loading import masked
    from kafkad_etl.planning.outlook import command_text, partition_rows, plan_head, yaml_text
    from kctl.texts.output import counted

    yield from (masked(line, found.secrets) for line in plan_head(planned, promised))
    if planned.reach:
        yield ""
        table: Any = Writer(settings, PARTITIONS, Document(settings.command))
        yield from table.table(partition_rows(planned.reach))
        yield f"{counted(planned.rows, 'row')} to be read"
    yield ""
    yield command_text(words)
    yield ""
    yield from yaml_text(planned.plan.job, found.secrets).splitlines()
