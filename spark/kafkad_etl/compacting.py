"""`kctl etl compact`: a job's small files are merged by Spark while the job's lock is held. No cluster is needed."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from msgspec.structs import replace

from kafkad_etl import checkpoints, environment, launching
from kafkad_etl.conducting import Conductor, exit_of
from kafkad_etl.effective import Effective, effective
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.interruptions import Interruptions
from kafkad_etl.loading import Loaded, load
from kafkad_etl.locking import Lock
from kafkad_etl.logs import Log
from kafkad_etl.messages import Compacted, Event, Failed, Plan, Rows
from kafkad_etl.reporting import Outcome, Reporter
from kafkad_etl.reporting.state import begin
from kafkad_etl.reporting.text import said

KINDS = ("parquet", "json", "csv")


class Request(NamedTuple):
    """What the command line says."""

    path: Path
    variables: Mapping[str, str] = {}
    sets: Sequence[str] = ()
    min_files: int | None = None
    master: str = ""
    java_home: str = ""


class Done(NamedTuple):
    merged: list[Compacted]
    ends: EtlExit


class _Shown(Reporter):
    """Each merge as it happens."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(begin(time.monotonic(), {}, {}), stream)
        self.merged: list[Compacted] = []

    def show(self, event: Event) -> None:
        if isinstance(event, Compacted):
            self.merged.append(event)
        if line := said(event):
            self.say(line)

    def rows(self, rows: Rows) -> None:
        """There are none."""

    def tick(self) -> None:
        """Nothing has happened."""

    def close(self, outcome: Outcome) -> None:
        """The rows that the command prints say it all."""


def compact(request: Request, stream: TextIO) -> Done:
    """EtlError for all that goes wrong."""
    loaded = load(request.path, variables=request.variables, sets=request.sets, environment=os.environ)
    job = effective(loaded)
    if job.job.sink.type not in KINDS:
        raise EtlError(
            f"sink.type is {job.job.sink.type}: only files of {', '.join(KINDS)} are merged",
            EtlExit.USAGE,
            where=loaded.where("sink.type"),
        )
    found = environment.find(job.job, request.java_home)
    directory = checkpoints.directory_of(job.job, os.environ)
    state = checkpoints.state_directory(os.environ)
    checkpoint = checkpoints.Checkpoint(directory, state / job.job.name)
    log = Log(state / "logs" / f"{job.job.name}.log")
    shown = _Shown(stream)
    with (
        Lock(checkpoint.lock_path, time.strftime("%Y-%m-%dT%H:%M:%S%z")) as lock,
        Interruptions() as interruptions,
        Conductor(shown, interruptions, job.secrets) as conductor,
        launching.launch(
            found,
            plan_of(job, checkpoint, request.min_files),
            log,
            request.master,
            secrets=job.secrets,
            inherited=(lock.fileno(),),
        ) as launched,
    ):
        last = conductor.to_its_end(launched, log)
    if isinstance(last, Failed):
        raise _failure(last, log, loaded)
    return Done(shown.merged, exit_of(last))


def plan_of(job: Effective, checkpoint: checkpoints.Checkpoint, min_files: int | None) -> Plan:
    sink = job.job.sink
    if min_files is not None:
        sink = replace(sink, compact=replace(sink.compact, min_files=min_files))
    record = checkpoint.record()
    return Plan(
        task="compact",
        job=replace(job.job, sink=sink),
        mode=job.job.run.mode,
        reading=None,
        checkpoint="" if job.job.run.mode == "batch" else checkpoint.path,
        checkpoint_id=record.checkpoint_id if record else "",
    )


def _failure(failed: Failed, log: Log, loaded: Loaded) -> EtlError:
    if failed.trace:
        log.add(failed.trace)
    ends = EtlExit.ENVIRONMENT if failed.kind == "environment" else EtlExit.FAILED
    return EtlError(failed.text, ends, hints=(*failed.hints, f"log: {log.path}"), where=loaded.where("sink.path"))
