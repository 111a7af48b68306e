"""Removal of files and directories after a delay: a reader may still need them, and freeing blocks takes time."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable

from kafkad.errors import StorageError
from kafkad.log.files import Files, final_disk_errors
from kafkad.log.names import Kind
from kafkad.log.segment import SUFFIXES, Segment
from kafkad.log.snapshots import Snapshots
from kafkad.log.swap import DELETED

_AGAIN_MS = 60_000
_IN_USE = frozenset({errno.ENOTEMPTY, errno.EBUSY})
"""An NFS client keeps files that are open, under other names; or something is mounted there."""


class DoomedFiles:
    """Files of one log that have got their `.deleted` name, each with the time at which it may be unlinked.

    The caller unlinks what it takes, in a thread: freeing a large file takes long.
    """

    __slots__ = ("_due_ms", "_files", "_snapshots")

    def __init__(self, files: Files, snapshots: Snapshots) -> None:
        self._files = files
        self._snapshots = snapshots
        self._due_ms: dict[str, int] = {}

    def add(self, segments: Iterable[Segment], due_ms: int, *, replaced_by: int | None = None) -> None:
        """Give the files of segments their `.deleted` name. OSError when the disk refuses.

        The producer snapshot of a segment goes with it, unless its replacement has the same base. A segment without its
        `.log` is gone: from there on errors are final.
        """
        for segment in segments:
            log, *others = [segment.path(suffix) for suffix in SUFFIXES]
            self._rename([log], due_ms)
            with final_disk_errors(segment.directory, "removing a segment"):
                self._rename(others, due_ms)
                segment.release()
                if segment.base != replaced_by:
                    self._snapshots.delete(segment.base)

    def _rename(self, paths: Iterable[str], due_ms: int) -> None:
        """Those that are there."""
        for path in paths:
            try:
                self._files.rename(path, path + DELETED)
            except FileNotFoundError:
                continue
            self._due_ms[path + DELETED] = due_ms

    def take_due(self, now_ms: int) -> list[str]:
        paths = [path for path, due_ms in self._due_ms.items() if due_ms <= now_ms]
        for path in paths:
            del self._due_ms[path]
        return paths

    def named(self, bases: Iterable[int]) -> list[str]:
        """The files of segments with these bases, whose names others are to have."""
        names = {f"{base:020d}" for base in bases}
        return [path for path in self._due_ms if os.path.basename(path)[:20] in names]

    def forget(self, path: str) -> None:
        """It is gone."""
        self._due_ms.pop(path, None)

    def move_to(self, directory: str) -> None:
        """The log's directory has another name now."""
        moved = {f"{directory}/{os.path.basename(path)}": due_ms for path, due_ms in self._due_ms.items()}
        self._due_ms = moved


class Removal:
    """`add` and `take_due` belong to the loop, `remove` to a thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._waiting: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, path: str, due_ms: int) -> None:
        self._waiting.append((due_ms, path))

    def put_back(self, path: str, now_ms: int) -> None:
        """It could not be removed: later, perhaps."""
        self.add(path, now_ms + _AGAIN_MS)

    def take_due(self, now_ms: int, directory: str) -> list[str]:
        """Those in this log directory."""
        due = [each for each in self._waiting if each[0] <= now_ms and each[1].startswith(f"{directory}/")]
        if due:
            taken = set(due)
            self._waiting = [each for each in self._waiting if each not in taken]
        return [path for _, path in due]

    def remove(self, path: str) -> bool:
        """Thread-safe; what has gone already is fine. False if something in it is in use; StorageError when the disk
        refuses.

        Only what has Kafka's name for what is to go: whatever a mistake may put here, nothing else is removed.
        """
        if not path.endswith((Kind.DELETED.value, DELETED)):
            raise ValueError(f"{path!r} does not wait for its removal")
        try:
            self._remove(path, os.path.isdir(path) and not os.path.islink(path))
        except OSError as error:
            if error.errno in _IN_USE:
                return False
            message = f"removing {path}: {error.strerror or error}"
            raise StorageError(_log_directory(path), message) from error
        return True

    def _remove(self, path: str, is_directory: bool) -> None:
        """With all that anybody has put into a directory; of a link, the link alone."""
        with contextlib.suppress(FileNotFoundError):
            if not is_directory:
                self._files.unlink(path)
                return
            with os.scandir(path) as entries:
                found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
            for each in found:
                self._remove(*each)
            self._files.rmdir(path)


def _log_directory(path: str) -> str:
    """The log directory of a waiting partition's directory, or of a segment's file in one."""
    parent = os.path.dirname(path)
    return parent if path.endswith(Kind.DELETED.value) else os.path.dirname(parent)
