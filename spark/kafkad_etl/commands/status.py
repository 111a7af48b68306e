"""`kctl etl status` and `kctl etl list`: the progress of jobs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkad_etl.commands import options
from kafkad_etl.commands.base import EtlCommand
from kctl.command.verb import pass_settings
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Row, Writer, note

if TYPE_CHECKING:
    from kafkad_etl.checkpoint.checkpoints import Checkpoint
    from kafkad_etl.job import Job

COLUMNS = (
    Column("topic", "A topic that the job reads."),
    Column("partition", "The partition.", "number", "PART"),
    Column("offset", "The next offset to read; null: not read yet.", "number"),
    Column("end", "The partition's end offset.", "number"),
    Column("lag", "Records not read yet.", "number"),
    Column("note", "Anything unusual."),
    Column("job", "The job's name.", machine=True),
    Column("batch", "The last committed batch.", "number", machine=True),
    Column("watermark_ms", "Rows older than this are late.", "time", machine=True),
    Column("running", "yes or no.", machine=True),
    Column("unfinished", "What an interrupted run or merge has left unfinished.", machine=True),
)
LISTED = (
    Column("job", "The job's name."),
    Column("running", "yes or no."),
    Column("batch", "The last committed batch.", "number"),
    Column("committed_ms", "When it was committed.", "time", "COMMITTED"),
    Column("watermark_ms", "Rows older than this are late.", "time", "WATERMARK"),
    Column("source", "What the job reads."),
    Column("sink", "What the job writes to."),
    Column("unfinished", "What an interrupted run or merge has left unfinished."),
    Column("checkpoint", "The checkpoint directory."),
    Column("checkpoint_id", "The checkpoint's id.", wide=True),
    Column("holder", "The process that runs the job.", wide=True),
)


@click.command("status", cls=EtlCommand, columns=COLUMNS, watchable=True)
@click.argument("job", type=click.Path(path_type=Path))
@options.variables
@options.sets
@pass_settings
def status(settings: Settings, job: Path, variables: Mapping[str, str], sets: Sequence[str]) -> None:
    """Show how far a job has got.

    Compares the offsets in its checkpoint with the ends of its topics, and shows its last batch and watermark, whether
    it is running, and what an interrupted run or merge has left unfinished.

    Example: kctl etl status orders.yaml --watch
    """
    from kafkad_etl.checkpoint import checkpoints, locking
    from kafkad_etl.cluster.clusters import Clusters
    from kafkad_etl.model.effective import effective
    from kafkad_etl.model.loading import JobFile, load
    from kafkad_etl.planning import outlook, source

    loaded = load(JobFile(job, variables, sets))
    found = effective(loaded).job
    checkpoint = checkpoints.checkpoint_of(found, os.environ)
    standing = checkpoint.standing()
    with Clusters(settings, job.parent) as clusters, loaded.locating_errors():
        read = source.find(clusters, found)
        unfound = source.unfound(clusters, found, read.there, standing.reached)
    record = checkpoint.record()
    remade = checkpoints.remade(record.topics, read.ids) if record else ()
    holder = locking.is_running(checkpoint.lock_path)
    about = {
        "job": found.name,
        "batch": standing.batch,
        "watermark_ms": standing.watermark_ms or None,
        "running": "yes" if holder else "no",
        "unfinished": outlook.unfinished_text(standing, checkpoint.unfinished(), holder),
    }
    rows: list[Row] = [{**row, **about} for row in outlook.status_rows(standing, read.there, remade, unfound)]
    writer = Writer(settings, COLUMNS, Document(settings.command))
    if not settings.is_text or settings.columns:
        writer.write(rows)
    else:
        writer.print_text(
            _lines(writer, rows, f"{found.name}: {_standing_text(checkpoint, found)}; {outlook.running_text(holder)}")
        )
    sys.stdout.flush()


def _standing_text(checkpoint: Checkpoint, job: Job) -> str:
    from kafkad_etl.checkpoint import checkpoints
    from kafkad_etl.facts import is_streaming
    from kafkad_etl.planning import outlook

    if checkpoint.is_remote:
        return f"its checkpoint {checkpoint.path} {outlook.remote_text(checkpoint.standing())}"
    files = checkpoint.files()
    if files.is_begun:
        merge = checkpoint.unfinished()
        return outlook.standing_text(checkpoints.standing_of(files)) + (f"; {merge}" if merge else "")
    return "never run" if is_streaming(job) else "mode batch keeps no progress"


def _lines(writer: Writer, rows: Sequence[Row], head: str) -> Iterator[str]:
    from kctl.texts.output import counted

    yield head
    if rows:
        yield from writer.table(rows)
        yield f"lag {counted(sum(row['lag'] or 0 for row in rows), 'record')}"


@click.command("list", cls=EtlCommand, columns=LISTED, watchable=True)
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@pass_settings
def list_jobs(settings: Settings, directory: Path | None) -> None:
    """List the jobs that have a checkpoint.

    Looks in DIRECTORY, $KAFKAD_ETL_STATE or ./.etl, whichever is given first. No cluster is contacted.

    Example: kctl etl list /var/lib/etl
    """
    from kafkad_etl.checkpoint import checkpoints, locking
    from kafkad_etl.planning import outlook

    where = directory or checkpoints.state_directory(os.environ)
    rows = []
    for record in sorted(where.glob(f"*/{checkpoints.RECORD}")):
        if checkpoints.ASIDE in record.parent.name:
            continue
        checkpoint = checkpoints.beside(record)
        holder = locking.is_running(checkpoint.lock_path)
        standing, committed = checkpoint.standing(), checkpoint.last_commit()
        unfinished = outlook.unfinished_text(standing, checkpoint.unfinished(), holder)
        rows.append(outlook.list_row(checkpoint.path, checkpoint.record(), standing, holder, committed, unfinished))
    if not rows:
        note(settings, f"no job has a checkpoint in {where}")
    Writer(settings, LISTED, Document(settings.command)).write(rows)
    sys.stdout.flush()
