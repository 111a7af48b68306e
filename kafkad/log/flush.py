"""What one flush of a log waits for."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from kafkad.log.files import Files, LogFile, disk_errors


@dataclass(slots=True, kw_only=True)
class Flush:
    """Made by `Log.start_flush`; it holds the files open, so rolling and deleting may go on meanwhile."""

    directory: str
    files: Files
    log_files: list[LogFile]
    paths: list[str]
    upto: int
    truncations: int
    names: bool

    def sync(self) -> None:
        """Wait for the disk. Thread-safe. After a StorageError nothing is known to be durable: do not try again."""
        with disk_errors(self.directory, "flushing"):
            for file in self.log_files:
                sync_records(self.files, file)
            for path in self.paths:
                self.files.sync_path(path)
            if self.names:
                self.files.sync_names(self.directory)


def sync_records(files: Files, file: LogFile) -> None:
    """fsync of a segment. Whatever the disk objects to is final, even that it is full.

    The kernel drops what it could not write, and the next fsync would say that all is well.
    """
    try:
        files.sync(file.fd)
    except OSError as error:
        raise OSError(errno.EIO, f"records were lost: {error.strerror}") from error
