"""Worker processes that look into batches for the leader: work per record never runs on the event loop.

A worker starts at the first batch that needs one.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from typing import ParamSpec, TypeVar

from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.recompress_worker import MODULE
from kafkad.log.worker import Worker

P = ParamSpec("P")
T = TypeVar("T")

_ATTEMPTS = 2


class SlowPath:
    """Calls functions elsewhere. One waiting thread per worker; submit from the event loop, wrap the future there."""

    def __init__(self, workers: int = 1) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="recompress")
        self._idle: SimpleQueue[Worker] = SimpleQueue()

    def submit(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Have one of a module's functions called with plain values; it returns one and raises nothing.

        Answers come in any order when there are several workers: a caller that needs an order waits in between.
        A worker that dies is replaced and the call tried once more; then the future raises KafkaError.
        """
        return self._threads.submit(self._run, partial(function, *arguments, **named))

    def close(self) -> None:
        """Finish what was submitted and end the workers. Blocks for as long."""
        self._threads.shutdown(wait=True)
        while (worker := self._take_idle()) is not None:
            worker.close()

    def _run(self, call: Callable[[], T]) -> T:
        for _ in range(_ATTEMPTS):
            worker = self._take_idle() or Worker(MODULE)
            try:
                answer: T = worker.ask(call)
            except (OSError, EOFError):
                worker.close()
            else:
                self._idle.put(worker)
                return answer
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the worker process that looks into batches keeps dying")

    def _take_idle(self) -> Worker | None:
        try:
            return self._idle.get_nowait()
        except Empty:
            return None
