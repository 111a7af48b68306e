"""`kctl etl run`, from the job file to the exit code.

All that can be known without Spark is looked up before it starts."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from kafkad_etl import checkpoints, diagnosis, environment, launching, planning
from kafkad_etl.clusters import Clusters
from kafkad_etl.conducting import Conductor, exit_of
from kafkad_etl.effective import Effective, effective
from kafkad_etl.environment import Environment
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.guarantee import guarantee
from kafkad_etl.inspection import inspect
from kafkad_etl.interruptions import Interruptions
from kafkad_etl.loading import Loaded, load, masked
from kafkad_etl.locking import Lock
from kafkad_etl.logs import Log
from kafkad_etl.messages import Failed
from kafkad_etl.planning import Asked, Planned, Schemas
from kafkad_etl.reporting import How, Reporter, reporter
from kafkad_etl.submitting import NO_OPTIONS, Options

if TYPE_CHECKING:
    from kctl.settings import Settings


class Request(NamedTuple):
    """What the command line says."""

    path: Path
    variables: Mapping[str, str] = {}
    sets: Sequence[str] = ()
    asked: Asked = Asked()
    master: str = ""
    java_home: str = ""
    options: Options = NO_OPTIONS
    how: How = "plain"


def run(settings: Settings, request: Request, stream: TextIO) -> EtlExit:
    """EtlError for all that goes wrong. `stream` gets what people read; data go to standard output."""
    mode = request.asked.mode
    loaded = load(request.path, variables=request.variables, sets=request.sets, environment=os.environ, mode=mode)
    job = effective(loaded)
    doubts = inspect(loaded, job)
    found = environment.find(job.job, request.java_home)
    with Clusters(settings, request.path.parent) as clusters, Lock(lock_path(job), _now()) as lock:
        schemas = Schemas(job.value_schema, job.key_schema, job.sink_schema)
        with loaded.telling_places():
            planned = planning.plan(clusters, job.job, request.asked._replace(spark=found.version), schemas)
        said = [f"warning: {text}" for text in (*doubts, *found.warnings, *planned.warnings)]
        if lock.left:
            said.append(f"the last run did not come to its end: {lock.left}; its lock is taken over")
        said += planning.begin(planned, clusters)
        return _Run(loaded, job, found, clusters, planned).to_its_end(request, lock, said, stream)


class _Run:
    """Of a job whose Plan is made, and whose lock is held."""

    def __init__(
        self, loaded: Loaded, job: Effective, found: Environment, clusters: Clusters, planned: Planned
    ) -> None:
        self.loaded = loaded
        self.job = job
        self.environment = found
        self.clusters = clusters
        self.planned = planned
        self.log = Log(checkpoints.state_directory(os.environ) / "logs" / f"{job.job.name}.log")

    def to_its_end(self, request: Request, lock: Lock, said: Sequence[str], stream: TextIO) -> EtlExit:
        plan, secrets = self.planned.plan, self.job.secrets
        with ExitStack() as stack:
            interruptions = stack.enter_context(Interruptions())
            promise = str(guarantee(plan.job))
            shown = reporter(request.how, self.planned, stream, guarantee=promise, log=str(self.log.path))
            conductor = stack.enter_context(Conductor(shown, interruptions, secrets))
            for text in said:
                shown.say(text)
            self._show_elsewhere(conductor, shown, stack)
            launched = stack.enter_context(
                launching.launch(
                    self.environment,
                    plan,
                    self.log,
                    request.master,
                    request.options,
                    secrets=secrets,
                    inherited=(lock.fileno(),),
                )
            )
            last = conductor.to_its_end(launched, self.log)
        if isinstance(last, Failed):
            raise self._failure(last, shown)
        return exit_of(last)

    def _show_elsewhere(self, conductor: Conductor, shown: Reporter, stack: ExitStack) -> None:
        """As a consumer group, and to Prometheus."""
        from kafkad_etl.mirror import Mirror, group_of

        job = self.planned.plan.job
        if job.run.listen:
            from kafkad_etl.exporter import Exporter

            stack.enter_context(Exporter(job.run.listen, job.name, lambda: shown.state))
        group = group_of(job)
        if group and self.planned.plan.reading and self.planned.checkpoint:
            conductor.mirror = Mirror(self.clusters.fresh(job.kafka), group, conductor.warn)

    def _failure(self, failed: Failed, shown: Reporter) -> EtlError:
        if failed.trace:
            self.log.add(failed.trace)
        where = diagnosis.place(failed, self.loaded)
        error = diagnosis.explain(failed, self.planned, self.clusters, shown.state, where)
        what, hints = masked(error.what, self.job.secrets), (*error.hints, f"log: {self.log.path}")
        return EtlError(what, EtlExit(error.exit_code), hints=hints)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def lock_path(job: Effective) -> Path:
    directory = checkpoints.directory_of(job.job, os.environ)
    return checkpoints.Checkpoint(directory, checkpoints.state_directory(os.environ) / job.job.name).lock_path
