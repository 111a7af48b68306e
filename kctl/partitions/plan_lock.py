"""One kctl at a time works on a plan: what it has read of the plan and its throttle, no other changes meanwhile."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kctl.errors import Exit, KctlError


@contextmanager
def held(plan: str) -> Iterator[None]:
    """The lock of the plan's file, which ends with the process at the latest; KctlError REFUSED if another kctl has it.
    What is no file, as a pipe, or is not there yet cannot be shared, and has none."""
    if not os.path.isfile(plan):
        yield
        return
    # NFS locks only what may be written.
    fd = os.open(plan, os.O_RDWR if os.access(plan, os.W_OK) else os.O_RDONLY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _at_work(plan, _holder_of(fd)) from None
        yield
    finally:
        os.close(fd)


def _at_work(plan: str, pid: int | None) -> KctlError:
    who, how = ("another kctl", "Ctrl-C") if pid is None else (f"another kctl, process {pid},", f"kill {pid}")
    hint = f"wait for it, or end it with {how}: what moves goes on moving, for another run to resume"
    return KctlError(f"{who} is at work on {plan}", exit_code=Exit.REFUSED, hints=(hint,))


def _holder_of(fd: int) -> int | None:
    try:
        with open("/proc/locks", encoding="ascii") as file:
            return holder(file, os.fstat(fd))
    except OSError:
        return None


def holder(locks: Iterable[str], status: os.stat_result) -> int | None:
    """The process that has locked a file, out of the lines of /proc/locks; None where the kernel does not tell: the
    process is of another host or container, or the file system counts its files in another way."""
    where = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in locks:
        match line.split():
            case [_, "FLOCK", _, _, pid, file, *_] if file == where and int(pid) > 0:
                return int(pid)
    return None
