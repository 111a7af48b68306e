"""Runs the jobs beside Spark: the consumer group's offsets, deleted topics and records, end offsets; and inspects
the checkpoint and the sink at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kafkad.names import TopicPartition
from kafkad_etl.checkpoint.checkpoints import Checkpoint, Record, Standing
from kafkad_etl.cluster import topics
from kafkad_etl.cluster.appended import Appended
from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.cluster.losses import Gap
from kafkad_etl.facts import duration_ms
from kafkad_etl.job import Offsets
from kafkad_etl.messages import Batch, Committed, Ends, Failed, Lost, Unsure
from kafkad_etl.planning.planned import PlannedRun
from kafkad_etl.process.announcing import Announcer, Notices
from kafkad_etl.process.conducting import Conductor
from kafkad_etl.reporting import Reporter
from kafkad_etl.tasks.diagnosis import were
from kctl.errors import KctlError

if TYPE_CHECKING:
    from kafkad_etl.cluster.presence import Presence


@contextmanager
def attended(
    planned: PlannedRun,
    clusters: Clusters,
    shown: Reporter,
    notes: Sequence[str],
    notifier: Notices,
    conductor: Conductor,
) -> Iterator[None]:
    """Prints what is known before Spark starts, and watches the cluster until it has ended."""
    from kafkad_etl.cluster.mirror import Mirror, group_of

    for text in notes:
        shown.say(text)
    job = planned.plan.job
    is_endless = planned.plan.mode == "continuous" and planned.plan.reading is not None
    pause = duration_ms(job.run.every) / 1000
    conductor.observers.append(Announcer(notifier, lambda: shown.state, is_endless=is_endless, pause_seconds=pause))
    with ExitStack() as stack:
        group = group_of(job)
        if group and planned.plan.reading and planned.checkpoint:
            mirror = stack.enter_context(closing(Mirror(clusters.fresh(job.kafka), group, conductor.warn)))
            conductor.on_batch.append(lambda batch: mirror.offer(batch.batch, batch.end))
        kept = KeptRecord(planned.checkpoint, planned.record) if planned.checkpoint and planned.record else None
        if kept and kept.is_remote:
            conductor.on_batch.append(kept.remember)
        presence = _watch(planned, clusters, conductor, stack)
        if kept and job.source.pattern:
            _identify(planned, clusters, conductor, stack, kept, presence)
        _ask_for_ends(planned, clusters, shown, conductor, stack)
        appended = _appended(planned, clusters)
        last = _LastBatch(planned.standing.batch)
        conductor.on_batch.append(last.is_told)
        try:
            yield
        finally:
            if conductor.was_cut_off:
                _tell_committed(planned, last, conductor)
                _tell_appended(appended, shown, conductor)


class _LastBatch:
    """Keeps the number of the newest batch known to be committed."""

    def __init__(self, batch: int | None) -> None:
        self.batch = -1 if batch is None else batch

    def is_told(self, batch: Batch) -> None:
        self.batch = max(self.batch, batch.batch)


def _tell_committed(planned: PlannedRun, last: _LastBatch, conductor: Conductor) -> None:
    """Reports batches that were committed while Spark was shutting down, which the driver could not report."""
    if planned.checkpoint is None or planned.checkpoint.is_remote:
        return
    standing = planned.checkpoint.standing()
    if standing.batch is not None and standing.batch > last.batch:
        count = standing.batch - last.batch
        conductor.tell(Committed(batch=standing.batch, count=count, end=standing.reached))
        for call in conductor.on_batch:
            call(
                Batch(batch=standing.batch, end=standing.reached, rows_read=0, rows_written=0, seconds=0, replayed=True)
            )


def _appended(planned: PlannedRun, clusters: Clusters) -> Appended | None:
    sink = planned.plan.job.sink.topic
    if sink is None or sink.delivery == "exactly-once":  # of that, readers see nothing before all of it is there
        return None
    return Appended(clusters.session(sink.kafka or planned.plan.job.kafka), sink.topic)


def _tell_appended(appended: Appended | None, shown: Reporter, conductor: Conductor) -> None:
    if appended is None:
        return
    try:
        rows = appended.records() - shown.state.written
    except KctlError as error:
        conductor.warn(f"cannot tell how many rows of the last batch are in topic {appended.topic}: {error.what}")
    else:
        if rows > 0:
            conductor.tell(Unsure(topic=appended.topic, rows=rows))


class KeptRecord:
    """The record of a checkpoint, kept up to date with what the run learns, in whatever thread."""

    def __init__(self, checkpoint: Checkpoint, record: Record) -> None:
        self._checkpoint = checkpoint
        self._record = record
        self._lock = Lock()

    @property
    def is_remote(self) -> bool:
        return self._checkpoint.is_remote

    def remember(self, batch: Batch) -> None:
        """Records a remote checkpoint's progress, since it cannot be read from here."""
        with self._lock:
            self._write(replace(self._record, seen=Standing(batch=batch.batch, reached=batch.end)))

    def learn(self, ids: Mapping[str, str]) -> None:
        """Records the ids of topics that the run is the first to read."""
        with self._lock:
            self._write(replace(self._record, topics={**self._record.topics, **ids}))

    def _write(self, record: Record) -> None:
        self._checkpoint.write_record(record)
        self._record = record


