"""The threads that wait for the disks.

An executor starts a thread when it needs one. Where the system has none left in that moment, whoever asked would lose
its work; so all are there before anything needs them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from kafkad.broker.identity import StartError


def start_all(threads: ThreadPoolExecutor, count: int) -> None:
    """Start the `count` threads that an executor without work may have. StartError."""
    all_there = Barrier(count)
    try:
        for _ in range(count):
            threads.submit(all_there.wait)  # none is free for the next one
    except RuntimeError as error:
        all_there.abort()
        raise StartError(
            f"no {count} threads can be started for the disks: {error}. The system limits them: see `ulimit -u`, and "
            "TasksMax in the unit"
        ) from error
