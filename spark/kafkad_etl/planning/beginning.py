"""Prepares a run before Spark starts: sets a checkpoint aside, creates topics, writes the checkpoint's record."""

from __future__ import annotations

import time

from kafkad_etl.checkpoint.checkpoints import Checkpoint
from kafkad_etl.cluster import topics
from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.job import Job
from kafkad_etl.planning.planned import PlannedRun
from kctl.command.changes import confirm


def begin(planned: PlannedRun, clusters: Clusters) -> list[str]:
    """Prepares the run while holding the lock. Returns lines for people about what was done."""
    notes = []
    if planned.resets and planned.checkpoint:
        confirm(clusters.settings, f"{_reset_text(planned.checkpoint, planned.plan.job)} Continue?")
        aside = planned.checkpoint.put_aside(time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
        notes.append(f"the old checkpoint was moved to {aside}")
    for creation in planned.creations:
        topics.create_topic(clusters.session(creation.kafka), creation.topic, creation.create)
        notes.append(f"created topic {creation.topic} with {creation.create.partitions} partitions")
    if planned.checkpoint and planned.record:
        planned.checkpoint.write_record(planned.record)
    return notes


def _reset_text(checkpoint: Checkpoint, job: Job) -> str:
    batch = checkpoint.standing().batch
    standing = "has no batch yet" if batch is None else f"is at batch {batch}"
    return (
        f"The checkpoint {checkpoint.path} {standing}. It is set aside, and the job starts over at source.start: "
        f"{job.source.start}. The sink keeps its rows, so some may be written a second time."
    )
