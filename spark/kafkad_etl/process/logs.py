"""A job's log file: Spark's output, the driver's, and stack traces of failures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from kafkad_etl.checkpoint.checkpoints import state_directory, written
from kafkad_etl.job import Job

_LARGE = 10 << 20
_TAIL_BYTES = 8192
_MODE = 0o640
"""Spark may write anything there, secrets too."""


def log_of(job: Job, environment: Mapping[str, str] = os.environ) -> Log:
    return Log(state_directory(environment) / "logs" / f"{job.name}.log")


class Log:
    """The log file. `begin` is where this run's part starts."""

    def __init__(self, path: Path) -> None:
        """Opens the log, moving a large one aside. Strangers cannot read it, nor one of an earlier version."""
        self.path = path
        with written(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file():
                path.chmod(path.stat().st_mode & _MODE)
        if path.exists() and path.stat().st_size > _LARGE:
            path.replace(path.with_name(f"{path.name}.1"))
        self.begin = path.stat().st_size if path.exists() else 0

    def open(self) -> BinaryIO:
        with written(self.path):
            return os.fdopen(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _MODE), "ab")

    def add(self, text: str) -> None:
        with written(self.path), self.open() as file:
            file.write(f"{text.rstrip()}\n".encode())

    def last_lines(self, count: int) -> list[str]:
        """The last lines written by this run."""
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(self.begin, size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        return [line for line in lines if line.strip()][-count:]
