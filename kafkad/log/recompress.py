"""The processes that look into batches for the leader: record by record work never runs on the event loop.

A worker is this Python with `recompress_worker` and nothing of the broker; it starts at the first batch that needs one
and ends when its pipe closes, so it cannot outlive the broker. `multiprocessing` would bring a tracker process, and
workers that stay when the broker is killed.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO

from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.recompress_worker import MODULE, read_frame, write_frame
from kafkad.log.validate import Demands, Outcome

_PACKAGES = str(Path(__file__).parents[2])
_ATTEMPTS = 2


class SlowPath:
    """`rebuild` elsewhere. One waiting thread per worker; submit from the event loop, wrap the future there."""

    def __init__(self, workers: int = 1) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="recompress")
        self._idle: SimpleQueue[_Worker] = SimpleQueue()

    def submit(self, batch: bytes | bytearray, wanted: Demands) -> Future[Outcome]:
        """Batches come back in any order when there are several workers: a caller that needs an order waits in between.

        A worker that dies is replaced and the batch tried once more; then the future raises KafkaError.
        """
        return self._threads.submit(self._run, batch, wanted)

    def close(self) -> None:
        """Finish what was submitted and end the workers. Blocks for as long."""
        self._threads.shutdown(wait=True)
        while (worker := self._take_idle()) is not None:
            worker.close()

    def _run(self, batch: bytes | bytearray, wanted: Demands) -> Outcome:
        for _ in range(_ATTEMPTS):
            worker = self._take_idle() or _Worker()
            try:
                outcome = worker.ask(batch, wanted)
            except (OSError, EOFError):
                worker.close()
            else:
                self._idle.put(worker)
                return outcome
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the process that checks and compresses records keeps dying")

    def _take_idle(self) -> _Worker | None:
        try:
            return self._idle.get_nowait()
        except Empty:
            return None


class _Worker:
    def __init__(self) -> None:
        path = os.pathsep.join(filter(None, (_PACKAGES, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            (sys.executable, "-P", "-m", MODULE),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )

    def ask(self, batch: bytes | bytearray, wanted: Demands) -> Outcome:
        """EOFError or OSError when the process is gone."""
        requests, answers = self._pipes()
        write_frame(requests, pickle.dumps((batch, wanted)))
        outcome: Outcome = pickle.loads(read_frame(answers))
        return outcome

    def close(self) -> None:
        for pipe in self._pipes():
            try:
                pipe.close()
            except BrokenPipeError:  # what the dead never read
                continue
        self._process.wait()

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        return requests, answers
