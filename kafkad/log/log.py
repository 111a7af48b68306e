"""The log of one partition: segments, indexes, leader epochs, producers, and the rules that keep them consistent.

Synchronous, owned by the event loop, not thread-safe but for `Flush.sync`. Appending is in `appender`, loading in
`recovery`, getting smaller in `trimmer`; here is the rest. `read` is hot: it does no work per record and walks over few
batches. The high watermark is not known here: whoever reads says up to where.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from typing import Self

from kafkad.clock import Clock
from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError
from kafkad.log import recovery
from kafkad.log.batches import BadBatch
from kafkad.log.damage import UNKNOWN_END, Damage
from kafkad.log.files import Files, Slice, disk_errors, storage_error
from kafkad.log.flush import Flush
from kafkad.log.indexed import LOG, Hole
from kafkad.log.producers import DEFAULT_EXPIRATION_MS
from kafkad.log.segment import SUFFIXES, Segment
from kafkad.log.trimmer import Trimmer
from kafkad.log.txnindex import AbortedTransaction, BrokenTransactionIndexError, TransactionIndex
from kafkad.names import NO_TOPIC_ID, TopicPartition
from kafkad.wire.records import RecordsError


class Log(Trimmer):
    __slots__ = ()

    @classmethod
    def open(
        cls,
        directory: str,
        config: LogConfig,
        files: Files,
        clock: Clock,
        *,
        topic_partition: TopicPartition,
        topic_id: bytes = NO_TOPIC_ID,
        start_offset: int = 0,
        recovery_point: int = 0,
        clean: bool = True,
        progress: Callable[[int, int], None] | None = None,
        producer_expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> Self:
        """Load the log in `directory`, or make a new one there.

        `clean`: the last one to use it closed it. Then only its end is looked at; otherwise every batch from the
        recovery point on is checked, `progress(bytes done, bytes to do)` being told now and then.
        """
        with disk_errors(directory, "opening the log"):
            loaded = recovery.load(
                directory,
                config,
                files,
                clock.now_ms(),
                start_offset=start_offset,
                recovery_point=recovery_point,
                clean=clean,
                progress=progress,
                producer_expiration_ms=producer_expiration_ms,
            )
        return cls(loaded, directory, config, files, clock, topic_partition, topic_id)

    # -- what it is made of ----------------------------------------------------------------------------------------

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def damage(self) -> list[tuple[Segment, Hole]]:
        """What recovery found broken before the tail. Readers of these offsets are refused, all others served."""
        return [(segment, hole) for segment in self._segments for hole in segment.holes]

    @property
    def recovery_point(self) -> int:
        """Where an unclean stop makes the next start begin its checks: what comes before is on the disk, and sound."""
        return min(self._durable_until, self._sound_until)

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        for segment in self._segments:
            segment.interval = config.index_interval_bytes
        if self._active.ready:
            self._active.set_limits(config)

    def let_go_of_files(self) -> None:
        """Keep none open that is not being written: a broker may have more logs than it may have open files."""
        for segment in self._segments:
            segment.let_go()

    def _floor(self, offset: int) -> int:
        """The number of the segment that holds `offset`."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    # -- read ------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, upto: int, at_least_one: bool = True) -> Slice | None:
        """Whole batches from the one that holds `offset`, at most `max_bytes`, none with offsets from `upto` on.

        With `at_least_one` the first is given even if it alone is larger. None when there is nothing to give.
        OFFSET_OUT_OF_RANGE outside the log, CORRUPT_MESSAGE where it is damaged.
        """
        end_offset = self.end_offset
        if offset >= upto or offset >= end_offset:
            if offset > end_offset or offset < self.start_offset:
                raise self._out_of_range(offset)
            return None
        segment = self._active
        if offset >= self._last_base and offset >= self.start_offset:  # the log may begin within its last batch
            start = self._last_position
        else:
            if offset < self.start_offset:
                raise self._out_of_range(offset)
            segment, start = self._locate(offset)
        stop = segment.size if upto >= end_offset else self._stop(segment, upto)
        if stop - start > max_bytes or segment.holes:
            stop = self._end_of_read(segment, start, stop, max_bytes)
            if stop - start > max_bytes and not at_least_one:
                return None
        if stop <= start:
            return None
        return Slice(segment.file, start, stop - start)

    def _locate(self, offset: int) -> tuple[Segment, int]:
        """Where to read `offset`, which may have been cleaned away, even with the rest of its segment."""
        number = self._floor(offset)
        segment = self._segments[number]
        try:
            start = segment.locate(offset)
            while start >= segment.size and segment is not self._active:
                number += 1
                segment = self._segments[number]
                start = segment.locate(offset)
        except (BadBatch, OSError) as error:
            raise self._unreadable(error, segment) from error
        return segment, start

    def _stop(self, segment: Segment, upto: int) -> int:
        """The position in `segment` at which a reader that may not see `upto` must stop."""
        number = bisect_right(self._bases, segment.base)
        if number < len(self._bases) and self._bases[number] <= upto:
            return segment.size
        if segment is self._active and self._last_base == upto:
            return self._last_position
        try:
            return segment.locate(upto)
        except (BadBatch, OSError) as error:
            raise self._unreadable(error, segment) from error

    def _end_of_read(self, segment: Segment, start: int, stop: int, max_bytes: int) -> int:
        try:
            return segment.end_of_read(start, stop, max_bytes)
        except (BadBatch, OSError) as error:
            raise self._unreadable(error, segment) from error

    def _unreadable(self, error: BadBatch | OSError, segment: Segment) -> KafkaError:
        if isinstance(error, OSError):
            return storage_error(self.directory, "reading", error)
        return self._damaged(error, segment)

    def _damaged(self, error: BadBatch | RecordsError, where: Segment | None = None) -> KafkaError:
        path = where.path(LOG) if where else self.directory
        if where is not None and isinstance(error, BadBatch):
            what = (UNKNOWN_END, where.base, UNKNOWN_END, error.reason, False)
            self.on_damage(self.topic_partition, Damage(path, error.position, *what))
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path} is damaged: {error}")

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record that is not older than `timestamp`."""
        try:
            with disk_errors(self.directory, "searching for a timestamp"):
                return self._timestamps.first_at_or_after(timestamp, self.start_offset)
        except (BadBatch, RecordsError) as error:
            raise self._damaged(error) from None

    def max_timestamp(self) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record that has the largest timestamp."""
        try:
            with disk_errors(self.directory, "searching for a timestamp"):
                return self._timestamps.largest(self.start_offset)
        except (BadBatch, RecordsError) as error:
            raise self._damaged(error) from None

    def aborted_transactions(self, start: int, upto: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions with records in [start, upto)."""
        found: list[AbortedTransaction] = []
        for number in range(self._floor(start), len(self._segments)):
            segment = self._segments[number]
            if segment.has_transactions:
                some, complete = self._transactions(number).collect(start, upto)
                found += some
                if complete:
                    break
        return [(entry.producer_id, entry.first_offset) for entry in found]

    def _transactions(self, number: int) -> TransactionIndex:
        segment = self._segments[number]
        index = segment.transactions
        with disk_errors(self.directory, "reading a transaction index"):
            try:
                _ = index.entries
            except BrokenTransactionIndexError:
                try:
                    recovery.rebuild_transactions(
                        self.producers.snapshots, self._segments[: number + 1], self._clock.now_ms()
                    )
                except BadBatch as error:
                    raise self._damaged(error, segment) from None
        return index

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the first transaction begins that a `read_committed` reader may not pass."""
        first = self.producers.first_unstable_offset(high_watermark)
        return None if first is None else max(first, self.start_offset)

    # -- truncation ------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Cut off the batch that holds `offset` and everything after it."""
        if offset >= self.end_offset:
            return
        if offset < self._bases[0]:
            self.truncate_fully_at(offset)
            return
        with disk_errors(self.directory, "truncating"):
            number = self._floor(offset)
            self._active.seal()
            segment = self._segments[number]
            try:
                end = segment.truncate(offset)
            except BadBatch as error:
                raise self._damaged(error, segment) from None
            self._remove(self._segments[number + 1 :])
            if segment.has_transactions:
                self._transactions(number).truncate(end)
                segment.has_transactions = bool(segment.transactions.entries)
            start = self.start_offset
            self._truncated(self._segments[: number + 1], min(start, end), end)
            self._reload_producers()
        if end <= start:
            self.truncate_fully_at(end)  # only records that had been deleted are left

    def truncate_fully_at(self, offset: int) -> None:
        """Throw everything away and begin anew at `offset`."""
        with disk_errors(self.directory, "truncating"):
            self._active.seal()
            self._remove(self._segments)
            self._truncated([self._new_segment(offset)], offset, offset)
            self.producers.reset(offset)

    def _truncated(self, segments: list[Segment], start: int, end: int) -> None:
        self._truncations += 1
        if self.cleaned_until is not None:
            self.cleaned_until = min(self.cleaned_until, end)
        self.start_offset = start
        self.end_offset = end
        self._durable_until = min(self._durable_until, end)
        self.flushed_until = min(self.flushed_until, end)
        self.epochs.truncate_from_end(end)
        self.epochs.truncate_from_start(start)
        self._set_segments(segments)
        self._flushed_size = min(self._flushed_size, (self._active.base, self._active.size))

    def _reload_producers(self) -> None:
        recovery.reload_producers(
            self.producers, self._segments, self.start_offset, self.end_offset, self._clock.now_ms()
        )

    # -- flush, close, rename --------------------------------------------------------------------------------------

    @property
    def truncations(self) -> int:
        """How often it was cut back: what was flushed before that may have been cut off."""
        return self._truncations

    @property
    def unflushed_messages(self) -> int:
        return self.end_offset - self._durable_until

    @property
    def unflushed_bytes(self) -> int:
        base, size = self._flushed_size
        return max(sum(segment.size for segment in self._segments[self._floor(base) :]) - size, 0)

    @property
    def must_flush(self) -> bool:
        """Whether the next answer to a producer has to wait for a flush: `flush.messages`, `kafkad.flush.bytes`."""
        config = self.config
        return config.flushes_within_appends and (
            self.end_offset - self._durable_until >= config.flush_messages or self.unflushed_bytes >= config.flush_bytes
        )

    def needs_flush(self, now_ms: int) -> bool:
        """Whether a setting of the topic wants a flush now, or a rolled segment or a consumer waits for one."""
        unflushed = self.end_offset - self._durable_until
        return unflushed > 0 and (
            self.must_flush
            or (self.config.read_flushed_only and self.flushed_until < self.end_offset)
            or now_ms - self.flushed_ms >= self.config.flush_ms
            or self._durable_until < self._active.base
        )

    def start_flush(self) -> Flush:
        """What must reach the disk before the recovery point may move to the present end.

        `Flush.sync` does it and may run in a thread; `end_flush` on the loop follows when it went well.
        """
        with disk_errors(self.directory, "flushing"):
            segments = self._segments[self._floor(self._durable_until) :]
            for segment in segments:
                segment.store_indexes()
            self.epochs.catch_up()
            flush = Flush(
                directory=self.directory,
                files=self._files,
                log_files=[segment.file for segment in segments],
                paths=[segment.path(suffix) for segment in segments for suffix in SUFFIXES[1:]],
                upto=self.end_offset,
                size=(self._active.base, self._active.size),
                truncations=self._truncations,
                names=self._new_names,
                place=not self.placed,
            )
        if self.epochs.dirty:
            flush.paths.append(self.epochs.path)
            self.epochs.dirty = False
            flush.names = True
        self._new_names = False
        return flush

    def end_flush(self, flush: Flush) -> None:
        self.flushed_ms = self._clock.now_ms()
        self.placed = True
        if flush.truncations == self._truncations:
            self._durable_until = max(self._durable_until, flush.upto)
            self._flushed_size = max(self._flushed_size, flush.size)
        self.records_flushed(flush.upto, flush.truncations)

    def records_flushed(self, upto: int, truncations: int) -> None:
        """The records before `upto` are on the disk, if nothing was cut off since there had been `truncations`."""
        if truncations == self._truncations and upto > self.flushed_until:
            self.flushed_until = upto
            self.on_flushed()

    def flush(self) -> None:
        """All of it, waiting for the disk."""
        flush = self.start_flush()
        flush.sync()
        self.end_flush(flush)

    def close(self, clean: bool = True) -> None:
        """Leave the files as Kafka leaves them after a clean stop. Without `clean` just let go of them."""
        if clean:
            with disk_errors(self.directory, "closing"):
                self._active.seal()
                self._take_snapshot(self.end_offset)
                durable = self.placed and not self._new_names and not self.epochs.dirty
                if not durable or self._durable_until < self.end_offset:
                    self.flush()
        for segment in self._segments:
            segment.release()

    def rename(self, directory: str) -> None:
        """Move the whole directory on its disk: to Kafka's `-delete` name, or from `-future` to the current one."""
        with disk_errors(self.directory, f"renaming to {os.path.basename(directory)}"):
            self._files.rename(self.directory, directory)
            self._files.sync_directory(os.path.dirname(directory))
        self._doomed = {directory + path[len(self.directory) :]: when for path, when in self._doomed.items()}
        self.directory = self.epochs.directory = self.producers.snapshots.directory = directory
        for segment in self._segments:
            segment.move_to(directory)
