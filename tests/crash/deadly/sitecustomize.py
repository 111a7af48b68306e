"""Imported by every Python that has this directory in PYTHONPATH: kills the process at one of its writes.

DEATHS names a file. While it is there it says: a number of its own; whether the process dies before a write, when half
of it is written, or after it; the number of that write, of those since the file is there and to logs whose path a
pattern finds; and the pattern. Or, instead of dying, the process finds the disk full, then and at a few writes
afterwards, or at each marker of a transaction.
"""

from __future__ import annotations

import errno
import os
import re
import signal
from typing import Any

_open, _close, _pwrite = os.open, os.close, os.pwrite
_REFUSED = 3
_ATTRIBUTES_AT, _CONTROL = 22, 0x20
_paths: dict[int, str] = {}
_counted = ("", 0)
"""The last order, and how many writes it has seen."""


def _open_watched(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
    fd = _open(path, flags, mode, **more)
    if str(path).endswith(".log"):
        _paths[fd] = str(path)
    return fd


def _close_watched(fd: int) -> None:
    _paths.pop(fd, None)
    _close(fd)


def _order() -> str:
    try:
        with open(os.environ["DEATHS"]) as orders:
            return orders.read()
    except FileNotFoundError:
        return ""


def _write_or_die(fd: int, data: Any, at: int, *more: Any) -> int:
    global _counted
    order = _order() if fd in _paths else ""
    _, when, text, pattern = order.split(":", 3) if order else ("", "", "0", "")
    if not order or not re.search(pattern, _paths[fd]):
        return _pwrite(fd, data, at, *more)
    before = _counted[1] if _counted[0] == order else 0
    _counted = order, before + 1
    behind = _counted[1] - int(text)
    if (when == "full" and 0 <= behind < _REFUSED) or (when == "markers" and data[_ATTRIBUTES_AT] & _CONTROL):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if when in ("full", "markers") or behind:
        return _pwrite(fd, data, at, *more)
    if when != "before":
        _pwrite(fd, data if when == "after" else data[: len(data) // 2], at, *more)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


if "DEATHS" in os.environ:
    os.open, os.close, os.pwrite = _open_watched, _close_watched, _write_or_die  # type: ignore[assignment]
