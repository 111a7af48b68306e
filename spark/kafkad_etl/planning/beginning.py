"""Prepares a run before Spark starts: sets a checkpoint aside, creates topics, registers a schema, writes the
checkpoint's record."""

from __future__ import annotations

import time
from typing import NamedTuple

from msgspec.structs import replace

from kafkad_etl.checkpoint.checkpoints import Checkpoint
from kafkad_etl.cluster import topics
from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.job import Job
from kafkad_etl.messages import Plan
from kafkad_etl.planning import writing
from kafkad_etl.planning.planned import PlannedRun
from kafkad_etl.planning.registries import registered
from kctl.command.changes import confirm


class Begun(NamedTuple):
    plan: Plan
    notes: list[str]
    """What was done, for people."""


def begin(planned: PlannedRun, clusters: Clusters) -> Begun:
    """Prepares the run while holding the lock."""
    notes, plan = [], planned.plan
    if planned.resets and planned.checkpoint:
        confirm(clusters.settings, f"{_reset_text(planned.checkpoint, planned.plan.job)} Continue?")
        aside = planned.checkpoint.put_aside(time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
        notes.append(f"the old checkpoint was moved to {aside}")
    for creation in planned.creations:
        topics.create_topic(clusters.session(creation.kafka), creation.topic, creation.create)
        notes.append(f"created topic {creation.topic} with {creation.create.partitions} partitions")
    if planned.registration:
        number = registered(planned.registration)
        plan = replace(plan, sink_schema_id=number)
        notes.append(f"registered schema {number} for subject {planned.registration.subject}")
    if planned.checkpoint and planned.record:
        planned.checkpoint.write_record(replace(planned.record, begun=not planned.is_new))
    writing.need_delivery(clusters, plan)  # its id is on record now: the same one when the right has been granted
    if planned.checkpoint and planned.record:
        planned.checkpoint.write_record(planned.record)  # Spark may begin from here on
    return Begun(plan, notes)


def _reset_text(checkpoint: Checkpoint, job: Job) -> str:
    batch = checkpoint.standing().batch
    standing = "has no batch yet" if batch is None else f"is at batch {batch}"
    return (
        f"The checkpoint {checkpoint.path} {standing}. It is set aside, and the job starts over at source.start: "
        f"{job.source.start}. The sink keeps its rows, so some may be written a second time."
    )
