"""How a log gets smaller: by DeleteRecords, by retention, and by compaction."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from kafkad.errors import ErrorCode, KafkaError
from kafkad.log import swap
from kafkad.log.appender import Appender
from kafkad.log.compaction import Replacement
from kafkad.log.dirt import Dirt, assess, first_dirty
from kafkad.log.files import disk_errors, storage_error
from kafkad.log.retention import deletable
from kafkad.log.segment import SUFFIXES, Segment
from kafkad.log.swap import DELETED


class Trimmer(Appender):
    """The segments of a log that are not written to any more, and what happens to their files when they go."""

    __slots__ = ()

    def increment_start_offset(self, offset: int) -> None:
        """Forget the records before `offset` (DeleteRecords, or a leader that did); their bytes go with retention."""
        if offset > self.end_offset:
            raise self._out_of_range(offset)
        if offset > self.start_offset:
            self.start_offset = offset
            with disk_errors(self.directory, "moving the start of the log"):
                self.epochs.truncate_from_start(offset)
            self.producers.advance_start(offset)

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.topic_partition} has offsets {self.start_offset} to {self.end_offset}, not {offset}",
        )

    # -- retention -------------------------------------------------------------------------------------------------

    def delete_old_segments(self, now_ms: int, upto: int | None = None) -> int:
        """Delete what retention no longer keeps, oldest first; how many segments went.

        Nothing at or past `upto` goes, the high watermark. When everything is too old, the log rolls first: the last
        segment stays, and is empty.
        """
        with disk_errors(self.directory, "deleting old segments"):
            count = deletable(
                self._segments,
                self.config,
                now_ms,
                start_offset=self.start_offset,
                end_offset=self.end_offset,
                upto=self.end_offset if upto is None else upto,
            )
            if count == len(self._segments):
                self._roll(self.end_offset)
                count = min(count, len(self._segments) - 1)
            if count:
                self._remove(self._segments[:count])
                self._exchange(self._segments[count:])
                self.increment_start_offset(self._bases[0])
        return count

    def outlives_retention(self, now_ms: int) -> bool:
        """Whether retention would delete some of its records at once."""
        segments = self._segments[bisect_right(self._bases, self.start_offset) - 1 :]
        end = self.end_offset
        return deletable(segments, self.config, now_ms, start_offset=0, end_offset=end, upto=end) > 0

    def _exchange(self, segments: list[Segment]) -> None:
        """Other segments, but for the active one, whose end stays what it is."""
        last_base, last_position = self._last_base, self._last_position
        self._set_segments(segments)
        self._last_base, self._last_position = last_base, last_position

    def _remove(self, segments: Iterable[Segment], *, replaced_by: int | None = None) -> None:
        """Take files out of the log under another name; they go for good after `file.delete.delay.ms`.

        The producer snapshot of a segment goes with it, unless the one `replaced_by` has the same base.
        """
        due = self._clock.now_ms() + self.config.file_delete_delay_ms
        for segment in segments:
            for suffix in SUFFIXES:
                path = segment.path(suffix)
                try:
                    self._files.rename(path, path + DELETED)
                except FileNotFoundError:
                    continue
                self._doomed[path + DELETED] = due
            segment.release()
            if segment.base != replaced_by:
                self.producers.snapshots.delete(segment.base)

    def take_doomed(self, now_ms: int) -> list[str]:
        """Paths whose time has come. The caller unlinks them, in a thread: a large file takes long to free."""
        due = [path for path, when in self._doomed.items() if when <= now_ms]
        for path in due:
            del self._doomed[path]
        return due

    # -- compaction ------------------------------------------------------------------------------------------------

    @property
    def truncations(self) -> int:
        """Grows when the log is cut back: what was found out about its records before may be wrong then."""
        return self._truncations

    @property
    def first_dirty(self) -> int:
        return first_dirty(self.cleaned_until, self.start_offset, self.end_offset)

    def assess(self, now_ms: int, stable_offset: int) -> Dirt:
        """How much compaction would have to do. May look into a segment's files, once."""
        with disk_errors(self.directory, "looking for what is to be compacted"):
            return assess(
                self._segments, self.config, now_ms, first_dirty=self.first_dirty, stable_offset=stable_offset
            )

    def take_doomed_of(self, bases: Iterable[int]) -> list[str]:
        """Paths that `replace` would have to free because it needs their names. To be removed in a thread before."""
        named = {f"{base:020d}" for base in bases}
        due = [path for path in self._doomed if os.path.basename(path)[:20] in named]
        for path in due:
            del self._doomed[path]
        return due

    def replace(self, new: Replacement) -> bool:
        """Put a cleaned segment into the place of those it was made from; False when they are not here any more.

        Whoever reads the old ones goes on doing so. The new names are on the disk with the next fsync of the directory;
        a crash before leads to the old segments or to the new one. When the disk refuses half way, its directory is
        lost (StorageError without a cause that may pass): the next start completes what was begun.
        """
        first = bisect_left(self._bases, new.old[0])
        upto = first + len(new.old)
        if upto >= len(self._bases) or tuple(self._bases[first:upto]) != new.old or new.base != new.old[0]:
            swap.discard(self._files, self.directory, new.base)
            return False
        with disk_errors(self.directory, "offering a compacted segment"):
            swap.offer(self._files, self.directory, new.base)
        old = self._segments[first:upto]
        try:
            self._remove(old, replaced_by=new.base)
            has_transactions = swap.settle(self._files, self.directory, new.base)
        except OSError as error:
            raise storage_error(self.directory, "replacing compacted segments", error) from None
        interval = self.config.index_interval_bytes
        segment = Segment(self._files, self.directory, new.base, new.size, interval, self._clock.now_ms())
        segment.has_transactions = has_transactions
        self._exchange([*self._segments[:first], segment, *self._segments[upto:]])
        self._new_names = True
        return True
