"""A PostgreSQL of a test's own. It refuses to run as root, so that root runs it as somebody else."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self


def binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    if found:
        return found[-1].parent
    there = shutil.which("initdb")
    return Path(there).parent if there else None


def missing() -> str:
    return "" if binaries() else "PostgreSQL is not installed: apt-get install postgresql"


class Postgres:
    def __init__(self, directory: Path) -> None:
        self._bin = binaries()
        self._directory = Path("/tmp") / f"kafkad-postgres-{os.getpid()}" if os.getuid() == 0 else directory
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    def sql(self, text: str) -> str:
        """The lines of its last result, with | between columns."""
        done = self._run("psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-qAtc", text)
        return done.stdout.strip()

    def __enter__(self) -> Self:
        self._directory.mkdir(exist_ok=True)
        if os.getuid() == 0:
            shutil.chown(self._directory, self._user())
        data = self._directory / "data"
        self._run("initdb", "-D", str(data), "-A", "trust", "-U", "postgres", "--no-sync")
        options = f"-p {self.port} -h 127.0.0.1 -k {self._directory} -F"
        self._run("pg_ctl", "-D", str(data), "-w", "-l", str(self._directory / "log"), "-o", options, "start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run("pg_ctl", "-D", str(self._directory / "data"), "-m", "immediate", "-w", "stop")
        shutil.rmtree(self._directory)

    def crash(self) -> None:
        """It starts again and recovers."""
        log = str(self._directory / "log")
        self._run("pg_ctl", "-D", str(self._directory / "data"), "-m", "immediate", "-w", "-l", log, "restart")

    def _run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        assert self._bin is not None
        return subprocess.run(
            [str(self._bin / program), *words],
            check=True,
            text=True,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            cwd="/",
            user=self._user() if os.getuid() == 0 else None,
        )

    @staticmethod
    def _user() -> str:
        names = {entry.pw_name for entry in pwd.getpwall()}
        return "postgres" if "postgres" in names else "nobody"
