"""The file operations of the storage engine, in one place so that a test can hand it a disk that fails.

Reading and writing go straight to the os module: `Files.pwrite` is `os.pwrite`, at no cost. A disk's refusal is an
OSError here; the parts above turn it into a StorageError that names the log directory (`disk_errors`).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from kafkad import linux
from kafkad.directories import make_directories
from kafkad.errors import StorageError
from kafkad.refusals import failure

_PIECE = 32 << 10
_READ = 32 << 10
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_TOO_MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE})
_PASSING = _FULL | _TOO_MANY_FILES | {errno.EAGAIN}


Stamp = list[int]
"""See `Files.stamp`."""


class LogFile:
    """An open file that closes itself when its last user lets go.

    So a segment that is deleted while a slow consumer is being sent a part of it stays readable for that consumer.
    """

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def __del__(self) -> None:
        os.close(self.fd)


class Slice(NamedTuple):
    """Whole batches, as bytes of a file: `os.sendfile(socket, file.fd, position, length)`."""

    file: LogFile
    position: int
    length: int


def short_write() -> OSError:
    """The kernel took a part of what there was to write: that is how a full disk begins."""
    return OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} for all of it")


class Files:
    """The real disk."""

    opens = 0
    """The number of segment files opened so far, if it is counted."""

    open = staticmethod(os.open)
    pread = staticmethod(os.pread)
    preadv = staticmethod(os.preadv)
    pwrite = staticmethod(os.pwrite)
    truncate = staticmethod(os.ftruncate)
    rename = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    listdir = staticmethod(os.listdir)
    size = staticmethod(os.path.getsize)
    sync = staticmethod(os.fdatasync)
    """Thread-safe, and to be called from a thread: it waits for the disk. For a file that is thrown away if it fails;
    what stays has `sync_for_good`."""

    def sync_for_good(self, fd: int) -> None:
        """fsync of what stays. Thread-safe. Any error is final, even a full disk.

        The kernel drops what it could not write, and the next fsync would say that all is well.
        """
        try:
            self.sync(fd)
        except OSError as error:
            raise OSError(errno.EIO, f"what was written is lost: {error.strerror}") from error

    def list_files(self, path: str) -> list[str]:
        """The names in a directory of a partition, without those of directories that somebody has put there."""
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if not entry.is_dir()]

    def make_directories(self, path: str) -> None:
        """A directory and those above it, where they are missing, with names that are on the disk."""
        make_directories(path, self.mkdir, self.sync_directory)

    def set_times(self, path: str, times_ns: tuple[int, int]) -> None:
        """Sets the times at which the file was last read and last changed."""
        os.utime(path, ns=times_ns)

    def changed_ms(self, path: str) -> int:
        """The time at which its inode changed last: that of its renaming, for a directory that nobody uses."""
        return os.stat(path).st_ctime_ns // 1_000_000

    def stamp(self, path: str) -> Stamp:
        """Inode, time of the last change in ns, and size: together they change with every change of a file, or of the
        names in a directory. All zeros if there is nothing.
        """
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return [0, 0, 0]
        return [found.st_ino, found.st_ctime_ns, found.st_size]

    def opened(self, holder: Any) -> None:
        """`holder` keeps one file more open: see `open_files`."""

    def closing(self, holder: Any) -> None:
        """`holder` closes all that it keeps open."""

    def close_none(self) -> None:
        """Close no file any more of those that are kept open."""

    def open_log_file(self, path: str, flags: int = os.O_RDWR) -> LogFile:
        return LogFile(self.open(path, flags | os.O_CLOEXEC, 0o644))

    def read(self, path: str) -> bytes:
        """A whole small file; FileNotFoundError when it is not there."""
        fd = self.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = [self.pread(fd, _READ, 0)]
            while len(parts[-1]) == _READ:
                parts.append(self.pread(fd, _READ, len(parts) * _READ))
        finally:
            os.close(fd)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_to_hole(self, path: str) -> bytes:
        """The same without a hole that it may end in, which would be zeros: Kafka's indexes have one of 10 MB."""
        file = self.open_log_file(path, os.O_RDONLY)
        if not file.size:
            return b""
        end = os.lseek(file.fd, 0, os.SEEK_HOLE)
        with contextlib.suppress(OSError):  # nothing but the hole follows
            os.lseek(file.fd, end, os.SEEK_DATA)
            return self.read(path)
        return self.pread(file.fd, end, 0)

    def is_empty(self, path: str) -> bool:
        """True if there is a file, with nothing in it."""
        try:
            return self.size(path) == 0
        except FileNotFoundError:
            return False

    def write_all(self, fd: int, data: bytes | memoryview, at: int) -> None:
        """Everything or an OSError."""
        if self.pwrite(fd, data, at) != len(data):
            raise short_write()

    def read_in_pieces(self, fd: int, length: int, at: int) -> bytes:
        """As `pread`, in pieces: while it copies for one process, the kernel gives the processor to no other."""
        pieces = []
        end = at + length
        while at < end and (piece := self.pread(fd, min(_PIECE, end - at), at)):
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)

    def write_in_pieces(self, fd: int, data: bytes, at: int) -> None:
        """As `write_all`, for the reason of `read_in_pieces`."""
        view = memoryview(data)
        for begin in range(0, len(data), _PIECE):
            self.write_all(fd, view[begin : begin + _PIECE], at + begin)

    def write_file(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Put `data` in the place of `path` in one step: after a crash the old or the new content is there, whole.

        With `durable` the new one is on the disk when this returns; without, that is left to the caller (or to luck,
        where the content can be rebuilt). After an error that may pass the old one is there.
        """
        names = self.open_log_file(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY) if durable else None
        temporary = path + ".tmp"
        file = self.open_log_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            self.write_all(file.fd, data, 0)
        except OSError:
            with contextlib.suppress(OSError):
                self.unlink(temporary)
            raise
        if durable:
            self.sync(file.fd)
        self.rename(temporary, path)
        if names is not None:
            self.sync_for_good(names.fd)

    def sync_path(self, path: str) -> None:
        """fsync what is at `path` now; nothing when it has gone since."""
        with contextlib.suppress(FileNotFoundError):
            file = self.open_log_file(path, os.O_RDONLY)
            self.sync_for_good(file.fd)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable. Thread-safe."""
        file = self.open_log_file(path, os.O_RDONLY | os.O_DIRECTORY)
        self.sync_for_good(file.fd)

    def sync_names(self, path: str) -> None:
        """As `sync_directory`; nothing when it has gone since: the topic was deleted, or the replica has moved."""
        with contextlib.suppress(FileNotFoundError):
            self.sync_directory(path)

    def allocate(self, fd: int, at: int, length: int) -> bool:
        """Reserve blocks past the end of a file without growing it; False where the file system cannot."""
        return linux.allocate(fd, at, length)

    def begin_to_write_out(self, path: str) -> None:
        """Have the disk begin with what is dirty of a file, so that several fsyncs to come do not wait one by one."""
        file = self.open_log_file(path, os.O_RDONLY)
        linux.begin_to_write_out(file.fd)


@contextlib.contextmanager
def disk_errors(directory: str, doing: str) -> Iterator[None]:
    """Turn an OSError into a StorageError of the log directory that holds the partition's `directory`."""
    try:
        yield
    except OSError as error:
        raise storage_error(directory, doing, error) from error


@contextlib.contextmanager
def final_disk_errors(directory: str, doing: str) -> Iterator[None]:
    """As `disk_errors` behind the first step that cannot be taken back: no error of these passes (see `may_pass`)."""
    try:
        with disk_errors(directory, doing):
            yield
    except StorageError as error:
        raise StorageError(error.directory, str(error)) from None


def storage_error(directory: str, doing: str, error: OSError) -> StorageError:
    log_directory = os.path.dirname(directory)
    return StorageError(log_directory, failure(f"{doing} in {directory}", error, log_directory))


def may_pass(error: StorageError) -> bool:
    """A full disk, too many open files or no thread (EAGAIN): appends are refused as long as it lasts, and what is
    there stays readable.

    Only what leaves the log as it was may be refused so. An operation of several steps first does those that need room
    or open files, which can be taken back. Behind the first step that cannot, errors are final (`final_disk_errors`):
    the directory goes offline, and the next start finds or completes what was begun. What can be rebuilt from the log
    (indexes, epochs, snapshots) refuses nothing: `as_far_as_there_is_room`.

    A full disk that shows at an fsync is no such case: see `Files.sync_for_good`.
    """
    return _passes(error)


def lacks_room(error: StorageError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in _FULL


def lacks_open_files(error: StorageError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in _TOO_MANY_FILES


@contextlib.contextmanager
def as_far_as_there_is_room() -> Iterator[None]:
    """Write a file that can be rebuilt from the log: on a full disk, or with too many open files, do without."""
    try:
        yield
    except (OSError, StorageError) as error:
        if not _passes(error):
            raise


def _passes(error: OSError | StorageError) -> bool:
    cause = error.__cause__ if isinstance(error, StorageError) else error
    return isinstance(cause, OSError) and cause.errno in _PASSING
