"""Explains why a run failed, from the driver's error and the cluster's current state."""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec.structs import replace

from kafkad.names import TopicPartition
from kafkad_etl.checkpoint import checkpoints
from kafkad_etl.cluster import losses, starts, timestamps, topics
from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.cluster.starts import Positions
from kafkad_etl.errors import EtlError, EtlExit, exit_of
from kafkad_etl.facts import dead_letter_topics, topics_text
from kafkad_etl.messages import Failed
from kafkad_etl.model.loading import Loaded
from kafkad_etl.planning import writing
from kafkad_etl.planning.planned import PlannedRun
from kafkad_etl.reporting import Reporter
from kafkad_etl.reporting.state import State
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session

_EXITS = {
    "sql": EtlExit.USAGE,
    "setting": EtlExit.USAGE,
    "schema": EtlExit.DATA,
    "registry": EtlExit.CLUSTER,
    "store": EtlExit.CLUSTER,
    "bad-rows": EtlExit.DATA,
    "timestamp": EtlExit.DATA,
    "check": EtlExit.DATA,
    "data-loss": EtlExit.DATA_LOSS,
    "topic": EtlExit.CLUSTER,
    "sink": EtlExit.FAILED,
    "catalog": EtlExit.CLUSTER,
    "checkpoint": EtlExit.CHECKPOINT,
    "environment": EtlExit.ENVIRONMENT,
    "spark": EtlExit.FAILED,
}
_MAY_BE_THE_CLUSTER = ("data-loss", "topic", "sink", "spark")
_SURE = ("data-loss", "topic")
"""Of these, those that a broker has told the driver: that none answers now does not explain them."""


def explaining(
    loaded: Loaded, planned: PlannedRun, clusters: Clusters, shown: Reporter
) -> Callable[[Failed], EtlError]:
    return lambda failed: explain(failed, planned, clusters, shown.state, place(failed, loaded))


def explain(failed: Failed, planned: PlannedRun, clusters: Clusters, state: State, where: str = "") -> EtlError:
    """The error to report. `where` is the place in the job file, if the driver's error has one: see `place`."""
    if failed.kind in _MAY_BE_THE_CLUSTER:
        found = _of_cluster(planned, clusters, state)
        if found is not None and not (failed.kind in _SURE and found.exit_code is Exit.UNREACHABLE):
            return found if isinstance(found, EtlError) else EtlError(found.what, exit_of(found), hints=found.hints)
    if failed.kind == "timestamp":
        return _of_timestamps(planned, clusters, state) or unexplained(failed, where)
    return unexplained(failed, where)


def unexplained(failed: Failed, where: str = "") -> EtlError:
    """The error as the driver gives it."""
    return EtlError(failed.text, _EXITS[failed.kind], hints=failed.hints, where=where)


def place(failed: Failed, loaded: Loaded) -> str:
    """The place of a catalog, of a lookup, or of faulty SQL, in the job file or in a file of its own; empty for
    anything else."""
    transform = loaded.job.transform
    if failed.kind == "catalog":
        return loaded.where("sink.iceberg.catalog")
    if failed.step.startswith("transform.lookups."):
        return loaded.where(failed.step)
    if failed.kind != "sql" or not failed.step:
        return ""
    if failed.step.startswith("checks["):
        return loaded.within(f"{failed.step.replace('[', '.').rstrip(']')}.sql", failed.line or 1, failed.column)
    names = [step.name for step in transform.steps]
    path, file = "transform", transform.file
    if failed.step in names:
        at = names.index(failed.step)
        path, file = f"transform.steps.{at}", transform.steps[at].file
    if file:
        return f"{loaded.path.parent / file}:{failed.line or 1}:{failed.column or 1}"
    return loaded.within(f"{path}.sql", failed.line or 1, failed.column)


def _of_cluster(planned: PlannedRun, clusters: Clusters, state: State) -> KctlError | None:
    """A state of the cluster that alone explains the failure, if there is one."""
    job = planned.plan.job
    try:
        if planned.plan.reading is not None:
            found = _of_source(planned, clusters.session(job.kafka), state)
            if found is not None:
                return found
        if job.sink.topic is not None:
            kafka = job.sink.topic.kafka or job.kafka
            writing.target_topic(clusters.session(kafka), replace(job.sink.topic, create=None))
            writing.need_delivery(clusters, planned.plan)
        for name in dead_letter_topics(job):
            writing.need_letters(clusters, job, name)
    except KctlError as error:
        return error
    return None


def _of_source(planned: PlannedRun, session: Session, state: State) -> EtlError | None:
    ids = _ids(planned, state)
    found = topics.find(session, list(ids))
    gone = [name for name, topic in found.items() if topic is None]
    if gone:
        return EtlError(f"{were(gone)} deleted while the job was running", EtlExit.CLUSTER)
    there = {name: topic for name, topic in found.items() if topic is not None}
    again = checkpoints.recreated(ids, {name: topic.id for name, topic in there.items()})
    if again:
        hint = "--reset-checkpoint starts over at source.start"
        return EtlError(again[0], EtlExit.CHECKPOINT, hints=(*again[1:], hint))
    reached = {
        where: done
        for where, done in _done(state).items()
        if where.topic in there and where.partition in there[where.topic].partitions
    }
    extents = starts.extents(session, reached, committed_only=False)
    return losses.lost(reached, extents)


def _done(state: State) -> Positions:
    return {
        TopicPartition(topic, partition): span.done
        for topic, spans in state.spans.items()
        for partition, span in spans.items()
    }


def _of_timestamps(planned: PlannedRun, clusters: Clusters, state: State) -> EtlError | None:
    """The records whose timestamps Spark cannot read, if the cluster names some."""
    reading = planned.plan.reading
    if reading is None:
        return None
    try:
        session = clusters.session(planned.plan.job.kafka)
        found = timestamps.beyond_spark(session, starts.as_positions(reading.start) | _done(state))
    except KctlError:  # without names, it is what the driver says
        return None
    return timestamps.of_records(found, keeps_progress=planned.plan.mode != "batch") if found else None


def _ids(planned: PlannedRun, state: State) -> dict[str, str]:
    """The topics of a run with their ids, also of those that it was the first to read; empty where nobody knows."""
    record = planned.checkpoint.record() if planned.checkpoint else None
    known = {**(record.topics if record else {}), **planned.topic_ids}
    return {name: known.get(name, "") for name in planned.topic_ids.keys() | state.spans.keys()}


def were(names: Collection[str]) -> str:
    """The topics, and the verb of what befell them."""
    return f"{topics_text(names)} {'was' if len(names) == 1 else 'were'}"
