"""Files and directories that wait for their removal: a reader may still need them, and freeing blocks takes time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from kafkad.errors import StorageError
from kafkad.log.files import Files


class Removal:
    """`add` and `take_due` belong to the loop, `remove` to a thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._waiting: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, path: str, due_ms: int) -> None:
        self._waiting.append((due_ms, path))

    def take_due(self, now_ms: int) -> list[str]:
        due = [path for when, path in self._waiting if when <= now_ms]
        if due:
            self._waiting = [(when, path) for when, path in self._waiting if when > now_ms]
        return due

    def remove(self, paths: Iterable[str]) -> None:
        """Thread-safe; what has gone already is fine. StorageError when the disk refuses."""
        for path in paths:
            try:
                with contextlib.suppress(FileNotFoundError):
                    self._remove(path)
            except OSError as error:
                message = f"removing {path}: {error.strerror or error}"
                raise StorageError(_log_directory(path), message) from error

    def _remove(self, path: str) -> None:
        if not os.path.isdir(path):
            self._files.unlink(path)
            return
        for name in os.listdir(path):
            self._files.unlink(os.path.join(path, name))
        self._files.rmdir(path)


def _log_directory(path: str) -> str:
    """Of a partition's directory that waits, or of a segment's file in one."""
    parent = os.path.dirname(path)
    return parent if path.endswith("-delete") else os.path.dirname(parent)
