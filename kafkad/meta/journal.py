"""The file under the embedded metadata store: frames, each with its checksum, each on disk before `append` returns.

Beyond its end the file has some more room on the disk. So changes of metadata go on when others have filled the disk:
making room takes some, such as a shorter retention or the deletion of a topic. While the file `is_short` of that room,
nothing should be written that can wait.

The first frame is a snapshot and was complete before the file got its name, so it cannot be torn. A bad frame with no
good one after it is a write that a crash interrupted: nobody was told of it, and it is cut off. A bad frame anywhere
else is damage: `open` refuses the file and leaves it as it is.

Who has the journal open has locked it, and what is cut, removed or renamed is locked first. The files take each other's
names: so a lock counts only if the file still has its name then. Synchronous; the caller chooses the thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from struct import Struct
from zlib import crc32

from kafkad.linux import allocate
from kafkad.opening import open_at_once

MAGIC = b"kafkad metadata 1\n"
_MARK = b"\xf0KdM"
_FRAME = Struct("<4sII")
"""mark, size of the payload, CRC-32 of the size and the payload"""
_SIZE = Struct("<I")

_RESERVE = 1 << 20
"""Bytes beyond the end of the file, room for thousands of changes; as many as the snapshot has where that is more, so
that all partitions can leave their ISRs on a full disk. Restored when half of it is used."""
_LEAST_RESERVE = 4 << 10
_BLOCK = 512
"""Of `st_blocks`, on every file system."""

Sync = Callable[[int], None]


class JournalError(Exception):
    """The journal cannot be opened. The message names the file and says what to do."""


class Journal:
    """An open journal; `size` is where the next frame goes, `snapshot_size` where the first one ends.

    After a failed fsync nothing can be known of the file any more, and it refuses all writes.
    """

    def __init__(self, path: str, fd: int, size: int, sync: Sync) -> None:
        self.path = path
        self.size = size
        self.snapshot_size = size
        self.is_short = False
        """The disk has no room to restore what the file had beyond its end, of which less than half is left; or it
        does not say."""
        self.unknown_room: Exception | None = None
        """Why it does not say."""
        self._fd = fd
        self._sync = sync
        self._broken: OSError | None = None

    @classmethod
    def create(cls, path: str, snapshot: bytes, sync: Sync = os.fdatasync) -> Journal:
        """Writes the first frame beside `path`, then gives it the name: there is never half a journal under `path`.
        Raises JournalError where there is one by then, or another process is about to make one."""
        journal = cls(path, *_write_beside(path, snapshot, sync, is_first=True), sync)
        sync_directory(os.path.dirname(path), sync)
        journal._keep_room(is_new=True)
        return journal

    @classmethod
    def open(cls, path: str, replay: Callable[[bytes], None], sync: Sync = os.fdatasync) -> Journal:
        """The journal at `path` after `replay` of each of its frames; a torn end is cut off."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            _lock(fd, path)
            content = _read_all(fd)
            good = snapshot_size = len(MAGIC)
            for at, payload in _frames(path, content):
                _replay(path, at, payload, replay)
                good = at + _FRAME.size + len(payload)
                if at == len(MAGIC):
                    snapshot_size = good
            if good < len(content):
                os.ftruncate(fd, good)
                sync(fd)
        except BaseException:
            os.close(fd)
            raise
        journal = cls(path, fd, good, sync)
        journal.snapshot_size = snapshot_size
        journal.look_for_room()
        return journal

    @property
    def is_broken(self) -> bool:
        return self._broken is not None

    def append(self, payload: bytes) -> None:
        """On disk when it returns. If it raises OSError, the frame is not in it, or all later ones are refused."""
        if self._broken is not None:
            raise self._broken
        try:
            written = _write(self._fd, self.size, _frame(payload))
        except OSError:
            self._cut()
            raise
        try:
            self._sync(self._fd)
        except OSError as e:
            self._broken = e
            self._cut()
            raise
        self.size += written
        self.look_for_room()

    def replace(self, snapshot: bytes) -> None:
        """Puts a file with this one frame in the journal's place. After an OSError all is as before, or refused."""
        if self._broken is not None:
            raise self._broken
        with _directory(os.path.dirname(self.path)) as directory:
            fd, size = _write_beside(self.path, snapshot, self._sync, is_first=False)
            old, self._fd = self._fd, fd
            self.size = self.snapshot_size = size
            with contextlib.suppress(OSError):  # it has no name any more
                os.close(old)
            try:
                self._sync(directory)
            except OSError as e:
                self._broken = e
                raise
        self._keep_room(is_new=True)

    def look_for_room(self) -> None:
        """Restores the room beyond the end of the file, if half of it is used. It raises nothing."""
        self._keep_room(is_new=False)

    def close(self) -> None:
        os.close(self._fd)

    def _keep_room(self, *, is_new: bool) -> None:
        """What goes wrong here must not be taken for a write that was refused: what was written stays. XFS gives
        growing files blocks beyond their end and may take those back, so `st_blocks` of a new file proves nothing."""
        try:
            self.is_short = (is_new or not self._has_half()) and not self._reserve()
            self.unknown_room = None
        except Exception as error:
            self.is_short = True
            self.unknown_room = error

    def _has_half(self) -> bool:
        return os.fstat(self._fd).st_blocks * _BLOCK - self.size >= self._wanted_reserve // 2

    def _reserve(self) -> bool:
        """As far as the file system has room, and can do it. False if there is less than half."""
        enough = self._wanted_reserve // 2
        size = 2 * enough
        while not allocate(self._fd, self.size, size) and size > _LEAST_RESERVE:
            size //= 2
        return size >= enough or _room(self._fd) >= enough

    @property
    def _wanted_reserve(self) -> int:
        return max(_RESERVE, self.snapshot_size)

    def _cut(self) -> None:
        """The room beyond the end goes as well, and is asked for again."""
        try:
            os.ftruncate(self._fd, self.size)
            self.look_for_room()
        except OSError as e:
            self._broken = e


