"""Directories and files: on the driver's own disk, or through Hadoop's FileSystem in HDFS and object stores."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kafkad_etl.facts import local_path
from kafkad_etl.syncing import sync

MOST_REMOVALS = 10
"""How often a directory is removed to which others still write."""
CHANGED_MEANWHILE = frozenset({errno.ENOENT, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR})
"""Errors of a removal that say that somebody else was at it."""
ATOMIC_RENAME = frozenset({"file", "hdfs", "viewfs", "abfs", "abfss", "webhdfs"})


class Entry(NamedTuple):
    path: str
    """Relative to the directory that was listed."""
    size: int


class Files(Protocol):
    """File operations. Paths are absolute, with or without a scheme."""

    def under(self, directory: str) -> list[Entry]:
        """All files below the directory, sorted; none if it does not exist. Links to directories below it are left out,
        and what is in them."""

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


class Storage(Files, Protocol):
    """The file system of one path, of which more can be asked."""

    @property
    def scheme(self) -> str: ...

    def absolute(self, path: str) -> str:
        """The path with its scheme, as Hadoop writes it."""

    def make(self, directory: str) -> None: ...
    def remove_if_empty(self, directory: str) -> None: ...
    def free_bytes(self, path: str) -> int: ...

    def on_one_device(self, one: str, other: str) -> bool:
        """True if files can be renamed from one of two existing directories to the other."""


def storage_of(spark: Any, path: str) -> Storage:
    """The file system that has the path."""
    jvm, configuration = spark._jvm, spark._jsc.hadoopConfiguration()
    system = jvm.org.apache.hadoop.fs.Path(path).getFileSystem(configuration)
    if system.getScheme() != "file":
        return HadoopFiles(jvm, system)
    return LocalFiles(lambda path: str(system.makeQualified(jvm.org.apache.hadoop.fs.Path(path)).toString()))


class LocalFiles:
    """Files of this machine, without Hadoop: it starts a process for each file that it makes or lists."""

    scheme = "file"

    def __init__(self, absolute: Callable[[str], str]) -> None:
        self.absolute = absolute

    def under(self, directory: str) -> list[Entry]:
        """What vanishes meanwhile is left out; for what cannot be listed there is an OSError: it may not be empty."""
        top = local_path(directory)
        if os.path.isfile(top):
            return [Entry(os.path.basename(top), os.stat(top).st_size)]
        found = []
        for path, _, names in os.walk(top, onerror=_unless_gone):
            for name in names:
                file = os.path.join(path, name)
                with suppress(FileNotFoundError):
                    found.append(Entry(os.path.relpath(file, top), os.stat(file).st_size))
        return sorted(found)

    def exists(self, path: str) -> bool:
        return os.path.exists(local_path(path))

    def read(self, path: str) -> bytes:
        return Path(local_path(path)).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        parent, name = parent_and_name(path)
        self.make(parent)
        unfinished = join(parent, f".{name}.tmp")
        Path(local_path(unfinished)).write_bytes(content)
        self.sync(parent, [f".{name}.tmp"])
        self.rename(unfinished, path)
        self.sync(parent, [name])

    def sync(self, directory: str, names: Iterable[str] = ()) -> None:
        top = Path(local_path(directory))
        files = [top / name for name in names]
        for file in files:
            sync(file)
        for path in {top, *top.parents, *(parent for file in files for parent in file.parents)}:
            with suppress(FileNotFoundError, PermissionError):  # directories above ours may be closed to us
                sync(path)

    def rename(self, source: str, target: str) -> None:
        self.make(parent_and_name(target)[0])
        os.rename(local_path(source), local_path(target))

    def remove(self, path: str) -> None:
        """Tasks of a run that has been killed may still write there, and remove what they began."""
        local, left = local_path(path), MOST_REMOVALS
        while os.path.lexists(local):
            left -= 1
            try:
                if os.path.isdir(local) and not os.path.islink(local):
                    shutil.rmtree(local)
                else:
                    os.unlink(local)
            except OSError as error:
                if not left or error.errno not in CHANGED_MEANWHILE:
                    raise

    def remove_if_empty(self, directory: str) -> None:
        with suppress(OSError):
            os.rmdir(local_path(directory))

    def only_files(self, directory: str) -> list[str] | None:
        with os.scandir(local_path(directory)) as entries:
            found = list(entries)
        return None if any(each.is_dir() for each in found) else sorted(each.name for each in found)

    def link(self, source: str, target: str) -> None:
        os.link(local_path(source), local_path(target), follow_symlinks=False)

    def exchange(self, one: str, other: str) -> None:
        exchange(os.path.realpath(local_path(one)), os.path.realpath(local_path(other)))

    def exclusive(self, directory: str) -> AbstractContextManager[None]:
        return locked(parent_and_name(local_path(directory))[0])

    def free_bytes(self, path: str) -> int:
        local = os.path.abspath(local_path(path))
        while not os.path.exists(local):
            local = os.path.dirname(local)
        return shutil.disk_usage(local).free

    def on_one_device(self, one: str, other: str) -> bool:
        return os.stat(local_path(one)).st_dev == os.stat(local_path(other)).st_dev

    def make(self, directory: str) -> None:
        os.makedirs(local_path(directory), exist_ok=True)


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


class HadoopFiles:
    """Files through Hadoop."""

    def __init__(self, jvm: Any, system: Any) -> None:
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._system = system
        self.scheme: str = system.getScheme()

    def absolute(self, path: str) -> str:
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
        self.rename(unfinished, path)

    def sync(self, directory: str, names: Iterable[str] = ()) -> None:
        """Nothing to do: a file that is closed is there to stay."""

    def rename(self, source: str, target: str) -> None:
        self._system.mkdirs(self._path(parent_and_name(target)[0]))
        if not self._system.rename(self._path(source), self._path(target)):
            raise OSError(f"{source} cannot be renamed to {target}")

    def remove(self, path: str) -> None:
        self._system.delete(self._path(path), True)

    def remove_if_empty(self, directory: str) -> None:
        if self.exists(directory) and not len(self._system.listStatus(self._path(directory))):
            self._system.delete(self._path(directory), False)

    def only_files(self, directory: str) -> None:
        """Directories cannot be exchanged."""

    def link(self, source: str, target: str) -> None:
        raise OSError(errno.ENOTSUP, f"{self.scheme} has no hard links")

    def exchange(self, one: str, other: str) -> None:
        raise OSError(errno.ENOTSUP, f"{self.scheme} cannot exchange directories")

    def exclusive(self, directory: str) -> AbstractContextManager[None]:
        return nullcontext()

    def free_bytes(self, path: str) -> int:
        return int(self._system.getStatus(self._path(path)).getRemaining())

    def on_one_device(self, one: str, other: str) -> bool:
        return True

    def make(self, directory: str) -> None:
        self._system.mkdirs(self._path(directory))


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
