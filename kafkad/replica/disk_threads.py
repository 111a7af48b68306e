"""The threads that wait for the disks. Each log directory has its own: a slow disk may keep all that wait for it.

An executor starts a thread when it needs one. Where the system has none left in that moment, whoever asked would lose
its work; so all are there before anything needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

OF_EACH = 4
"""Threads of a log directory. Those of the first one do the rest as well: a start, a stop, and little else."""


class NoThreads(Exception):
    """The system has no threads left for the disks, in words for people."""


@dataclass(frozen=True, slots=True)
class DiskThreads:
    of_directories: Mapping[str, Executor]
    """By the paths of log directories."""
    others: Executor
    """For all the rest."""

    @classmethod
    def of_each(cls, directories: Iterable[str]) -> DiskThreads:
        """None of which has been started."""
        executors = {directory: ThreadPoolExecutor(OF_EACH, thread_name_prefix="disk") for directory in directories}
        return cls(executors, next(iter(executors.values())))

    def of(self, directory: str) -> Executor:
        return self.of_directories.get(directory, self.others)

    def start(self) -> None:
        """All, before any has work. NoThreads."""
        for executor in self.of_directories.values():
            self._start(executor)

    def _start(self, executor: Executor) -> None:
        all_there = Barrier(OF_EACH)
        try:
            for _ in range(OF_EACH):
                executor.submit(all_there.wait)  # none is free for the next one
        except RuntimeError as error:
            all_there.abort()
            raise NoThreads(
                f"no {len(self.of_directories) * OF_EACH} threads can be started for the disks: {error}. The system "
                "limits them: see `ulimit -u`, and TasksMax in the unit"
            ) from error

    def end(self) -> None:
        """Once they have done what they were given."""
        for executor in self.of_directories.values():
            executor.shutdown()
