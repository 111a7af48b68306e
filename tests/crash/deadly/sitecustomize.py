"""Imported by every Python that has this directory in PYTHONPATH: kills the process at one of its writes.

DIE_AT is a part of a path, the number of the write to such a log, and whether the process dies before that, when
half of it is written, or after it. Or, instead of dying, it finds the disk full, then and at a few writes afterwards.
"""

from __future__ import annotations

import errno
import os
import signal
from itertools import count
from typing import Any

_open, _close, _pwrite = os.open, os.close, os.pwrite
_REFUSED = 3
_watched: set[int] = set()
_writes = count(1)


def _open_watched(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
    fd = _open(path, flags, mode, **more)
    if _part in str(path) and str(path).endswith(".log"):
        _watched.add(fd)
    return fd


def _close_watched(fd: int) -> None:
    _watched.discard(fd)
    _close(fd)


def _write_or_die(fd: int, data: Any, at: int, *more: Any) -> int:
    number = next(_writes) if fd in _watched else 0
    if _when == "full" and _number <= number < _number + _REFUSED:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if number != _number or _when == "full":
        return _pwrite(fd, data, at, *more)
    if _when != "before":
        _pwrite(fd, data if _when == "after" else data[: len(data) // 2], at, *more)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


if "DIE_AT" in os.environ:
    _part, _text, _when = os.environ["DIE_AT"].split(":")
    _number = int(_text)
    os.open, os.close, os.pwrite = _open_watched, _close_watched, _write_or_die  # type: ignore[assignment]
