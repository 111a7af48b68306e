"""A file system in memory that a test can stop at any step, and watch after each, and whose power may fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import PurePosixPath

from kafkad_etl.driver.paths import Entry, join


class Crash(Exception):
    """The process is gone; what was done stays."""


class Disk:
    def __init__(self, *, exchanges: bool = True) -> None:
        self.exchanges = exchanges
        self.files: dict[str, bytes] = {}
        self.steps_left: int | None = None
        self.watch: Callable[[], None] = lambda: None
        self._kept: dict[str, bytes] = {}

    def under(self, directory: str) -> list[Entry]:
        top = directory.rstrip("/") + "/"
        return sorted(Entry(path[len(top) :], len(it)) for path, it in self.files.items() if path.startswith(top))

    def exists(self, path: str) -> bool:
        return path in self.files or bool(self.under(path))

    def read(self, path: str) -> bytes:
        return self.files[path]

    def write(self, path: str, content: bytes) -> None:
        self.spill(path, content)
        self._kept[path] = content

    def spill(self, path: str, content: bytes) -> None:
        """As programs write that leave it to the system when it reaches the disk."""
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

    def sync(self, directory: str, names: Iterable[str] = ()) -> None:
        paths = [join(directory, name) for name in names]
        self._kept |= {path: self.files[path] for path in paths}
        synced = {directory, *(str(above) for path in paths for above in PurePosixPath(path).parents)}
        for path in [path for path in self._kept if path not in self.files]:
            if any(self._is_gone_from(above, path) for above in synced):
                del self._kept[path]

    def only_files(self, directory: str) -> list[str] | None:
        names = [entry.path for entry in self.under(directory)]
        return None if not self.exchanges or any("/" in name for name in names) else names

    def link(self, source: str, target: str) -> None:
        self._step()
        assert target not in self.files
        self.files[target] = self.files[source]
        self.watch()

    def exchange(self, one: str, other: str) -> None:
        self._step()
        names = {f"{one}/": f"{other}/", f"{other}/": f"{one}/"}
        self.files = {_renamed(path, names): content for path, content in self.files.items()}
        self.watch()

    def exclusive(self, directory: str) -> AbstractContextManager[None]:
        return nullcontext()

    def lose_power(self) -> None:
        """Goes back to the state that was last synced: unsynced files are gone, and unsynced removals undone."""
        self.files = dict(self._kept)

    def _is_gone_from(self, directory: str, path: str) -> bool:
        top = directory.rstrip("/") + "/"
        return path.startswith(top) and not self.exists(top + path[len(top) :].partition("/")[0])

    def _step(self) -> None:
        if self.steps_left is not None:
            if not self.steps_left:
                raise Crash
            self.steps_left -= 1


def _renamed(path: str, names: dict[str, str]) -> str:
    return next((to + path.removeprefix(name) for name, to in names.items() if path.startswith(name)), path)
