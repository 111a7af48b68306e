"""Resolves what a job reads: its topics as they are now, and the offsets from which and to which it reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from kafkad.names import TopicPartition
from kafkad_etl.checkpoint.checkpoints import Standing
from kafkad_etl.cluster import losses, starts, topics
from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.cluster.losses import Gap
from kafkad_etl.cluster.starts import Extents, Positions
from kafkad_etl.cluster.topics import Absence
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.job import Job, Offsets, Position
from kafkad_etl.messages import Reading
from kafkad_etl.planning.planned import PartitionRange, RunOptions
from kctl.reach.log_dirs import log_dirs
from kctl.reach.session import Session


class Source(NamedTuple):
    topics: Mapping[str, topics.Topic]
    there: Extents

    @property
    def ids(self) -> dict[str, str]:
        return {name: topic.id for name, topic in self.topics.items()}


class Bounds(NamedTuple):
    begin: Positions
    end: Positions
    lost: tuple[Gap, ...] = ()
    deleted: tuple[str, ...] = ()
    """Topics that the checkpoint has and the cluster no longer, which was accepted."""
    warnings: tuple[str, ...] = ()

    @property
    def reach(self) -> tuple[PartitionRange, ...]:
        return tuple(PartitionRange(where, self.begin[where], self.end[where]) for where in sorted(self.begin))


NOTHING = Bounds({}, {})


def find(clusters: Clusters, job: Job) -> Source:
    """The topics that a job reads; empty for files, which only Spark sees."""
    source = job.source
    if source.files:
        return Source({}, {})
    session = clusters.session(job.kafka)
    found = topics.sources(session, source)
    partitions = topics.partitions_of(source, found)
    there = starts.extents(session, partitions, committed_only=source.isolation == "read_committed")
    return Source(found, there)


Unfound: TypeAlias = Absence | Literal["unlisted"]
"""Why a job does not find a topic; unlisted: it is there, and not among those that the job's pattern or list gave."""


def unfound(clusters: Clusters, job: Job, there: Extents, reached: Offsets) -> dict[str, Unfound]:
    """Topics of a checkpoint that the job does not find, and why. Lists of topics, from which patterns choose, leave
    out without a word what may not be seen, so these are asked for by name."""
    names = sorted(reached.keys() - {where.topic for where in there})
    absent = topics.absent(clusters.session(job.kafka), dict.fromkeys(names, "")) if names else {}
    return {name: absent.get(name, "unlisted") for name in names}


# --- from where to where


def bounds(clusters: Clusters, job: Job, asked: RunOptions, there: Extents, standing: Standing, now: float) -> Bounds:
    """Start and end offsets. Raises EtlError DATA_LOSS if records are gone and that is not accepted."""
    warnings: list[str] = []
    deleted: tuple[str, ...] = ()
    if asked.task == "preview":
        begin, end = _last_rows(asked, there)
    elif standing.reached:
        reached = starts.as_positions(standing.reached)
        begin = {where: reached.get(where, extent.start) for where, extent in there.items()}
        not_found = unfound(clusters, job, there, standing.reached)
        deleted = _deleted(clusters.session(job.kafka), not_found, accepts=_accepts(job, asked))
        warnings += [f"{losses.deleted_text(name)}; continuing without it" for name in deleted]
        warnings += _cut_off(begin, there, accepts=_accepts(job, asked))
        end = _end(clusters, job, there, now)
    else:
        begin = _positions(clusters, job, job.source.start, "source.start", there, now)
        end = _end(clusters, job, there, now)
    lost = losses.gaps(begin, there)
    if lost and not _accepts(job, asked):
        raise losses.of_gaps(lost)
    warnings += [f"{gap}; continuing without them" for gap in lost]
    begin = {where: max(offset, there[where].start) for where, offset in begin.items()}
    return Bounds(begin, end, tuple(lost), deleted, tuple(warnings))


def _accepts(job: Job, asked: RunOptions) -> bool:
    return asked.accept_data_loss or job.source.on_data_loss == "continue"


