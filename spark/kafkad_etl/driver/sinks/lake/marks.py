"""Decides from a table's history whether it has a batch. Pure.

Each commit of a job bears a mark: the job's name, the checkpoint's id and the batch's number, in one property of the
commit. The history is read from the newest commit back, until it answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kafkad_etl.driver.terms import BatchId, JobFailed
from kafkad_etl.messages import Failed

PROPERTY = "kafkad-etl.batch"
ROWS = "kafkad-etl.rows"
"""The property with the number of a merged batch's rows: a snapshot counts those that it copied as well."""
SLACK_MS = 86_400_000
"""How far the clocks of those who write to a table may be apart."""


class Commit(NamedTuple):
    time_ms: int
    mark: str = ""
    """Empty if somebody else made it."""
    rows: int = 0
    files: int = 0
    bytes: int = 0
    follows: bool = True
    """False if it is the table's first commit. The one before may still be gone: tables forget old commits."""


def mark_of(job: str, batch: BatchId) -> str:
    return f"{marks_begin(job, batch.checkpoint_id)}{batch.number}"


def marks_begin(job: str, checkpoint_id: str) -> str:
    """What the marks of all of a job's batches begin with."""
    return f"{job}/{checkpoint_id}/"


def committed(history: Iterable[Commit], job: str, batch: BatchId, table: str) -> Commit | None:
    """The commit of this batch; None if it was not written. `history` goes from the newest commit back.

    Raises JobFailed if the table has later batches, or if commits of the time since the batch was planned are gone.
    """
    ours = marks_begin(job, batch.checkpoint_id)
    oldest: Commit | None = None
    for commit in history:
        oldest = commit
        if commit.mark.startswith(ours):
            number = int(commit.mark.removeprefix(ours))
            if number > batch.number:
                raise JobFailed(_is_ahead(table, batch.number, number))
            return commit if number == batch.number else None
        if commit.time_ms < batch.planned_ms - SLACK_MS:
            return None
    if oldest is not None and oldest.follows and oldest.time_ms > batch.planned_ms:
        raise JobFailed(_is_forgotten(table, batch.number))
    return None


def is_last(number: int, last: int | None, table: str) -> bool:
    """True if the last batch that the table has of a job is this one. Raises JobFailed if it is a later one."""
    if last is not None and last > number:
        raise JobFailed(_is_ahead(table, number, last))
    return last == number


def _is_ahead(table: str, number: int, written: int) -> Failed:
    text = f"the checkpoint is at batch {number}, but table {table} already has batch {written} of it"
    hints = ["restore the checkpoint, or set another run.checkpoint to start over at source.start"]
    return Failed(kind="checkpoint", text=text, hints=hints)


def _is_forgotten(table: str, number: int) -> Failed:
    text = (
        f"batch {number} was interrupted, and nobody knows whether it was written: table {table} no longer has the "
        "snapshots since then"
    )
    hints = [
        "look for its rows in the table; then set another run.checkpoint, with source.start after or before them",
        "keep snapshots for longer than a job may stand still",
    ]
    return Failed(kind="checkpoint", text=text, hints=hints)
