"""What one flush of a log waits for."""

from __future__ import annotations

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
                self.files.sync(file.fd)
            for path in self.paths:
                self.files.sync_path(path)
            if self.names:
                self.files.sync_directory(self.directory)
