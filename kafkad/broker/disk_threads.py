"""The threads that wait for the disks: some for each log directory.

An executor starts a thread when it needs one. Where the system has none left in that moment, whoever asked would lose
its work; so all are there before anything needs them.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from threading import Barrier

from kafkad.broker.identity import StartError
from kafkad.replica.disk_threads import DiskThreads

OF_EACH = 4
"""Threads of a log directory. Those of the first one do the rest as well: a start, a stop, and little else."""


def disk_threads(directories: Iterable[str]) -> DiskThreads:
    executors = {directory: ThreadPoolExecutor(OF_EACH, thread_name_prefix="disk") for directory in directories}
    return DiskThreads(executors, next(iter(executors.values())))


def start_all(threads: DiskThreads) -> None:
    """Start those of executors without work. StartError."""
    for executor in threads.of_directories.values():
        _start(executor, len(threads.of_directories) * OF_EACH)


def _start(executor: Executor, wanted: int) -> None:
    all_there = Barrier(OF_EACH)
    try:
        for _ in range(OF_EACH):
            executor.submit(all_there.wait)  # none is free for the next one
    except RuntimeError as error:
        all_there.abort()
        raise StartError(
            f"no {wanted} threads can be started for the disks: {error}. The system limits them: see `ulimit -u`, and "
            "TasksMax in the unit"
        ) from error


def end_all(threads: DiskThreads) -> None:
    """Once they have done what they were given."""
    for executor in threads.of_directories.values():
        executor.shutdown()
