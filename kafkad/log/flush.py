"""One flush of a log: the files and directories whose fsync it waits for."""

from __future__ import annotations

import os
from dataclasses import dataclass

from kafkad.log.checkpoint import PARTITION_METADATA
from kafkad.log.files import Files, LogFile, disk_errors


@dataclass(slots=True, kw_only=True)
class Flush:
    """A flush begun by `Log.start_flush`; it holds the files open, so rolling and deleting may go on meanwhile."""

    directory: str
    files: Files
    log_files: list[LogFile]
    paths: list[str]
    upto: int
    size: tuple[int, int]
    """The end of the flushed part: the base of its last segment, and that segment's size."""
    truncations: int
    changes: tuple[int, int]
    """How often names of files, and the leader epochs, had changed when it began: see Durability."""
    names: bool
    place: bool
    """True if the directory itself may have a name, and a topic id, that the disk does not know."""

    def sync(self) -> None:
        """Wait for the disk. Thread-safe. After a StorageError nothing is known to be durable: do not try again."""
        with disk_errors(self.directory, "flushing"):
            for file in self.log_files:
                self.files.sync_for_good(file.fd)
            for path in self.paths:
                self.files.sync_path(path)
            if self.names:
                self.files.sync_names(self.directory)
            if self.place:
                sync_place(self.files, self.directory)


def sync_place(files: Files, directory: str) -> None:
    """Put on the disk what makes a new partition be found: its topic id, and the name of its directory.

    The names in that directory are the caller's."""
    files.sync_path(os.path.join(directory, PARTITION_METADATA))
    files.sync_names(os.path.dirname(directory))
