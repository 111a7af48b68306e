"""`kctl etl run`, from the job files to the exit code.

Everything that can be checked without Spark is checked before it starts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TextIO

from msgspec.structs import replace

from kafkad.systemd import Notifier
from kafkad_etl.checkpoint import overlaps
from kafkad_etl.checkpoint.checkpoints import checkpoint_of
from kafkad_etl.checkpoint.locking import Lock
from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.errors import EtlError, EtlExit, exit_of
from kafkad_etl.facts import is_of_session
from kafkad_etl.job import Job, Spark
from kafkad_etl.machine import environment, filesystems
from kafkad_etl.messages import Plan
from kafkad_etl.model.effective import Effective, effective
from kafkad_etl.model.guarantee import guarantee
from kafkad_etl.model.inspection import inspect
from kafkad_etl.model.loading import JobFile, Loaded, load
from kafkad_etl.planning import masters, registries
from kafkad_etl.planning.beginning import begin
from kafkad_etl.planning.plan import plan
from kafkad_etl.planning.planned import RunOptions
from kafkad_etl.planning.sharing import refuse_conflicts, shared_settings
from kafkad_etl.process.announcing import Notices, announced, notices_of
from kafkad_etl.process.logs import log_of
from kafkad_etl.process.submitting import NO_OPTIONS, Options
from kafkad_etl.process.working import SparkStart, Work, run_together
from kafkad_etl.reporting import How, Reporter, reporter
from kafkad_etl.tasks.attending import attended
from kafkad_etl.tasks.diagnosis import explaining
from kafkad_etl.tasks.recording import Recording
from kctl.errors import KctlError

if TYPE_CHECKING:
    from kafkad_etl.reporting.live import Screen
    from kctl.settings import Settings


class Request(NamedTuple):
    """The command line's arguments."""

    files: Sequence[JobFile]
    asked: RunOptions = RunOptions()
    master: str = ""
    java_home: str = ""
    options: Options = NO_OPTIONS
    how: How = "plain"
    trusts_sql: bool = False


def run(settings: Settings, request: Request, stream: TextIO, on_error: Callable[[str, KctlError], None]) -> EtlExit:
    """Runs the jobs, all in one Spark. `stream` gets what people read; data goes to standard output.

    Raises what a single job failed with. Of several, each error goes to `on_error` with the job's label, and the worst
    exit code is returned. Mistakes in any of the files are found before one of the jobs has done anything.
    """
    files = [load(file) for file in request.files]
    jobs = [effective(loaded) for loaded in files]
    _refuse_unknown_variables(request, files)
    refuse_conflicts(files, os.environ)
    spark = shared_settings(files, master=request.options.master or request.master)
    width = max(len(job.job.name) for job in jobs)
    notices = notices_of(Notifier.from_environment(os.environ), [job.job.name for job in jobs])
    labels = [f"{job.job.name:{width}} | " if len(jobs) > 1 else "" for job in jobs]
    runs = [
        _JobRun(settings, request, stream, loaded, job, label, told, on_error if label else None)
        for loaded, job, label, told in zip(files, jobs, labels, notices, strict=True)
    ]
    with ExitStack() as stack:
        for each in runs:
            stack.push(each.leave)
        _prepare(runs)
        _begin(runs)
        _work(request, spark, [each for each in runs if each.work])
    return worst(each.code for each in runs)


def worst(codes: Iterable[EtlExit]) -> EtlExit:
    """The exit code of several jobs: the highest of those that failed, 130 only if none did."""
    found = list(codes)
    failed = [code for code in found if code not in (EtlExit.DONE, EtlExit.INTERRUPTED)]
    return max(failed or found)


def _prepare(runs: Sequence[_JobRun]) -> None:
    """Checks and plans all jobs. A mistake in one of the files refuses all of them."""
    for step in (_JobRun.check, _JobRun.plan):
        for each in runs:
            each.attempt(step)
        mistaken = [each for each in runs if each.code == EtlExit.USAGE]
        for each in runs if mistaken else ():
            each.end(EtlError(f"not started: {mistaken[0].loaded.path} has mistakes", EtlExit.USAGE))


def _begin(runs: Sequence[_JobRun]) -> None:
    from kafkad_etl.reporting.live import Screen

    screen = Screen(runs[0].stream) if runs[0].request.how == "rich" else None
    for each in runs:
        each.attempt(partial(_JobRun.begin, screen=screen))


def _work(request: Request, spark: Spark, runs: Sequence[_JobRun]) -> None:
    if not runs:
        return
    log = runs[0].log
    found = [each.environment for each in runs]
    together = found[0]._replace(jars=tuple(dict.fromkeys(jar for each in found for jar in each.jars)))
    works = [each.work for each in runs if each.work]
    if len(works) > 1:
        works = [work._replace(plan=_sharing(work.plan, spark, request.options)) for work in works]
    start = SparkStart(together, log, request.master, request.options)
    run_together(start, works, lambda index, end: runs[index].end(end))


def _sharing(plan: Plan, spark: Spark, options: Options) -> Plan:
    """The plan of a job in a Spark with others: Spark's settings are those of all, the session's are its own."""
    own = {name: value for name, value in plan.job.spark.conf.items() if is_of_session(name)}
    conf = {name: value for name, value in own.items() if name not in options.conf}
    return replace(plan, job=replace(plan.job, spark=replace(spark, conf={**spark.conf, **conf})))


