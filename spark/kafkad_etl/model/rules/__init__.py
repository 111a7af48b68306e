"""Rules over several keys of a job. Pure; one module per section of the file."""

from __future__ import annotations

from collections.abc import Iterator

from kafkad_etl.job import Job
from kafkad_etl.model.document import Mistake
from kafkad_etl.model.rules import clients, rows, running, sinks, sources


def mistakes(job: Job) -> list[Mistake]:
    """All mistakes, unsorted: loading sorts them by line."""
    return list(_all(job))


def _all(job: Job) -> Iterator[Mistake]:
    for part in (clients, sources, rows, sinks, running):
        yield from part.mistakes(job)