def read(path: str, replay: Callable[[bytes], None]) -> None:
    """`replay` of each frame of a journal that another process may have open: nothing is locked and nothing changed. A
    frame that is being written just now is left out."""
    fd = open_at_once(path, os.O_RDONLY)
    try:
        content = _read_all(fd)
    finally:
        os.close(fd)
    for at, payload in _frames(path, content):
        _replay(path, at, payload, replay)


def _room(fd: int) -> int:
    """Bytes that the file system has for anybody."""
    found = os.fstatvfs(fd)
    return found.f_bavail * found.f_frsize


def _write_beside(path: str, snapshot: bytes, sync: Sync, *, is_first: bool) -> tuple[int, int]:
    """A new file with one frame, on disk and then renamed to `path`: its descriptor and size. Who has it locked under
    its first name is the only one who can make a journal: so where there is none by then, `is_first` replaces none."""
    new = path + ".new"
    fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(fd, new)
        try:
            if is_first and os.path.exists(path):
                raise JournalError(f"{path} has just been made by another process, most likely another kafkad")
            os.ftruncate(fd, 0)
            size = _write(fd, 0, MAGIC + _frame(snapshot))
            sync(fd)
            os.rename(new, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(new)
            raise
    except BaseException:
        os.close(fd)
        raise
    return fd, size


def _frame(payload: bytes) -> bytes:
    return _FRAME.pack(_MARK, len(payload), crc32(payload, crc32(_SIZE.pack(len(payload))))) + payload


def _frame_at(content: bytes, at: int) -> bytes | None:
    """The payload of a good frame at `at`."""
    if len(content) - at < _FRAME.size:
        return None
    mark, size, crc = _FRAME.unpack_from(content, at)
    start = at + _FRAME.size
    if mark != _MARK or start + size > len(content):
        return None
    payload = content[start : start + size]
    return payload if crc32(payload, crc32(_SIZE.pack(size))) == crc else None


def _frames(path: str, content: bytes) -> Iterator[tuple[int, bytes]]:
    if not content.startswith(MAGIC):
        raise JournalError(f"{path} is not a kafkad metadata journal, or its first bytes are damaged. {_ADVICE}")
    at = len(MAGIC)
    first = True
    while at < len(content):
        payload = _frame_at(content, at)
        if payload is None:
            if first or _good_frame_after(content, at):
                raise JournalError(f"{path} is damaged at byte {at} of {len(content)}. {_ADVICE}")
            return
        yield at, payload
        first = False
        at += _FRAME.size + len(payload)
    if first:
        raise JournalError(f"{path} ends after its first line. {_ADVICE}")


_ADVICE = "It was left as it is; put back a copy of it, or move it away to start from what the log directories hold"


def _good_frame_after(content: bytes, at: int) -> bool:
    at = content.find(_MARK, at + 1)
    while at >= 0:
        if _frame_at(content, at) is not None:
            return True
        at = content.find(_MARK, at + 1)
    return False


def _replay(path: str, at: int, payload: bytes, replay: Callable[[bytes], None]) -> None:
    try:
        replay(payload)
    except Exception as e:
        raise JournalError(f"{path}: the frame at byte {at} does not fit what comes before it: {e!r}. {_ADVICE}") from e


def _write(fd: int, at: int, content: bytes) -> int:
    view = memoryview(content)
    done = 0
    while done < len(view):
        done += os.pwrite(fd, view[done:], at + done)
    return done


def _read_all(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    parts = []
    at = 0
    while at < size:
        part = os.pread(fd, size - at, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _lock(fd: int, path: str) -> None:
    """JournalError if another process has locked the file, or has given its name to another one meanwhile."""
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.stat(path)):
            return
    raise JournalError(f"{path} is in use by another process, most likely another kafkad")


def sync_directory(path: str, sync: Sync) -> None:
    """Puts the names in a directory on the disk."""
    with _directory(path) as directory:
        sync(directory)


@contextlib.contextmanager
def _directory(path: str) -> Iterator[int]:
    fd = os.open(path or ".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
