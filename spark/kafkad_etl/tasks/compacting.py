"""`kctl etl compact`: Spark merges a job's small files. No cluster is contacted.

Files are merged while the job's lock is held. Tables of a lake take care of that themselves, so that their jobs may run
meanwhile; but not all of them do in an object store.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import NamedTuple, TextIO

from msgspec.structs import replace

from kafkad_etl.checkpoint import checkpoints, overlaps
from kafkad_etl.checkpoint.locking import Lock
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import FILES, TABLES, has_one_writer
from kafkad_etl.machine import environment, filesystems
from kafkad_etl.messages import Compacted, Failed, Plan
from kafkad_etl.model.effective import Effective, effective
from kafkad_etl.model.loading import JobFile, load
from kafkad_etl.planning import catalogs, masters
from kafkad_etl.process.logs import log_of
from kafkad_etl.process.working import SparkStart, Work, run_work
from kafkad_etl.reporting.collecting import Collector
from kafkad_etl.tasks.diagnosis import place, unexplained


class Request(NamedTuple):
    """The command line's arguments."""

    file: JobFile
    min_files: int | None = None
    master: str = ""
    java_home: str = ""


class CompactResult(NamedTuple):
    merged: list[Compacted]
    ends: EtlExit


def compact(request: Request, stream: TextIO) -> CompactResult:
    """Compacts the job's files. Raises EtlError for anything that goes wrong."""
    loaded = load(request.file)
    job = effective(loaded)
    if job.job.sink.type not in (*FILES, *TABLES):
        raise EtlError(
            f"sink.type is {job.job.sink.type}: only files of {', '.join((*FILES, *TABLES))} can be merged",
            EtlExit.USAGE,
            where=loaded.where("sink.type"),
        )
    with loaded.locating_errors():
        overlaps.refuse(job.job, job.files, os.environ)
        filesystems.check(job.job)
        for fault in catalogs.faults(job.job):
            raise fault
        found = environment.find(job.job, request.java_home)
    masters.check(job.job, request.master)
    checkpoint = checkpoints.checkpoint_of(job.job, os.environ)
    shown = Collector(Compacted, stream)

    def explain(failed: Failed) -> EtlError:
        return unexplained(failed, place(failed, loaded) or loaded.where("sink.path"))

    alone = job.job.sink.type in FILES or has_one_writer(job.job.sink)
    with Lock(checkpoint.lock_path) if alone else nullcontext() as lock:
        plan = plan_of(job, checkpoint, request.min_files)
        start = SparkStart(found, log_of(job.job), request.master)
        ends = run_work(
            start, Work(plan, job.secrets, shown, explain, lock=lock, secret_variables=job.secret_variables)
        )
    return CompactResult(shown.found, ends)


def plan_of(job: Effective, checkpoint: checkpoints.Checkpoint, min_files: int | None) -> Plan:
    sink = job.job.sink
    if min_files is not None:
        sink = replace(sink, compact=replace(sink.compact, min_files=min_files))
    record, keeps_progress = checkpoint.record(), job.job.run.mode != "batch"
    return Plan(
        task="compact",
        job=replace(job.job, sink=sink),
        mode=job.job.run.mode,
        reading=None,
        checkpoint=checkpoint.path if keeps_progress else "",
        owner=checkpoint.owner(keeps_progress=keeps_progress),
        checkpoint_id=record.checkpoint_id if record else "",
    )
