"""Log compaction as the broker sees it: which log is next, the process that does the work, and its product in place.

As many workers as `log.cleaner.threads` says: a task here, and a process with the algorithm (`cleaner.compact`) at its
first job. Each takes the dirtiest log, and rests for `log.cleaner.backoff.ms` when there is none. On the event loop
remain decisions and renames. A log that cannot be compacted is reported once and left alone until its settings change,
its damage is mended or the broker starts again; one that found no room rests, and the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from kafkad.cleaner.compactor import Compactor
from kafkad.cleaner.settings import CleanerSettings
from kafkad.config import Config, LogConfig
from kafkad.errors import StorageError
from kafkad.log import swap
from kafkad.log.cleaning import dirt_of, put_in_place
from kafkad.log.compaction import (
    AbandonedError,
    CompactionJob,
    CompactionResult,
    CompactionStats,
    LastOfProducer,
    Poison,
    Replacement,
    SegmentToClean,
    UncleanableError,
)
from kafkad.log.deletion import delete_old_segments
from kafkad.log.dirt import Dirt
from kafkad.log.files import disk_errors
from kafkad.log.indexed import LOG, Hole
from kafkad.log.log import Log
from kafkad.log.move import Moves
from kafkad.log.segment import Segment
from kafkad.log.txnindex import SUFFIX as TXN_INDEX
from kafkad.log.worker import NoWorkerError
from kafkad.names import TopicPartition
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import Partition
from kafkad.timers import Timers, sleep
from kafkad.turns import Turns, in_turns

log = logging.getLogger(__name__)

_LOOK_S = 0.1
"""The longest delay before a worker stops whose log was deleted, moved or cut back."""
_HANGS_MS = 1_000
"""A disk that keeps a worker waiting for so long gets no other worker to wait for it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToCompact:
    """One log to be compacted, as it was when it was chosen."""

    tp: TopicPartition
    log: Log
    dirt: Dirt
    history: int


class CleanerProbe:
    """Measurements of the cleaner: from the last look at all logs, and of each worker's last job."""

    def __init__(self, now_ms: int) -> None:
        self.dirtiest_share = 0.0
        self.max_delay_ms = 0
        self.last_look_ms = now_ms
        self.jobs: dict[int, CompactionStats] = {}


class _Mark(NamedTuple):
    """A log that is left alone: the reason, and the settings and the known damage with which it was tried."""

    log: Log
    config: LogConfig
    damage: list[tuple[Segment, Hole]]
    reason: str


