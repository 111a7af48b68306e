"""Files and directories that wait for their removal: a reader may still need them, and freeing blocks takes time."""

from __future__ import annotations

import contextlib
import os

from kafkad.errors import StorageError
from kafkad.log.files import Files
from kafkad.log.names import Kind
from kafkad.log.swap import DELETED


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

    def remove(self, path: str) -> None:
        """Thread-safe; what has gone already is fine. StorageError when the disk refuses.

        Only what has Kafka's name for what is to go: whatever a mistake may put here, nothing else is removed.
        """
        if not path.endswith((Kind.DELETED.value, DELETED)):
            raise ValueError(f"{path!r} does not wait for its removal")
        try:
            with contextlib.suppress(FileNotFoundError):
                self._remove(path)
        except OSError as error:
            message = f"removing {path}: {error.strerror or error}"
            raise StorageError(_log_directory(path), message) from error

    def _remove(self, path: str) -> None:
        if path.endswith(DELETED):
            self._files.unlink(path)
            return
        for name in os.listdir(path):
            self._files.unlink(os.path.join(path, name))
        self._files.rmdir(path)


def _log_directory(path: str) -> str:
    """Of a partition's directory that waits, or of a segment's file in one."""
    parent = os.path.dirname(path)
    return parent if path.endswith(Kind.DELETED.value) else os.path.dirname(parent)
