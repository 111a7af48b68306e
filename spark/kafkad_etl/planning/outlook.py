"""Rows and lines of `kctl etl plan`, `status` and `list`. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kafkad.names import TopicPartition
from kafkad_etl.checkpoint.checkpoints import Record, Standing
from kafkad_etl.checkpoint.locking import Holder
from kafkad_etl.facts import dead_letter_topics, sink_text
from kafkad_etl.job import Job
from kctl.texts.output import Row, rfc3339

if TYPE_CHECKING:
    from kafkad_etl.cluster.starts import Extent
    from kafkad_etl.planning.planned import PartitionRange, PlannedRun
    from kafkad_etl.planning.source import Unfound


def document(job: Job, secrets: Iterable[str]) -> Any:
    """The effective job without default values and secrets."""
    return _without(msgspec.to_builtins(job, str_keys=True), frozenset(secrets))


def _without(value: Any, secrets: frozenset[str]) -> Any:
    from kafkad_etl.model.loading import masked

    if isinstance(value, dict):
        return {name: _without(each, secrets) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without(each, secrets) for each in value]
    shown = masked(str(value), secrets)
    return value if shown == str(value) else shown


def yaml_text(job: Job, secrets: Iterable[str]) -> str:
    import yaml

    dumped: str = yaml.safe_dump(document(job, secrets), sort_keys=False, allow_unicode=True, width=120)
    return dumped


def partition_rows(reach: Iterable[PartitionRange]) -> list[Row]:
    return [
        {
            "topic": one.where.topic,
            "partition": one.where.partition,
            "from": one.start,
            "to": one.end,
            "rows": one.rows,
        }
        for one in reach
    ]


def checkpoint_text(planned: PlannedRun) -> str:
    if planned.checkpoint is None:
        return "none: mode batch keeps no progress"
    path = planned.checkpoint.path
    begins = f"the run starts at source.start: {planned.plan.job.source.start}"
    if planned.resets:
        return f"{path}: is set aside first (--reset-checkpoint), and {begins}"
    if planned.checkpoint.is_remote:
        return f"{path}: {remote_text(planned.standing)}"
    if planned.is_new:
        return f"{path}: new, and {begins}"
    return f"{path}: {standing_text(planned.standing)}"


def standing_text(standing: Standing) -> str:
    text = "no batch committed" if standing.batch is None else f"at batch {standing.batch}"
    if standing.planned is not None:
        text += f", and batch {standing.planned} will be repeated"
    if standing.watermark_ms:
        text += f"; watermark {rfc3339(standing.watermark_ms)}"
    return text


def remote_text(seen: Standing) -> str:
    if seen.batch is None:
        return "cannot be read from here; no run from this machine has committed a batch"
    return f"cannot be read from here; the last run from this machine left it at batch {seen.batch}"


def plan_row(planned: PlannedRun, guarantee: str, words: Sequence[str], secrets: Iterable[str]) -> dict[str, Any]:
    """The row of `kctl etl plan` for programs."""
    job = planned.plan.job
    row = {
        "job": job.name,
        "mode": job.run.mode,
        "rows": planned.rows,
        "partitions": partition_rows(planned.reach),
        "checkpoint": planned.plan.checkpoint or None,
        "state": checkpoint_text(planned),
        "batch": planned.standing.batch,
        "guarantee": guarantee,
        "creates": [creation.topic for creation in planned.creations],
        "warnings": list(planned.warnings),
        "spark_submit": list(words),
        "effective": msgspec.to_builtins(job, str_keys=True),
    }
    masked_row: dict[str, Any] = _without(row, frozenset(secrets))
    return masked_row


def plan_head(planned: PlannedRun, guarantee: str) -> Iterator[str]:
    """Lines of `kctl etl plan` above the table of partitions."""
    job = planned.plan.job
    yield f"job         {job.name}{f': {job.description}' if job.description else ''}"
    yield f"mode        {job.run.mode}"
    yield f"checkpoint  {checkpoint_text(planned)}"
    yield f"sink        {sink_text(job)}{f', {job.sink.jdbc.mode}' if job.sink.jdbc else ''}"
    for creation in planned.creations:
        yield f"            topic {creation.topic} will be created with {creation.create.partitions} partitions"
    if planned.registration:
        yield f"            its schema will be registered for subject {planned.registration.subject}"
    for name in dead_letter_topics(job):
        yield f"bad rows    go to topic {name}"
    yield f"guarantee   {guarantee}"
    for warning in planned.warnings:
        yield f"warning     {warning}"


def command_text(words: Sequence[str]) -> str:
    return shlex.join(words)


# --- status and list


_UNFOUND: Mapping[str, str] = {
    "deleted": "deleted",
    "hidden": "deleted, or not authorised: run refuses to go on without it",
    "unlisted": "not read by the job as it is now",
}


def status_rows(
    standing: Standing,
    there: Mapping[TopicPartition, Extent],
    remade: Container[str] = (),
    unfound: Mapping[str, Unfound] = {},
) -> list[dict[str, Any]]:
    """Rows of `kctl etl status`. Partitions that are not in the checkpoint yet are read from their start; of topics
    that are not the same any more nobody knows how far they are read. `unfound` are those that are not there."""
    from kafkad_etl.cluster.starts import as_positions

    reached = as_positions(standing.reached)
    rows = []
    for where in sorted(reached.keys() | there.keys()):
        extent = there.get(where)
        offset = reached.get(where)
        begin = offset if offset is not None else extent.start if extent else None
        lag = max(extent.end - begin, 0) if extent and begin is not None else None
        note = "" if extent else _UNFOUND[unfound.get(where.topic, "deleted")]
        if extent and offset is not None and offset < extent.start:
            note = f"{extent.start - offset:,} records deleted before they were read"
        elif extent and offset is not None and offset > extent.end:
            note = "ends before the checkpoint"
        elif offset is None:
            note = "not read yet"
        if where.topic in remade:
            lag = None
            note = "deleted and made again: the offset is that of other records, and run refuses the checkpoint"
        rows.append(
            {
                "topic": where.topic,
                "partition": where.partition,
                "offset": offset,
                "end": extent.end if extent else None,
                "lag": lag,
                "note": note or None,
            }
        )
    return rows


def running_text(holder: Holder | None) -> str:
    return f"running: {holder.standing}" if holder else "not running"


def unfinished_text(standing: Standing, merge: str, holder: Holder | None) -> str | None:
    """The job's unfinished work; None while it runs, since the run is completing it."""
    if holder:
        return None
    parts = [f"batch {standing.planned}: the next run repeats it"] if standing.planned is not None else []
    return "; ".join([*parts, merge] if merge else parts) or None


def list_row(
    path: str,
    record: Record | None,
    standing: Standing,
    holder: Holder | None,
    committed: float | None,
    unfinished: str | None,
) -> dict[str, Any]:
    return {
        "job": record.job if record else None,
        "running": "yes" if holder else "no",
        "batch": standing.batch,
        "committed_ms": None if committed is None else round(committed * 1000),
        "watermark_ms": standing.watermark_ms or None,
        "source": record.facts.get("source") if record else None,
        "sink": record.facts.get("sink") if record else None,
        "unfinished": unfinished,
        "checkpoint": path,
        "checkpoint_id": record.checkpoint_id if record else None,
        "holder": holder.standing if holder else None,
    }
