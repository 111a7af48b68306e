"""Removal of files and directories after a delay: a reader may still need them, and freeing blocks takes time."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kafkad.clock import Clock
from kafkad.errors import StorageError
from kafkad.log.files import Files, final_disk_errors
from kafkad.log.names import Kind
from kafkad.log.partition_files import is_of_kafka
from kafkad.log.segment import SUFFIXES, Segment
from kafkad.log.swap import DELETED
from kafkad.refusals import failure

_AGAIN_MS = 60_000
_IN_USE = frozenset({errno.ENOTEMPTY, errno.EBUSY})
"""An NFS client keeps files that are open, under other names; or something is mounted there."""
_STILL_OPEN = (".nfs", ".fuse_hidden")
"""What the names begin with that NFS and FUSE give them."""

OnKept = Callable[[str, Sequence[str]], None]
"""Hears of a directory that stays, and what is in it. Called in the thread that removes."""


class Doomed:
    """What waits for its removal until it is gone, under a name of its own, and each with the time at which it may go.

    The caller removes what is due, in a thread: freeing a large file takes long.
    """

    __slots__ = ("_due_ms",)

    def __init__(self) -> None:
        self._due_ms: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._due_ms)

    def path(self, name: str) -> str:
        """The present one."""
        return name

    def waits(self, name: str, due_ms: int) -> bool:
        """It has not gone since, nor has another got its name."""
        return self._due_ms.get(name) == due_ms

    def due(self, now_ms: int) -> list[DueRemoval]:
        return [DueRemoval(self, name, due_ms) for name, due_ms in self._due_ms.items() if due_ms <= now_ms]

    def forget(self, name: str) -> None:
        """It is gone."""
        self._due_ms.pop(name, None)

    def put_off(self, name: str, now_ms: int) -> None:
        """It could not be removed: later, perhaps."""
        self._due_ms[name] = now_ms + _AGAIN_MS


class DueRemoval(NamedTuple):
    """A file or directory that may be removed, in its turn: whoever waits for a thread asks for its path only then."""

    doomed: Doomed
    name: str
    due_ms: int

    @property
    def path(self) -> str:
        return self.doomed.path(self.name)

    @property
    def is_still_due(self) -> bool:
        return self.doomed.waits(self.name, self.due_ms)

    def was_tried(self, path: str, now_ms: int, *, is_gone: bool) -> None:
        """What had this path is gone, or was refused. It stays due if it has got another meanwhile, and so does what
        has got its name."""
        if self.path != path or not self.is_still_due:
            return
        if is_gone:
            self.doomed.forget(self.name)
        else:
            self.doomed.put_off(self.name, now_ms)


class DoomedFiles(Doomed):
    """Files of one log that have got their `.deleted` name, in its directory, whatever that is called by then."""

    __slots__ = ("_clock", "_files", "delay_ms", "directory")

    def __init__(self, directory: str, files: Files, clock: Clock, delay_ms: int) -> None:
        super().__init__()
        self.directory = directory
        self.delay_ms = delay_ms
        """`file.delete.delay.ms`."""
        self._files = files
        self._clock = clock

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def add(self, path: str) -> None:
        """Give a file its `.deleted` name. OSError when the disk refuses, or has no such file."""
        self._files.rename(path, path + DELETED)
        self._due_ms[os.path.basename(path) + DELETED] = self._clock.now_ms() + self.delay_ms

    def add_segment(self, segment: Segment) -> None:
        """Those of its files that are there. A segment without its `.log` is gone: from there on errors are final."""
        log, *others = [segment.path(suffix) for suffix in SUFFIXES]
        with contextlib.suppress(FileNotFoundError):
            self.add(log)
        with final_disk_errors(segment.directory, "removing a segment"):
            for path in others:
                with contextlib.suppress(FileNotFoundError):
                    self.add(path)
            segment.release()

    def named(self, bases: Iterable[int]) -> list[str]:
        """The files of segments with these bases, whose names others are to have."""
        names = {f"{base:020d}" for base in bases}
        return [name for name in self._due_ms if name[:20] in names]


class Removal(Doomed):
    """Directories of partitions, by their paths. `remove` is for a thread, also for the files of logs; the rest belongs
    to the loop."""

    __slots__ = ("_files", "_on_kept")

    def __init__(self, files: Files, on_kept: OnKept = lambda path, names: None) -> None:
        super().__init__()
        self._files = files
        self._on_kept = on_kept

    def add(self, path: str, due_ms: int) -> None:
        self._due_ms[path] = due_ms

    def due_in(self, directory: str, now_ms: int) -> list[DueRemoval]:
        """Those in this log directory."""
        return [due for due in self.due(now_ms) if due.path.startswith(f"{directory}/")]

    def remove(self, path: str) -> bool:
        """Thread-safe; what has gone already is fine. False if something in it is in use; StorageError when the disk
        refuses.

        Only what has Kafka's name for what is to go: whatever a mistake may put here, nothing else is removed. Nor is
        what somebody has put into a directory, which stays then, until a start finds it again.
        """
        if not path.endswith((Kind.DELETED.value, DELETED)):
            raise ValueError(f"{path!r} does not wait for its removal")
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                self._remove_directory(path)
            else:
                self._unlink(path)
        except OSError as error:
            if error.errno in _IN_USE:
                return False
            directory = _log_directory(path)
            raise StorageError(directory, failure(f"removing {path}", error, directory)) from error
        return True

    def _unlink(self, path: str) -> None:
        """Of a link, the link alone."""
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(path)

    def _remove_directory(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            with os.scandir(path) as entries:
                made = {entry.name: is_of_kafka(entry.name) and not entry.is_dir() for entry in entries}
            kept = sorted(name for name, goes in made.items() if not goes and not name.startswith(_STILL_OPEN))
            for name, goes in made.items():
                if goes:
                    self._unlink(f"{path}/{name}")
            if kept:
                self._on_kept(path, kept)
            else:
                self._files.rmdir(path)


def _log_directory(path: str) -> str:
    """The log directory of a waiting partition's directory, or of a segment's file in one."""
    parent = os.path.dirname(path)
    return parent if path.endswith(Kind.DELETED.value) else os.path.dirname(parent)
