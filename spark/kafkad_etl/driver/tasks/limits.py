"""Decides when a run has reached its limits. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkad_etl.facts import duration_ms
from kafkad_etl.job import Job

_WAITING = ("Waiting for data to arrive", "Waiting for next trigger")
"""Spark's status messages when it has found no new data."""


class Limits(NamedTuple):
    rows: int = 0
    seconds: float = 0.0
    idle_seconds: float = 0.0


def limits_of(job: Job, limit: int) -> Limits:
    """The limits of a run; of two row limits, in the file and on the command line, the smaller one."""
    after = job.run.stop_after
    rows = min((each for each in (after.rows, limit) if each), default=0)
    return Limits(rows, duration_ms(after.time) / 1000, duration_ms(after.idle) / 1000)


def enough(limits: Limits, rows: int, ran_seconds: float, idle_seconds: float) -> bool:
    return bool(
        (limits.rows and rows >= limits.rows)
        or (limits.seconds and ran_seconds >= limits.seconds)
        or (limits.idle_seconds and idle_seconds >= limits.idle_seconds)
    )


def idle_since(status: dict[str, Any], before: float | None, now: float) -> float | None:
    """Since when the query has been idle, by its status. Starting up and looking for data are not idleness: on a
    busy machine they may take seconds."""
    if status["isDataAvailable"]:
        return None
    return before if before is not None or status["message"] not in _WAITING else now
