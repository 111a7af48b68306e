"""Periodic jobs of a broker: flush, retention, checkpoints, removal of files, expiry of producers,
another try where a disk was full.

Decisions are made on the event loop, a few logs a turn; whatever waits for a disk runs in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial

from kafkad.config import Config
from kafkad.errors import StorageError
from kafkad.log.directories import CheckpointWrite, LogDirectory
from kafkad.log.manager import LogManager
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from kafkad.replica.manager import ReplicaManager
from kafkad.timers import Timers, every
from kafkad.turns import Turns

log = logging.getLogger(__name__)

_FLUSH_CHECK_MS = 2_000
_REMOVAL_CHECK_MS = 5_000
_ROOM_CHECK_MS = 5_000
_SHORTEST_MS = 100
"""The rest between two rounds of a job whose interval, perhaps 0, would leave little time for anything else."""

Job = Callable[[], Awaitable[None]]


class Upkeep:
    """`start` makes one task per job; a job's interval is read before each of its rounds, so it may change. What may
    take long where a disk is slow has one for each log directory."""

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        durable: Durable,
        config: Callable[[], Config],
        timers: Timers,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._durable = durable
        self._config = config
        self._timers = timers
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        jobs: tuple[tuple[Job, str | int], ...] = (
            (self.make_what_was_refused, _ROOM_CHECK_MS),
            (self.retain, "log.retention.check.interval.ms"),
            (self.forget_producers, "producer.id.expiration.check.interval.ms"),
        )
        jobs_of_each: tuple[tuple[Callable[[LogDirectory], Awaitable[None]], str | int], ...] = (
            (self.flush, _FLUSH_CHECK_MS),
            (self.remove, _REMOVAL_CHECK_MS),
            (self.write_high_watermarks, "replica.high.watermark.checkpoint.interval.ms"),
            (self.write_recovery_points, "log.flush.offset.checkpoint.interval.ms"),
            (self.write_start_offsets, "log.flush.start.offset.checkpoint.interval.ms"),
            (self.write_cleaned_offsets, "log.cleaner.backoff.ms"),
        )
        self._tasks = [asyncio.create_task(self._every(job, interval)) for job, interval in jobs]
        for directory in self._logs.directories:
            self._tasks += [
                asyncio.create_task(self._every(job, interval, directory)) for job, interval in jobs_of_each
            ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _every(self, job: Callable[..., Awaitable[None]], interval: str | int, *of: LogDirectory) -> None:
        def interval_ms() -> int:
            now = self._config().long(interval) if isinstance(interval, str) else interval
            return max(now, _SHORTEST_MS)

        async def once() -> None:
            with self._going_on():
                await job(*of)

        await every(interval_ms, job.__name__, once, self._logs.clock, self._timers)

    @contextlib.contextmanager
    def _going_on(self) -> Iterator[None]:
        """Do a job, or a part of one: if a disk refuses it, the others are done all the same."""
        try:
            yield
        except StorageError as error:
            self._replicas.directory_failed(error)

    # -- jobs ------------------------------------------------------------------------------------------------------

    async def flush(self, directory: LogDirectory) -> None:
        turns = Turns()
        for wanting in self._logs.flush_pass(directory):
            if wanting is None:
                await turns.give_way()
            else:
                with self._going_on():
                    await self._durable.flush(wanting)

    async def retain(self) -> None:
        await _a_few_a_turn(self._logs.retention_pass(self._high_watermark, self._replicas.directory_failed))

    async def forget_producers(self) -> None:
        await _a_few_a_turn(self._logs.producer_expiry_pass())

    async def make_what_was_refused(self) -> None:
        await self._replicas.forget_predecessors_of_refused()
        await _a_few_a_turn(self._replicas.make_what_was_refused())

    async def remove(self, directory: LogDirectory) -> None:
        clock = self._logs.clock
        for due in self._logs.due_removals(directory):
            if not due.is_still_due:  # a compaction needed its name
                continue
            path, is_gone = due.path, False
            with self._going_on():
                remove = partial(self._logs.removal.remove, path)
                is_gone = directory.failure is not None or await self._durable.run(directory.path, remove)
            due.was_tried(path, clock.now_ms(), is_gone=is_gone)

    async def write_high_watermarks(self, directory: LogDirectory) -> None:
        known = self._replicas.high_watermarks
        await self._write(directory, lambda: [directory.collect_high_watermarks(known(directory.logs))])

    async def write_recovery_points(self, directory: LogDirectory) -> None:
        await self._write(directory, directory.collect_recovery_points)

    async def write_start_offsets(self, directory: LogDirectory) -> None:
        await self._write(directory, lambda: [directory.collect_start_offsets()])

    async def write_cleaned_offsets(self, directory: LogDirectory) -> None:
        """The cleaner writes what it has just compacted; logs may have been deleted or cut back since."""
        await self._write(directory, lambda: [directory.collect_cleaned_offsets()])

    async def _write(self, directory: LogDirectory, collect: Callable[[], Iterable[CheckpointWrite]]) -> None:
        """One after the other: none behind one that the disk refuses."""
        if directory.failure is None:
            for write in collect():
                await self._durable.run(directory.path, write.write)

    def _high_watermark(self, tp: TopicPartition) -> int:
        partition = self._replicas.find(*tp)
        return partition.high_watermark if partition is not None else 0


async def _a_few_a_turn(steps: Iterator[object]) -> None:
    turns = Turns()
    for _ in steps:
        await turns.give_way()
