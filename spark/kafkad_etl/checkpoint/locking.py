"""Lock that keeps a job from running twice: a file beside its checkpoint, held by the front for the whole run."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from kafkad_etl.checkpoint.checkpoints import written
from kafkad_etl.errors import EtlError, EtlExit

_TRIES = 5
_PAUSE_SECONDS = 0.02


class Holder(Struct, frozen=True):
    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"

    @property
    def is_gone(self) -> bool:
        """True if the process is no longer there. What it has started, and has inherited the lock, may be."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # it is another user's
        return False

    @property
    def standing(self) -> str:
        """The holder of a lock that is held."""
        return f"{self}; it was killed, and its Spark ends after its batch" if self.is_gone else str(self)


class Lock:
    """A file lock that the kernel releases when its holder dies; the file's content is only for people.

    `left` is the last holder if it never released the lock: it was killed, or its machine went down.
    """

    def __init__(self, path: Path, since: str = "", sleep: Callable[[float], None] = time.sleep) -> None:
        """`since` defaults to now."""
        self._sleep = sleep
        self._path = path
        self._me = Holder(socket.gethostname(), os.getpid(), since or time.strftime("%Y-%m-%dT%H:%M:%S%z"))
        self._file: int | None = None
        self.left: Holder | None = None

    def __enter__(self) -> Self:
        with written(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            with written(self._path):
                self._take(self._file)
        except BaseException:
            self._close()
            raise
        return self

    def _take(self, file: int) -> None:
        if not self._locked(file):
            raise self._taken()
        self.left = holder(self._path)
        self._write(msgspec.json.encode(self._me))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # the next run takes this one for killed
            self._write(b"")
        self._close()

    def fileno(self) -> int:
        """The file descriptor; a process that inherits it also holds the lock as long as it lives."""
        assert self._file is not None  # entered
        return self._file

    def _locked(self, file: int) -> bool:
        """Retries briefly, since `is_running` takes the lock for an instant."""
        for _ in range(_TRIES):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except (BlockingIOError, PermissionError):
                self._sleep(_PAUSE_SECONDS)
        return False

    def _taken(self) -> EtlError:
        who = holder(self._path)
        what = f"another run of this job is in progress{f': {who.standing}' if who else ''}"
        how = f"; fuser -v {self._path} shows its processes" if who and who.is_gone else ", or stop it"
        hints = (f"the lock is {self._path}", f"wait for it to finish{how}")
        return EtlError(what, EtlExit.CHECKPOINT, hints=hints)

    def _write(self, text: bytes) -> None:
        assert self._file is not None  # entered
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, text, 0)

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def holder(path: Path) -> Holder | None:
    """The holder named in the file, if any."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def is_running(path: Path) -> Holder | None:
    """The current holder, if any. A file that names a dead process does not count."""
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return holder(path)
    finally:
        os.close(file)
    return None
