"""Directories that are made where they are missing, by several processes of a host at once if need be."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable


def make_directories(path: str, mkdir: Callable[[str], None], sync: Callable[[str], None]) -> None:
    """A directory and those above it, where they are missing. `sync` puts the names in a directory on the disk."""
    if not os.path.lexists(path):
        above = os.path.dirname(path) or "."
        make_directories(above, mkdir, sync)
        with contextlib.suppress(FileExistsError):  # another process has just made it
            mkdir(path)
        sync(above)
    elif not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
