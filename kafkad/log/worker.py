"""A process that works for the broker: this Python with one module and nothing else of the broker.

It ends when its pipe closes, so it cannot outlive the broker. `multiprocessing` would bring a tracker process, and
workers that stay when the broker is killed.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO, Any

from kafkad.log.pipes import read_frame, write_frame

_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20), "MALLOC_TRIM_THRESHOLD_": str(2 << 20)}
"""A worker gives a job's large buffers back to the system. Without this, glibc takes the largest one ever freed as a
measure of what to keep: a cleaner that never rests kept 11 MB for good."""
_PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class NoWorkerError(Exception):
    """A worker cannot be started now, as when processes, threads or memory have run out: to be tried again."""


class Worker:
    """Not thread-safe but for `kill`."""

    def __init__(self, module: str, niceness: int = 0) -> None:
        """NoWorkerError when it cannot be started.

        `niceness` is added to the broker's, from the start on: what a process imports first takes a while.
        """
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
        path = os.pathsep.join(filter(None, (_PACKAGES, os.environ.get("PYTHONPATH"))))
        try:
            self._process = subprocess.Popen(
                (sys.executable, "-P", "-m", module),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**_MEMORY, **environment, "PYTHONPATH": path},
            )
        except OSError as error:
            raise NoWorkerError(f"no process for {module} can be started: {error}") from error
        if niceness:
            with suppress(PermissionError):  # a sandbox may forbid it; the work is done at any priority
                os.setpriority(os.PRIO_PROCESS, self._process.pid, os.getpriority(os.PRIO_PROCESS, 0) + niceness)
        self._reaper = threading.Thread(target=self._process.wait, name=f"{module} ends", daemon=True)
        try:
            self._reaper.start()
        except RuntimeError as error:
            with self._process:
                self._process.kill()
            raise NoWorkerError(f"no thread for the end of {module} can be started: {error}") from error

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """One that ended by itself is no zombie: there is a thread that waits for that and does nothing else."""
        return self._process.returncode is not None

    def ask(self, question: object) -> Any:
        """EOFError or OSError when the process is gone."""
        requests, _ = self._pipes()
        write_frame(requests, pickle.dumps(question))
        return self.listen()

    def listen(self) -> Any:
        """The next part of an answer. EOFError or OSError when the worker is gone."""
        _, answers = self._pipes()
        return pickle.loads(read_frame(answers))

    def kill(self) -> None:
        """Kill the process: a waiting `ask` raises EOFError; `close` must still follow."""
        self._process.kill()

    def close(self) -> None:
        for pipe in self._pipes():
            try:
                pipe.close()
            except BrokenPipeError:  # what the dead never read
                continue
        self._reaper.join()

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        return requests, answers
