"""Disks without room, as files, checkpoints and a broker meet them."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import NoReturn

import pytest

from kafkad.errors import StorageError
from kafkad.log import checkpoint
from kafkad.log.files import Files
from kafkad.names import TopicPartition


def no_room(path: str, *arguments: object, **options: object) -> NoReturn:
    """Takes the place of a method of `Files` that makes or writes what is at this path."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def refusal(directory: str, code: int = errno.ENOSPC) -> StorageError:
    """What a broker is told when the disk of this log directory has no room, or is short of what the code says."""
    error = StorageError(directory, os.strerror(code))
    error.__cause__ = OSError(code, os.strerror(code))
    return error


class FullDisk:
    """Has no room for the checkpoints of the log directory `path` until `is_full` is taken back."""

    def __init__(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = path
        self._write = checkpoint.write_offsets
        self.is_full = True
        self.refused = 0
        monkeypatch.setattr(checkpoint, "write_offsets", self._write_offsets)

    def _write_offsets(self, path: str, offsets: Mapping[TopicPartition, int], files: Files) -> None:
        if self.is_full and os.path.dirname(path) == self._path:
            self.refused += 1
            no_room(path)
        self._write(path, offsets, files)
