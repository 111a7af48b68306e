"""Unix sockets in directories with paths of any length."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LONGEST = 100


@contextmanager
def address(path: Path) -> Iterator[str]:
    """An address to bind or connect to. The limit is about a hundred bytes, so longer paths go through a file
    descriptor of their directory."""
    if len(os.fsencode(path)) <= _LONGEST:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
