"""Worker processes that check and rewrite batches for the leader: work per record never runs on the event loop.

A worker starts at the first batch that needs one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Final, NamedTuple

from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.recompress_worker import MODULE
from kafkad.log.validate import Demands, RebuildResult
from kafkad.log.worker import Worker
from kafkad.wire.records import BATCH_HEADER, RECORD_COUNT

_ATTEMPTS = 2
_FEW_RECORDS: Final = 10_000
"""A batch that has no more is done in milliseconds; one that says so and has more is refused as soon as it shows."""


class SlowPath:
    """`rebuild` elsewhere, in two queues: batches of few records do not wait for those of many.

    Each has so many workers, and waiting threads. Submit from the event loop, wrap the future there.
    """

    def __init__(self, workers: int = 1) -> None:
        self._few = _Queue(workers, "recompress-few", self._rebuild)
        self._many = _Queue(workers, "recompress", self._rebuild)
        self._idle: SimpleQueue[Worker] = SimpleQueue()

    def submit(self, batch: bytes | bytearray, wanted: Demands, request: object) -> Future[RebuildResult]:
        """Requests take turns, and their batches come back in any order: a caller that needs one waits in between.

        A worker that dies is replaced and the batch tried once more; then the future raises KafkaError.
        """
        few = BATCH_HEADER.unpack_from(batch)[RECORD_COUNT] <= _FEW_RECORDS
        return (self._few if few else self._many).add(_Job(batch, wanted, Future()), request)

    def close(self) -> None:
        """Give up what waits, and end the workers when they have done what they are at. Blocks for as long."""
        self._few.close()
        self._many.close()
        while (worker := self._take_idle()) is not None:
            worker.close()

    def _rebuild(self, batch: bytes | bytearray, wanted: Demands) -> RebuildResult:
        for _ in range(_ATTEMPTS):
            worker = self._take_idle() or Worker(MODULE)
            try:
                outcome: RebuildResult = worker.ask((batch, wanted))
            except (OSError, EOFError):
                worker.close()
            else:
                self._idle.put(worker)
                return outcome
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "the worker process that checks and compresses records keeps dying"
        )

    def _take_idle(self) -> Worker | None:
        try:
            return self._idle.get_nowait()
        except Empty:
            return None


class _Job(NamedTuple):
    batch: bytes | bytearray
    wanted: Demands
    result: Future[RebuildResult]


class _Queue:
    """Batches that wait for a thread, one of each request in turn."""

    def __init__(self, threads: int, name: str, rebuild: Callable[[bytes | bytearray, Demands], RebuildResult]) -> None:
        self._rebuild = rebuild
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._waiting: dict[object, deque[_Job]] = {}
        self._lock = Lock()

    def add(self, job: _Job, request: object) -> Future[RebuildResult]:
        with self._lock:
            self._waiting.setdefault(request, deque()).append(job)
        self._threads.submit(self._do_next)
        return job.result

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
            job.result.set_result(self._rebuild(job.batch, job.wanted))
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
