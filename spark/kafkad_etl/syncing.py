"""Files and directories that have to survive a power failure."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Returns once the disk has the file's content, or the directory's names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
