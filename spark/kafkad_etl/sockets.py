"""Unix sockets whose directories have names of any length."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LONGEST = 100


@contextmanager
def address(path: Path) -> Iterator[str]:
    """To bind or connect to. Some hundred bytes are the limit: a longer path goes through its directory's number."""
    if len(os.fsencode(path)) <= _LONGEST:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
