"""The settings of one Spark for several jobs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import is_of_session
from kafkad_etl.job import Scalar, Spark
from kafkad_etl.machine.environment import size_of
from kafkad_etl.model.loading import Loaded


def shared_settings(jobs: Sequence[Loaded], *, master: str = "") -> Spark:
    """The largest memory, all jars, and settings that no two jobs contradict. `master` overrides the jobs'. Raises
    EtlError USAGE where one Spark cannot serve them all."""
    settings = [loaded.job.spark for loaded in jobs]
    conf: dict[str, tuple[Scalar, Loaded]] = {}
    for loaded in jobs:
        if not master and loaded.job.spark.master != settings[0].master:
            raise _conflict(loaded, "spark.master", loaded.job.spark.master, settings[0].master, jobs[0])
        for name, value in loaded.job.spark.conf.items():
            known, first = conf.setdefault(name, (value, loaded))
            if known != value and not is_of_session(name):
                raise _conflict(loaded, f"spark.conf.{name}", value, known, first)
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
