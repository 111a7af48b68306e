"""Directories and files accessed through Hadoop's FileSystem: the driver's own disk, HDFS and object stores."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

ATOMIC_RENAME = frozenset({"file", "hdfs", "viewfs", "abfs", "abfss", "webhdfs"})


class Entry(NamedTuple):
    path: str
    """Relative to the directory that was listed."""
    size: int


class Files(Protocol):
    """File operations. Paths are absolute, with or without a scheme."""

    def under(self, directory: str) -> list[Entry]:
        """All files below the directory, sorted; none if it does not exist."""

    def exists(self, path: str) -> bool: ...
    def read(self, path: str) -> bytes: ...

    def write(self, path: str, content: bytes) -> None:
        """Writes a new file completely or not at all, and syncs it."""

    def sync(self, directory: str, names: Iterable[str] = ()) -> None:
        """Syncs these files, their directories and those above on local disks, so that they survive a power failure."""

    def rename(self, source: str, target: str) -> None:
        """Renames to an unused name, creating the directories above it."""

    def remove(self, path: str) -> None:
        """Removes a path with everything below it, if it exists."""

    def only_files(self, directory: str) -> list[str] | None:
        """The names of all files, hidden ones included; None if there are subdirectories, or the file system does
        not support `exchange`."""

    def link(self, source: str, target: str) -> None:
        """Creates a hard link. Raises OSError if the file system does not support it."""

    def exchange(self, one: str, other: str) -> None:
        """Exchanges two directories atomically. Raises OSError, with nothing changed, if that is impossible."""

    def exclusive(self, directory: str) -> AbstractContextManager[None]:
        """Holds a lock that prevents others from exchanging directories below it."""


def join(directory: str, name: str) -> str:
    return f"{directory.rstrip('/')}/{name}" if name else directory


def parent_and_name(path: str) -> tuple[str, str]:
    parent, _, name = path.rstrip("/").rpartition("/")
    return parent or "/", name


def hidden(relative: str) -> bool:
    """True if Spark, Hive and others ignore the file because of a name anywhere below the table's directory."""
    return any(part.startswith(("_", ".")) for part in relative.split("/"))


class HadoopFiles:
    """Files through Hadoop. On local disks there are no checksum files, since a rename would leave them behind."""

    def __init__(self, spark: Any, path: str) -> None:
        self._jvm = spark._jvm
        self._path = spark._jvm.org.apache.hadoop.fs.Path
        self._configuration = spark._jsc.hadoopConfiguration()
        found = self._path(path).getFileSystem(self._configuration)
        self.scheme: str = found.getScheme()
        self._system = found.getRaw() if self.scheme == "file" else found

    def absolute(self, path: str) -> str:
        """The path with its scheme, as the file system itself writes it."""
        return str(self._system.makeQualified(self._path(path)).toString())

    def under(self, directory: str) -> list[Entry]:
        if not self.exists(directory):
            return []
        top = self.absolute(directory).rstrip("/") + "/"
        found = []
        files = self._system.listFiles(self._path(directory), True)
        while files.hasNext():
            status = files.next()
            found.append(Entry(str(status.getPath().toString()).removeprefix(top), int(status.getLen())))
        return sorted(found)

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._path(path)))

    def read(self, path: str) -> bytes:
        stream = self._system.open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, path: str, content: bytes) -> None:
        parent, name = parent_and_name(path)
        unfinished = join(parent, f".{name}.tmp")
        stream = self._system.create(self._path(unfinished), True)
        try:
            stream.write(content)
        finally:
            stream.close()
        self.sync(parent, [f".{name}.tmp"])
        self.rename(unfinished, path)
        self.sync(parent, [name])

    def sync(self, directory: str, names: Iterable[str] = ()) -> None:
        if self.scheme != "file":
            return
        top = Path(self._local(directory))
        files = [top / name for name in names]
        for file in files:
            _sync(file)
        for path in {top, *top.parents, *(parent for file in files for parent in file.parents)}:
            with suppress(FileNotFoundError, PermissionError):  # directories above ours may be closed to us
                _sync(path)

    def rename(self, source: str, target: str) -> None:
        self._system.mkdirs(self._path(parent_and_name(target)[0]))
        if self.scheme == "file":
            os.rename(self._local(source), self._local(target))  # Hadoop's copies, where it cannot rename
        elif not self._system.rename(self._path(source), self._path(target)):
            raise OSError(f"{source} cannot be renamed to {target}")

    def remove(self, path: str) -> None:
        self._system.delete(self._path(path), True)

    def remove_if_empty(self, directory: str) -> None:
        if self.exists(directory) and not len(self._system.listStatus(self._path(directory))):
            self._system.delete(self._path(directory), False)

    def only_files(self, directory: str) -> list[str] | None:
        if self.scheme != "file":
            return None
        with os.scandir(self._local(directory)) as entries:
            found = list(entries)
        return None if any(each.is_dir() for each in found) else sorted(each.name for each in found)

    def link(self, source: str, target: str) -> None:
        os.link(self._local(source), self._local(target), follow_symlinks=False)

    def exchange(self, one: str, other: str) -> None:
        exchange(os.path.realpath(self._local(one)), os.path.realpath(self._local(other)))

    def exclusive(self, directory: str) -> AbstractContextManager[None]:
        return locked(parent_and_name(self._local(directory))[0]) if self.scheme == "file" else nullcontext()

    def free_bytes(self, path: str) -> int:
        return int(self._system.getStatus(self._path(path)).getRemaining())

    def on_one_device(self, one: str, other: str) -> bool:
        """True if files can be renamed from one of two existing directories to the other."""
        if self.scheme != "file":
            return True
        return os.stat(self._local(one)).st_dev == os.stat(self._local(other)).st_dev

    def make(self, directory: str) -> None:
        self._system.mkdirs(self._path(directory))

    def _local(self, path: str) -> str:
        return str(self._path(path).toUri().getPath())


_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def exchange(one: str, other: str) -> None:
    """Exchanges two directories on one disk with Linux's system call, after giving `one` the owner and mode of
    `other`."""
    shutil.copystat(other, one)
    owner = os.stat(other)
    if (owner.st_uid, owner.st_gid) != (os.stat(one).st_uid, os.stat(one).st_gid):
        os.chown(one, owner.st_uid, owner.st_gid)
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, "this system cannot exchange directories")
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), one, None, other)


@contextmanager
def locked(directory: str) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
