"""Opening files of any kind: what is behind a name may be a pipe."""

from __future__ import annotations

import os


def open_at_once(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    flags: int,
    mode: int = 0o777,
    *,
    dir_fd: int | None = None,
) -> int:
    """`os.open` where that would wait until somebody opens the other end of a pipe. Also an opener for `open`."""
    return os.open(path, flags | os.O_NONBLOCK, mode, dir_fd=dir_fd)
