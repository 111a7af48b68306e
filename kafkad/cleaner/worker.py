"""A worker process: compaction jobs in at standard input; out at standard output each segment that is
finished, then what became of the job.

It ends when the broker closes the pipe, in the middle of a job as well, and by itself when there is nothing to do for a
while, which gives all its memory back.
"""

from __future__ import annotations

import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable

from kafkad.cleaner.compact import Compaction
from kafkad.clock import SystemClock
from kafkad.log.compaction import AbandonedError, CompactionAnswer, CompactionJob, Replacement, UncleanableError
from kafkad.log.files import Files
from kafkad.log.pipes import read_frame, write_frame

IDLE_SECONDS = 60.0
_SHORTEST_WAIT = 0.01


class Pace:
    """Waits so that no more than `bytes_per_second` are read and written, not even in a short while."""

    def __init__(self, bytes_per_second: float, monotonic: Callable[[], float], wait: Callable[[float], None]) -> None:
        self._rate = max(bytes_per_second, 1.0)
        self._monotonic = monotonic
        self._wait = wait
        self._free_at = monotonic()

    def spend(self, count: int) -> None:
        now = self._monotonic()
        self._free_at = max(self._free_at, now) + count / self._rate
        ahead = self._free_at - now
        self._wait(ahead if ahead >= _SHORTEST_WAIT else 0.0)


def main() -> None:
    for ending in (signal.SIGINT, signal.SIGTERM):  # meant for the broker, which closes the pipe
        signal.signal(ending, signal.SIG_IGN)
    while _readable(IDLE_SECONDS):
        try:
            job: CompactionJob = pickle.loads(read_frame(sys.stdin.buffer))
            _say(_run(job))
        except (EOFError, BrokenPipeError, AbandonedError):
            return


def _run(job: CompactionJob) -> CompactionAnswer:
    pace = Pace(job.max_bytes_per_second, time.monotonic, _wait)
    try:
        return Compaction(job, Files(), SystemClock(), pace.spend, _say).run()
    except (UncleanableError, OSError) as error:
        return error
    except AbandonedError:
        raise
    except Exception as error:  # a bug must stop the compaction of this log only
        traceback.print_exc()
        return UncleanableError(job.directory, 0, f"{type(error).__name__}: {error}")


def _say(what: CompactionAnswer | Replacement) -> None:
    write_frame(sys.stdout.buffer, pickle.dumps(what))


def _wait(seconds: float) -> None:
    """Nothing comes in while a job runs: when there is something to read, it is the end of the pipe."""
    if _readable(seconds):
        raise AbandonedError


def _readable(seconds: float) -> bool:
    return bool(select.select([sys.stdin.buffer], [], [], seconds)[0])


if __name__ == "__main__":
    main()
