"""A simulated disk: real files, of which a power cut takes what no fsync has put away."""

from __future__ import annotations

import os
from contextlib import suppress
from random import Random

from kafkad.log.files import Files
from kafkad.log.lock import LOCK
from tests.sim.world import ProcessClock


class SimFiles(Files):
    """The files of one machine. It knows how much of each file is on the disk for good."""

    def __init__(self, directory: str, clock: ProcessClock) -> None:
        self._directory = directory
        self._clock = clock
        self._synced: dict[str, int] = {}

    def sync(self, fd: int) -> None:  # type: ignore[override]
        self._synced[_path_of(fd)] = os.fstat(fd).st_size

    def truncate(self, fd: int, length: int) -> None:  # type: ignore[override]
        os.ftruncate(fd, length)
        path = _path_of(fd)
        self._synced[path] = min(self._synced.get(path, 0), length)

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

    def power_cut(self, random: Random) -> list[str]:
        """Each log loses what was not synced, from some byte on; what is lost, in words."""
        lost = []
        for directory, _, names in sorted(os.walk(self._directory)):
            for name in sorted(names):
                path = os.path.join(directory, name)
                if not name.endswith(".log"):
                    continue
                size = os.path.getsize(path)
                kept = random.randint(min(self._synced.get(path, 0), size), size)
                if kept < size:
                    os.truncate(path, kept)
                    lost.append(f"{os.path.relpath(path, self._directory)}:{kept}/{size}")
        return lost


def _path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")
