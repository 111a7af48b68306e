"""A systemd that runs here as the first process of namespaces of its own, over this machine's files.

What it changes there is never seen outside: the root is an overlay in memory. It needs root, and the network is the
machine's.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

SYSTEMD = Path("/lib/systemd/systemd")
BOOT_SECONDS = 60.0

_APART = ("--mount", "--pid", "--ipc", "--uts", "--cgroup", "--fork", "--kill-child")
_GROUPS = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/cgroup.procs")
"""Control groups that systemd can use, of either version."""
_BOOT = """
set -e
mount --make-rprivate /
mount -t tmpfs none {work}
mkdir {work}/upper {work}/work {work}/tree
mount -t overlay overlay -o lowerdir=/,upperdir={work}/upper,workdir={work}/work {work}/tree
cd {work}/tree
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs none run
mount -t tmpfs none tmp
rm -f etc/systemd/system/*.wants/*
mkdir -p run/outside
pivot_root . run/outside
umount -l /run/outside
exec /usr/bin/env -i container=tests PATH=/usr/sbin:/usr/bin:/sbin:/bin {systemd} --unit=basic.target
"""


def why_not() -> str:
    """The reason why none can be started here; empty if one can be."""
    missing = [name for name in ("unshare", "nsenter", "setpriv", "systemctl") if shutil.which(name) is None]
    if missing or not SYSTEMD.exists():
        return f"{', '.join(missing) or SYSTEMD} is missing"
    tried = ["unshare", *_APART, "sh", "-c", f"mount -t tmpfs none /mnt && ls -d {' '.join(_GROUPS)} | grep -q ."]
    done = subprocess.run(tried, capture_output=True, text=True, check=False)
    return f"no namespaces or control groups here: {done.stderr.strip()}" if done.returncode else ""


class Booted:
    """A context manager."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "boot.log"
        work = directory / "work"
        work.mkdir()
        boot = _BOOT.format(work=work, systemd=SYSTEMD)
        self._words = ["setpriv", "--pdeathsig", "KILL", "unshare", *_APART, "sh", "-c", boot]  # ends with the tests

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(self._words, stdout=log, stderr=log)
        try:
            wait_until(lambda: self.tell("is-active", "basic.target") == "active", BOOT_SECONDS, self._log.read_text)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def root(self) -> Path:
        """The files as they are inside."""
        return Path(f"/proc/{self._first}/root")

    @property
    def _first(self) -> int:
        assert self._process.poll() is None, self._log.read_text()
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else pid

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        inside = ["nsenter", "-t", str(self._first), "-m", "-p", "-i", "-u", "-C", "-r", "-w", *words]
        return subprocess.run(inside, capture_output=True, text=True, check=False)

    def tell(self, *words: str) -> str:
        """What systemctl prints."""
        return self.run("systemctl", *words).stdout.strip()

    def shown(self, unit: str, name: str) -> str:
        return self.tell("show", "--value", "-p", name, unit)

    def add(self, files: dict[str, str]) -> None:
        """Writes files, by their path inside; those in a bin directory may be executed."""
        for name, text in files.items():
            path = self.root / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755 if path.parent.name == "bin" else 0o644)
        self.tell("daemon-reload")


def wait_until(holds: Callable[[], bool], seconds: float, told: Callable[[], str] = str) -> None:
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit, told()
        time.sleep(0.1)
