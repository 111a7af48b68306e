"""Imported by every Python that has this directory in PYTHONPATH: writes down what the process does to a directory.

Each change of a file or a name under RECORD_ROOT is appended to the file RECORD_TO, and each fsync twice, when it
begins and when it has ended: only what was changed before it began is on the disk after it. See tests/crash/power.py.
"""

from __future__ import annotations

import os
import pickle
import struct
from itertools import count
from typing import Any

_ROOT = os.environ.get("RECORD_ROOT", "")
_real = {name: getattr(os, name) for name in ("open", "close", "pwrite", "ftruncate", "replace", "unlink", "rmdir")}
_mkdir = os.mkdir
_watched: dict[int, int] = {}
"""Descriptor → inode."""
_syncs = count()


def _record(*event: Any) -> None:
    data = pickle.dumps(event)
    os.write(_to, struct.pack(">I", len(data)) + data)


def _open(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
    inside = str(path).startswith(_ROOT)
    new = inside and bool(flags & os.O_CREAT) and not os.path.lexists(path)
    fd: int = _real["open"](path, flags, mode, **more)
    if inside:
        inode = _watched[fd] = os.fstat(fd).st_ino
        if new:
            _record("create", str(path), inode)
        elif flags & os.O_TRUNC:
            _record("truncate", inode, 0)
    return fd


def _close(fd: int) -> None:
    _watched.pop(fd, None)
    _real["close"](fd)


def _pwrite(fd: int, data: Any, at: int, *more: Any) -> int:
    written: int = _real["pwrite"](fd, data, at, *more)
    if fd in _watched:
        _record("write", _watched[fd], at, bytes(data[:written]))
    return written


def _ftruncate(fd: int, length: int) -> None:
    _real["ftruncate"](fd, length)
    if fd in _watched:
        _record("truncate", _watched[fd], length)


def _rename(source: Any, target: Any) -> None:
    _real["replace"](source, target)
    if str(target).startswith(_ROOT):
        _record("rename", str(source), str(target))


def _unlink(path: Any) -> None:
    _real["unlink"](path)
    if str(path).startswith(_ROOT):
        _record("remove", str(path))


def _rmdir(path: Any) -> None:
    _real["rmdir"](path)
    if str(path).startswith(_ROOT):
        _record("remove", str(path))


def _make_directory(path: Any, mode: int = 0o777, **more: Any) -> None:
    _mkdir(path, mode, **more)
    if str(path).startswith(_ROOT):
        _record("mkdir", str(path), os.stat(path).st_ino)


def _sync(fd: int) -> None:
    """Without waiting for a disk: the one that matters is the one that is played back."""
    if fd in _watched:
        number = (os.getpid(), next(_syncs))
        _record("sync", number, _watched[fd])
        _record("synced", number)


if _ROOT:
    _to = os.open(os.environ["RECORD_TO"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.open, os.close, os.pwrite, os.ftruncate = _open, _close, _pwrite, _ftruncate  # type: ignore[assignment]
    os.replace = os.rename = _rename  # type: ignore[assignment]
    os.unlink = os.remove = _unlink  # type: ignore[assignment]
    os.rmdir, os.mkdir = _rmdir, _make_directory  # type: ignore[assignment]
    os.fdatasync = os.fsync = _sync  # type: ignore[assignment]
