"""Worker processes that look into batches, check and rewrite them: work per record never runs on the event loop.

A worker starts at the first batch that needs one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar

from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.batch_worker_main import MODULE
from kafkad.log.worker import NoWorkerError, Worker

log = logging.getLogger(__name__)

T = TypeVar("T")

_ATTEMPTS = 2
_FEW_RECORDS: Final = 10_000
"""A batch that has no more is done in milliseconds; one that says so and has more is refused as soon as it shows."""


class BatchWorkers:
    """Calls functions elsewhere, in two queues: batches of few records do not wait for those of many.

    Each has so many workers, and waiting threads. Submit from the event loop, wrap the future there.
    """

    def __init__(self, workers: int = 1) -> None:
        self._few = _Queue(workers, "batches-few", self._run)
        self._many = _Queue(workers, "batches", self._run)
        self._idle: SimpleQueue[Worker] = SimpleQueue()

    def submit(self, call: Callable[[], T], records: int, request: object) -> Future[T]:
        """Have one of a module's functions called with plain values, as a `partial`; it returns one and raises nothing.
        `records` is how many the batch has that it looks into.

        Requests take turns, and their answers come in any order: a caller that needs one waits in between. A worker
        that dies is replaced and the call tried once more; then the future raises KafkaError. Without a process or a
        thread to be had, it raises one that clients try again after.
        """
        result: Future[T] = Future()
        (self._few if records <= _FEW_RECORDS else self._many).add(_Job(call, result), request)
        return result

    def close(self) -> None:
        """Give up what waits, and end the workers when they have done what they are at. Blocks for as long."""
        self._few.close()
        self._many.close()
        while (worker := self._take_idle()) is not None:
            worker.close()

    def _run(self, call: Callable[[], Any]) -> Any:
        for _ in range(_ATTEMPTS):
            worker = self._take_idle() or _started()
            try:
                answer = worker.ask(call)
            except (OSError, EOFError):
                worker.close()
            else:
                self._idle.put(worker)
                return answer
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the worker process for batches died twice on this batch")

    def _take_idle(self) -> Worker | None:
        try:
            return self._idle.get_nowait()
        except Empty:
            return None


def _started() -> Worker:
    try:
        return Worker(MODULE)
    except NoWorkerError as error:
        raise _not_now(str(error)) from error


def _not_now(reason: str) -> KafkaError:
    log.warning("a request with a batch to look into is answered with a time-out, to be sent again: %s", reason)
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason)


class _Job(NamedTuple):
    call: Callable[[], Any]
    result: Future[Any]


class _Queue:
    """Calls that wait for a thread, one of each request in turn."""

    def __init__(self, threads: int, name: str, run: Callable[[Callable[[], Any]], Any]) -> None:
        self._run = run
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._waiting: dict[object, deque[_Job]] = {}
        self._lock = Lock()

    def add(self, job: _Job, request: object) -> None:
        with self._lock:
            self._waiting.setdefault(request, deque()).append(job)
        try:
            self._threads.submit(self._do_next)
        except RuntimeError as error:  # the next thread passes over what was cancelled
            job.result.cancel()
            raise _not_now(f"no thread can be started: {error}") from error

    def close(self) -> None:
        with self._lock:
            waiting = [job for jobs in self._waiting.values() for job in jobs]
        for job in waiting:
            job.result.cancel()
        self._threads.shutdown(wait=True)

    def _do_next(self) -> None:
        job = self._take()
        if not job.result.set_running_or_notify_cancel():
            return
        try:
            job.result.set_result(self._run(job.call))
        except BaseException as error:
            job.result.set_exception(error)

    def _take(self) -> _Job:
        with self._lock:
            request = next(iter(self._waiting))
            jobs = self._waiting.pop(request)
            job = jobs.popleft()
            if jobs:
                self._waiting[request] = jobs
            return job
