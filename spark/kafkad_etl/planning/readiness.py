"""Checks whether a run could start now, and reports every obstacle rather than only the first."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import dead_letter_topics
from kafkad_etl.job import Job
from kafkad_etl.machine import filesystems
from kafkad_etl.machine.environment import missing_jars
from kafkad_etl.planning import masters, places, source, writing
from kafkad_etl.planning.plan import plan
from kafkad_etl.planning.planned import RunOptions


class NotReady(EtlError):
    """Several things that a job needs are missing; `mistakes` has a line for each."""

    def __init__(self, name: str, errors: Sequence[EtlError]) -> None:
        what = f"{name} cannot run: {len(errors)} problems found"
        super().__init__(what, EtlExit(errors[0].exit_code))
        self._errors = errors
        self._tell()

    def _tell(self) -> None:
        self.mistakes = tuple("; ".join((error.what, *error.hints)) for error in self._errors)
        self.hints = self.mistakes

    def locate(self, place_of: Callable[[str], str]) -> None:
        for error in self._errors:
            error.locate(place_of)
        self._tell()


def check(
    clusters: Clusters,
    job: Job,
    secrets: frozenset[str] = frozenset(),
    environment: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.time,
) -> tuple[str, ...]:
    """Returns warnings; raises EtlError if a run could not start now."""
    distinct = {error.what: error for error in _faults(clusters, job)}
    if len(distinct) > 1:
        raise NotReady(job.name, list(distinct.values()))
    for error in distinct.values():
        raise error
    return plan(clusters, job, RunOptions(secrets=secrets), environment=environment, clock=clock).warnings


def _faults(clusters: Clusters, job: Job) -> Iterator[EtlError]:
    read = source.Source({}, {})
    try:
        read = source.find(clusters, job)
    except EtlError as error:
        yield error
    needs: list[Callable[[], object]] = [partial(writing.target, clusters, job, read)]
    needs += [partial(writing.need_letters, clusters, job, name) for name in dead_letter_topics(job)]
    for need in needs:
        try:
            need()
        except EtlError as error:
            yield error
    yield from places.faults(job)
    yield from missing_jars(job)
    yield from filesystems.faults(job)
    yield from masters.faults(job)
