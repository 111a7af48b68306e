"""A log directory whose disk takes no checkpoints."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

import pytest

from kafkad.log import checkpoint
from kafkad.log.files import Files
from kafkad.names import TopicPartition


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
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._write(path, offsets, files)
