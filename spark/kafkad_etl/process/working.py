"""Runs one piece of work on Spark to its end, or several at once; shared by all tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import NamedTuple

from kafkad_etl.checkpoint.locking import Lock
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.machine.environment import Environment
from kafkad_etl.messages import Failed, Plan
from kafkad_etl.model.loading import masked
from kafkad_etl.process import launching
from kafkad_etl.process.conducting import Conducting, Conductor, JobEnd, exit_of
from kafkad_etl.process.interruptions import Interruptions
from kafkad_etl.process.logs import Log
from kafkad_etl.process.submitting import NO_OPTIONS, Options, is_local
from kafkad_etl.reporting import Reporter
from kctl.errors import KctlError

Explain = Callable[[Failed], EtlError]
Attend = Callable[[Conductor], AbstractContextManager[object]]


class SparkStart(NamedTuple):
    """What Spark is started with."""

    environment: Environment
    log: Log
    master: str = ""
    options: Options = NO_OPTIONS


class Work(NamedTuple):
    """One job for Spark."""

    plan: Plan
    secrets: frozenset[str]
    shown: Reporter
    explain: Explain
    """Builds the error for a failure."""
    attend: Attend = lambda _: nullcontext()
    """Entered before Spark starts, and left after the job has ended."""
    lock: Lock | None = None
    """Also held by the JVM for as long as it lives."""
    secret_variables: frozenset[str] = frozenset()
    """Variables of the environment that the job has secrets from."""


def run_work(start: SparkStart, work: Work) -> EtlExit:
    """Runs one job. Raises the error that it failed with."""
    ends: list[EtlExit | KctlError] = []
    run_together(start, [work], lambda _, end: ends.append(end))
    (end,) = ends
    if isinstance(end, KctlError):
        raise end
    return end


def run_together(start: SparkStart, works: Sequence[Work], on_end: Callable[[int, EtlExit | KctlError], None]) -> None:
    """Runs the jobs in one Spark. `on_end` gets the index of each that has ended, and its exit code or error."""
    with ExitStack() as stack:
        interruptions = stack.enter_context(Interruptions())
        attended = _Attended(works, start.log, on_end)
        stack.push(attended.leave)
        master = start.options.master or start.master or works[0].plan.job.spark.master
        conductors = attended.enter(interruptions, "" if is_local(master) else master)
        if not conductors:
            return
        secrets = frozenset().union(*(work.secrets for work in works))
        launched = stack.enter_context(
            launching.launch(
                start.environment,
                [works[index].plan for index in attended.indices],
                start.log,
                start.master,
                start.options,
                secrets=secrets,
                secret_variables=frozenset().union(*(work.secret_variables for work in works)),
                inherited=[lock.fileno() for index in attended.indices if (lock := works[index].lock)],
            )
        )
        Conducting(conductors, launched, interruptions, start.log, attended.end, secrets).run_to_end()


class _Attended:
    """The jobs with what accompanies them in the front. A job whose company fails before Spark starts ends alone."""

    def __init__(self, works: Sequence[Work], log: Log, on_end: Callable[[int, EtlExit | KctlError], None]) -> None:
        self._works = works
        self._log = log
        self._on_end = on_end
        self._stacks: dict[int, ExitStack] = {}
        self.indices: list[int] = []
        """Of the jobs that Spark is started for."""

    def enter(self, interruptions: Interruptions, cluster: str) -> list[Conductor]:
        conductors: list[Conductor] = []
        for index, work in enumerate(self._works):
            stack = ExitStack()
            try:
                with stack:
                    asked = "" if conductors else cluster  # one of them says that Spark waits
                    conductor = Conductor(work.shown, interruptions, work.secrets, asked)
                    stack.enter_context(conductor)
                    stack.enter_context(work.attend(conductor))
                    self._stacks[index] = stack.pop_all()
            except KctlError as error:
                self._on_end(index, error)
            else:
                conductors.append(conductor)
                self.indices.append(index)
        return conductors

    def end(self, job: int, last: JobEnd) -> None:
        """Ends the company of a job, which is one of `indices`, and tells how it ended."""
        index = self.indices[job]
        self._stacks.pop(index).close()
        self._on_end(index, self._ended_with(self._works[index], last))

    def leave(self, *raised: object) -> None:
        """Ends the company of jobs that have not ended, because Spark could not be started."""
        while self._stacks:
            self._stacks.popitem()[1].__exit__(*raised)  # type: ignore[arg-type]

    def _ended_with(self, work: Work, last: JobEnd) -> EtlExit | KctlError:
        if isinstance(last, EtlError):
            return last
        if not isinstance(last, Failed):
            return exit_of(last)
        if last.trace:
            self._add_to_log(last.trace, work.shown)
        error = work.explain(last)
        hints = (*error.hints, f"log: {self._log.path}")
        return EtlError(masked(error.what, work.secrets), EtlExit(error.exit_code), hints=hints)

    def _add_to_log(self, trace: str, shown: Reporter) -> None:
        try:
            self._log.add(trace)
        except EtlError as error:
            shown.say(f"warning: the log lacks the trace of the failure: {error.what}")
