"""Worker processes that check and rewrite batches for the leader: work per record never runs on the event loop.

A worker starts at the first batch that needs one.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue

from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.recompress_worker import MODULE
from kafkad.log.validate import Demands, RebuildResult
from kafkad.log.worker import Worker

_ATTEMPTS = 2


class SlowPath:
    """`rebuild` elsewhere. One waiting thread per worker; submit from the event loop, wrap the future there."""

    def __init__(self, workers: int = 1) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="recompress")
        self._idle: SimpleQueue[Worker] = SimpleQueue()

    def submit(self, batch: bytes | bytearray, wanted: Demands) -> Future[RebuildResult]:
        """Batches come back in any order when there are several workers: a caller that needs an order waits in between.

        A worker that dies is replaced and the batch tried once more; then the future raises KafkaError.
        """
        return self._threads.submit(self._run, batch, wanted)

    def close(self) -> None:
        """Finish what was submitted and end the workers. Blocks for as long."""
        self._threads.shutdown(wait=True)
        while (worker := self._take_idle()) is not None:
            worker.close()

    def _run(self, batch: bytes | bytearray, wanted: Demands) -> RebuildResult:
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
