"""A planned run: the Plan for the driver, and everything that planning found out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from kafkad.names import TopicPartition
from kafkad_etl.checkpoint.checkpoints import Checkpoint, Record, Standing
from kafkad_etl.cluster.losses import Gap
from kafkad_etl.facts import is_stateful
from kafkad_etl.job import Create, Kafka
from kafkad_etl.messages import Plan
from kafkad_etl.planning.registries import Registration


class RunOptions(NamedTuple):
    """The command line's settings for a run, beside the job."""

    task: Literal["run", "preview"] = "run"
    limit_rows: int = 0
    accept_data_loss: bool = False
    reset_checkpoint: bool = False
    preview_from: Literal["earliest", "latest"] = "latest"
    spark: str = ""
    """The Spark version to run on; empty if not known yet."""
    secrets: frozenset[str] = frozenset()
    """Texts that may not be recorded."""


class PartitionRange(NamedTuple):
    """The offsets of one partition that can be read when the run begins."""

    where: TopicPartition
    start: int
    end: int

    @property
    def rows(self) -> int:
        """Number of offsets, including transaction markers and records removed by compaction."""
        return max(self.end - self.start, 0)


class TopicCreation(NamedTuple):
    kafka: Kafka
    topic: str
    create: Create


class PlannedRun(NamedTuple):
    plan: Plan
    reach: tuple[PartitionRange, ...] = ()
    checkpoint: Checkpoint | None = None
    """None if this mode has none."""
    standing: Standing = Standing()
    record: Record | None = None
    is_new: bool = True
    """True if the checkpoint has no batch yet."""
    resets: bool = False
    creations: tuple[TopicCreation, ...] = ()
    registration: Registration | None = None
    lost: tuple[Gap, ...] = ()
    """Data loss that was accepted."""
    topic_ids: Mapping[str, str] = {}
    record_bytes: Mapping[str, float] = {}
    """Average record size by topic, where the brokers report sizes."""
    warnings: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.reach)

    @property
    def has_nothing_new(self) -> bool:
        """True if Spark would find nothing to do: a local checkpoint without unfinished work, and no new offsets.
        For files, and for groups waiting in Spark's state, only Spark knows."""
        return (
            self.plan.mode == "available-now"
            and self.plan.reading is not None
            and not is_stateful(self.plan.job)
            and self.checkpoint is not None
            and not self.checkpoint.is_remote
            and not self.is_new
            and self.standing.planned is None
            and not self.checkpoint.unfinished()
            and not self.lost
            and not self.plan.reading.deleted
            and all(one.start == one.end for one in self.reach)
        )
