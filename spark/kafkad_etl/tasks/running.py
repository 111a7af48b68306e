"""`kctl etl run`, from the job file to the exit code.

All that can be known without Spark is looked up before it starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TextIO

from msgspec.structs import replace

from kafkad_etl.checkpoint.checkpoints import Standing, checkpoint_of
from kafkad_etl.checkpoint.locking import Lock
from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.cluster.losses import Gap
from kafkad_etl.errors import EtlExit
from kafkad_etl.machine import environment
from kafkad_etl.messages import Batch, Failed, Lost
from kafkad_etl.model.effective import effective
from kafkad_etl.model.guarantee import guarantee
from kafkad_etl.model.inspection import inspect
from kafkad_etl.model.loading import JobFile, load
from kafkad_etl.planning import masters
from kafkad_etl.planning.beginning import begin
from kafkad_etl.planning.plan import plan
from kafkad_etl.planning.planned import Asked, Planned
from kafkad_etl.process.conducting import Conductor
from kafkad_etl.process.logs import log_of
from kafkad_etl.process.submitting import NO_OPTIONS, Options
from kafkad_etl.process.working import Work, work_to_its_end
from kafkad_etl.reporting import How, Reporter, reporter
from kafkad_etl.tasks.diagnosis import explaining, named

if TYPE_CHECKING:
    from kctl.settings import Settings


class Request(NamedTuple):
    """What the command line says."""

    file: JobFile
    asked: Asked = Asked()
    master: str = ""
    java_home: str = ""
    options: Options = NO_OPTIONS
    how: How = "plain"


def run(settings: Settings, request: Request, stream: TextIO) -> EtlExit:
    """EtlError for all that goes wrong. `stream` gets what people read; data go to standard output."""
    loaded = load(request.file)
    job = effective(loaded)
    doubts = inspect(loaded, job)
    found = environment.find(job.job, request.java_home)
    master = request.options.master or request.master
    masters.check(job.job, master, request.options.conf)
    lock_path = checkpoint_of(job.job, os.environ).lock_path
    with Clusters(settings, request.file.path.parent) as clusters, Lock(lock_path) as lock:
        with loaded.telling_places():
            planned = plan(clusters, job.job, request.asked._replace(spark=found.version), job.schemas)
        said = [
            f"warning: {text}"
            for text in (*doubts, *masters.doubts(job.job, master), *found.warnings, *planned.warnings)
        ]
        if lock.left:
            said.append(f"the last run did not come to its end: {lock.left}; its lock is taken over")
        said += begin(planned, clusters)
        log = log_of(job.job)
        promise = str(guarantee(planned.plan.job))
        shown = reporter(request.how, planned, stream, guarantee=promise, log=str(log.path))
        return work_to_its_end(
            Work(found, planned.plan, log, job.secrets, request.master, request.options, lock),
            shown,
            explaining(loaded, planned, clusters, shown),
            partial(_attended, planned, clusters, shown, said),
        )


@contextmanager
def _attended(
    planned: Planned, clusters: Clusters, shown: Reporter, said: Sequence[str], conductor: Conductor
) -> Iterator[None]:
    """What is known before Spark starts is said; progress is shown as a consumer group, and to Prometheus."""
    from kafkad_etl.cluster.mirror import Mirror, group_of

    for text in said:
        shown.say(text)
    job = planned.plan.job
    with ExitStack() as stack:
        if job.run.listen:
            from kafkad_etl.reporting.exporter import Exporter

            stack.enter_context(Exporter(job.run.listen, job.name, lambda: shown.state))
        group = group_of(job)
        if group and planned.plan.reading and planned.checkpoint:
            mirror = stack.enter_context(closing(Mirror(clusters.fresh(job.kafka), group, conductor.warn)))
            conductor.on_batch.append(lambda batch: mirror.offer(batch.batch, batch.end))
        if planned.checkpoint and planned.checkpoint.is_remote:
            conductor.on_batch.append(partial(remember, planned))
        _watch(planned, clusters, conductor, stack)
        yield


def remember(planned: Planned, batch: Batch) -> None:
    """What a remote checkpoint holds, which from here nobody can look at."""
    assert planned.checkpoint and planned.record
    seen = Standing(batch=batch.batch, reached=batch.end)
    planned.checkpoint.write_record(replace(planned.record, seen=seen))


def _watch(planned: Planned, clusters: Clusters, conductor: Conductor, stack: ExitStack) -> None:
    """Topics and records that are deleted meanwhile."""
    job, reading = planned.plan.job, planned.plan.reading
    if reading is None:
        return
    if not reading.fail_on_data_loss:
        from kafkad_etl.cluster.deletions import Deletions

        lost = partial(_tell_lost, conductor)
        deletions = stack.enter_context(closing(Deletions(clusters.fresh(job.kafka), lost, conductor.warn)))
        conductor.on_batch.append(deletions.offer)
    elif planned.plan.mode == "continuous":
        from kafkad_etl.cluster.presence import Presence

        gone = partial(_tell_gone, conductor)
        stack.enter_context(closing(Presence(clusters.fresh(job.kafka), planned.topic_ids, gone)))


def _tell_lost(conductor: Conductor, gap: Gap) -> None:
    topic, partition = gap.where
    conductor.tell(Lost(topic=topic, partition=partition, first=gap.first, end=gap.end, certain=gap.certain))


def _tell_gone(conductor: Conductor, names: list[str]) -> None:
    conductor.tell(Failed(kind="topic", text=f"{named(names)} deleted while the job ran"))
