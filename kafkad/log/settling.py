"""Settling a cut: from then on the disk has nothing more of what was cut off a log.

After a power failure that could stand between newer records, so nothing is appended before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafkad.log.files import Files, LogFile, disk_errors

Writes = Sequence[Callable[[], None]]


@dataclass(slots=True, kw_only=True)
class Settling:
    """A settlement begun by `Log.start_settling`, which `Log.end_settling` ends."""

    directory: str
    files: Files
    checkpoints: Writes
    """What says that more of the log is on the disk than is left: recovery would not look at what is appended there."""
    file: LogFile | None
    """The file that was cut; None of a log that is not here any more, for which there is nothing to do."""
    history: int

    def wait(self) -> None:
        """Wait for the disk. Thread-safe; StorageError."""
        if self.file is None:
            return
        for write in self.checkpoints:
            write()
        with disk_errors(self.directory, "truncating"):
            self.files.sync_for_good(self.file.fd)
            self.files.sync_names(self.directory)
