"""What requests have disks do, and wait for, but not for long: one that hangs would hold up what they want of others,
and, behind a controller's, elections of partitions whose logs are elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable

from kafkad.clock import Clock
from kafkad.errors import StorageError
from kafkad.log.directories import LogDirectory
from kafkad.log.fsync import OnDone
from kafkad.replica.durable import Durable
from kafkad.timers import Timers, within

log = logging.getLogger(__name__)

PATIENCE_MS = 3_000
"""A slow disk is through by then. Of what is refused, a Kafka that is the controller makes a new try only when a broker
starts."""


class PromptDisks:
    """Used for one request after the other."""

    def __init__(self, durable: Durable, clock: Clock, timers: Timers) -> None:
        self._durable = durable
        self._clock = clock
        self._timers = timers
        self._ends: dict[LogDirectory, asyncio.Future[None]] = {}

    def hangs(self, directory: LogDirectory) -> bool:
        """True while it has not done what it was asked for once: it gets no more until then."""
        return directory in self._ends

    def begin(self, directory: LogDirectory, work: Callable[[], None], on_done: OnDone = lambda error: None) -> None:
        """Do it in a thread of a log directory that does not hang; `on_done` hears of its end, whenever that is."""
        end = asyncio.get_running_loop().create_future()

        def done(error: StorageError | None) -> None:
            del self._ends[directory]
            on_done(error)
            end.set_result(None)

        self._durable.in_thread(directory.path, work, done)
        self._ends[directory] = end  # not before it has begun, for which memory may be too short

    async def do(self, work: Iterable[tuple[LogDirectory, Callable[[], None]]]) -> None:
        """One thing for each of these log directories, but nothing for one that hangs, or longer than `wait` does."""
        begun = []
        for directory, each in work:
            if not self.hangs(directory):
                self.begin(directory, each)
                begun.append(directory)
        await self.wait(begun)

    async def wait(self, directories: Collection[LogDirectory]) -> None:
        """Until these have done what has just begun there, or are late."""
        ends = {directory: self._ends[directory] for directory in directories}
        await within(PATIENCE_MS, ends.values(), self._clock, self._timers)
        for directory, end in ends.items():
            if not end.done():
                log.warning(
                    "%s has not answered for %d s; what is to be made or deleted there is refused until it does",
                    directory,
                    PATIENCE_MS // 1000,
                )
