"""Turns a job and the current state of its cluster into a Plan for the driver, with every offset resolved.

`plan` only reads and decides. What a run must do first is listed in `PlannedRun` and done by `beginning.begin`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from kafkad_etl.checkpoint.checkpoints import Checkpoint, checkpoint_of
from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.job import Job
from kafkad_etl.messages import Plan
from kafkad_etl.model.schemas import NO_SCHEMAS, Schemas
from kafkad_etl.planning import places, registries, source, writing
from kafkad_etl.planning.planned import PlannedRun, RunOptions
from kafkad_etl.planning.resume import ResumePoint, resume_point


def plan(
    clusters: Clusters,
    job: Job,
    asked: RunOptions,
    schemas: Schemas = NO_SCHEMAS,
    environment: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.time,
) -> PlannedRun:
    """Plans an effective job. EtlError USAGE, CLUSTER, DATA_LOSS or CHECKPOINT says why it cannot run."""
    now = clock()
    runs = asked.task == "run"
    for fault in places.missing(job):
        raise fault
    keeps_progress = runs and job.run.mode != "batch"
    read = source.find(clusters, job)
    checkpoint = checkpoint_of(job, environment)
    stands = resume_point(checkpoint, job, asked, read.ids, now) if keeps_progress else ResumePoint()
    bounds = source.NOTHING
    if read.topics:
        bounds = source.bounds(clusters, job, asked, read.there, stands.standing, now)
    target = writing.checked_target(clusters, job, read) if runs else writing.Target()
    return PlannedRun(
        plan=Plan(
            task=asked.task,
            job=job,
            mode=job.run.mode if runs else "batch",
            reading=source.reading(clusters, job, asked, bounds) if read.topics else None,
            value_schema=schemas.value,
            key_schema=schemas.key,
            sink_schema=schemas.sink,
            value_writers=dict(schemas.value_writers),
            key_writers=dict(schemas.key_writers),
            sink_schema_id=schemas.sink_id,
            dead_letter_client=writing.letters_client(clusters, job),
            sink_client=writing.sink_client(clusters, job),
            sink_partitions=target.partitions,
            checkpoint=checkpoint.path if keeps_progress else "",
            owner=checkpoint.owner(keeps_progress=keeps_progress),
            checkpoint_id=stands.checkpoint_id,
            committed=_committed(checkpoint, stands) if keeps_progress else None,
            limit=asked.limit_rows,
        ),
        reach=bounds.reach,
        checkpoint=checkpoint if keeps_progress else None,
        standing=stands.standing,
        record=stands.record,
        is_new=stands.is_new,
        resets=keeps_progress and asked.reset_checkpoint and checkpoint.directory.exists(),
        creations=target.creations,
        registration=registries.registration(job, schemas.sink, schemas.sink_id) if runs else None,
        lost=bounds.lost,
        record_bytes=source.record_bytes(clusters, job, read) if runs else {},
        topic_ids=read.ids,
        warnings=stands.warnings + bounds.warnings,
    )


def _committed(checkpoint: Checkpoint, stands: ResumePoint) -> int | None:
    """The batch that a remote checkpoint must have, which the driver verifies; a local one has been checked here."""
    return stands.standing.batch if checkpoint.is_remote else None
