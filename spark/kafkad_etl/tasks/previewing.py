"""`kctl etl preview`: what the sink would receive for some rows. Nothing is written and no lock is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TextIO

from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.errors import EtlExit
from kafkad_etl.machine import environment, filesystems
from kafkad_etl.messages import Rows
from kafkad_etl.model.effective import effective
from kafkad_etl.model.loading import JobFile, load
from kafkad_etl.planning import masters, registries
from kafkad_etl.planning.plan import plan
from kafkad_etl.planning.planned import RunOptions
from kafkad_etl.process.logs import log_of
from kafkad_etl.process.working import SparkStart, Work, run_work
from kafkad_etl.reporting.collecting import Collector
from kafkad_etl.tasks.diagnosis import explaining

if TYPE_CHECKING:
    from kctl.settings import Settings


class Request(NamedTuple):
    """The command line's arguments."""

    file: JobFile
    rows: int = 20
    begin: Literal["earliest", "latest"] = "latest"
    master: str = ""
    java_home: str = ""


class PreviewResult(NamedTuple):
    rows: Rows | None
    ends: EtlExit


def preview(settings: Settings, request: Request, stream: TextIO) -> PreviewResult:
    """Previews the job. Raises EtlError for anything that goes wrong."""
    loaded = load(request.file)
    with loaded.locating_errors():
        job = registries.asked(effective(loaded))
        filesystems.check(job.job)
    found = environment.find(job.job, request.java_home)
    masters.check(job.job, request.master)
    shown = Collector(Rows, stream)
    asked = RunOptions(task="preview", limit_rows=request.rows, preview_from=request.begin, spark=found.version)
    with Clusters(settings, request.file.path.parent) as clusters:
        with loaded.locating_errors():
            planned = plan(clusters, job.job, asked, job.schemas)
        explain = explaining(loaded, planned, clusters, shown)
        start = SparkStart(found, log_of(job.job), request.master)
        ends = run_work(start, Work(planned.plan, job.secrets, shown, explain, secret_variables=job.secret_variables))
    return PreviewResult(shown.found[-1] if shown.found else None, ends)
