"""The log of one partition: segments, leader epochs, producers, and the rules that keep them consistent.

What is done with a log now and then has modules of its own, which use this one: `truncation`, `deletion`, `cleaning`,
`mending`, `time_search` and `transactions`.

Synchronous, owned by the event loop, not thread-safe but for `Flush.sync` and `Settling.wait`. `append` and `read` are
the hot paths of a leader: no work per record. An append is one write and comparisons with limits that
`Segment.set_limits` worked out before; a read walks over few batches. The high watermark is not known here: readers say
how far they may see.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterable
from typing import NoReturn, Self

from kafkad.clock import Clock
from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log import recovery
from kafkad.log.batches import BadBatch
from kafkad.log.copied import CopiedBatch, copied_batches
from kafkad.log.damage import UNKNOWN_END, Damage
from kafkad.log.durability import Durability
from kafkad.log.files import (
    Files,
    Slice,
    as_far_as_there_is_room,
    disk_errors,
    final_disk_errors,
    may_pass,
    short_write,
    storage_error,
)
from kafkad.log.flush import Flush
from kafkad.log.indexed import LARGEST_RELATIVE_OFFSET, LOG, Hole
from kafkad.log.producers import DEFAULT_EXPIRATION_MS, Origin, read_marker
from kafkad.log.recovery import Loaded
from kafkad.log.removal import DoomedFiles
from kafkad.log.retention import Deletion
from kafkad.log.segment import NOWHERE, Segment
from kafkad.log.segments import Segments
from kafkad.log.settling import Settling, Writes
from kafkad.names import NO_TOPIC_ID, TopicPartition
from kafkad.turns import Pieces, at_once
from kafkad.wire.control import ControlRecord
from kafkad.wire.records import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL,
    LEADER_EPOCH,
    MAGIC,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    Header,
    RecordsError,
)

_BASE_LENGTH_EPOCH = struct.Struct(">qii")


def _nobody_waits() -> None:
    pass


def _nobody_listens(whose: object, what: object) -> None:
    pass


def _nobody_hears(whose: object) -> None:
    pass


def _no_checkpoints(log: Log) -> Writes:
    return ()


def _as_there_is_room(snapshot: Pieces[None]) -> Pieces[None]:
    """Without it, a start reads more of the log."""
    with as_far_as_there_is_room():
        yield from snapshot


class Log:
    __slots__ = (
        "_pwrite",
        "_torn",
        "before_settling",
        "cleaned_until",
        "clock",
        "closed",
        "compacting",
        "config",
        "cut_may_return",
        "directory",
        "doomed",
        "durability",
        "end_offset",
        "epochs",
        "files",
        "flushed_until",
        "found",
        "history",
        "in_pieces",
        "last_epoch",
        "last_mark",
        "lost_until",
        "on_cut",
        "on_damage",
        "on_deleted",
        "on_flushed",
        "on_settled",
        "on_start_moved",
        "producers",
        "replaced_by",
        "retired",
        "segments",
        "start_offset",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        loaded: Loaded,
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
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.files = files
        self.clock = clock
        self._pwrite = files.pwrite
        self.segments = Segments(loaded.segments)
        self.doomed = DoomedFiles(directory, files, clock, config.file_delete_delay_ms)
        self.producers.snapshots.remove = self.doomed.add
        self.last_epoch: int | None = self.epochs.latest
        self._torn = False
        """Bytes of a failed write may still be in the file, behind the end of the active segment."""
        self.history = 0
        """The number of its present history: the next one begins where it is cut back, or is about to lose all it has
        (`interrupt`). Findings about its records, and flushes, of the one before may not hold any more."""
        self.cut_may_return = any(damage.was_cut for damage in loaded.damage)
        """The disk may still have what was cut off: after a power failure it could stand between newer records."""
        self.durability = Durability(
            files, self.segments, self.epochs, loaded.durable_until, clock.now_ms(), new_names=loaded.new_names
        )
        self.producers.on_snapshot = self.durability.names_changed
        self.flushed_until = loaded.durable_until
        """The end of the records that are on the disk; the recovery point, which covers indexes too, may be lower."""
        self.on_start_moved: Callable[[], None] = _nobody_waits
        """Called when records at the beginning have been dropped."""
        self.on_flushed: Callable[[], None] = _nobody_waits
        """Called when `flushed_until` has moved."""
        self.cleaned_until: int | None = None
        """The log's entry in `cleaner-offset-checkpoint`: everything before it is compacted."""
        self.compacting = False
        """Its closed segments are being compacted; retention leaves them alone meanwhile."""
        self.found = loaded.damage
        """Damage found when the log was opened."""
        self.lost_until = loaded.lost_until
        """Records below this were on the disk once, and some were missing when the log was opened; 0 if none were."""
        self.on_damage: Callable[[TopicPartition, Damage], None] = _nobody_listens
        """Called with damage that a read runs into."""
        self.on_deleted: Callable[[TopicPartition, Deletion], None] = _nobody_listens
        """Called with segments that were deleted because they are no longer kept."""
        self.on_cut: Callable[[Log, int], None] = _nobody_listens
        """Called with this log and its new end when it was cut back."""
        self.before_settling: Callable[[Log], Writes | None] = _no_checkpoints
        """Asked for the checkpoints that are to be written before a cut is settled; None if the log is not here any
        more."""
        self.on_settled: Callable[[Log], None] = _nobody_hears
        """Called when what was cut off cannot return any more."""
        self.closed = False
        """Nothing is appended any more."""
        self.in_pieces: Callable[[Pieces[None]], object] = at_once
        """Called with work that may go on in later turns."""
        self.retired = False
        """Taken out of the broker: deleted, or replaced by its copy in another log directory."""
        self.last_mark = 0
        """The highest number known with which it, or one that it has replaced, was marked (see `marks`). Files in its
        directory tell of higher ones."""
        self.replaced_by: Log | None = None
        """That copy: who waits for the disk to have something of this log waits for the disk of that one."""

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
        high_watermark: int = 0,
        damaged_from: int | None = None,
        clean: bool = True,
        was_compacted: bool = False,
        progress: Callable[[int, int], None] | None = None,
        producer_expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> Self:
        """Load the log in `directory`, or make a new one there.

        `clean` means that it was closed properly: then only its end is looked at, unless it was damaged. Otherwise
        every batch from the recovery point on is checked, or from where the damage was, and `progress(bytes done,
        bytes to do)` is called now and then. Transactions that ended below the `high_watermark` are not remembered.
        With `was_compacted` offsets may be missing though nothing is compacted now.
        """
        with disk_errors(directory, "opening the log"):
            loaded = recovery.load(
                directory,
                config,
                files,
                clock.now_ms(),
                start_offset=start_offset,
                recovery_point=recovery_point,
                high_watermark=high_watermark,
                damaged_from=damaged_from,
                clean=clean,
                was_compacted=was_compacted,
                progress=progress,
                producer_expiration_ms=producer_expiration_ms,
            )
        return cls(loaded, directory, config, files, clock, topic_partition, topic_id)

    @property
    def log_directory(self) -> str:
        """The one of `log.dirs` that it is in."""
        return os.path.dirname(self.directory)

    @property
    def size(self) -> int:
        return self.segments.size

    @property
    def damage(self) -> list[tuple[Segment, Hole]]:
        """Damage that recovery found before the tail. Reads of these offsets are refused, all others served."""
        return self.segments.holes

    @property
    def whole_until(self) -> int:
        """The end of the log, or the first lost end of a file: nobody knows how many bytes it had, to fill it."""
        if not self.is_damaged:
            return self.end_offset
        return min((hole.first for _, hole in self.damage if hole.lost), default=self.end_offset)

    @property
    def is_damaged(self) -> bool:
        return self.segments.damaged_from != NOWHERE

    @property
    def damaged_from(self) -> int | None:
        """The base of the first segment with damage: from there on all is checked at each start, until none is left."""
        return self.segments.damaged_from if self.is_damaged else None

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self.doomed.delay_ms = config.file_delete_delay_ms
        for segment in self.segments.all:
            segment.interval = config.index_interval
        active = self.segments.active
        if active.ready:
            active.set_limits(config)

    def let_go_of_files(self) -> None:
        """Close all files that are not being written: a broker may have more logs than it may have open files."""
        for segment in self.segments.all:
            segment.let_go()

    # -- append ----------------------------------------------------------------------------------------------------

    def append(
        self,
        view: memoryview,
        at: int,
        end: int,
        header: Header,
        leader_epoch: int,
        origin: Origin = Origin.CLIENT,
        marker: ControlRecord | None = None,
    ) -> int:
        """HOT. Append view[at:end], one v2 batch whose size and CRC are checked already; return its base offset.

        `marker` is what a control batch says, where the caller knows. Base offset and leader epoch are set in `view`.
        Raises DuplicateBatch when the producer has sent it before, KafkaError when its sequence or epoch is refused,
        StorageError when the disk fails: then nothing of it is left.
        """
        _, inner_length, _, _, _, _, last_delta, _, max_timestamp, producer_id, _, _, _ = header
        if producer_id >= 0:
            marker = self._check_producer(view, at, header, origin, marker)
        base = self.end_offset
        last = base + last_delta
        length = end - at
        segment = self.segments.active
        position = segment.size
        if position + length > segment.limit or max_timestamp > segment.roll_after or last > segment.last_possible:
            if length > self.config.segment_bytes:
                raise self._larger_than_a_segment(length)
            segment = self._make_room(length, max_timestamp, last)
            position = segment.size
        if leader_epoch != self.last_epoch:
            self.assign_epoch(leader_epoch, base)
        _BASE_LENGTH_EPOCH.pack_into(view, at, base, inner_length, leader_epoch)
        try:
            if self._pwrite(segment.fd, view[at:end], position) != length:
                raise short_write()
        except OSError as error:
            self._undo_write(segment, error)
        if max_timestamp > segment.newest_timestamp:
            segment.newest_timestamp = max_timestamp
            segment.newest_timestamp_offset = last
        if segment.since_index > segment.interval:
            segment.add_entry(last)
        segment.since_index += length
        segment.size = position + length
        segment.last_base = base
        segment.last_position = position
        self.end_offset = last + 1
        if producer_id >= 0:
            self._note_producer(header, base, marker)
        return base

    def _larger_than_a_segment(self, length: int) -> KafkaError:
        message = f"Message batch size is {length} bytes in append to partition {self.topic_partition}, "
        message += f"which exceeds the maximum configured segment size of {self.config.segment_bytes}."
        return KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, message)

    def append_copied(self, view: memoryview, present_epoch: int | None = None) -> None:
        """Append whole batches as another replica has them, offsets and epochs included; a part at the end is ignored.

        CRCs are checked, and with a `present_epoch` that no batch is of a later one, or of one before the log's last.
        An empty log may begin in the middle of the first batch, as the other replica does since DeleteRecords.
        KafkaError (CORRUPT_MESSAGE) for a batch that does not fit; those before it stay appended.
        """
        pending: list[CopiedBatch] = []
        waiting = 0
        try:
            epochs = None if present_epoch is None else (self.last_epoch or 0, present_epoch)
            is_empty = self.start_offset == self.end_offset
            for batch in copied_batches(view, self.end_offset, epochs, is_empty=is_empty):
                if is_empty and batch.header[BASE_OFFSET] < self.end_offset:
                    self.truncate_fully_at(self.end_offset, base=batch.header[BASE_OFFSET])
                header, last, segment = batch.header, batch.last_offset, self.segments.active
                if (
                    segment.size + waiting + batch.size > segment.limit
                    or header[MAX_TIMESTAMP] > segment.roll_after
                    or last > segment.last_possible
                ):
                    self._write_copied(view, pending)
                    pending, waiting = [], 0
                    self._make_room(batch.size, header[MAX_TIMESTAMP], last)
                pending.append(batch)
                waiting += batch.size
        except ValueError as error:
            self._write_copied(view, pending)
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.topic_partition}: {error}") from None
        self._write_copied(view, pending)

    def _write_copied(self, view: memoryview, pending: list[CopiedBatch]) -> None:
        """Write neighbouring batches, which go to the active segment, in one piece."""
        if not pending:
            return
        at, end = pending[0].at, pending[-1].at + pending[-1].size
        segment = self.segments.active
        try:
            if self._pwrite(segment.fd, view[at:end], segment.size) != end - at:
                raise short_write()
        except OSError as error:
            with disk_errors(self.directory, "appending"):
                was_begun = segment.file.size > segment.size
            if was_begun and len(pending) > 1:
                self.cut_may_return = True  # whole batches of it may be on the disk
                self.on_cut(self, self.end_offset)
            self._undo_write(segment, error)
        for batch in pending:
            header = batch.header
            base = header[BASE_OFFSET]
            if base > self.end_offset:
                self.producers.forget_past()  # what was compacted away may have named producers
            if header[LEADER_EPOCH] >= 0 and header[LEADER_EPOCH] != self.last_epoch:
                self.assign_epoch(header[LEADER_EPOCH], max(base, self.start_offset))
            segment.last_base = base if header[MAGIC] >= 2 else NOWHERE
            segment.last_position = segment.size
            segment.note(header)
            self.end_offset = batch.last_offset + 1
            if header[PRODUCER_ID] >= 0:
                self._note_producer(header, base, batch.marker)

    def _check_producer(
        self, view: memoryview, at: int, header: Header, origin: Origin, marker: ControlRecord | None
    ) -> ControlRecord | None:
        if marker is None and header[ATTRIBUTES] & CONTROL:
            marker = read_marker(view, at, header)
        self.producers.check(header, marker, origin)
        return marker

    def _note_producer(self, header: Header, base: int, marker: ControlRecord | None) -> None:
        aborted = self.producers.update(header, base, marker)
        if aborted is not None:
            active = self.segments.active
            active.transactions.append(aborted)
            if not active.has_transactions:
                active.has_transactions = True
                self.durability.names_changed()

    def assign_epoch(self, epoch: int, offset: int) -> None:
        with disk_errors(self.directory, "writing leader epochs"):
            self.epochs.assign(epoch, offset)
        self.last_epoch = epoch

    def forget_unused_epochs(self) -> None:
        """Those that have no record."""
        with disk_errors(self.directory, "truncating"):
            self.epochs.truncate_from_end(self.end_offset)
        self.last_epoch = self.epochs.latest

    def _make_room(self, length: int, max_timestamp: int, last: int) -> Segment:
        """Prepare the active segment for an append: open files, roll, reserve blocks.

        A new segment begins where the log ends, also for a batch behind offsets that were compacted away: those that
        are missing between two segments would count as lost, should the topic not be compacted any more.
        """
        if self.closed:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.directory} is closed")
        segment = self.segments.active
        with disk_errors(self.directory, "making room"):
            self._clear_torn_away()
            if self.cut_may_return:
                settling = self.start_settling()
                settling.wait()
                self.end_settling(settling)
            if not segment.ready:
                segment.prepare(self.config)
            if segment.should_roll(self.config, length, max_timestamp, last, self.clock.now_ms()):
                segment = self._roll(max(self.end_offset, last - LARGEST_RELATIVE_OFFSET))
                segment.prepare(self.config)
            if not segment.size:
                segment.first_timestamp = max_timestamp
            segment.reserve(self.config, segment.size + length)
            segment.set_limits(self.config)
        return segment

    def _undo_write(self, segment: Segment, error: OSError) -> NoReturn:
        """Remove what a failed write left, and refuse the append; until it is gone, nothing more is appended, and the
        segment is not completed."""
        segment.forget_readiness()
        self._torn = True
        try:
            with disk_errors(self.directory, "truncating"):
                self._clear_torn_away()
        except StorageError as failure:
            if not may_pass(failure):
                raise
        raise storage_error(self.directory, "appending", error) from error

    def _clear_torn_away(self) -> None:
        if self._torn:
            active = self.segments.active
            self.files.truncate(active.file.fd, active.size)
            self._torn = False

    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty."""
        with disk_errors(self.directory, "rolling"):
            self._roll(self.end_offset)

    def skip_to(self, offset: int) -> None:
        """End at `offset`, in a new segment: of the log that this one is a copy of, compaction has removed the rest."""
        with disk_errors(self.directory, "rolling"):
            self._roll(offset)
        self.end_offset = offset
        self.producers.forget_past()

    def _roll(self, base: int) -> Segment:
        """The new files come first: a disk that refuses them leaves the log as it was."""
        base = max(base, self.end_offset)
        active = self.segments.active
        if base == active.base:
            return active
        self.seal()
        segment = self._new_segment(base)
        self.segments.add(segment)
        self.end_offset = base  # past a gap that compaction left: what the active segment holds begins there
        taking = self.producers.begin_snapshot(base) if self._may_have_producers(base) else None
        if taking is not None:
            self.in_pieces(_as_there_is_room(taking))
        return segment

    def seal(self) -> None:
        """Complete the active segment; the recovery point goes back to where it begins until its indexes are stored."""
        self._clear_torn_away()
        active = self.segments.active
        active.seal()
        self.durability.sealed(active)

    def _may_have_producers(self, offset: int) -> bool:
        """An empty log has none, and needs no snapshot. Of others its name is on the disk before a clean stop is:
        without any snapshot, the start takes it that there are no producers, and does not read the log."""
        return offset > self.start_offset

    def _new_segment(self, base: int) -> Segment:
        now_ms = self.clock.now_ms()
        segment = Segment(self.files, self.directory, base, 0, self.config.index_interval, now_ms)
        segment.create_files()
        jitter_ms = min(self.config.segment_jitter_ms, self.config.segment_ms)
        if jitter_ms > 0:
            segment.jitter_ms = random.randrange(jitter_ms)
        self.durability.names_changed()
        return segment

    # -- read ------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, upto: int, at_least_one: bool = True) -> Slice | None:
        """HOT. Whole batches from the one that holds `offset`, at most `max_bytes`, none with offsets from `upto` on.

        With `at_least_one` the first is given even if it alone is larger. None when there is nothing to give.
        OFFSET_OUT_OF_RANGE outside the log, CORRUPT_MESSAGE where it is damaged.
        """
        end_offset = self.end_offset
        if offset >= upto or offset >= end_offset:
            if offset > end_offset or offset < self.start_offset:
                raise self._out_of_range(offset)
            return None
        segment = self.segments.active
        try:
            if offset >= segment.last_base and offset >= self.start_offset:  # the log may begin within its last batch
                start = segment.last_position
            else:
                if offset < self.start_offset:
                    raise self._out_of_range(offset)
                segment, start = self._locate(offset)
            stop = segment.size if upto >= end_offset else self.segments.end_before(upto, segment)
            if stop - start > max_bytes or segment.holes:
                stop = segment.end_of_read(start, stop, max_bytes)
                if stop - start > max_bytes and not at_least_one:
                    return None
            return None if stop <= start else Slice(segment.file, start, stop - start)
        except OSError as error:
            raise storage_error(self.directory, "reading", error) from error
        except BadBatch as error:
            raise self.unreadable(error, segment) from error

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.topic_partition} has offsets {self.start_offset} to {self.end_offset}, not {offset}",
        )

    def _locate(self, offset: int) -> tuple[Segment, int]:
        """The place to read `offset` from, which may have been compacted away, even with the rest of its segment."""
        following = iter(self.segments.starting_at(offset))
        segment = next(following)
        try:
            start = segment.locate(offset)
            while start >= segment.size and segment is not self.segments.active:
                segment = next(following)
                start = segment.locate(offset)
        except BadBatch as error:
            raise self.unreadable(error, segment) from error
        return segment, start

    def unreadable(self, error: BadBatch | RecordsError, where: Segment | None = None) -> KafkaError:
        """The refusal of who reads what is damaged."""
        path = where.path(LOG) if where else self.directory
        if where is not None and isinstance(error, BadBatch):
            what = (UNKNOWN_END, where.base, UNKNOWN_END, error.reason, False)
            self.on_damage(self.topic_partition, Damage(path, error.position, *what))
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path} is damaged: {error}")

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The start of the first transaction that a `read_committed` reader may not pass."""
        first = self.producers.first_unstable_offset(high_watermark)
        return None if first is None else max(first, self.start_offset)

    # -- beginning anew --------------------------------------------------------------------------------------------

    def truncate_fully_at(self, offset: int, *, base: int | None = None) -> None:
        """Drop everything and start an empty log at `offset`; with `base` in a segment for a batch that begins there
        and holds `offset`."""
        with disk_errors(self.directory, "truncating"):
            self.seal()
            may_return = self.size > 0 or offset < self.end_offset  # a new replica often begins at a later offset
            at = offset if base is None else base
            same = next((segment for segment in self.segments.all if segment.base == at), None)
            if same is not None:
                same.open_for_cut()
            first = same or self._new_segment(at)
        with final_disk_errors(self.directory, "truncating"):
            self.doom(segment for segment in reversed(self.segments.all) if segment is not first)
            if same is not None:
                same.cut(0, at)
                same.transactions.replace([], durable=False)
                same.has_transactions = False
                same.created_ms = self.clock.now_ms()
            self.was_cut([first], offset, offset, may_return=may_return)
            self.producers.reset(offset)

    def interrupt(self) -> None:
        """Whoever compacts, mends or flushes what it had until now gives up: its segments go."""
        self.history += 1

    def was_cut(self, segments: list[Segment], start: int, end: int, *, may_return: bool = True) -> None:
        """These segments are left of it, cut already, and the offsets from `start` to `end`; its producers are left to
        the caller. `may_return` says whether the disk may still have what was cut off."""
        self.history += 1
        self.cut_may_return |= may_return
        self.segments.become(segments)
        self.durability.cut_back()
        if self.cleaned_until is not None:
            self.cleaned_until = min(self.cleaned_until, end)
        self.start_offset = start
        self.end_offset = end
        self.flushed_until = min(self.flushed_until, end)
        self.epochs.truncate_from_end(end)
        self.epochs.truncate_from_start(start)
        self.last_epoch = self.epochs.latest
        self.on_cut(self, end)

    # -- deletion --------------------------------------------------------------------------------------------------

    def increment_start_offset(self, offset: int) -> None:
        """Drop the records before `offset`, as DeleteRecords or the leader did; retention frees their bytes."""
        if offset > self.end_offset:
            raise self._out_of_range(offset)
        if offset > self.start_offset:
            self.start_offset = offset
            with disk_errors(self.directory, "moving the start of the log"):
                self.epochs.truncate_from_start(offset)
            self.producers.advance_start(offset)
            self.on_start_moved()

    def doom(self, segments: Iterable[Segment], *, replaced_by: int | None = None) -> None:
        """Take the files of segments out of the log; they are unlinked after `file.delete.delay.ms`. The producer
        snapshot of a segment goes with it, unless its replacement has the same base."""
        for segment in segments:
            self.doomed.add_segment(segment)
            if segment.base != replaced_by:
                with final_disk_errors(self.directory, "removing a segment"):
                    self.producers.snapshots.delete(segment.base)

    # -- flush -----------------------------------------------------------------------------------------------------

    @property
    def must_flush(self) -> bool:
        """True if the next produce response has to wait for a flush: `flush.messages`, `kafkad.flush.bytes`."""
        config = self.config
        return config.flushes_within_appends and (
            self.end_offset - self.durability.recovery_point >= config.flush_messages
            or self.durability.unflushed_bytes >= config.flush_bytes
        )

    def needs_flush(self, now_ms: int) -> bool:
        """True if a setting of the topic wants a flush now, or a rolled segment or a consumer waits for one."""
        durability = self.durability
        return durability.recovery_point < self.end_offset and (
            self.must_flush
            or (self.config.read_flushed_only and self.flushed_until < self.end_offset)
            or now_ms - durability.flushed_ms >= self.config.flush_ms
            or durability.recovery_point < self.segments.active.base
        )

    def start_flush(self) -> Flush:
        """What must reach the disk before the recovery point may move to the present end, or to that of as many
        segments as one flush has.

        `Flush.sync` does the work and may run in a thread; `end_flush` follows on the event loop, unless it fails.
        """
        with disk_errors(self.directory, "flushing"):
            return self.durability.start_flush(self.directory, self.end_offset, self.history)

    def end_flush(self, flush: Flush) -> None:
        self.durability.end_flush(flush, self.history, self.clock.now_ms())
        if flush.directory == self.directory:  # otherwise not all of it may have been found
            self.records_flushed(flush.upto, flush.history)

    def start_settling(self) -> Settling:
        """Have the disk forget what was cut off: `Settling.wait` may run in a thread; `end_settling` follows."""
        checkpoints = self.before_settling(self)
        with disk_errors(self.directory, "truncating"):
            return Settling(
                directory=self.directory,
                files=self.files,
                checkpoints=checkpoints or (),
                file=None if checkpoints is None else self.segments.active.file,
                history=self.history,
            )

    def end_settling(self, settling: Settling) -> None:
        """What was cut off is gone from the disk, unless the log was cut back again meanwhile."""
        if settling.history == self.history:
            self.cut_may_return = False
            self.on_settled(self)

    def records_flushed(self, upto: int, history: int) -> None:
        """The records before `upto` are on the disk, unless the log has another history by now."""
        if history == self.history and upto > self.flushed_until:
            self.flushed_until = upto
            self.on_flushed()

    def flush(self) -> None:
        """Flush all of it and wait for the disk."""
        is_over = False
        while not is_over:
            flush = self.start_flush()
            flush.sync()
            self.end_flush(flush)
            is_over = flush.upto == self.end_offset

    # -- close and rename ------------------------------------------------------------------------------------------

    def close(self, clean: bool = True) -> None:
        """Leave the files as Kafka leaves them after a clean stop; without `clean` only close them."""
        self.closed = True
        if clean:
            with disk_errors(self.directory, "closing"):
                self.seal()
                if self._may_have_producers(self.end_offset):
                    self.producers.take_snapshot(self.end_offset)
                if not self.durability.is_complete(self.end_offset):
                    self.flush()
        self.producers.drop_snapshot()
        for segment in self.segments.all:
            segment.release()

    def forget_listeners(self) -> None:
        """Nobody is told any more of what moves here: the log and its partition are not each other's any longer."""
        self.on_start_moved = self.on_flushed = _nobody_waits

    def rename(self, directory: str) -> None:
        """Move the whole directory on its disk, from its `-future` name to the current one. The disk has that with the
        next flush."""
        with disk_errors(self.directory, f"renaming to {os.path.basename(directory)}"):
            self.files.rename(self.directory, directory)
        self.durability.placed = False
        self.directory = self.epochs.directory = self.producers.snapshots.directory = directory
        self.doomed.directory = directory
        for segment in self.segments.all:
            segment.move_to(directory)
