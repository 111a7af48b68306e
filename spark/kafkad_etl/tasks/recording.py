"""Records a run in its job's history: that it began, and how it ended; and writes its metrics."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from kafkad_etl.checkpoint.checkpoints import checkpoint_of
from kafkad_etl.checkpoint.history import Result, RunBegan, RunEnded, history_of, last_success
from kafkad_etl.errors import EtlExit, exit_of, text_of
from kafkad_etl.facts import local_path
from kafkad_etl.job import Job
from kafkad_etl.model.loading import masked
from kafkad_etl.reporting import Reporter, textfile
from kafkad_etl.reporting.state import State
from kctl.errors import KctlError

_ERROR_LENGTH = 500
_NOT_STARTED = (EtlExit.USAGE, EtlExit.CLUSTER, EtlExit.ENVIRONMENT, EtlExit.CHECKPOINT)


class Recording:
    """A context manager around a run, from its effective job on. A history that cannot be written is a warning."""

    def __init__(
        self,
        job: Job,
        secrets: Iterable[str],
        stream: TextIO,
        environment: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.shown: Reporter | None = None
        """Shows the run, once it is planned."""
        self._job = job
        self._secrets = secrets
        self._stream = stream
        self._clock = clock
        self._history = history_of(job.name, environment)
        self._lock = checkpoint_of(job, environment).lock_path
        self._began_ms = 0
        self._run = ""
        self._code = EtlExit.DONE

    def ends(self, code: EtlExit) -> EtlExit:
        """Takes and returns the exit code of a run that raised no error."""
        self._code = code
        return code

    def __enter__(self) -> Self:
        self._began_ms = round(self._clock() * 1000)
        self._run = f"{self._began_ms}-{os.getpid()}"
        self._add(
            RunBegan(
                run=self._run,
                job=self._job.name,
                began_ms=self._began_ms,
                mode=self._job.run.mode,
                host=socket.gethostname(),
                pid=os.getpid(),
                lock=str(self._lock),
            )
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state = self.shown.state if self.shown else None
        code = self._code if error is None else code_of(error)
        told = masked(text_of(error), self._secrets)[:_ERROR_LENGTH] if error else ""
        ended_ms = round(self._clock() * 1000)
        line = ended(self._run, self._job, self._began_ms, ended_ms, code, told, state)
        self._add(line)
        if self._job.run.textfile:
            self._write_metrics(Path(local_path(self._job.run.textfile)), line)

    def _write_metrics(self, directory: Path, line: RunEnded) -> None:
        try:
            textfile.write(directory, line.job, textfile.page(line, self._success_ms(line)))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            self._warn(f"run.textfile: the metrics of this run are not in {directory}: {reason}")

    def _success_ms(self, line: RunEnded) -> int | None:
        """The end of the last successful run, which may be this one."""
        if line.code == EtlExit.DONE:
            return line.ended_ms
        run = last_success(self._history.runs()[0])
        return run.ended.ended_ms if run and run.ended else None

    def _add(self, line: RunBegan | RunEnded) -> None:
        try:
            self._history.add(line)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            self._warn(f"this run is not in {self._history.path}: {reason}")

    def _warn(self, text: str) -> None:
        print(f"warning: {text}", file=self._stream, flush=True)


def code_of(error: BaseException) -> EtlExit:
    if isinstance(error, KctlError):
        return exit_of(error)
    return EtlExit.INTERRUPTED if isinstance(error, KeyboardInterrupt) else EtlExit.FAILED


def result_of(code: EtlExit, state: State | None) -> Result:
    if code == EtlExit.INTERRUPTED:
        return "interrupted"
    if code != EtlExit.DONE:
        begun = state is not None and state.application
        return "refused" if code in _NOT_STARTED and not begun else "failed"
    if state is None or not state.reading:
        return "nothing new"
    return "limit" if state.reason == "limit" else "done"


def ended(run: str, job: Job, began_ms: int, ended_ms: int, code: EtlExit, error: str, state: State | None) -> RunEnded:
    line = RunEnded(
        run=run,
        job=job.name,
        began_ms=began_ms,
        ended_ms=ended_ms,
        mode=job.run.mode,
        result=result_of(code, state),
        code=code,
        error=error,
    )
    if state is None:
        return line
    from msgspec.structs import replace

    return replace(
        line,
        rows_read=state.read,
        rows_written=state.written,
        bad=state.bad,
        late=state.late,
        duplicates=state.duplicates,
        lost=sum(gap.records for gap in state.lost),
        batches=state.batches,
        files=state.files,
        bytes_written=state.bytes_written,
        lag=state.lag if state.spans else None,
    )