def _watch(planned: PlannedRun, clusters: Clusters, conductor: Conductor, stack: ExitStack) -> Presence | None:
    """Watches for topics and records that are deleted during the run."""
    job, reading = planned.plan.job, planned.plan.reading
    if reading is None:
        return None
    if not reading.fail_on_data_loss:
        from kafkad_etl.cluster.deletions import Deletions

        lost = partial(_tell_lost, conductor)
        session = clusters.fresh(job.kafka)
        deletions = stack.enter_context(closing(Deletions(session, reading.start, lost, conductor.warn)))
        conductor.on_batch.append(deletions.offer)
    if planned.plan.mode != "continuous":
        return None
    from kafkad_etl.cluster.presence import Presence

    gone = partial(_tell_gone, conductor)
    return stack.enter_context(closing(Presence(clusters.fresh(job.kafka), planned.topic_ids, gone)))


def _identify(
    planned: PlannedRun,
    clusters: Clusters,
    conductor: Conductor,
    stack: ExitStack,
    kept: KeptRecord,
    presence: Presence | None,
) -> None:
    """Learns the ids of topics that match the job's pattern only since it was planned."""
    from kafkad_etl.cluster.identities import Identities

    def learned(ids: Mapping[str, str]) -> None:
        kept.learn(ids)
        if presence:
            presence.watch(ids)

    session = clusters.fresh(planned.plan.job.kafka)
    asking = Identities(session, planned.topic_ids, learned, conductor.warn)
    stack.enter_context(closing(asking))
    conductor.on_batch.append(asking.offer)


def _ask_for_ends(
    planned: PlannedRun, clusters: Clusters, shown: Reporter, conductor: Conductor, stack: ExitStack
) -> None:
    """Polls end offsets, except in mode batch, which has a fixed end."""
    if planned.plan.reading is None or planned.plan.mode == "batch":
        return
    from kafkad_etl.cluster.ends import EndsPoller

    def partitions() -> Iterable[TopicPartition]:
        return [TopicPartition(topic, each) for topic, spans in shown.state.spans.items() for each in spans]

    def tell(ends: Offsets) -> None:
        conductor.tell(Ends(ends=ends))

    job = planned.plan.job
    committed_only = job.source.isolation == "read_committed"
    asking = EndsPoller(clusters.fresh(job.kafka), partitions, tell, committed_only=committed_only)
    stack.enter_context(closing(asking))


def _tell_lost(conductor: Conductor, gap: Gap) -> None:
    topic, partition = gap.where
    conductor.tell(
        Lost(
            topic=topic, partition=partition, first=gap.first, end=gap.end, certain=gap.certain, recreated=gap.recreated
        )
    )


def _tell_gone(conductor: Conductor, absent: Mapping[str, topics.Absence]) -> None:
    hidden = [name for name, why in absent.items() if why == "hidden"]
    text = topics.unseen(hidden) if hidden else f"{were(absent)} deleted while the job was running"
    conductor.tell(Failed(kind="topic", text=text))
