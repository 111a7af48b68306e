"""One checkpoint of a log directory: collected on the loop, written in threads."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Set

from kafkad.log import checkpoint
from kafkad.log.files import Files
from kafkad.names import TopicPartition

Offsets = Mapping[TopicPartition, int]


class CheckpointFile:
    """Versions count what was collected. A write that was overtaken by a later one is dropped, and a partition that is
    made anew drops out of all that were collected before. What waits for a disk is for threads, and raises OSError."""

    def __init__(self, path: str, files: Files) -> None:
        self.offsets: Offsets = {}
        """What the file says."""
        self._path = path
        self._files = files
        self._collected = self._written = 0
        """The last versions of which that is true."""
        self._being_written: Offsets = {}
        self._forgotten: dict[TopicPartition, int] = {}
        """By partition, the last version that may have been collected with a predecessor of its name."""
        self._disk = threading.Lock()
        """Held while the disk is waited for; `_decision`, which the loop takes as well, never is."""
        self._decision = threading.Lock()

    def read(self) -> None:
        """CheckpointError, OSError."""
        self.offsets = checkpoint.read_offsets(self._path, self._files)

    def collect(self) -> int:
        """The version of offsets that are as they are now."""
        with self._decision:
            self._collected += 1
            return self._collected

    @property
    def is_about_to_be_written(self) -> bool:
        return self._written < self._collected

    def write(self, offsets: Offsets, version: int) -> None:
        """Unless that would change nothing."""
        with self._disk:
            with self._decision:
                if version <= self._written:
                    return
                gone = {tp for tp, last in self._forgotten.items() if version <= last and tp in offsets}
                offsets = self._being_written = _without(offsets, gone)
            try:
                if offsets != self.offsets:
                    checkpoint.write_offsets(self._path, offsets, self._files)
            except OSError:
                self._being_written = {}
                raise
            with self._decision:
                self.offsets, self._written, self._being_written = offsets, version, {}
                self._forgotten = {tp: last for tp, last in self._forgotten.items() if last > version}

    def forget(self, new: Set[TopicPartition]) -> bool:
        """Partitions are about to be made: what has been collected is not to say anything of them any more, for that is
        of predecessors of their names. True if the file does, or may soon: `rewrite_without` is to be waited for."""
        with self._decision:
            if self.is_about_to_be_written:
                self._forgotten.update(dict.fromkeys(new, self._collected))
            return self._names_some_of(new)

    def rewrite_without(self, gone: Set[TopicPartition]) -> None:
        """Have the file say nothing of them, also if that is being written just now."""
        with self._decision:
            if not self._names_some_of(gone):
                return
        with self._disk:
            kept = _without(self.offsets, gone)
            if len(kept) < len(self.offsets):
                checkpoint.write_offsets(self._path, kept, self._files)
                self.offsets = kept

    def _names_some_of(self, partitions: Set[TopicPartition]) -> bool:
        return not (self.offsets.keys().isdisjoint(partitions) and self._being_written.keys().isdisjoint(partitions))


def _without(offsets: Offsets, gone: Set[TopicPartition]) -> Offsets:
    return {tp: offset for tp, offset in offsets.items() if tp not in gone} if gone else offsets
