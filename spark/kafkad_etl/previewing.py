"""`kctl etl preview`: what the sink would get of some rows. Nothing is written and no lock is needed."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TextIO

from kafkad_etl import checkpoints, diagnosis, environment, launching, planning
from kafkad_etl.clusters import Clusters
from kafkad_etl.conducting import Conductor, exit_of
from kafkad_etl.effective import effective
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.interruptions import Interruptions
from kafkad_etl.loading import load
from kafkad_etl.logs import Log
from kafkad_etl.messages import Event, Failed, Rows, Warned
from kafkad_etl.planning import Asked, Schemas
from kafkad_etl.reporting import Outcome, Reporter
from kafkad_etl.reporting.state import begin

if TYPE_CHECKING:
    from kctl.settings import Settings


class Request(NamedTuple):
    """What the command line says."""

    path: Path
    variables: Mapping[str, str] = {}
    sets: Sequence[str] = ()
    rows: int = 20
    begin: Literal["earliest", "latest"] = "latest"
    master: str = ""
    java_home: str = ""


class Done(NamedTuple):
    rows: Rows | None
    ends: EtlExit


class _Shown(Reporter):
    def __init__(self, stream: TextIO) -> None:
        super().__init__(begin(time.monotonic(), {}, {}), stream)
        self.found: Rows | None = None

    def show(self, event: Event) -> None:
        if isinstance(event, Warned):
            self.say(f"warning: {event.text}")

    def rows(self, rows: Rows) -> None:
        self.found = rows

    def tick(self) -> None:
        """Nothing has happened."""

    def close(self, outcome: Outcome) -> None:
        """The rows say it all."""


def preview(settings: Settings, request: Request, stream: TextIO) -> Done:
    """EtlError for all that goes wrong."""
    loaded = load(request.path, variables=request.variables, sets=request.sets, environment=os.environ)
    job = effective(loaded)
    found = environment.find(job.job, request.java_home)
    log = Log(checkpoints.state_directory(os.environ) / "logs" / f"{job.job.name}.log")
    shown = _Shown(stream)
    asked = Asked(task="preview", limit_rows=request.rows, preview_from=request.begin, spark=found.version)
    with Clusters(settings, request.path.parent) as clusters:
        schemas = Schemas(job.value_schema, job.key_schema, job.sink_schema)
        planned = planning.plan(clusters, job.job, asked, schemas)
        with (
            Interruptions() as interruptions,
            Conductor(shown, interruptions, job.secrets) as conductor,
            launching.launch(found, planned.plan, log, request.master, secrets=job.secrets) as launched,
        ):
            last = conductor.to_its_end(launched, log)
        if isinstance(last, Failed):
            if last.trace:
                log.add(last.trace)
            error = diagnosis.explain(last, planned, clusters, shown.state, diagnosis.place(last, loaded))
            raise EtlError(error.what, EtlExit(error.exit_code), hints=(*error.hints, f"log: {log.path}"))
    return Done(shown.found, exit_of(last))
