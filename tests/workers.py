"""The processes that work for a broker, and a system that has no room for them."""

from __future__ import annotations

import errno
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest


def children(module: str) -> list[int]:
    """Workers that run this module, of all threads of this process; any of them may end while they are listed."""
    found = []
    for started in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            pids = [int(pid) for pid in started.read_text().split()]
            found += [pid for pid in pids if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return found


def no_more_processes(patch: pytest.MonkeyPatch) -> None:
    """The system starts none."""

    def refuse(*args: object, **settings: object) -> NoReturn:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    patch.setattr(subprocess, "Popen", refuse)
