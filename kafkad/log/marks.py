"""The mark by which a replica says that its copy in another log directory has taken its place.

It is put there before that happens. Until the copy has its name it says nothing: a start that finds no other replica
removes it. All is name, for there may be no room for more on the disk that a replica moves away from: first comes an
empty file with a number, then one without. Where all replicas of a partition are marked, the start takes the one with
the highest number.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from math import inf
from typing import NamedTuple

from kafkad.log.files import Files, disk_errors, final_disk_errors

MOVED = "kafkad-moved"
_NUMBERED = re.compile(re.escape(MOVED) + r"\.(\d{1,19})", re.ASCII)


class Mark(NamedTuple):
    """Of the replica in `directory`, which goes on working. Its disk is to know before `Moves.finish`; if that comes to
    nothing, it is to be taken away."""

    files: Files
    directory: str
    number: int

    def put(self) -> None:
        """StorageError."""
        with disk_errors(self.directory, f"writing {MOVED}"):
            for path in (self._numbered, _path(self.directory)):
                self.files.open_log_file(path, os.O_WRONLY | os.O_CREAT)

    def take_away(self) -> None:
        """The replica goes on being the one. StorageError, which is final.

        With its number, which `Log.last_mark` knows: a move that is tried for long would leave many.
        """
        with final_disk_errors(self.directory, f"removing {MOVED}"):
            for path in (_path(self.directory), self._numbered):
                with suppress(FileNotFoundError):
                    self.files.unlink(path)

    def sync(self) -> None:
        """Wait until the disk knows whether it is there. Thread-safe; StorageError."""
        with disk_errors(self.directory, "flushing"):
            self.files.sync_names(self.directory)

    @property
    def _numbered(self) -> str:
        return f"{_path(self.directory)}.{self.number}"


def is_of_mark(name: str) -> bool:
    """True of a file that a mark consists of."""
    return name == MOVED or _NUMBERED.fullmatch(name) is not None


def was_moved(directory: str) -> bool:
    return os.access(_path(directory), os.F_OK)


def last_number(names: Iterable[str]) -> int:
    """The highest in a replica with these files; 0 for none, as earlier releases have left it."""
    return max((int(found[1]) for found in map(_NUMBERED.fullmatch, names) if found), default=0)


def order(names: Collection[str]) -> float:
    """Of a replica with these files among those of its partition: the highest is the one to take."""
    return last_number(names) if MOVED in names else inf


def unmark(directory: str, files: Files) -> None:
    """Have the replica there say no more that it was replaced. OSError.

    Its number stays, and the next one is above it: a replica that it had replaced itself may come back with its disk,
    and has a lower one.
    """
    names = files.open_log_file(directory, os.O_RDONLY | os.O_DIRECTORY)
    files.unlink(_path(directory))
    files.sync_for_good(names.fd)


def _path(directory: str) -> str:
    return os.path.join(directory, MOVED)
