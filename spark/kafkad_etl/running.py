"""The conductor of `kctl etl run`: from the job file to the exit code.

Everything that can be known without Spark is looked up first. Then spark-submit is started, and until its driver has
gone each event goes to all who listen: the reporter, the consumer group's mirror, the exporter.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from msgspec.structs import replace

from kafkad_etl import checkpoints, environment, launching, planning
from kafkad_etl.clusters import Clusters
from kafkad_etl.effective import Effective, effective
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.guarantee import guarantee
from kafkad_etl.interruptions import Interruptions
from kafkad_etl.launching import Launched
from kafkad_etl.loading import load, masked
from kafkad_etl.locking import Lock
from kafkad_etl.logs import Log
from kafkad_etl.messages import Ended, Event, Failed, Warned
from kafkad_etl.planning import Asked, Schemas
from kafkad_etl.reporting import How, Outcome, Reporter, reporter
from kafkad_etl.submitting import NO_OPTIONS, Options

if TYPE_CHECKING:
    from kctl.settings import Settings

_LOG_LINES = 5
_END_SECONDS = 20.0
"""For Spark to end by itself, once the driver has said that it is done."""

Last = Ended | Failed | None
"""What the driver said last; None: it went without a word."""


class Request(NamedTuple):
    """What the command line says."""

    path: Path
    variables: Mapping[str, str] = {}
    sets: Sequence[str] = ()
    asked: Asked = Asked()
    master: str = ""
    java_home: str = ""
    options: Options = NO_OPTIONS
    how: How = "plain"


def run(settings: Settings, request: Request, stream: TextIO) -> EtlExit:
    """EtlError for all that goes wrong. `stream` gets what people read; data go to standard output."""
    loaded = load(request.path, variables=request.variables, sets=request.sets, environment=os.environ)
    job = effective(loaded)
    found = environment.find(job.job, request.java_home)
    with Clusters(settings, request.path.parent) as clusters, Lock(lock_path(job), _now()) as lock:
        asked = request.asked._replace(spark=found.version)
        planned = planning.plan(clusters, job.job, asked, Schemas(job.value_schema, job.key_schema, job.sink_schema))
        said = [f"warning: {text}" for text in (*found.warnings, *planned.warnings)]
        said += planning.begin(planned, clusters)
        log = Log(log_path(job))
        with (
            Interruptions() as interruptions,
            launching.launch(
                found,
                planned.plan,
                log,
                request.master,
                request.options,
                secrets=job.secrets,
                inherited=(lock.fileno(),),
            ) as launched,
        ):
            shown = reporter(request.how, planned, stream, guarantee=str(guarantee(job.job)), log=str(log.path))
            for text in said:
                shown.say(text)
            last = conduct(launched, shown, [shown.event], interruptions, job.secrets)
            settle(launched, interruptions)
            return ended(last, launched, interruptions.count, log, job.secrets)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def lock_path(job: Effective) -> Path:
    directory = checkpoints.directory_of(job.job, os.environ)
    return checkpoints.Checkpoint(directory, checkpoints.state_directory(os.environ) / job.job.name).lock_path


def log_path(job: Effective) -> Path:
    return checkpoints.state_directory(os.environ) / "logs" / f"{job.job.name}.log"


def conduct(
    launched: Launched,
    shown: Reporter,
    listeners: Sequence[Callable[[Event], None]],
    interruptions: Interruptions,
    secrets: frozenset[str],
) -> Last:
    """Until the driver has gone. What was done is shown then, whatever the end was."""
    last: Last = None
    heeded = 0
    try:
        for event in launched.events():
            if interruptions.count > heeded:
                heeded = interruptions.count
                shown.say(_STOPPING if heeded == 1 else "stopping at once")
                launched.stop(now=heeded > 1)
            if event is None:
                shown.tick()
                continue
            event = without_secrets(event, secrets)
            for listener in listeners:
                listener(event)
            if isinstance(event, (Ended, Failed)):
                last = event
    finally:
        shown.close(outcome(last, interruptions.count))
    return last


_STOPPING = "stopping after the batch that runs; Ctrl-C again stops at once"


def without_secrets(event: Event, secrets: frozenset[str]) -> Event:
    if isinstance(event, Warned):
        return replace(event, text=masked(event.text, secrets))
    if isinstance(event, Failed):
        hints = [masked(hint, secrets) for hint in event.hints]
        return replace(event, text=masked(event.text, secrets), trace=masked(event.trace, secrets), hints=hints)
    return event


def outcome(last: Last, interruptions: int) -> Outcome:
    if isinstance(last, Failed):
        return "failed"
    if last is None:
        return "interrupted" if interruptions else "failed"
    return "interrupted" if last.reason == "stopped" else last.reason


def settle(launched: Launched, interruptions: Interruptions, clock: Callable[[], float] = time.monotonic) -> None:
    """Spark puts its own things in order; nobody has to wait for it who has pressed Ctrl-C twice."""
    patience = clock() + _END_SECONDS
    while launched.wait(0.1) is None and clock() < patience and interruptions.count < 2:
        pass
    launched.kill()


def ended(last: Last, launched: Launched, interruptions: int, log: Log, secrets: frozenset[str]) -> EtlExit:
    if isinstance(last, Failed):
        raise failure(last, log)
    if last is None and not interruptions:
        raise vanished(launched.ended, log, secrets)
    return EtlExit.INTERRUPTED if last is None or last.reason == "stopped" else EtlExit.DONE


def vanished(status: int | None, log: Log, secrets: frozenset[str]) -> EtlError:
    """Its own last words are in the log."""
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        how = f"was killed ({name})"
    else:
        how = f"ended with exit code {status}" if status is not None else "said nothing more"
    lines = [masked(line, secrets) for line in log.last_lines(_LOG_LINES)]
    hints = [*(["the last lines of the log:"] if lines else []), *lines, f"log: {log.path}"]
    if status == -signal.SIGKILL:
        hints.insert(0, "if nobody killed it, memory ran out: dmesg says so, and spark.driver_memory can be less")
    return EtlError(f"Spark {how} before the job was done", EtlExit.FAILED, hints=hints)


_EXITS = {
    "sql": EtlExit.USAGE,
    "schema": EtlExit.DATA,
    "bad-rows": EtlExit.DATA,
    "check": EtlExit.DATA,
    "data-loss": EtlExit.DATA_LOSS,
    "topic": EtlExit.CLUSTER,
    "sink": EtlExit.FAILED,
    "checkpoint": EtlExit.CHECKPOINT,
    "environment": EtlExit.ENVIRONMENT,
    "spark": EtlExit.FAILED,
}


def failure(failed: Failed, log: Log) -> EtlError:
    if failed.trace:
        log.add(failed.trace)
    return EtlError(failed.text, _EXITS[failed.kind], hints=(*failed.hints, f"log: {log.path}"))
