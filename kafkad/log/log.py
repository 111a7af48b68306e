"""The log of one partition: segments, indexes, leader epochs, producers, and the rules that keep them consistent.

Synchronous, owned by the event loop, not thread-safe but for `Flush.sync`. `append` and `read` are the hot path: no
work per record, one write, and only comparisons with limits that `Segment.prepare` worked out before. The high
watermark is not known here: whoever reads says up to where.
"""

from __future__ import annotations

import os
import random
import struct
from bisect import bisect_right
from collections.abc import Callable
from typing import Self

from kafkad.clock import Clock
from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log import recovery
from kafkad.log.batches import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_DELTA,
    LEADER_EPOCH,
    LENGTH,
    MAGIC,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    BadBatch,
    Header,
    header_at,
)
from kafkad.log.files import Files, Slice, disk_errors, storage_error
from kafkad.log.flush import Flush
from kafkad.log.producers import DEFAULT_EXPIRATION_MS, read_marker
from kafkad.log.segment import LOG, SUFFIXES, Hole, Segment
from kafkad.log.timestamps import Timestamps
from kafkad.log.txnindex import AbortedTransaction, BrokenTransactionIndexError, TransactionIndex
from kafkad.model import NO_TOPIC_ID, TopicPartition
from kafkad.wire.control import ControlRecord
from kafkad.wire.records import CONTROL, PREFIX_SIZE, SMALLEST_BATCH, RecordsError, crc_matches

_BASE_LENGTH_EPOCH = struct.Struct(">qii")
_NOWHERE = 2**63 - 1
DELETED = ".deleted"


