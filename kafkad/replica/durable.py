"""Waits for the disk in threads, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from kafkad.errors import StorageError
from kafkad.log.files import Files, disk_errors
from kafkad.log.flush import sync_records
from kafkad.log.fsync import GroupFsync, OnDone
from kafkad.log.log import Log


def _nobody_listens(error: StorageError) -> None:
    pass


class Durable:
    def __init__(self, files: Files, threads: Executor) -> None:
        self._files = files
        self._threads = threads
        self._group = GroupFsync(files, self._run_in_thread)
        self.on_failure: Callable[[StorageError], None] = _nobody_listens
        """Told of each flush and fsync that fails, for who waited for it may have given up meanwhile."""

    async def flush(self, log: Log) -> None:
        """Put the log and its indexes on the disk, and its recovery point behind them; StorageError.

        It goes on to its end if its caller gives up.
        """
        flush = log.start_flush()

        def end(error: StorageError | None) -> None:
            if error is None:
                log.end_flush(flush)
            else:
                log.flush_failed(flush)

        await asyncio.shield(self._run_in_thread(flush.sync, end))

    async def settle_cut(self, log: Log) -> None:
        """Have the disk know that the log was cut back; StorageError. It goes on to its end if its caller gives up."""
        directory, truncations = log.directory, log.truncations
        with disk_errors(directory, "truncating"):
            file = log.segments[-1].file

        def sync() -> None:
            with disk_errors(directory, "truncating"):
                sync_records(self._files, file)
                self._files.sync_names(directory)

        def end(error: StorageError | None) -> None:
            if error is None:
                log.cut_settled(truncations)

        await asyncio.shield(self._run_in_thread(sync, end))

    async def run(self, work: Callable[[], None]) -> None:
        """Do what waits for a disk in a thread."""
        await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def sync(self, log: Log, on_done: OnDone) -> None:
        """Call `on_done` once the records now in `log` are on the disk; all that wait share one fsync."""
        self._group.fsync(log, on_done)

    def _run_in_thread(self, work: Callable[[], None], on_done: OnDone) -> asyncio.Future[None]:
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)

        def done(finished: asyncio.Future[None]) -> None:
            error = finished.exception()
            if error is not None and not isinstance(error, StorageError):
                raise error
            on_done(error)
            if error is not None:
                self.on_failure(error)

        running.add_done_callback(done)
        return running
