"""A segment that compaction has made, as it gets to the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kafkad.cleaner.cleaned import CleanedSegment
from kafkad.log.files import Files, LogFile
from kafkad.log.indexed import INDEX


class WithoutRoom(Files):
    """For an index."""

    def open_log_file(self, path: str, flags: int) -> LogFile:
        if INDEX in path and flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return super().open_log_file(path, flags)


def test_a_disk_without_room_for_an_index_is_called_full(tmp_path: Path) -> None:
    """And not broken, as it would be if the file were missed later on."""
    segment = CleanedSegment(WithoutRoom(), str(tmp_path), 0, 4096, lambda size: None)
    with pytest.raises(OSError, match="No space left"):
        segment.finish((), (0, 0))