class Log:
    __slots__ = (
        "_active",
        "_bases",
        "_clock",
        "_doomed",
        "_durable_until",
        "_files",
        "_last_base",
        "_last_epoch",
        "_last_position",
        "_new_names",
        "_pwrite",
        "_segments",
        "_sound_until",
        "_timestamps",
        "_torn",
        "_truncations",
        "config",
        "directory",
        "end_offset",
        "epochs",
        "flushed_ms",
        "producers",
        "start_offset",
        "topic_id",
        "topic_partition",
    )

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

    def __init__(
        self,
        loaded: recovery.Loaded,
        directory: str,
        config: LogConfig,
        files: Files,
        clock: Clock,
        topic_partition: TopicPartition,
        topic_id: bytes,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory = directory
        self.config = config
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self._durable_until = loaded.durable_until
        self.flushed_ms = clock.now_ms()
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self._files = files
        self._clock = clock
        self._pwrite = files.pwrite
        self._new_names = loaded.created
        self._truncations = 0
        self._torn = False
        self._doomed: list[tuple[int, str]] = []
        self._set_segments(loaded.segments)

    # -- what it is made of ----------------------------------------------------------------------------------------

    def _set_segments(self, segments: list[Segment]) -> None:
        """The last one is the active one: the only one that is written to."""
        self._segments = segments
        self._bases = [segment.base for segment in segments]
        self._active = segments[-1]
        self._timestamps = Timestamps(segments)
        self._last_base = _NOWHERE
        self._last_position = 0
        self._last_epoch: int | None = self.epochs.latest
        self._sound_until = min((segment.base for segment in segments if segment.holes), default=_NOWHERE)

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

    # -- append ----------------------------------------------------------------------------------------------------

    def append(self, view: memoryview, at: int, end: int, header: Header, leader_epoch: int) -> int:
        """Append view[at:end], exactly one v2 batch whose size and CRC the caller checked; returns its base offset.

        Its base offset and leader epoch are set in `view`. Raises DuplicateBatch when the producer sent it before,
        KafkaError when its sequence or epoch is refused, StorageError when the disk fails: then nothing of it is left.
        """
        _, inner_length, _, _, _, _, last_delta, _, max_timestamp, producer_id, _, _, _ = header
        marker = self._check_producer(view, at, header) if producer_id >= 0 else None
        base = self.end_offset
        last = base + last_delta
        length = end - at
        segment = self._active
        position = segment.size
        if position + length > segment.limit or max_timestamp > segment.roll_after or last > segment.last_possible:
            segment = self._make_room(length, max_timestamp, base, last)
            position = segment.size
        if leader_epoch != self._last_epoch:
            self._assign_epoch(leader_epoch, base)
        _BASE_LENGTH_EPOCH.pack_into(view, at, base, inner_length, leader_epoch)
        try:
            if self._pwrite(segment.fd, view[at:end], position) != length:
                raise OSError("short write")
        except OSError as error:
            raise self._undo_write(segment, error) from error
        if max_timestamp > segment.newest_timestamp:
            segment.newest_timestamp = max_timestamp
            segment.newest_timestamp_offset = last
        if segment.since_index > segment.interval:
            segment.add_entry(last)
        segment.since_index += length
        segment.size = position + length
        self._last_base = base
        self._last_position = position
        self.end_offset = last + 1
        if producer_id >= 0:
            self._note_producer(header, base, marker)
        return base

    def append_copied(self, view: memoryview) -> None:
        """Append whole batches as another replica has them, offsets and epochs included; a part at the end is ignored.

        CRCs are checked. KafkaError (CORRUPT_MESSAGE) for what does not fit here; what came before it stays appended.
        """
        at = 0
        pending: list[tuple[int, Header, ControlRecord | None]] = []
        while (header := self._next_copied(view, at)) is not None:
            self._check_copied(view, at, header, pending)
            base = header[BASE_OFFSET]
            length = header[LENGTH] + PREFIX_SIZE
            segment = self._active
            waiting = at - pending[0][0] if pending else 0
            if (
                segment.size + waiting + length > segment.limit
                or header[MAX_TIMESTAMP] > segment.roll_after
                or base + header[LAST_DELTA] > segment.last_possible
            ):
                self._write_copied(view, at, pending)
                pending = []
                base = base if header[MAGIC] >= 2 else self.end_offset
                self._make_room(length, header[MAX_TIMESTAMP], base, header[BASE_OFFSET] + header[LAST_DELTA])
            pending.append((at, header, self._copied_marker(view, at, header)))
            at += length
        self._write_copied(view, at, pending)

    def _next_copied(self, view: memoryview, at: int) -> Header | None:
        left = len(view) - at
        if left < SMALLEST_BATCH:
            return None
        length = int.from_bytes(view[at + 8 : at + PREFIX_SIZE], "big", signed=True)
        if length + PREFIX_SIZE > left:
            return None
        try:
            return header_at(view, at, left)
        except ValueError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.topic_partition}: {error}") from None

    def _check_copied(
        self, view: memoryview, at: int, header: Header, pending: list[tuple[int, Header, ControlRecord | None]]
    ) -> None:
        expected = self.end_offset
        if pending:
            before = pending[-1][1]
            expected = before[BASE_OFFSET] + before[LAST_DELTA] + 1
        problem = None
        if header[BASE_OFFSET] < expected:
            problem = f"a batch with offset {header[BASE_OFFSET]} where {expected} is next"
        elif not crc_matches(view, at, header):
            problem = f"the batch with offset {header[BASE_OFFSET]} fails its checksum"
        if problem:
            self._write_copied(view, at, pending)
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.topic_partition}: {problem}")

    def _copied_marker(self, view: memoryview, at: int, header: Header) -> ControlRecord | None:
        if header[PRODUCER_ID] < 0 or not header[ATTRIBUTES] & CONTROL:
            return None
        try:
            return read_marker(view, at, header)
        except RecordsError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.topic_partition}: {error}") from None

    def _write_copied(
        self, view: memoryview, end: int, pending: list[tuple[int, Header, ControlRecord | None]]
    ) -> None:
        """Write a run of batches that go to the active segment in one piece."""
        if not pending:
            return
        at = pending[0][0]
        segment = self._active
        try:
            if self._pwrite(segment.fd, view[at:end], segment.size) != end - at:
                raise OSError("short write")
        except OSError as error:
            raise self._undo_write(segment, error) from error
        for _, header, marker in pending:
            if header[LEADER_EPOCH] >= 0 and header[LEADER_EPOCH] != self._last_epoch:
                self._assign_epoch(header[LEADER_EPOCH], header[BASE_OFFSET])
            self._last_base = header[BASE_OFFSET] if header[MAGIC] >= 2 else _NOWHERE
            self._last_position = segment.size
            segment.note(header)
            self.end_offset = header[BASE_OFFSET] + header[LAST_DELTA] + 1
            if header[PRODUCER_ID] >= 0:
                self._note_producer(header, header[BASE_OFFSET], marker)

    def _check_producer(self, view: memoryview, at: int, header: Header) -> ControlRecord | None:
        marker = read_marker(view, at, header) if header[ATTRIBUTES] & CONTROL else None
        self.producers.check(header, marker)
        return marker

    def _note_producer(self, header: Header, base: int, marker: ControlRecord | None) -> None:
        aborted = self.producers.update(header, base, marker)
        if aborted is not None:
            self._active.transactions.append(aborted)
            self._active.has_transactions = True

    def _assign_epoch(self, epoch: int, offset: int) -> None:
        with disk_errors(self.directory, "writing leader epochs"):
            self.epochs.assign(epoch, offset)
        self._last_epoch = epoch

    def _make_room(self, length: int, max_timestamp: int, base: int, last: int) -> Segment:
        """The slow way into an append: open files, roll, reserve blocks."""
        segment = self._active
        with disk_errors(self.directory, "making room"):
            if self._torn:
                self._files.truncate(segment.file.fd, segment.size)
                self._torn = False
            if not segment.ready:
                segment.prepare(self.config)
            if segment.should_roll(self.config, length, max_timestamp, last, self._clock.now_ms()):
                segment = self._roll(base)
                segment.prepare(self.config)
            if not segment.size:
                segment.first_timestamp = max_timestamp
            segment.reserve(self.config, segment.size + length)
            segment.set_limits(self.config)
        return segment

    def _undo_write(self, segment: Segment, error: OSError) -> StorageError:
        """Nothing may stay of a write that failed; as long as that cannot be had, nothing more is appended."""
        segment.forget_readiness()
        self._torn = True
        try:
            self._files.truncate(segment.fd, segment.size)
            self._torn = False
        except OSError:
            pass  # tried again before the next append
        return storage_error(self.directory, "appending", error)

    def roll(self) -> None:
        """Begin a new segment, unless the present one is empty."""
        with disk_errors(self.directory, "rolling"):
            self._roll(self.end_offset)

    def _roll(self, base: int) -> Segment:
        base = max(base, self.end_offset)
        if base == self._active.base:
            return self._active
        self._active.seal()
        self._take_snapshot(base)
        segment = self._new_segment(base)
        self._segments.append(segment)
        self._bases.append(base)
        self._active = segment
        self._last_base = _NOWHERE
        return segment

    def _take_snapshot(self, offset: int) -> None:
        if offset > self.start_offset:  # an empty log has nothing to say about producers
            self.producers.take_snapshot(offset)

    def _new_segment(self, base: int) -> Segment:
        now_ms = self._clock.now_ms()
        segment = Segment(self._files, self.directory, base, 0, self.config.index_interval_bytes, now_ms)
        segment.create_files()
        if self.config.segment_jitter_ms > 0:
            segment.jitter_ms = random.randrange(min(self.config.segment_jitter_ms, self.config.segment_ms) or 1)
        self._new_names = True
        return segment

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
        if offset >= self._last_base:
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
        try:
            with disk_errors(self.directory, "reading"):
                for number in range(self._floor(offset), len(self._segments)):
                    segment = self._segments[number]
                    start = segment.locate(offset)
                    if start < segment.size:
                        break
        except BadBatch as error:
            raise self._damaged(error, segment) from None
        return segment, start

    def _stop(self, segment: Segment, upto: int) -> int:
        """The position in `segment` at which a reader that may not see `upto` must stop."""
        number = bisect_right(self._bases, segment.base)
        if number < len(self._bases) and self._bases[number] <= upto:
            return segment.size
        if segment is self._active and self._last_base == upto:
            return self._last_position
        try:
            with disk_errors(self.directory, "reading"):
                return segment.locate(upto)
        except BadBatch as error:
            raise self._damaged(error, segment) from None

    def _end_of_read(self, segment: Segment, start: int, stop: int, max_bytes: int) -> int:
        try:
            with disk_errors(self.directory, "reading"):
                return segment.end_of_read(start, stop, max_bytes)
        except BadBatch as error:
            raise self._damaged(error, segment) from None

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.topic_partition} has offsets {self.start_offset} to {self.end_offset}, not {offset}",
        )

    def _damaged(self, error: BadBatch | RecordsError, where: Segment | None = None) -> KafkaError:
        path = where.path(LOG) if where else self.directory
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
        index = self._segments[number].transactions
        try:
            _ = index.entries
        except BrokenTransactionIndexError:
            with disk_errors(self.directory, "rebuilding a transaction index"):
                recovery.rebuild_transactions(
                    self.producers.snapshots, self._segments[: number + 1], self._clock.now_ms()
                )
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
            self._remove(self._segments[number + 1 :])
            segment = self._segments[number]
            end = segment.truncate(offset)
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
        self.start_offset = start
        self.end_offset = end
        self._durable_until = min(self._durable_until, end)
        self.epochs.truncate_from_end(end)
        self.epochs.truncate_from_start(start)
        self._set_segments(segments)

    def _reload_producers(self) -> None:
        recovery.reload_producers(
            self.producers, self._segments, self.start_offset, self.end_offset, self._clock.now_ms()
        )

    def increment_start_offset(self, offset: int) -> None:
        """Forget the records before `offset` (DeleteRecords, or a leader that did); their bytes go with retention."""
        if offset > self.end_offset:
            raise self._out_of_range(offset)
        if offset > self.start_offset:
            self.start_offset = offset
            with disk_errors(self.directory, "moving the start of the log"):
                self.epochs.truncate_from_start(offset)
            self.producers.advance_start(offset)

    # -- retention -------------------------------------------------------------------------------------------------

    def delete_old_segments(self, now_ms: int, upto: int | None = None) -> int:
        """Delete what retention no longer keeps, oldest first; how many segments went.

        Nothing at or past `upto` goes, the high watermark. When everything is too old, the log rolls first: the last
        segment stays, and is empty.
        """
        limit = self.end_offset if upto is None else upto
        with disk_errors(self.directory, "deleting old segments"):
            count = self._count_deletable(now_ms, limit)
            if count == len(self._segments):
                self._roll(self.end_offset)
                count = min(count, len(self._segments) - 1)
            if count:
                self._remove(self._segments[:count])
                self._keep_from(count)
        return count

    def _keep_from(self, count: int) -> None:
        last_base, last_position = self._last_base, self._last_position
        self._set_segments(self._segments[count:])
        self._last_base, self._last_position = last_base, last_position
        self.increment_start_offset(self._bases[0])

    def _count_deletable(self, now_ms: int, limit: int) -> int:
        config = self.config
        deleting = "delete" in config.cleanup_policy
        excess = self.size - config.retention_bytes if deleting and config.retention_bytes >= 0 else -1
        count = 0
        for number, segment in enumerate(self._segments):
            end = self._bases[number + 1] if number + 1 < len(self._bases) else self.end_offset
            if end > limit or end == segment.base:
                break
            too_old = deleting and 0 <= config.retention_ms < now_ms - segment.largest_timestamp_ms
            too_much = excess - segment.size >= 0
            below_start = end <= self.start_offset and segment is not self._active
            if not (too_old or too_much or below_start):
                break
            excess -= segment.size
            count += 1
        return count

    def _remove(self, segments: list[Segment]) -> None:
        """Take files out of the log under another name; they go for good after `file.delete.delay.ms`."""
        due = self._clock.now_ms() + self.config.file_delete_delay_ms
        for segment in segments:
            for suffix in SUFFIXES:
                path = segment.path(suffix)
                try:
                    self._files.rename(path, path + DELETED)
                except FileNotFoundError:
                    continue
                self._doomed = [entry for entry in self._doomed if entry[1] != path + DELETED]
                self._doomed.append((due, path + DELETED))
            self.producers.snapshots.delete(segment.base)

    def take_doomed(self, now_ms: int) -> list[str]:
        """Paths whose time has come. The caller unlinks them, in a thread: a large file takes long to free."""
        due = [path for when, path in self._doomed if when <= now_ms]
        if due:
            self._doomed = [(when, path) for when, path in self._doomed if when > now_ms]
        return due

    # -- flush, close, rename --------------------------------------------------------------------------------------

    @property
    def unflushed_messages(self) -> int:
        return self.end_offset - self._durable_until

    def needs_flush(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` wants a flush now, or a rolled segment waits for one."""
        unflushed = self.end_offset - self._durable_until
        return unflushed > 0 and (
            unflushed >= self.config.flush_messages
            or now_ms - self.flushed_ms >= self.config.flush_ms
            or self._durable_until < self._active.base
        )

    def start_flush(self) -> Flush:
        """What must reach the disk before the recovery point may move to the present end.

        `Flush.sync` does it and may run in a thread; `end_flush` on the loop follows when it went well.
        """
        with disk_errors(self.directory, "flushing"):
            self._active.store_indexes()
            segments = self._segments[self._floor(self._durable_until) :]
            flush = Flush(
                directory=self.directory,
                files=self._files,
                log_files=[segment.file for segment in segments],
                paths=[segment.path(suffix) for segment in segments for suffix in SUFFIXES[1:]],
                upto=self.end_offset,
                truncations=self._truncations,
                names=self._new_names,
            )
        if self.epochs.dirty:
            flush.paths.append(self.epochs.path)
            self.epochs.dirty = False
            flush.names = True
        self._new_names = False
        return flush

    def end_flush(self, flush: Flush) -> None:
        self.flushed_ms = self._clock.now_ms()
        if flush.truncations == self._truncations:
            self._durable_until = max(self._durable_until, flush.upto)

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
                if self._new_names or self.epochs.dirty or self._durable_until < self.end_offset:
                    self.flush()
        for segment in self._segments:
            segment.release()

    def rename(self, directory: str) -> None:
        """Move the whole directory on its disk: to Kafka's `-delete` name, or from `-future` to the current one."""
        with disk_errors(self.directory, f"renaming to {os.path.basename(directory)}"):
            self._files.rename(self.directory, directory)
            self._files.sync_directory(os.path.dirname(directory))
        self._doomed = [(when, directory + path[len(self.directory) :]) for when, path in self._doomed]
        self.directory = self.epochs.directory = self.producers.snapshots.directory = directory
        for segment in self._segments:
            segment.move_to(directory)
