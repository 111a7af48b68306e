"""Waits for the disk in threads, off the event loop."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from kafkad.errors import StorageError
from kafkad.log.files import Files
from kafkad.log.fsync import OnDone, SharedFsync
from kafkad.log.log import Log
from kafkad.replica.disk_threads import DiskThreads

log = logging.getLogger(__name__)

T = TypeVar("T")


def _nobody_listens(error: StorageError) -> None:
    pass


@dataclass(frozen=True, eq=False, slots=True)
class Hold:
    """Of a log of which no flush and no fsync begins meanwhile."""

    log: Log
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """What is to be done once it is let go."""


class Durable:
    def __init__(self, files: Files, threads: DiskThreads) -> None:
        self._threads = threads
        self._group = SharedFsync(files, self.in_thread, lambda error: self.on_failure(error))
        self.on_failure: Callable[[StorageError], None] = _nobody_listens
        """Told of each flush and fsync that fails, for who waited for it may have given up meanwhile."""
        self._held: dict[Log, Hold] = {}

    async def flush(self, log: Log) -> None:
        """Put the log, as it is now, and its indexes on the disk, and its recovery point behind them; StorageError.
        Not to its end if its copy in another log directory replaces it meanwhile.

        As many segments at a time as one flush has. What has begun goes on to its end if its caller gives up.
        """
        upto, history = log.end_offset, log.history
        flushed = -1
        while flushed < upto and log.history == history and not log.retired:
            if log in self._held:
                await self._let_go_of(log)
            else:
                flushed = await self._flush_some(log)

    async def flush_or_copy(self, log: Log) -> None:
        """For who promises a client that it is on the disk: if its copy replaces it meanwhile, that one."""
        await self.flush(log)
        if log.replaced_by is not None:
            await self.flush_or_copy(log.replaced_by)

    async def _flush_some(self, log: Log) -> int:
        """The offset up to which nothing is left to do, if the log is still the same."""
        flush = log.start_flush()

        def end(error: StorageError | None) -> None:
            if error is None:
                log.end_flush(flush)

        await asyncio.shield(self.in_thread(log.log_directory, flush.sync, end))
        return flush.upto

    async def run(self, directory: str, work: Callable[[], T]) -> T:
        """Do what waits for the disk of this log directory in a thread; StorageError."""
        return await self._begin(directory, work)

    def sync(self, log: Log, on_done: OnDone) -> None:
        """Call `on_done` once the records now in `log` are on the disk; all that wait share one fsync."""
        held = self._held.get(log)
        if held is None:
            self._group.fsync(log, on_done)
        else:
            held.waiting.append(partial(self.sync, log, on_done))

    def synced(self, log: Log) -> asyncio.Future[None]:
        """Done when the records now in `log` are on the disk; StorageError."""
        end = asyncio.get_running_loop().create_future()
        self.sync(log, partial(_end, end))
        return end

    def hold(self, log: Log) -> Hold:
        """Begin no flush and no fsync of it until `let_go`: who wants one waits. What has begun ends. It takes the
        place of an earlier one."""
        earlier = self._held.get(log)
        held = self._held[log] = Hold(log) if earlier is None else Hold(log, earlier.waiting)
        return held

    def holds(self, hold: Hold) -> bool:
        return self._held.get(hold.log) is hold

    def let_go(self, hold: Hold) -> None:
        """Nothing if it was let go already, or another has taken its place. Who waited goes on in the next turn."""
        if self.holds(hold):
            del self._held[hold.log]
            loop = asyncio.get_running_loop()
            for go_on in hold.waiting:
                loop.call_soon(go_on)

    def _let_go_of(self, log: Log) -> asyncio.Future[None]:
        """Done when it is not held any more."""
        end = asyncio.get_running_loop().create_future()
        self._held[log].waiting.append(partial(_end, end, None))
        return end

    def in_thread(self, directory: str, work: Callable[[], None], on_done: OnDone) -> asyncio.Future[None]:
        """Call `on_done` on the loop once a thread of this log directory is through with `work`, or has a
        StorageError."""
        running = self._begin(directory, work)

        def done(finished: asyncio.Future[None]) -> None:
            error = finished.exception()
            assert error is None or isinstance(error, StorageError)
            on_done(error)
            if error is not None and error.directory:
                self.on_failure(error)

        running.add_done_callback(done)
        return running

    def _begin(self, directory: str, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads.of(directory), _with_storage_errors, work)


def _end(waited_for: asyncio.Future[None], error: StorageError | None) -> None:
    if waited_for.done():
        return  # who waited has given up
    if error is None:
        waited_for.set_result(None)
    else:
        waited_for.set_exception(error)


def _with_storage_errors(work: Callable[[], T]) -> T:
    """An internal error becomes one that passes, and of no log directory, for none has refused anything: nobody waits
    for ever, and the next one may get through."""
    try:
        return work()
    except StorageError:
        raise
    except Exception as error:
        log.exception("internal error in a thread that waits for a disk")
        passing = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        raise StorageError("", f"a disk was not waited for: {error!r}") from passing
