"""Calls of Linux that Python's `os` lacks. They need no file descriptor: who calls them may have none left."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

_FALLOC_FL_KEEP_SIZE = 1
_SYNC_FILE_RANGE_WRITE = 2


def allocate(fd: int, at: int, length: int) -> bool:
    """Reserve blocks past the end of a file without growing it; False where the file system cannot.

    os.posix_fallocate would grow the file, and a reader would take the zeros for its content.
    """
    return _of_libc("fallocate", "iiqq")(fd, _FALLOC_FL_KEEP_SIZE, at, length) == 0


def begin_to_write_out(fd: int) -> None:
    """Have the disk begin with what is dirty of a file."""
    _of_libc("sync_file_range", "iqqi")(fd, 0, 0, _SYNC_FILE_RANGE_WRITE)


@functools.cache
def _of_libc(name: str, arguments: str) -> Callable[..., int]:
    """Its arguments are int (i) or a 64-bit offset (q)."""
    kinds = {"i": ctypes.c_int, "q": ctypes.c_int64}
    function = ctypes.CDLL(None)[name]
    function.argtypes = [kinds[letter] for letter in arguments]
    return function
