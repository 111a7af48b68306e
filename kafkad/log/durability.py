"""How much of a log is on the disk, and what its next flush has to put there."""

from __future__ import annotations

from typing import Final

from kafkad.log.batches import BadBatch
from kafkad.log.epochs import LeaderEpochs
from kafkad.log.files import Files
from kafkad.log.flush import Flush
from kafkad.log.segment import SUFFIXES, Segment
from kafkad.log.segments import Segments

SEGMENTS_AT_ONCE: Final = 64
"""Of a flush: what it stores and names on the event loop."""


class Durability:
    """Of one log. The end of the records that are on the disk, without their indexes, is `Log.flushed_until`."""

    __slots__ = (
        "_changes",
        "_changes_flushed",
        "_epochs",
        "_files",
        "_flushed_to",
        "_segments",
        "durable_name",
        "flushed_ms",
        "placed",
        "recovery_point",
    )

    def __init__(
        self,
        files: Files,
        segments: Segments,
        epochs: LeaderEpochs,
        recovery_point: int,
        now_ms: int,
        *,
        new_names: bool,
    ) -> None:
        self._files = files
        self._segments = segments
        self._epochs = epochs
        self.recovery_point = recovery_point
        """Everything before this offset is on the disk. After an unclean stop checks begin with its segment, or with
        `Log.damaged_from`.

        What is damaged in front of it is kept; behind it, at the end of the log, it would count as a write that broke
        off, and the log would be cut.
        """
        self._flushed_to = segments.active.base, segments.active.size
        """The end of the last flush: the base of a segment and a position in it."""
        self.flushed_ms = now_ms
        self._changes = int(new_names)
        """The number of times that names of files have changed which may not be on the disk."""
        self._changes_flushed = 0, 0
        """How many of these the disk has, and of the changes of the leader epochs."""
        self.durable_name = -1
        """The base of the last segment whose file name is on the disk for `kafkad.acks.fsync`."""
        self.placed = False
        """True if the name of the log's directory, and its topic id, are known to be on the disk."""

    @property
    def new_names(self) -> bool:
        """True if the names of some files may not be on the disk."""
        return self._changes > self._changes_flushed[0]

    @property
    def _new_epochs(self) -> bool:
        return self._epochs.changes > self._changes_flushed[1]

    @property
    def unflushed_bytes(self) -> int:
        base, size = self._flushed_to
        return max(sum(segment.size for segment in self._segments.starting_at(base)) - size, 0)

    def is_complete(self, end_offset: int) -> bool:
        """True if a flush of the log, which ends there, would have nothing to do."""
        return self.placed and not self.new_names and not self._new_epochs and self.recovery_point >= end_offset

    # -- flushes ---------------------------------------------------------------------------------------------------

    def start_flush(self, directory: str, upto: int, history: int) -> Flush:
        """What must reach the disk before the recovery point may move on to `upto`, the present end, or as far as
        `SEGMENTS_AT_ONCE` go. OSError.

        `end_flush` follows if it succeeds. Until then, further flushes have the same to do.
        """
        segments = self._segments.starting_at(self.recovery_point)
        if len(segments) > SEGMENTS_AT_ONCE:
            upto = segments[SEGMENTS_AT_ONCE].base
            segments = segments[:SEGMENTS_AT_ONCE]
        for segment in segments:
            segment.store_indexes()
        self._epochs.catch_up()
        last = segments[-1]
        flush = Flush(
            directory=directory,
            files=self._files,
            paths=[segment.path(suffix) for segment in segments for suffix in SUFFIXES],
            upto=upto,
            size=(last.base, last.size),
            history=history,
            changes=(self._changes, self._epochs.changes),
            names=self.new_names or self._new_epochs or len(segments) > 1,
            place=not self.placed,
        )
        if self._new_epochs:
            flush.paths.append(self._epochs.path)
        return flush

    def end_flush(self, flush: Flush, history: int, now_ms: int) -> None:
        """`history` is that of the log by now."""
        self.flushed_ms = now_ms
        if flush.directory != self._epochs.directory:
            return  # it was renamed meanwhile: not all may have been found
        self.placed = True
        self._changes_flushed = max(self._changes_flushed, flush.changes)
        if flush.history == history:
            closed = self._segments.closed_between(self.recovery_point, flush.upto)
            waiting = (segment.base for segment in closed if not segment.is_complete)  # rolled during the flush
            self.recovery_point = max(self.recovery_point, min(flush.upto, next(waiting, flush.upto)))
            self._flushed_to = max(self._flushed_to, flush.size)

    # -- changes of the log ----------------------------------------------------------------------------------------

    def names_changed(self) -> None:
        """Files of the log have got other names, or there are new ones."""
        self._changes += 1

    def sealed(self, segment: Segment) -> None:
        """A segment was completed: the recovery point goes back to its beginning until its indexes are stored."""
        if not segment.is_complete:
            self.recovery_point = min(self.recovery_point, segment.base)

    def cut_back(self) -> None:
        """The log was cut back to the segments that it has now: what was cut away may come back with a power cut."""
        active = self._segments.active
        self.names_changed()  # those of dropped segments may come back
        self.durable_name = -1
        self.recovery_point = min(self.recovery_point, _last_kept(active))
        self._flushed_to = min(self._flushed_to, (active.base, active.size))


def _last_kept(segment: Segment) -> int:
    """The last offset that a cut left in a segment; its first one, if none is left.

    No offset after it is on the disk as long as the cut is not.
    """
    try:
        return max(segment.read_end_offset() - 1, segment.base)
    except BadBatch:
        return segment.base