def _deleted(session: Session, unfound: Mapping[str, Unfound], *, accepts: bool) -> tuple[str, ...]:
    """The topics that were deleted, if that is accepted. What is there is no topic to go on without: Spark would read
    it again from its start as soon as it sees it."""
    if hidden := [name for name, why in unfound.items() if why == "hidden"]:
        raise topics.lost_sight(session, hidden)
    if unlisted := [name for name, why in unfound.items() if why == "unlisted"]:
        raise EtlError(
            f'topic "{unlisted[0]}" is in the checkpoint, and the brokers do not agree whether it is there',
            EtlExit.CLUSTER,
            hints=("run again: a broker that has just started may not know all topics yet",),
        )
    if unfound and not accepts:
        raise losses.of_deleted(list(unfound))
    return tuple(unfound)


def _cut_off(begin: Positions, there: Extents, *, accepts: bool) -> list[str]:
    short = list(losses.cut_off(begin, there))
    if short and not accepts:
        raise losses.of_cut_off(short)
    return short


def _end(clusters: Clusters, job: Job, there: Extents, now: float) -> Positions:
    if job.run.mode == "batch":
        return _positions(clusters, job, job.source.end, "source.end", there, now)
    return {where: extent.end for where, extent in there.items()}


def _positions(clusters: Clusters, job: Job, position: Position, key: str, there: Extents, now: float) -> Positions:
    at = starts.parse(position, key, int(now * 1000))
    group = job.run.group or f"etl-{job.name}"
    return starts.positions(clusters.session(job.kafka), at, there, group, key=key)


def _last_rows(asked: RunOptions, there: Extents) -> tuple[Positions, Positions]:
    """Bounds of a preview: as many offsets of each partition as rows to show, since which are last is known only
    after reading."""
    count = asked.limit_rows
    if asked.preview_from == "earliest":
        begin = {where: extent.start for where, extent in there.items()}
        return begin, {where: min(extent.start + count, extent.end) for where, extent in there.items()}
    begin = {where: max(extent.end - count, extent.start) for where, extent in there.items()}
    return begin, {where: extent.end for where, extent in there.items()}


def reading(clusters: Clusters, job: Job, asked: RunOptions, found: Bounds) -> Reading:
    how, what = _subscription(job)
    return Reading(
        client=clusters.client(job.kafka, f"etl-{job.name}"),
        how=how,
        what=what,
        start=starts.as_offsets(found.begin),
        end=starts.as_offsets(found.end),
        fail_on_data_loss=not _accepts(job, asked),
        deleted=list(found.deleted),
    )


def _subscription(job: Job) -> tuple[Literal["assign", "subscribe", "subscribePattern"], str]:
    source = job.source
    if source.pattern:
        return "subscribePattern", topics.java_pattern(source.pattern)
    if source.partitions:
        return "assign", json.dumps({topic: list(found) for topic, found in source.partitions.items()})
    return "subscribe", ",".join(source.topics)


# --- how large it is


def record_bytes(clusters: Clusters, job: Job, found: Source) -> dict[str, float]:
    """Average record size by topic as stored, compressed; empty where no broker reports sizes."""
    asked = {name: topic.partitions for name, topic in found.topics.items()}
    sizes: dict[TopicPartition, int] = {}
    for directory in log_dirs(clusters.session(job.kafka), partitions=asked)[0] if asked else ():
        for replica in directory.replicas:
            where = TopicPartition(replica.topic, replica.partition)
            sizes[where] = max(replica.size, sizes.get(where, 0))
    return averages(sizes, found.there)


def averages(sizes: Mapping[TopicPartition, int], there: Extents) -> dict[str, float]:
    """Averages from partition sizes. Pure."""
    totals: dict[str, tuple[int, int]] = {}
    for where, extent in there.items():
        if where in sizes:
            size, records = totals.get(where.topic, (0, 0))
            totals[where.topic] = (size + sizes[where], records + extent.end - extent.start)
    return {topic: size / records for topic, (size, records) in totals.items() if size and records}
