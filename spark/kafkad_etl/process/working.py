"""Runs one piece of work on Spark to its end; shared by all tasks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import NamedTuple

from kafkad_etl.checkpoint.locking import Lock
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.machine.environment import Environment
from kafkad_etl.messages import Failed, Plan
from kafkad_etl.model.loading import masked
from kafkad_etl.process import launching
from kafkad_etl.process.conducting import Conductor, exit_of
from kafkad_etl.process.interruptions import Interruptions
from kafkad_etl.process.logs import Log
from kafkad_etl.process.submitting import NO_OPTIONS, Options, is_local
from kafkad_etl.reporting import Reporter


class Work(NamedTuple):
    environment: Environment
    plan: Plan
    log: Log
    secrets: frozenset[str]
    master: str = ""
    options: Options = NO_OPTIONS
    lock: Lock | None = None
    """Also held by the JVM for as long as it lives."""


def run_work(
    work: Work,
    shown: Reporter,
    explain: Callable[[Failed], EtlError],
    attend: Callable[[Conductor], AbstractContextManager[object]] = lambda _: nullcontext(),
) -> EtlExit:
    """Runs the work. Raises EtlError, as built by `explain`, if it failed. `attend` is entered before Spark starts
    and left after it has ended."""
    with ExitStack() as stack:
        interruptions = stack.enter_context(Interruptions())
        master = work.options.master or work.master or work.plan.job.spark.master
        cluster = "" if is_local(master) else master
        conductor = stack.enter_context(Conductor(shown, interruptions, work.secrets, cluster))
        stack.enter_context(attend(conductor))
        launched = stack.enter_context(
            launching.launch(
                work.environment,
                work.plan,
                work.log,
                work.master,
                work.options,
                secrets=work.secrets,
                inherited=(work.lock.fileno(),) if work.lock else (),
            )
        )
        last = conductor.run_to_end(launched, work.log)
    if isinstance(last, Failed):
        if last.trace:
            work.log.add(last.trace)
        error = explain(last)
        hints = (*error.hints, f"log: {work.log.path}")
        raise EtlError(masked(error.what, work.secrets), EtlExit(error.exit_code), hints=hints)
    return exit_of(last)