class Cleaner:
    def __init__(
        self,
        replicas: ReplicaManager,
        config: Callable[[], Config],
        threads: Executor,
        timers: Timers,
        make_compactor: Callable[[], Compactor] = Compactor,
    ) -> None:
        """`threads` wait for processes that end."""
        self.probe = CleanerProbe(replicas.logs.clock.now_ms())
        self._replicas = replicas
        self._logs = replicas.logs
        self._moves = Moves(replicas.logs)
        self._config = config
        self._settings = CleanerSettings.of(config())
        self._threads = threads
        self._timers = timers
        self._make_compactor = make_compactor
        self._marks: dict[TopicPartition, _Mark] = {}
        self._choosing = asyncio.Lock()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._workers: list[asyncio.Task[None]] = []
        self._resting: dict[Log, float] = {}
        """Those for which a disk had no room, until when."""
        self._waiting: dict[Log, float] = {}
        """Those of which a worker waits for the disk, since when."""
        self._deaths: set[TopicPartition] = set()
        self._named: dict[TopicPartition, set[int]] = {}
        """Batches that cannot be read, by their offsets: each is named once."""

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.create_task(self._supervise())

    async def stop(self) -> None:
        """Jobs under way are broken off; what they made goes."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def settings_changed(self) -> None:
        """New settings begin with new workers, as in Kafka: a job that runs is broken off, and done again."""
        if CleanerSettings.of(self._config()) != self._settings:
            self._changed.set()

    async def _supervise(self) -> None:
        while True:
            self._changed.clear()
            settings = self._settings = CleanerSettings.of(self._config())
            count = settings.threads if settings.enabled else 0
            self._workers = [asyncio.create_task(self._work(number, settings)) for number in range(count)]
            try:
                await self._changed.wait()
            finally:
                for worker in self._workers:
                    worker.cancel()
                await asyncio.gather(*self._workers, return_exceptions=True)

    async def _work(self, number: int, settings: CleanerSettings) -> None:
        compactor = self._make_compactor()
        try:
            while True:
                try:
                    is_busy = await self._clean_one(number, compactor, settings)
                except MemoryError:
                    log.error("cleaner worker %d: not enough memory; trying again later", number)
                    is_busy = False
                if not is_busy:
                    await sleep(settings.backoff_ms, self._logs.clock, self._timers)
        except Exception:
            log.exception("internal error: cleaner worker %d has ended, and is not started again", number)
        finally:
            self.probe.jobs.pop(number, None)
            await asyncio.get_running_loop().run_in_executor(self._threads, compactor.close)

    @property
    def dead_workers(self) -> int:
        """The number of cleaner workers that ended with an internal error; more than 0 is a bug."""
        return sum(worker.done() for worker in self._workers)

    # -- which log -------------------------------------------------------------------------------------------------

    async def _clean_one(self, number: int, compactor: Compactor, settings: CleanerSettings) -> bool:
        """True if another one may follow at once: there was one, and it went well, or rests now."""
        async with self._choosing:
            chosen = await self._choose()
            if chosen is not None:
                chosen.log.compacting = True
        if chosen is None:
            return False
        try:
            result = await self._outcome(chosen, compactor, settings)
            if result is not None:
                self.probe.jobs[number] = result.stats
                chosen.log.cleaned_until = result.next_dirty
                _report(chosen, result.stats)
                self._name_poison(chosen, result.poison)
                await self._write_checkpoint(chosen)
            return result is not None or chosen.log in self._resting
        finally:
            chosen.log.compacting = False

    async def _choose(self) -> LogToCompact | None:
        """The dirtiest of those that are dirty enough, and on no disk that hangs. All lose what retention no longer
        keeps: as in Kafka, each look does that, for `Upkeep` passes over logs that are being compacted, which may be
        always."""
        turns = Turns()
        self._marks = {tp: mark for tp, mark in self._marks.items() if self._is_valid(tp, mark)}
        now_ms = self._logs.clock.monotonic_ms()
        self._resting = {known: until_ms for known, until_ms in self._resting.items() if now_ms < until_ms}
        self._deaths = {tp for tp in self._deaths if self._logs.get(tp) is not None}
        self._named = {tp: named for tp, named in self._named.items() if self._logs.get(tp) is not None}
        found = []
        for partition in list(self._replicas):
            await turns.give_way()
            assessed = self._assessed(partition)
            if assessed is not None:
                found.append(assessed)
        self.probe.dirtiest_share = max((each.dirt.share for each in found), default=0.0)
        self.probe.max_delay_ms = max((each.dirt.overdue_ms for each in found), default=0)
        self.probe.last_look_ms = self._now_ms()
        awake = [each for each in found if each.log not in self._resting]
        hanging = {known.log_directory for known, since_ms in self._waiting.items() if now_ms - since_ms >= _HANGS_MS}
        ready = [
            each
            for each in awake
            if each.dirt.wants_cleaning(each.log.config)
            and self._stands(each)
            and each.log.log_directory not in hanging
        ]
        return max(ready, key=lambda each: each.dirt.share, default=None)

    def _assessed(self, partition: Partition) -> LogToCompact | None:
        found = partition.log
        if self._logs.get(partition.tp) is not found:  # deleted, or lost with its disk, while others were looked at
            return None
        if not found.config.compacted or found.compacting:
            return None
        if partition.tp in self._marks or self._moves.future(partition.tp) is not None:
            return None
        try:
            delete_old_segments(found, self._now_ms(), partition.high_watermark)
            dirt = dirt_of(found, self._now_ms(), partition.last_stable_offset)
        except StorageError as error:
            self._replicas.directory_failed(error)
            return None
        self._correct_checkpoint(found, dirt)
        return LogToCompact(tp=partition.tp, log=found, dirt=dirt, history=found.history)

    def _correct_checkpoint(self, found: Log, dirt: Dirt) -> None:
        """Reset a checkpoint outside the log. Like Kafka, warn if only damage or an operator can be the cause."""
        known = found.cleaned_until
        if known is None or known == dirt.first_dirty:
            return
        if known > found.end_offset or "delete" not in found.config.cleanup_policy:
            log.warning(
                "%s: the cleaner checkpoint is at offset %d, but the log has offsets %d to %d; compaction begins anew",
                found.topic_partition,
                known,
                found.start_offset,
                found.end_offset,
            )
        found.cleaned_until = dirt.first_dirty

    def _stands(self, chosen: LogToCompact) -> bool:
        """True if what is known of the log still holds, and it is still to be compacted."""
        found = chosen.log
        return (
            self._logs.get(chosen.tp) is found
            and found.history == chosen.history
            and found.config.compacted
            and self._moves.future(chosen.tp) is None
        )

    # -- its compaction --------------------------------------------------------------------------------------------

    async def _outcome(
        self, chosen: LogToCompact, compactor: Compactor, settings: CleanerSettings
    ) -> CompactionResult | None:
        """The result of the compaction; None when it failed or is no longer wanted."""
        result = None
        try:
            wanted = await self._job(chosen, settings)
            # A `.cleaned` file of an earlier job would tell a start after a crash that a later swap is void.
            await self._in_thread(chosen.log, partial(self._discard_all, wanted.directory))
            result = await self._run(chosen, compactor, wanted)
            self._deaths.discard(chosen.tp)
        except AbandonedError:
            if self._stands(chosen):
                self._count_death(chosen)
        except NoWorkerError as error:
            log.warning("%s is compacted later: %s", chosen.tp, error)
        except UncleanableError as error:
            if self._stands(chosen):  # else what it found wrong may be the files of a later log
                self._mark(chosen, str(error))
        except StorageError as error:
            self._refused(chosen, error)
        finally:
            if result is None:
                await self._discard(chosen)
        return result

    async def _job(self, chosen: LogToCompact, settings: CleanerSettings) -> CompactionJob:
        last_of_producer = await in_turns(chosen.log.producers.last_of_each())
        if not self._stands(chosen):
            raise AbandonedError
        _check_sound(chosen)
        return job(chosen, last_of_producer, settings, self._now_ms())

    async def _run(self, chosen: LogToCompact, compactor: Compactor, wanted: CompactionJob) -> CompactionResult:
        """Each finished segment takes its place at once: a disk that is half full could not hold all of a log twice."""
        finished: deque[Replacement] = deque()
        running = asyncio.wrap_future(compactor.submit(wanted, finished.append))
        try:
            while not running.done() and self._stands(chosen):
                await self._take(chosen, finished)
                await asyncio.wait([running], timeout=_LOOK_S)
        finally:
            while not running.done():
                compactor.abandon()
                await asyncio.wait([running], timeout=_LOOK_S)
            running.exception()  # asked for, also when this task is cancelled
        with disk_errors(chosen.log.directory, "compacting"):
            result = running.result()
        await self._take(chosen, finished)
        await self._in_thread(chosen.log, partial(self._sync_names, chosen.log.directory))
        if not self._stands(chosen):
            raise AbandonedError
        return result

    def _refused(self, chosen: LogToCompact, error: StorageError) -> None:
        """A full disk may pass, and only compaction suffers: that of others goes on, which may need less room or make
        some. Anything else costs the directory, but for files that are gone because the log is another by now."""
        if not self._stands(chosen) and isinstance(error.__cause__, FileNotFoundError):
            return
        self._resting[chosen.log] = self._logs.clock.monotonic_ms() + self._settings.backoff_ms
        self._replicas.directory_failed(error)

    async def _take(self, chosen: LogToCompact, finished: deque[Replacement]) -> None:
        """Put what was made in place. StorageError; AbandonedError when it is void.

        The names are made durable at the end, or by the next flush: until then the file system keeps them in order.
        """
        turns = Turns()
        while finished:
            await turns.give_way()
            new = finished.popleft()
            doomed = chosen.log.doomed
            for name in doomed.named(new.old):
                remove = partial(self._logs.removal.remove, doomed.path(name))
                if await self._in_thread(chosen.log, remove):
                    doomed.forget(name)
            if not self._stands(chosen) or not put_in_place(chosen.log, new):
                raise AbandonedError

    def _sync_names(self, directory: str) -> None:
        with disk_errors(directory, "making names durable"):
            self._logs.files.sync_names(directory)

    async def _write_checkpoint(self, chosen: LogToCompact) -> None:
        """Only that of its log directory: the disk of another may be slow."""
        directory = self._logs.directory_of(chosen.tp)
        assert directory is not None  # nobody has had a turn since `_stands`
        try:
            await self._in_thread(chosen.log, directory.collect_cleaned_offsets().write)
        except StorageError as error:
            self._replicas.directory_failed(error)

    async def _in_thread(self, found: Log, work: Callable[[], T]) -> T:
        """Do what waits for the disk of this log. StorageError."""
        self._waiting[found] = self._logs.clock.monotonic_ms()
        try:
            return await self._replicas.durable.run(found.log_directory, work)
        finally:
            del self._waiting[found]

    async def _discard(self, chosen: LogToCompact) -> None:
        if self._logs.get(chosen.tp) is chosen.log:
            try:
                await self._in_thread(chosen.log, partial(self._discard_all, chosen.log.directory))
            except StorageError as error:
                self._refused(chosen, error)

    def _discard_all(self, directory: str) -> None:
        with disk_errors(directory, "removing what a compaction left"):
            swap.discard_all(self._logs.files, directory)

    def _name_poison(self, chosen: LogToCompact, found: Sequence[Poison]) -> None:
        named = self._named.setdefault(chosen.tp, set()) if found else set()
        for poison in found:
            if poison.offset not in named:
                log.error(
                    "%s has a batch at offset %d that cannot be read (%s at position %d: %s). Compaction leaves it as "
                    "it is; a consumer that does not get past it has to be set to offset %d",
                    chosen.tp,
                    poison.offset,
                    poison.path,
                    poison.position,
                    poison.reason,
                    poison.following,
                )
        named.update(poison.offset for poison in found)

    # -- logs that cannot be compacted -----------------------------------------------------------------------------

    def _count_death(self, chosen: LogToCompact) -> None:
        """The first death may have an outside cause; a second one with the same log is put down to that log."""
        if chosen.tp in self._deaths:
            self._deaths.discard(chosen.tp)
            self._mark(chosen, "the compaction process died twice while it compacted this log")
        else:
            self._deaths.add(chosen.tp)
            log.warning("the compaction process died while it compacted %s; it will be retried", chosen.tp)

    def _mark(self, chosen: LogToCompact, reason: str) -> None:
        log.error(
            "%s will not be compacted until its settings change, damage in it is mended or the broker restarts: %s",
            chosen.tp,
            reason,
        )
        self._marks[chosen.tp] = _Mark(chosen.log, chosen.log.config, chosen.log.damage, reason)

    def _is_valid(self, tp: TopicPartition, mark: _Mark) -> bool:
        known = mark.log
        return self._logs.get(tp) is known and known.config == mark.config and known.damage == mark.damage

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        return {tp: mark.reason for tp, mark in self._marks.items() if self._is_valid(tp, mark)}

    def uncleanable_by_directory(self) -> dict[str, tuple[int, int]]:
        """For each log directory, how many partitions are left alone, and their bytes that compaction should see."""
        counted = {directory.path: (0, 0) for directory in self._logs.directories}
        for tp in self.uncleanable:
            directory, partition = self._logs.directory_of(tp), self._replicas.find(*tp)
            if directory is not None and partition is not None:
                count, size = counted[directory.path]
                with contextlib.suppress(StorageError):
                    size += dirt_of(partition.log, self._now_ms(), partition.last_stable_offset).dirty_bytes
                counted[directory.path] = (count + 1, size)
        return counted

    def _now_ms(self) -> int:
        return self._logs.clock.now_ms()


def _check_sound(chosen: LogToCompact) -> None:
    """UncleanableError if damage is known in what is to be compacted.

    Compaction itself cannot see that the end of a file is gone. The segment that it makes would have no damage, only
    offsets that are missing as if they had been compacted away, and nobody would get them from another replica.
    """
    for segment, hole in chosen.log.damage:
        if hole.first < chosen.dirt.upto and chosen.log.start_offset < hole.next:
            missing = f"offsets {hole.first} to {hole.next - 1} are damaged or gone"
            raise UncleanableError(segment.path(LOG), hole.start, missing)


def job(
    chosen: LogToCompact, last_of_producer: Mapping[int, LastOfProducer], settings: CleanerSettings, now_ms: int
) -> CompactionJob:
    """StorageError if a disk refuses what it is to say of transactions."""
    found, config, dirt = chosen.log, chosen.log.config, chosen.dirt
    return CompactionJob(
        directory=found.directory,
        segments=tuple(SegmentToClean(each.base, each.size) for each in found.segments if each.base < dirt.upto),
        later_transactions=_later_transactions(found, dirt.upto),
        first_dirty=dirt.first_dirty,
        upto=dirt.upto,
        now_ms=now_ms,
        last_of_producer=last_of_producer,
        delete_retention_ms=config.delete_retention_ms,
        max_message_bytes=config.max_message_bytes,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval,
        dedupe_buffer_bytes=settings.dedupe_buffer_bytes,
        load_factor=settings.load_factor,
        io_buffer_bytes=settings.io_buffer_bytes,
        max_bytes_per_second=settings.max_bytes_per_second,
    )


def _later_transactions(found: Log, upto: int) -> tuple[tuple[int, int], ...]:
    with disk_errors(found.directory, "looking at transactions"):
        later = [each for each in found.segments if each.base >= upto and each.has_transactions]
        for each in later:
            each.store_transactions()
        return tuple((each.base, found.files.size(each.path(TXN_INDEX))) for each in later)


def _report(chosen: LogToCompact, stats: CompactionStats) -> None:
    log.info(
        "compacted %s up to offset %d: %d of %d records and %d of %d bytes stayed; %.1f s",
        chosen.tp,
        chosen.log.cleaned_until,
        stats.records_written,
        stats.records_read,
        stats.bytes_written,
        stats.bytes_read,
        stats.seconds,
    )
