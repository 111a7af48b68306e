"""The threads that wait for the disks. Each log directory has its own: a slow disk may keep all that wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DiskThreads:
    of_directories: Mapping[str, Executor]
    """By the paths of log directories."""
    others: Executor
    """For all the rest."""

    def of(self, directory: str) -> Executor:
        return self.of_directories.get(directory, self.others)
