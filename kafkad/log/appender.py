"""The end of a log at which it grows.

`append` is the hot path of a leader: no work per record, one write, and only comparisons with limits that
`Segment.set_limits` worked out before. `append_copied` is a follower's.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from kafkad.clock import Clock
from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.batches import header_at
from kafkad.log.damage import Damage
from kafkad.log.files import Files, disk_errors, short_write, storage_error
from kafkad.log.producers import read_marker
from kafkad.log.recovery import Loaded
from kafkad.log.segment import Segment
from kafkad.log.timestamps import Timestamps
from kafkad.names import TopicPartition
from kafkad.wire.control import ControlRecord
from kafkad.wire.records import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH,
    MAGIC,
    MAX_TIMESTAMP,
    PREFIX_SIZE,
    PRODUCER_ID,
    SMALLEST_BATCH,
    Header,
    RecordsError,
    crc_matches,
)

NOWHERE = 2**63 - 1
_BASE_LENGTH_EPOCH = struct.Struct(">qii")

_Copied = tuple[int, Header, ControlRecord | None]
"""A batch to be written: where it begins in the view, its header, and what it ends."""


def _nobody_waits() -> None:
    pass


def _nobody_cares(tp: TopicPartition, damage: Damage) -> None:
    pass


class Appender:
    """The segments of a log, of which the last, the active one, is written to; and what must be told of each batch."""

    __slots__ = (
        "_active",
        "_bases",
        "_clock",
        "_doomed",
        "_durable_until",
        "_files",
        "_flushed_size",
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
        "cleaned_until",
        "compacting",
        "config",
        "directory",
        "durable_name",
        "end_offset",
        "epochs",
        "flushed_ms",
        "flushed_until",
        "found",
        "on_damage",
        "on_flushed",
        "placed",
        "producers",
        "retired",
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
        self._durable_until = loaded.durable_until
        self.flushed_ms = clock.now_ms()
        self.flushed_until = loaded.end_offset
        """Of the records alone: the recovery point, which vouches for the indexes too, may be behind it."""
        self.on_flushed: Callable[[], None] = _nobody_waits
        """Called when `flushed_until` has moved."""
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self._files = files
        self._clock = clock
        self._pwrite = files.pwrite
        self._new_names = loaded.new_names
        self._truncations = 0
        self._torn = False
        self._doomed: dict[str, int] = {}
        self.cleaned_until: int | None = None
        """The log's entry in `cleaner-offset-checkpoint`: what comes before it is compacted."""
        self.compacting = False
        """Its closed segments are being read to be replaced: retention leaves them alone meanwhile."""
        self.durable_name = -1
        """The base of the last segment whose name acks=all has had put on the disk (`kafkad.acks.fsync`)."""
        self.found = loaded.damage
        """What was damaged when it was opened."""
        self.on_damage: Callable[[TopicPartition, Damage], None] = _nobody_cares
        """Told of damage that a reader meets."""
        self.placed = False
        """Whether the disk is known to have the name of its directory, and its topic id."""
        self.retired = False
        """Taken out of the broker: deleted, or replaced by its copy in another log directory."""
        self._set_segments(loaded.segments)
        self._flushed_size = self._active.base, self._active.size
        """Up to where the last flush went: the base of a segment, and a position in it."""

    def _set_segments(self, segments: list[Segment]) -> None:
        """The last one is the active one: the only one that is written to."""
        self._segments = segments
        self._bases = [segment.base for segment in segments]
        self._active = segments[-1]
        self._timestamps = Timestamps(segments)
        self._last_base = NOWHERE
        self._last_position = 0
        self._last_epoch: int | None = self.epochs.latest
        self._sound_until = min((segment.base for segment in segments if segment.holes), default=NOWHERE)

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
            if length > self.config.segment_bytes:
                raise self._larger_than_a_segment(length)
            segment = self._make_room(length, max_timestamp, base, last)
            position = segment.size
        if leader_epoch != self._last_epoch:
            self.assign_epoch(leader_epoch, base)
        _BASE_LENGTH_EPOCH.pack_into(view, at, base, inner_length, leader_epoch)
        try:
            if self._pwrite(segment.fd, view[at:end], position) != length:
                raise short_write()
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

    def _larger_than_a_segment(self, length: int) -> KafkaError:
        message = f"Message batch size is {length} bytes in append to partition {self.topic_partition}, "
        message += f"which exceeds the maximum configured segment size of {self.config.segment_bytes}."
        return KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, message)

    def append_copied(self, view: memoryview) -> None:
        """Append whole batches as another replica has them, offsets and epochs included; a part at the end is ignored.

        CRCs are checked. KafkaError (CORRUPT_MESSAGE) for what does not fit here; what came before it stays appended.
        """
        at = 0
        pending: list[_Copied] = []
        while (header := self._next_copied(view, at)) is not None:
            self._check_copied(view, at, header, pending)
            base = header[BASE_OFFSET]
            length = header[LENGTH] + PREFIX_SIZE
            segment = self._active
            waiting = at - pending[0][0] if pending else 0
            if (
                segment.size + waiting + length > segment.limit
                or header[MAX_TIMESTAMP] > segment.roll_after
                or base + header[LAST_OFFSET_DELTA] > segment.last_possible
            ):
                self._write_copied(view, at, pending)
                pending = []
                base = base if header[MAGIC] >= 2 else self.end_offset
                self._make_room(length, header[MAX_TIMESTAMP], base, header[BASE_OFFSET] + header[LAST_OFFSET_DELTA])
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

    def _check_copied(self, view: memoryview, at: int, header: Header, pending: list[_Copied]) -> None:
        expected = self.end_offset
        if pending:
            before = pending[-1][1]
            expected = before[BASE_OFFSET] + before[LAST_OFFSET_DELTA] + 1
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

    def _write_copied(self, view: memoryview, end: int, pending: list[_Copied]) -> None:
        """Write a run of batches that go to the active segment in one piece."""
        if not pending:
            return
        at = pending[0][0]
        segment = self._active
        try:
            if self._pwrite(segment.fd, view[at:end], segment.size) != end - at:
                raise short_write()
        except OSError as error:
            raise self._undo_write(segment, error) from error
        for _, header, marker in pending:
            if header[LEADER_EPOCH] >= 0 and header[LEADER_EPOCH] != self._last_epoch:
                self.assign_epoch(header[LEADER_EPOCH], header[BASE_OFFSET])
            self._last_base = header[BASE_OFFSET] if header[MAGIC] >= 2 else NOWHERE
            self._last_position = segment.size
            segment.note(header)
            self.end_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
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

    def assign_epoch(self, epoch: int, offset: int) -> None:
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
        self._last_base = NOWHERE
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
