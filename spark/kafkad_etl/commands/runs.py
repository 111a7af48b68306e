"""`kctl etl runs`: the history of jobs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkad_etl.commands.base import EtlCommand
from kctl.command.verb import pass_settings
from kctl.settings import Settings
from kctl.texts.output import Column, Document, Row, Writer, note

if TYPE_CHECKING:
    from kafkad_etl.checkpoint.history import History, Run

COLUMNS = (
    Column("job", "The job's name."),
    Column("began_ms", "When the run began.", "time", "BEGAN"),
    Column("duration_ms", "How long it took, or has taken so far.", "duration", "TOOK"),
    Column(
        "result",
        "done, nothing new, limit, interrupted, failed, refused (nothing was started), running, or did not end: kctl "
        "was killed.",
        "state",
    ),
    Column("code", "The exit code.", "number"),
    Column("rows_read", "Rows read.", "number", "READ"),
    Column("rows_written", "Rows written to the sink.", "number", "WRITTEN"),
    Column("bad", "Rows that could not be parsed.", "number"),
    Column("lag", "Records not read yet when it ended.", "number"),
    Column("error", "Why it failed."),
    Column("mode", "run.mode.", wide=True),
    Column("batches", "Committed batches.", "number", wide=True),
    Column("files", "Files written.", "number", wide=True),
    Column("bytes_written", "Their size.", "size", "SIZE", wide=True),
    Column("ended_ms", "When it ended.", "time", machine=True),
    Column("late", "Rows dropped because the watermark had passed them.", "number", machine=True),
    Column("duplicates", "Rows dropped as duplicates.", "number", machine=True),
    Column("lost", "Records that were deleted before they were read.", "number", machine=True),
    Column("run", "The run's id.", machine=True),
)


@click.command("runs", cls=EtlCommand, columns=COLUMNS, watchable=True)
@click.argument("jobs", metavar="[JOB]...", nargs=-1)
@pass_settings
def runs(settings: Settings, jobs: tuple[str, ...]) -> None:
    """Show when jobs ran and how that ended.

    The newest run comes first. JOB is a job file or a job's name; without one, all jobs are shown whose runs are in
    $KAFKAD_ETL_STATE or ./.etl. The oldest runs of a job are forgotten once its history has a megabyte. No cluster is
    contacted.

    Example: kctl etl runs orders.yaml --limit 10
    """
    from kafkad_etl.checkpoint import history
    from kafkad_etl.checkpoint.checkpoints import state_directory

    chosen = [history.history_of(_name(job), os.environ) for job in jobs] or history.histories(os.environ)
    rows = sorted((row for each in chosen for row in _rows(each)), key=lambda row: row["began_ms"], reverse=True)
    if not rows:
        note(settings, f"no run of {', '.join(map(_name, jobs)) or 'any job'} in {state_directory(os.environ)}")
    Writer(settings, COLUMNS, Document(settings.command)).write(rows)
    sys.stdout.flush()


def _name(job: str) -> str:
    from kafkad_etl.model.loading import name_in

    return name_in(Path(job)) if job.endswith((".yaml", ".yml")) else job


def _rows(history: History) -> Iterator[Row]:
    found, damages = history.runs()
    for damage in damages:
        print(f"warning: {damage}", file=sys.stderr)
    for run in found:
        yield _row(run)


def _row(run: Run) -> Row:
    from msgspec.structs import asdict

    if run.ended:
        row = asdict(run.ended)
        return {**row, "duration_ms": row["ended_ms"] - row["began_ms"], "error": row["error"] or None}
    assert run.began is not None
    return {**asdict(run.began), **_unended(run)}


def _unended(run: Run) -> Row:
    import time

    from kafkad_etl.checkpoint.locking import is_running

    assert run.began is not None
    holder = is_running(Path(run.began.lock))
    if holder and (holder.pid, holder.host) == (run.began.pid, run.began.host):
        return {"result": "running", "duration_ms": round(time.time() * 1000) - run.began.began_ms}
    return {"result": "did not end"}
