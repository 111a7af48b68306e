"""A job's log file: Spark's output, the driver's, and stack traces of failures."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from kafkad_etl.checkpoint.checkpoints import state_directory, written
from kafkad_etl.job import Job

_LARGE = 10 << 20
"""Size at which a log makes room."""
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
        self._aside = path.with_name(f"{path.name}.1")
        self._most = _LARGE
        with written(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file():
                path.chmod(path.stat().st_mode & _MODE)
        if path.exists() and path.stat().st_size > _LARGE:
            path.replace(self._aside)
        self.begin = path.stat().st_size if path.exists() else 0

    def open(self) -> BinaryIO:
        with written(self.path):
            return _opened(self.path, os.O_APPEND)

    def add(self, text: str) -> None:
        with written(self.path), self.open() as file:
            file.write(f"{text.rstrip()}\n".encode())

    def make_room(self) -> None:
        """Copies a large log aside and empties it. Those who have it open go on at its beginning, since they append;
        what they write in between is lost. Where there is no room for the copy, the log may become twice as large."""
        with suppress(OSError):
            if self.path.stat().st_size > self._most:
                self._move_aside()

    def _move_aside(self) -> None:
        try:
            with self.path.open("rb") as log, _opened(self._aside, os.O_TRUNC) as aside:
                shutil.copyfileobj(log, aside)
            os.truncate(self.path, 0)
        except OSError:
            self._most *= 2
            with suppress(OSError):  # a part of it would only keep the disk full
                os.truncate(self._aside, 0)
        else:
            self.begin = 0

    def last_lines(self, count: int) -> list[str]:
        """The last lines written by this run."""
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(self.begin, size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        return [line for line in lines if line.strip()][-count:]


def _opened(path: Path, how: int) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | how, _MODE), "ab")
