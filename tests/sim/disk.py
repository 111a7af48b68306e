"""A simulated disk: real files, which outlive the processes that are killed."""

from __future__ import annotations

import os
from contextlib import suppress

from kafkad.log.files import Files
from kafkad.log.lock import LOCK
from tests.sim.world import ProcessClock


class SimFiles(Files):
    """The files of one machine."""

    def __init__(self, directory: str, clock: ProcessClock) -> None:
        self._directory = directory
        self._clock = clock

    def sync(self, fd: int) -> None:  # type: ignore[override]
        """Nothing here is to survive the real machine."""

    def listdir(self, path: str) -> list[str]:  # type: ignore[override]
        return sorted(os.listdir(path))

    def changed_ms(self, path: str) -> int:
        return self._clock.now_ms()

    def allocate(self, fd: int, at: int, length: int) -> bool:
        return False

    def begin_to_write_out(self, path: str) -> None:
        pass

    def killed(self) -> None:
        """The kernel lets go of the lock."""
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self._directory, LOCK))
