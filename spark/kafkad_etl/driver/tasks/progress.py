"""Builds events about batches from their results and Spark's progress reports."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from kafkad_etl.driver.batches.batch import BatchResult
from kafkad_etl.driver.batches.offset_log import offsets_of
from kafkad_etl.job import Offsets
from kafkad_etl.messages import Batch, Tasks

SPARK_PHASES = {"latestOffset": "offsets", "queryPlanning": "planning", "walCommit": "log", "commitOffsets": "commit"}


class SparkProgress(NamedTuple):
    """The fields of StreamingQueryProgress that are used."""

    batch: int
    ran: bool
    """False if Spark found no new data; it reports that under the number of the next batch."""
    latest: Offsets
    watermark: str
    groups: int
    duplicates: int
    observed: dict[str, dict[str, Any]]
    phases: dict[str, float]
    seconds: float


def progress_of(text: str) -> SparkProgress:
    found = json.loads(text)
    source = found["sources"][0] if found["sources"] else {}
    operators = found.get("stateOperators", [])
    durations = found.get("durationMs", {})
    watermark = found.get("eventTime", {}).get("watermark", "")
    return SparkProgress(
        batch=found["batchId"],
        ran="addBatch" in durations,
        latest=offsets_of(json.dumps(source.get("latestOffset"))),
        watermark="" if watermark.startswith("1970-01-01T00:00:00") else watermark,
        groups=operators[-1]["numRowsTotal"] if operators else 0,
        duplicates=sum(each.get("customMetrics", {}).get("numDroppedDuplicateRows", 0) for each in operators),
        observed=found.get("observedMetrics", {}),
        phases={ours: durations[name] / 1000 for name, ours in SPARK_PHASES.items() if name in durations},
        seconds=durations.get("triggerExecution", 0) / 1000,
    )


def recent(query: Any, first: int) -> list[SparkProgress]:
    """Of a batch and those after it. Spark keeps a thousand reports, of which each is asked for by calls of its own."""
    reports, found = query._jsq.recentProgress(), []
    for at in range(len(reports) - 1, -1, -1):
        report = reports[at]
        if int(report.batchId()) < first:
            break
        found.append(progress_of(str(report.json())))
    return found[::-1]


def batch_of(result: BatchResult, progress: SparkProgress | None) -> Batch:
    batch, written = result.batch, result.written
    return Batch(
        batch=batch.number,
        start=batch.start,
        end=batch.end,
        latest=(progress.latest if progress else {}) or batch.end,
        rows_read=result.rows_read,
        rows_written=written.rows,
        bad=result.bad,
        late=result.late,
        duplicates=result.duplicates + (progress.duplicates if progress else 0),
        files=written.files,
        bytes_written=written.bytes,
        seconds=progress.seconds if progress else result.seconds,
        phases=result.phases | (progress.phases if progress else {}),
        watermark=progress.watermark if progress else "",
        open_groups=progress.groups if progress else 0,
        replayed=result.replayed,
    )


def tasks_of(spark: Any, batch: int, group: str) -> Tasks | None:
    """Task counts of the running stages of one group of Spark's jobs: other jobs may run beside them."""
    tracker = spark.sparkContext.statusTracker()
    running = set(tracker.getActiveJobsIds()).intersection(tracker.getJobIdsForGroup(group))
    jobs = [info for number in running if (info := tracker.getJobInfo(number))]
    active = set(tracker.getActiveStageIds()).intersection(stage for job in jobs for stage in job.stageIds)
    stages = [info for stage in active if (info := tracker.getStageInfo(stage))]
    if not stages:
        return None
    done = sum(info.numCompletedTasks for info in stages)
    return Tasks(batch=batch, done=done, total=sum(info.numTasks for info in stages))
