"""A file system in memory that a test can stop at any step, and watch after each."""

from __future__ import annotations

from collections.abc import Callable

from kafkad_etl.driver.paths import Entry


class Crash(Exception):
    """The process is gone; what was done stays."""


class Disk:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.steps_left: int | None = None
        self.watch: Callable[[], None] = lambda: None

    def under(self, directory: str) -> list[Entry]:
        top = directory.rstrip("/") + "/"
        return sorted(Entry(path[len(top) :], len(it)) for path, it in self.files.items() if path.startswith(top))

    def exists(self, path: str) -> bool:
        return path in self.files or bool(self.under(path))

    def read(self, path: str) -> bytes:
        return self.files[path]

    def write(self, path: str, content: bytes) -> None:
        self._step()
        assert path not in self.files
        self.files[path] = content
        self.watch()

    def rename(self, source: str, target: str) -> None:
        self._step()
        assert target not in self.files
        self.files[target] = self.files.pop(source)
        self.watch()

    def remove(self, path: str) -> None:
        """File by file, as object stores do: it may stop anywhere."""
        for name in [name for name in self.files if name == path or name.startswith(path + "/")]:
            self._step()
            del self.files[name]
            self.watch()

    def _step(self) -> None:
        if self.steps_left is not None:
            if not self.steps_left:
                raise Crash
            self.steps_left -= 1
