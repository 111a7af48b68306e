"""When a run has had enough: pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkad_etl.facts import duration_ms
from kafkad_etl.job import Job

_WAITING = ("Waiting for data to arrive", "Waiting for next trigger")
"""What Spark says where it has looked and found nothing."""


class Limits(NamedTuple):
    rows: int = 0
    seconds: float = 0.0
    idle_seconds: float = 0.0


def limits_of(job: Job, limit: int) -> Limits:
    """The smaller one, where both the file and the command line limit the rows."""
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
    """Since when Spark has looked and found nothing, by the status of its query. The time that it takes to begin, and
    to look, is no idleness: on a busy machine that alone may be seconds."""
    if status["isDataAvailable"]:
        return None
    return before if before is not None or status["message"] not in _WAITING else now
