"""A job's log file: what Spark says, what the driver prints, and the traces of failures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from kafkad_etl.checkpoint.checkpoints import state_directory
from kafkad_etl.job import Job

_LARGE = 10 << 20
_TAIL_BYTES = 8192


def log_of(job: Job, environment: Mapping[str, str] = os.environ) -> Log:
    return Log(state_directory(environment) / "logs" / f"{job.name}.log")


class Log:
    """`begin` is where this run's part begins."""

    def __init__(self, path: Path) -> None:
        """One that has grown large makes room."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > _LARGE:
            path.replace(path.with_name(f"{path.name}.1"))
        self.begin = path.stat().st_size if path.exists() else 0

    def open(self) -> BinaryIO:
        return self.path.open("ab")

    def add(self, text: str) -> None:
        with self.open() as file:
            file.write(f"{text.rstrip()}\n".encode())

    def last_lines(self, count: int) -> list[str]:
        """Of this run."""
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(self.begin, size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        return [line for line in lines if line.strip()][-count:]
