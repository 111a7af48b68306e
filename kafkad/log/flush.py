"""One flush of a log, or of a part: the files and directories whose fsync it waits for."""

from __future__ import annotations

import os
from dataclasses import dataclass

from kafkad.log.checkpoint import PARTITION_METADATA
from kafkad.log.files import Files, disk_errors


@dataclass(slots=True, kw_only=True)
class Flush:
    """A flush begun by `Log.start_flush`, of segments that follow one another. It opens their files one by one, so that
    a log of thousands takes no more; rolling and deleting may go on meanwhile."""

    directory: str
    files: Files
    paths: list[str]
    upto: int
    size: tuple[int, int]
    """The end of the flushed part: the base of its last segment, and that segment's size."""
    history: int
    changes: tuple[int, int]
    """How often names of files, and the leader epochs, had changed when it began: see Durability."""
    names: bool
    """True if the names in the directory are waited for, too."""
    place: bool
    """True if the directory itself may have a name, and a topic id, that the disk does not know."""

    def sync(self) -> None:
        """Wait for the disk. Thread-safe. After a StorageError nothing is known to be durable: do not try again."""
        with disk_errors(self.directory, "flushing"):
            for path in self.paths:
                self.files.sync_path(path)
            if self.names:  # behind the files: of what is replaced meanwhile, the one or the other is on the disk
                self.files.sync_names(self.directory)
            if self.place:
                sync_place(self.files, self.directory)


def sync_place(files: Files, directory: str) -> None:
    """Put on the disk what makes a new partition be found: its topic id, and the name of its directory.

    The names in that directory are the caller's."""
    files.sync_path(os.path.join(directory, PARTITION_METADATA))
    files.sync_names(os.path.dirname(directory))
