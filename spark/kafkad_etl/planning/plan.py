"""From a job and the cluster as it is now to a Plan for the driver: every offset is known before Spark starts.

`plan` looks and decides; it changes nothing anywhere. What a run has to do first is in `Planned`, and done by
`beginning.begin`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from kafkad_etl.checkpoint.checkpoints import Checkpoint, checkpoint_of
from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.job import Job
from kafkad_etl.messages import Plan
from kafkad_etl.model.schemas import NO_SCHEMAS, Schemas
from kafkad_etl.planning import source, writing
from kafkad_etl.planning.planned import Asked, Planned
from kafkad_etl.planning.progress import Progress, progress


def plan(
    clusters: Clusters,
    job: Job,
    asked: Asked,
    schemas: Schemas = NO_SCHEMAS,
    environment: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.time,
) -> Planned:
    """`job` is the effective one. EtlError CLUSTER, DATA_LOSS or CHECKPOINT says why it cannot run."""
    now = clock()
    runs = asked.task == "run"
    keeps_progress = runs and job.run.mode != "batch"
    read = source.look(clusters, job)
    checkpoint = checkpoint_of(job, environment)
    stands = progress(checkpoint, job, asked, read.ids, now) if keeps_progress else Progress()
    bounds = source.NOTHING
    if read.topics:
        bounds = source.bounds(clusters, job, asked, read.there, stands.standing, now)
    target = writing.look(clusters, job, read) if runs else writing.Target()
    return Planned(
        plan=Plan(
            task=asked.task,
            job=job,
            mode=job.run.mode if runs else "batch",
            reading=source.reading(clusters, job, asked, bounds) if read.topics else None,
            value_schema=schemas.value,
            key_schema=schemas.key,
            sink_schema=schemas.sink,
            dead_letter_client=writing.letters_client(clusters, job),
            sink_client=writing.sink_client(clusters, job),
            sink_partitions=target.partitions,
            checkpoint=checkpoint.path if keeps_progress else "",
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
        lost=bounds.lost,
        record_bytes=source.record_bytes(clusters, job, read) if runs else {},
        topic_ids=read.ids,
        warnings=stands.warnings + bounds.warnings,
    )


def _committed(checkpoint: Checkpoint, stands: Progress) -> int | None:
    """Here it is known that the batch is there; elsewhere the driver has to look."""
    return stands.standing.batch if checkpoint.is_remote else None
