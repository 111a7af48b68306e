"""`kctl etl run`, from the job file to the exit code.

Everything that can be checked without Spark is checked before it starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TextIO

from kafkad.systemd import Notifier
from kafkad_etl.checkpoint.checkpoints import checkpoint_of
from kafkad_etl.checkpoint.locking import Lock
from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.errors import EtlExit
from kafkad_etl.job import Job
from kafkad_etl.machine import environment, filesystems
from kafkad_etl.model.effective import Effective, effective
from kafkad_etl.model.guarantee import guarantee
from kafkad_etl.model.inspection import inspect
from kafkad_etl.model.loading import JobFile, Loaded, load
from kafkad_etl.planning import masters, registries
from kafkad_etl.planning.beginning import begin
from kafkad_etl.planning.plan import plan
from kafkad_etl.planning.planned import PlannedRun, RunOptions
from kafkad_etl.process.announcing import announced
from kafkad_etl.process.logs import log_of
from kafkad_etl.process.submitting import NO_OPTIONS, Options
from kafkad_etl.process.working import Work, run_work
from kafkad_etl.reporting import How, Reporter, reporter
from kafkad_etl.tasks.attending import attended
from kafkad_etl.tasks.diagnosis import explaining
from kafkad_etl.tasks.recording import Recording

if TYPE_CHECKING:
    from kctl.settings import Settings


class Request(NamedTuple):
    """The command line's arguments."""

    file: JobFile
    asked: RunOptions = RunOptions()
    master: str = ""
    java_home: str = ""
    options: Options = NO_OPTIONS
    how: How = "plain"
    trusts_sql: bool = False


def run(settings: Settings, request: Request, stream: TextIO) -> EtlExit:
    """Runs the job. Raises EtlError for anything that goes wrong. `stream` gets what people read; data goes to
    standard output."""
    loaded = load(request.file)
    job = effective(loaded)
    with (
        announced(Notifier.from_environment(os.environ), job.secrets) as notifier,
        Recording(job.job, job.secrets, stream, os.environ) as recording,
    ):
        return recording.ends(_run(settings, request, stream, loaded, job, recording, notifier))


def _run(
    settings: Settings,
    request: Request,
    stream: TextIO,
    loaded: Loaded,
    job: Effective,
    recording: Recording,
    notifier: Notifier,
) -> EtlExit:
    with loaded.locating_errors():
        job = registries.asked(job)
    doubts = inspect(loaded, job, trusts=request.trusts_sql)
    with loaded.locating_errors():
        filesystems.check(job.job, request.options.words)
        found = environment.find(job.job, request.java_home)
    master = request.options.master or request.master
    masters.check(job.job, master, request.options.conf)
    lock_path = checkpoint_of(job.job, os.environ).lock_path
    with Clusters(settings, request.file.path.parent) as clusters, Lock(lock_path) as lock:
        with loaded.locating_errors():
            planned = plan(clusters, job.job, request.asked._replace(spark=found.version), job.schemas)
        notes = [
            f"warning: {text}"
            for text in (*doubts, *masters.doubts(job.job, master), *found.warnings, *planned.warnings)
        ]
        if lock.left:
            notes.append(f"the last run did not finish ({lock.left}); taking over its lock")
        promise = str(guarantee(planned.plan.job))
        if planned.has_nothing_new:
            return _nothing_new(request, planned, stream, notes, promise, recording)
        log = log_of(job.job)
        shown = reporter(request.how, planned, stream, guarantee=promise, log=str(log.path))
        recording.shown = shown
        with loaded.locating_errors(), exporting(planned.plan.job, shown):
            begun = begin(planned, clusters)
            notes += begun.notes
            return run_work(
                Work(found, begun.plan, log, job.secrets, request.master, request.options, lock),
                shown,
                explaining(loaded, planned, clusters, shown),
                partial(attended, planned, clusters, shown, notes, notifier),
            )


def _nothing_new(
    request: Request,
    planned: PlannedRun,
    stream: TextIO,
    notes: Sequence[str],
    promise: str,
    recording: Recording,
) -> EtlExit:
    shown = recording.shown = reporter(request.how, planned, stream, guarantee=promise)
    for text in notes:
        shown.say(text)
    shown.say(f"nothing new since batch {planned.standing.batch}; Spark was not started")
    shown.close("done")
    return EtlExit.DONE


@contextmanager
def exporting(job: Job, shown: Reporter) -> Iterator[None]:
    """Serves metrics to Prometheus during the run, if the job says where."""
    if not job.run.listen:
        yield
        return
    from kafkad_etl.reporting.exporter import Exporter

    with Exporter(job.run.listen, job.name, lambda: shown.state):
        yield
