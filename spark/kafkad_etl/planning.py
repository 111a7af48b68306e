"""From a job and the cluster as it is now to a Plan for the driver: every offset is known before Spark starts.

`plan` looks and decides; it changes nothing anywhere. What a run has to do first (a checkpoint put aside, a topic
created, the checkpoint's record) is in `Planned`, and done by `begin`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec.structs import replace

from kafkad.names import TopicPartition
from kafkad_etl import checkpoints, places, starts, topics
from kafkad_etl.checkpoints import Checkpoint, Record, Standing
from kafkad_etl.clusters import Clusters
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.job import Create, Job, Kafka, Mode, Position
from kafkad_etl.messages import Client, Plan, Reading, Schema
from kafkad_etl.starts import Extent, Gap, Positions
from kctl.changes import confirm
from kctl.sizes import log_dirs

if TYPE_CHECKING:
    from kctl.session import Session


class Asked(NamedTuple):
    """What the command line says beside the job."""

    task: Literal["run", "preview"] = "run"
    mode: Mode | None = None
    limit_rows: int = 0
    accept_data_loss: bool = False
    reset_checkpoint: bool = False
    preview_from: Literal["earliest", "latest"] = "latest"
    spark: str = ""
    """The version that runs it; empty: not known yet."""


class Schemas(NamedTuple):
    """As files and registries gave them."""

    value: Schema | None = None
    key: Schema | None = None
    sink: Schema | None = None


NO_SCHEMAS = Schemas()


class Reach(NamedTuple):
    """What is there to be read of one partition when the run begins."""

    where: TopicPartition
    start: int
    end: int

    @property
    def rows(self) -> int:
        """Offsets: markers of transactions and compacted records count too."""
        return max(self.end - self.start, 0)


class Creation(NamedTuple):
    kafka: Kafka
    topic: str
    create: Create


class Planned(NamedTuple):
    plan: Plan
    reach: tuple[Reach, ...] = ()
    checkpoint: Checkpoint | None = None
    """None: there is none in this mode, and `lock_path` is still the job's."""
    lock_path: Path = Path()
    standing: Standing = Standing()
    record: Record | None = None
    is_new: bool = True
    """The checkpoint has no batch yet."""
    resets: bool = False
    creations: tuple[Creation, ...] = ()
    lost: tuple[Gap, ...] = ()
    """Accepted."""
    topic_ids: Mapping[str, str] = {}
    record_bytes: Mapping[str, float] = {}
    """Of each topic, on average, where the brokers tell."""
    warnings: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.reach)


def plan(
    clusters: Clusters,
    job: Job,
    asked: Asked,
    schemas: Schemas = NO_SCHEMAS,
    environment: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.time,
) -> Planned:
    """`job` is the effective one. EtlError CLUSTER, DATA_LOSS or CHECKPOINT says why it cannot run."""
    job = replace(job, run=replace(job.run, mode=asked.mode or job.run.mode))
    return _Planning(clusters, job, asked, schemas, environment, clock()).planned()


class NotReady(EtlError):
    """Several things are not there that a job needs; `mistakes` has a line for each."""

    def __init__(self, name: str, errors: Sequence[EtlError]) -> None:
        what = f"{name} lacks {len(errors)} things in its clusters"
        super().__init__(what, EtlExit(errors[0].exit_code))
        self._errors = errors
        self._tell()

    def _tell(self) -> None:
        self.mistakes = tuple("; ".join((error.what, *error.hints)) for error in self._errors)
        self.hints = self.mistakes

    def put_at(self, place_of: Callable[[str], str]) -> None:
        for error in self._errors:
            error.put_at(place_of)
        self._tell()


def check(
    clusters: Clusters,
    job: Job,
    environment: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.time,
) -> tuple[str, ...]:
    """Warnings; EtlError if a run could not begin now, with all that it would not find."""
    asked = Asked()
    found = list(_Planning(clusters, job, asked, NO_SCHEMAS, environment, clock()).faults())
    distinct = {error.what: error for error in found}
    if len(distinct) > 1:
        raise NotReady(job.name, list(distinct.values()))
    for error in distinct.values():
        raise error
    return plan(clusters, job, asked, NO_SCHEMAS, environment, clock).warnings


