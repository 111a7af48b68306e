"""The broker's side of a compaction process: takes one job at a time and returns its result or error."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from kafkad.log.compaction import (
    AbandonedError,
    CompactionAnswer,
    CompactionJob,
    CompactionResult,
    Offer,
    Replacement,
)
from kafkad.log.worker import NoWorkerError, Worker

MODULE = "kafkad.cleaner.worker"
"""A name and no import: only the worker imports the code that compacts."""
NICENESS = 19
"""The lowest priority, so that requests get the processor at once: with 10, the kernel lets one in a hundred wait
twice as long, and a few for milliseconds."""


class Compactor:
    """One worker, there from the first job on, and one thread that waits for it.

    Submit from the event loop, wrap the future there.
    """

    def __init__(self) -> None:
        self._thread = _one_thread()
        self._worker: Worker | None = None
        self._closed = False
        self._abandoned = False

    def submit(self, job: CompactionJob, offer: Offer) -> Future[CompactionResult]:
        """The future raises UncleanableError, OSError, or AbandonedError when the worker was ended or has died.
        NoWorkerError, here or there, when it cannot be started.

        `offer` is called in another thread, before the future is done, with each segment as soon as it is finished.
        """
        self._abandoned = False
        try:
            return self._thread.submit(self._run, job, offer)
        except RuntimeError as error:
            self._thread.shutdown(wait=False, cancel_futures=True)  # it would do this job before the next one
            self._thread = _one_thread()
            raise NoWorkerError(f"no thread for compaction can be started: {error}") from error

    def abandon(self) -> None:
        """Break off the job that was submitted last, also while its worker is only starting."""
        self._abandoned = True
        worker = self._worker
        if worker is not None:
            worker.kill()

    def close(self) -> None:
        """Break off, and end the worker. Jobs that did not begin are cancelled."""
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)
        self.abandon()
        self._thread.shutdown(wait=True)
        self._end()

    def _run(self, job: CompactionJob, offer: Offer) -> CompactionResult:
        if self._worker is not None and self._worker.has_ended:  # it had nothing to do for long
            self._end()
        if self._worker is None:
            self._worker = Worker(MODULE, NICENESS)
        try:
            if self._closed or self._abandoned:
                raise EOFError
            outcome: CompactionAnswer | Replacement = self._worker.ask(job)
            while isinstance(outcome, Replacement):
                offer(outcome)
                outcome = self._worker.listen()
        except (EOFError, OSError):
            self._end()
            raise AbandonedError("the compaction process has ended") from None
        if isinstance(outcome, CompactionResult):
            return outcome
        raise outcome

    def _end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()


def _one_thread() -> ThreadPoolExecutor:
    """It starts at the first job."""
    return ThreadPoolExecutor(1, thread_name_prefix="compactor")
