"""Waits for the disk in threads, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from kafkad.errors import StorageError
from kafkad.log.files import Files
from kafkad.log.fsync import GroupFsync, OnDone
from kafkad.log.log import Log


class Durable:
    def __init__(self, files: Files, threads: Executor) -> None:
        self._threads = threads
        self._group = GroupFsync(files, self._run_in_thread)

    async def flush(self, log: Log) -> None:
        """Put the log and its indexes on the disk, and its recovery point behind them; StorageError."""
        flush = log.start_flush()
        await self.run(flush.sync)
        log.end_flush(flush)

    async def run(self, work: Callable[[], None]) -> None:
        """Do what waits for a disk in a thread."""
        await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def sync(self, log: Log, on_done: OnDone) -> None:
        """Call `on_done` once the records now in `log` are on the disk; all that wait share one fsync."""
        self._group.fsync(log, on_done)

    def _run_in_thread(self, work: Callable[[], None], on_done: OnDone) -> None:
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)

        def done(finished: asyncio.Future[None]) -> None:
            error = finished.exception()
            if error is not None and not isinstance(error, StorageError):
                raise error
            on_done(error)

        running.add_done_callback(done)
