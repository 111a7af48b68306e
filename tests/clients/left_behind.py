"""The data directories that one real Kafka leaves behind: stopped, and as a kill at that moment would have left it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, Literal, NamedTuple, TypeVar

from tests.oracle.kafka import Kafka

Ending = Literal["stopped", "killed"]
T = TypeVar("T")


class LeftBehind(NamedTuple, Generic[T]):
    """A directory that one Kafka wrote; a test takes a copy."""

    root: Path
    told: T
    """By what wrote it."""

    def copy(self, ending: Ending, to: Path) -> Path:
        return Path(shutil.copytree(self.root / ending, to))


def by_kafka(root: Path, settings: Mapping[str, str], write: Callable[[Kafka], T]) -> LeftBehind[T]:
    """Has Kafka 3.9 write, copies its directory while the process stands still, and stops it."""
    stopped: Ending = "stopped"
    killed: Ending = "killed"
    with Kafka("3.9", data=root / stopped, heap="512m", settings=settings) as kafka:
        told = write(kafka)
        (pid,) = kafka.pids
        os.kill(pid, signal.SIGSTOP)
        try:
            shutil.copytree(root / stopped, root / killed)
        finally:
            os.kill(pid, signal.SIGCONT)
    return LeftBehind(root, told)