def _refuse_unknown_variables(request: Request, files: Sequence[Loaded]) -> None:
    """Of several files; a single one refuses them itself."""
    if len(files) < 2:
        return
    unknown = set(request.files[0].variables).intersection(*(loaded.variables.unused() for loaded in files))
    for name in sorted(unknown):
        raise EtlError(f'--var {name}: none of the files declares a variable "{name}"', EtlExit.USAGE)


class _JobRun:
    """One job from its file to its end. What it holds, such as its lock, is released when it has ended."""

    def __init__(
        self,
        settings: Settings,
        request: Request,
        stream: TextIO,
        loaded: Loaded,
        job: Effective,
        label: str,
        notices: Notices,
        on_error: Callable[[str, KctlError], None] | None,
    ) -> None:
        """`on_error` gets the error that the job fails with; None: it is raised."""
        self.request = request
        self.stream = stream
        self.loaded = loaded
        self.code = EtlExit.DONE
        self._settings = settings
        self._job = job
        self._label = label
        self._on_error = on_error
        self._notes: list[str] = []
        self._stack = ExitStack()
        self._has_ended = False
        self._notices = self._stack.enter_context(announced(notices, job.secrets))
        self._recording = self._stack.enter_context(Recording(job.job, job.secrets, stream, os.environ))
        self.work: Work | None = None

    def attempt(self, step: Callable[[_JobRun], None]) -> None:
        """Takes a step, unless the job has ended; an error ends it."""
        if self._has_ended:
            return
        try:
            with self.loaded.locating_errors():
                step(self)
        except KctlError as error:
            self.end(error)

    def end(self, end: EtlExit | KctlError) -> None:
        """The first end counts."""
        if self._has_ended:
            return
        self._has_ended = True
        self.work = None
        if isinstance(end, KctlError):
            self.code = exit_of(end)
            self._stack.__exit__(type(end), end, end.__traceback__)
            if self._on_error is None:
                raise end
            self._on_error(self._label, end)
        else:
            self.code = self._recording.ends(end)
            self._stack.close()

    def leave(self, *raised: object) -> None:
        """Releases everything if the run is cut short by an error that is nobody's."""
        if not self._has_ended:
            self._has_ended = True
            self._stack.__exit__(*raised)  # type: ignore[arg-type]

    def check(self) -> None:
        self._job = registries.asked(self._job)
        job, request = self._job.job, self.request
        self._doubts = inspect(self.loaded, self._job, trusts=request.trusts_sql)
        overlaps.refuse(job, self._job.files, os.environ)
        filesystems.check(job, request.options.words)
        self.environment = environment.find(job, request.java_home)
        masters.check(job, request.options.master or request.master, request.options.conf)

    def plan(self) -> None:
        request, job = self.request, self._job.job
        self._clusters = self._stack.enter_context(Clusters(self._settings, self.loaded.path.parent))
        self._lock = self._stack.enter_context(Lock(checkpoint_of(job, os.environ).lock_path))
        asked = request.asked._replace(spark=self.environment.version, secrets=self._job.secrets)
        planned = self._planned = plan(self._clusters, job, asked, self._job.schemas)
        doubts = masters.doubts(job, request.options.master or request.master)
        warnings = (*self._doubts, *doubts, *self.environment.warnings, *planned.warnings)
        self._notes += [f"warning: {text}" for text in warnings]
        if self._lock.left:
            self._notes.append(f"the last run did not finish ({self._lock.left}); taking over its lock")

    def begin(self, screen: Screen | None = None) -> None:
        """Shows the job, and prepares it for Spark. If there is nothing new, that is its end."""
        planned = self._planned
        promise = str(guarantee(planned.plan.job))
        show = partial(
            reporter,
            self.request.how,
            planned,
            self.stream,
            guarantee=promise,
            job=self._label and self._job.job.name,
            label=self._label,
            screen=screen,
        )
        if planned.has_nothing_new:
            self._nothing_new(show())
            return
        self.log = log_of(self._job.job)
        shown = self._recording.shown = show(log=str(self.log.path))
        self._stack.enter_context(exporting(planned.plan.job, shown))
        begun = begin(planned, self._clusters)
        attend = partial(attended, planned, self._clusters, shown, [*self._notes, *begun.notes], self._notices)
        explain = explaining(self.loaded, planned, self._clusters, shown)
        self.work = Work(begun.plan, self._job.secrets, shown, explain, attend, self._lock, self._job.secret_variables)

    def _nothing_new(self, shown: Reporter) -> None:
        self._recording.shown = shown
        for text in self._notes:
            shown.say(text)
        started = "" if self._label else "; Spark was not started"
        shown.say(f"nothing new since batch {self._planned.standing.batch}{started}")
        shown.close("done")
        self.end(EtlExit.DONE)


@contextmanager
def exporting(job: Job, shown: Reporter) -> Iterator[None]:
    """Serves metrics to Prometheus during the run, if the job says where."""
    if not job.run.listen:
        yield
        return
    from kafkad_etl.reporting.exporter import Exporter

    with Exporter(job.run.listen, job.name, lambda: shown.state):
        yield
