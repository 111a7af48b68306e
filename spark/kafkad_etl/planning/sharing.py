"""What several jobs may share in one Spark: its settings, but nothing that a job has to have for itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from kafkad_etl.checkpoint.checkpoints import directory_of
from kafkad_etl.checkpoint.overlaps import places_of
from kafkad_etl.cluster.mirror import group_of
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import FILES, is_of_session, spark_conf
from kafkad_etl.job import Job, Scalar, Spark
from kafkad_etl.machine.environment import size_of
from kafkad_etl.model.loading import Loaded


def refuse_conflicts(jobs: Sequence[Loaded], environment: Mapping[str, str]) -> None:
    """Raises EtlError USAGE if two jobs have in common what each needs for itself."""
    seen: list[tuple[str, object, Loaded]] = []
    for loaded in jobs:
        own = list(_own(loaded.job, environment))
        for key, shown, value in own:
            for other_key, other_value, other in seen:
                if clash := _clash(key, value, other_key, other_value):
                    what = f"{shown} {clash} that of {other.where(other_key)}: each job needs its own"
                    raise EtlError(what, EtlExit.USAGE, where=loaded.where(key))
        seen += ((key, value, loaded) for key, _, value in own)


def _clash(key: str, value: object, other_key: str, other: object) -> str:
    """How a value clashes with one of another job; empty if it does not."""
    if isinstance(value, list) and isinstance(other, list):
        if value[0] == other[0]:
            return "is also"
        return "overlaps with" if any(one.overlaps(another) for one, another in product(value, other)) else ""
    return "is also" if (key, value) == (other_key, other) else ""


def _own(job: Job, environment: Mapping[str, str]) -> Iterator[tuple[str, str, object]]:
    """What no two jobs that run at the same time may have: its key, as people read it, and as it is compared. Tables
    and topics take several writers."""
    yield "name", job.name, job.name
    checkpoint = directory_of(job, environment)
    yield "run.checkpoint", checkpoint, places_of(checkpoint)
    if group := group_of(job):
        yield "run.group", group, (group, job.kafka.cluster, frozenset(job.kafka.bootstrap))
    if job.run.listen:
        yield "run.listen", job.run.listen, job.run.listen
    if job.sink.type in FILES:
        yield "sink.path", job.sink.path, places_of(job.sink.path)


def shared_settings(jobs: Sequence[Loaded], *, master: str = "") -> Spark:
    """The largest memory, all jars, and settings that no two jobs contradict. `master` overrides the jobs'. Raises
    EtlError USAGE where one Spark cannot serve them all."""
    settings = [loaded.job.spark for loaded in jobs]
    conf: dict[str, tuple[Scalar, Loaded]] = {}
    for loaded in jobs:
        if not master and loaded.job.spark.master != settings[0].master:
            raise _conflict(loaded, "spark.master", loaded.job.spark.master, settings[0].master, jobs[0])
        for name, value in spark_conf(loaded.job).items():
            known, first = conf.setdefault(name, (value, loaded))
            if known != value and not is_of_session(name):
                key = f"spark.conf.{name}" if name in loaded.job.spark.conf else "s3"
                raise _conflict(loaded, key, value, known, first)
    return Spark(
        master=master or settings[0].master,
        driver_memory=max((each.driver_memory for each in settings), key=size_of),
        executor_memory=max((each.executor_memory for each in settings), key=size_of),
        jars=tuple(dict.fromkeys(jar for each in settings for jar in each.jars)),
        conf={name: value for name, (value, _) in conf.items() if not is_of_session(name)},
    )


def _conflict(loaded: Loaded, key: str, value: Scalar, other: Scalar, first: Loaded) -> EtlError:
    return EtlError(
        f"{value} here, and {other} in {first.where(key)}: one Spark cannot have both",
        EtlExit.USAGE,
        where=loaded.where(key),
        hints=("give both jobs the same, or start them one by one",),
    )