class _Planning:
    def __init__(
        self,
        clusters: Clusters,
        job: Job,
        asked: Asked,
        schemas: Schemas,
        environment: Mapping[str, str],
        now: float,
    ) -> None:
        self.now = now
        self.clusters = clusters
        self.job = job
        self.asked = asked
        self.schemas = schemas
        self.keeps = asked.task == "run" and job.run.mode != "batch"
        """Progress, from run to run."""
        path = checkpoints.directory_of(job, environment)
        self.checkpoint = Checkpoint(path, checkpoints.state_directory(environment) / job.name)
        self.topics: dict[str, topics.Topic] = {}
        self.there: dict[TopicPartition, Extent] = {}
        self.warnings: list[str] = []
        self.lost: list[Gap] = []

    def planned(self) -> Planned:
        if not self.job.source.files:
            self._look()
        record, standing, is_new = self._standing() if self.keeps else (None, Standing(), True)
        reading, reach = self._reading(standing) if self.topics else (None, ())
        creations = self._creations() if self.asked.task == "run" else []
        return Planned(
            plan=self._plan(reading, record),
            reach=reach,
            checkpoint=self.checkpoint if self.keeps else None,
            lock_path=self.checkpoint.lock_path,
            standing=standing,
            record=record,
            is_new=is_new,
            resets=self.keeps and self.asked.reset_checkpoint and self.checkpoint.directory.exists(),
            creations=tuple(creations),
            lost=tuple(self.lost),
            record_bytes=self._record_bytes() if self.asked.task == "run" else {},
            topic_ids={name: topic.id for name, topic in self.topics.items()},
            warnings=tuple(self.warnings),
        )

    # --- the source

    @property
    def session(self) -> Session:
        return self.clusters.session(self.job.kafka)

    def _look(self) -> None:
        source = self.job.source
        self.topics = topics.sources(self.session, source)
        partitions = topics.partitions_of(source, self.topics)
        self.there = starts.extents(self.session, partitions, committed_only=source.isolation == "read_committed")

    def _record_bytes(self) -> dict[str, float]:
        """As they are in the log, compressed; of topics whose size no broker tells, nothing."""
        asked = {name: topic.partitions for name, topic in self.topics.items()}
        sizes: dict[TopicPartition, int] = {}
        for directory in log_dirs(self.session, partitions=asked)[0] if asked else ():
            for replica in directory.replicas:
                where = TopicPartition(replica.topic, replica.partition)
                sizes[where] = max(replica.size, sizes.get(where, 0))
        return record_bytes(sizes, self.there)

    def _standing(self) -> tuple[Record, Standing, bool]:
        """The record to be written, where the checkpoint stands, and whether it is a new one."""
        made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now))
        ids = {name: topic.id for name, topic in self.topics.items()}
        now = checkpoints.record_of(self.job, _new_id(), made, ids, self.asked.spark)
        if self.asked.reset_checkpoint:
            if self.checkpoint.is_remote:
                raise EtlError(
                    f"{self.checkpoint.path} cannot be put aside from here",
                    EtlExit.CHECKPOINT,
                    hints=(f"move it by the tools of its file system, and delete {self.checkpoint.directory}",),
                )
            return now, Standing(), True
        if self.checkpoint.is_remote:
            self._warn_remote()
        before, files = self.checkpoint.record(), self.checkpoint.files()
        checkpoints.guard(before, now, files, self.checkpoint.path)
        if before is None or not (files.is_begun or self.checkpoint.is_remote):
            return now, Standing(), True
        known = {**before.topics, **ids}
        kept = replace(before, topics=known, spark=now.spark or before.spark)
        return kept, checkpoints.standing_of(files), False

    def _warn_remote(self) -> None:
        self.warnings.append(
            f"{self.checkpoint.path}: its files are not looked at from here, so what it lacks, where it stands and "
            f"records deleted since are not checked before the start; the job itself is checked against "
            f"{self.checkpoint.directory / checkpoints.RECORD}"
        )

    def _reading(self, standing: Standing) -> tuple[Reading, tuple[Reach, ...]]:
        begin, end = self._last_rows() if self.asked.task == "preview" else self._bounds(standing)
        begin = self._without_gaps(begin)
        how, what = _subscription(self.job)
        reading = Reading(
            client=self.clusters.client(self.job.kafka, f"etl-{self.job.name}"),
            how=how,
            what=what,
            start=starts.as_offsets(begin),
            end=starts.as_offsets(end),
            fail_on_data_loss=not self._accepts,
        )
        reach = tuple(Reach(where, begin[where], end[where]) for where in sorted(self.there))
        return reading, reach

    def _bounds(self, standing: Standing) -> tuple[Positions, Positions]:
        if standing.reached:
            reached = starts.as_positions(standing.reached)
            begin = {where: reached.get(where, extent.start) for where, extent in self.there.items()}
            self._check_ends(begin)
        else:
            begin = self._positions(self.job.source.start, "source.start")
        if self.job.run.mode == "batch":
            return begin, self._positions(self.job.source.end, "source.end")
        return begin, {where: extent.end for where, extent in self.there.items()}

    def _positions(self, position: Position, key: str) -> Positions:
        at = starts.parse(position, key, int(self.now * 1000))
        group = self.job.run.group or f"etl-{self.job.name}"
        return starts.positions(self.session, at, self.there, group, key=key)

    def _last_rows(self) -> tuple[Positions, Positions]:
        """Of each partition as many as are to be shown: which of them are the last is known only when they are read."""
        count = self.asked.limit_rows
        if self.asked.preview_from == "earliest":
            begin = {where: extent.start for where, extent in self.there.items()}
            return begin, {where: min(extent.start + count, extent.end) for where, extent in self.there.items()}
        begin = {where: max(extent.end - count, extent.start) for where, extent in self.there.items()}
        return begin, {where: extent.end for where, extent in self.there.items()}

    # --- what is gone

    @property
    def _accepts(self) -> bool:
        return self.asked.accept_data_loss or self.job.source.on_data_loss == "continue"

    def _without_gaps(self, begin: Positions) -> Positions:
        found = starts.gaps(begin, self.there)
        if found and not self._accepts:
            raise data_loss([str(gap) for gap in found], sum(gap.records for gap in found))
        self.lost += found
        self.warnings += [f"{gap}; going on without them" for gap in found]
        return {where: max(offset, self.there[where].start) for where, offset in begin.items()}

    def _check_ends(self, begin: Positions) -> None:
        short = list(starts.cut_off(begin, self.there))
        if short and not self._accepts:
            raise data_loss(short)
        self.warnings += short

    # --- the sink

    def _creations(self) -> list[Creation]:
        """Topics that a run has to create first; EtlError for those that nobody will, and for other places of rows."""
        for fault in places.faults(self.job):
            raise fault
        for name in dead_letter_topics(self.job):
            self._need_letters(name)
        return self._created()

    def _created(self) -> list[Creation]:
        sink = self.job.sink.topic
        if sink is None:
            return []
        kafka = sink.kafka or self.job.kafka
        there = topics.writable(self.clusters.session(kafka), sink.topic, "sink.topic", sink.create)
        return [Creation(kafka, sink.topic, sink.create)] if there is None and sink.create is not None else []

    def _need_letters(self, name: str) -> None:
        topics.writable(self.session, name, "value.bad_rows.topic", None)

    def faults(self) -> Iterator[EtlError]:
        """All that a run would not find, and not only the first of it."""
        needs: list[Callable[[], object]] = [self._created]
        needs += [partial(self._need_letters, name) for name in dead_letter_topics(self.job)]
        if not self.job.source.files:
            needs.insert(0, self._look)
        for need in needs:
            try:
                need()
            except EtlError as error:
                yield error
        yield from places.faults(self.job)

    def _plan(self, reading: Reading | None, record: Record | None) -> Plan:
        job, sink = self.job, self.job.sink.topic
        letters: Client = {}
        if dead_letter_topics(job):
            letters = self.clusters.client(job.kafka, f"etl-{job.name}")
        return Plan(
            task=self.asked.task,
            job=job,
            mode=job.run.mode if self.asked.task == "run" else "batch",
            reading=reading,
            value_schema=self.schemas.value,
            key_schema=self.schemas.key,
            sink_schema=self.schemas.sink,
            dead_letter_client=letters,
            sink_client=self._sink_client() if sink else {},
            checkpoint=self.checkpoint.path if self.keeps else "",
            checkpoint_id=record.checkpoint_id if record else _new_id(),
            limit=self.asked.limit_rows,
        )

    def _sink_client(self) -> Client:
        sink = self.job.sink.topic
        assert sink is not None
        options = {"acks": sink.acks, **sink.options}
        return self.clusters.client(sink.kafka or self.job.kafka, f"etl-{self.job.name}", options=options)


def record_bytes(sizes: Mapping[TopicPartition, int], there: Mapping[TopicPartition, Extent]) -> dict[str, float]:
    """The average of each topic. Pure."""
    totals: dict[str, tuple[int, int]] = {}
    for where, extent in there.items():
        if where in sizes:
            size, records = totals.get(where.topic, (0, 0))
            totals[where.topic] = (size + sizes[where], records + extent.end - extent.start)
    return {topic: size / records for topic, (size, records) in totals.items() if size and records}


def _new_id() -> str:
    from uuid import uuid4

    return uuid4().hex


def dead_letter_topics(job: Job) -> list[str]:
    rules = (job.value.bad_rows, job.key.bad_rows)
    return list(dict.fromkeys(rule.topic for rule in rules if rule.action == "dead_letter"))


def _subscription(job: Job) -> tuple[Literal["assign", "subscribe", "subscribePattern"], str]:
    import json

    source = job.source
    if source.pattern:
        return "subscribePattern", topics.java_pattern(source.pattern)
    if source.partitions:
        return "assign", json.dumps({topic: list(found) for topic, found in source.partitions.items()})
    return "subscribe", ",".join(source.topics)


def data_loss(lines: Sequence[str], records: int = 0) -> EtlError:
    hint = "--accept-data-loss goes on with what is there, this time only"
    if len(lines) == 1:
        return EtlError(lines[0], EtlExit.DATA_LOSS, hints=(hint,))
    what = f"{records:,} records were deleted before they were read" if records else "topics end before the checkpoint"
    return EtlError(what, EtlExit.DATA_LOSS, hints=(*lines, hint))


def _reset_text(checkpoint: Checkpoint, job: Job) -> str:
    batch = checkpoints.standing_of(checkpoint.files()).batch
    standing = "has no batch yet" if batch is None else f"stands after batch {batch}"
    return (
        f"The checkpoint {checkpoint.path} {standing}. It is put aside, and the job begins at source.start again: "
        f"{job.source.start}. What the sink has stays there, so rows may be written a second time."
    )


def begin(planned: Planned, clusters: Clusters) -> list[str]:
    """What a run does before Spark starts, under the lock; what it did, for people."""
    said = []
    if planned.resets and planned.checkpoint:
        confirm(clusters.settings, f"{_reset_text(planned.checkpoint, planned.plan.job)} Go on?")
        aside = planned.checkpoint.put_aside(time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
        said.append(f"the old checkpoint is in {aside} now")
    for creation in planned.creations:
        topics.create_topic(clusters.session(creation.kafka), creation.topic, creation.create)
        said.append(f"created topic {creation.topic} with {creation.create.partitions} partitions")
    if planned.checkpoint and planned.record:
        planned.checkpoint.write_record(planned.record)
    return said
