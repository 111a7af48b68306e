"""The history of a job's runs: a file of JSON lines in the state directory, two for each run: its begin and its end.

A line is one write, so a run that is killed leaves a whole line or none. Lines that cannot be read are named and
skipped. Only runs of the same job write to the file, several at once at worst, and they lock it while they do.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from kafkad_etl.checkpoint.checkpoints import state_directory

SUFFIX = ".runs.jsonl"
LARGE = 1 << 20
"""A file of this size is cut to half of it, of its newest runs."""

Result = str
"""done, nothing new, limit, interrupted, failed, or refused: nothing was started."""


class RunBegan(Struct, frozen=True, kw_only=True, tag="began"):
    run: str
    job: str
    began_ms: int
    mode: str
    host: str
    pid: int
    lock: str
    """The path of the job's lock, which tells whether the run is still going on."""


class RunEnded(Struct, frozen=True, kw_only=True, tag="ended"):
    run: str
    job: str
    began_ms: int
    ended_ms: int
    mode: str
    result: Result
    code: int
    """The exit code."""
    rows_read: int = 0
    rows_written: int = 0
    bad: int = 0
    late: int = 0
    duplicates: int = 0
    lost: int = 0
    """Records that were deleted before they were read."""
    batches: int = 0
    files: int = 0
    bytes_written: int = 0
    lag: int | None = None
    """Records not read yet; None if the run did not get as far as to know."""
    error: str = ""

    @property
    def seconds(self) -> float:
        return (self.ended_ms - self.began_ms) / 1000


class Run(NamedTuple):
    """A run: at least one of both."""

    began: RunBegan | None
    ended: RunEnded | None

    @property
    def began_ms(self) -> int:
        known = self.began or self.ended
        assert known is not None
        return known.began_ms


class Damage(NamedTuple):
    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line} is damaged and was skipped"


def history_of(job: str, environment: Mapping[str, str]) -> History:
    return History(state_directory(environment) / "logs" / f"{job}{SUFFIX}")


def histories(environment: Mapping[str, str]) -> list[History]:
    """All jobs' that have one."""
    return [History(path) for path in sorted((state_directory(environment) / "logs").glob(f"*{SUFFIX}"))]


class History:
    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, line: RunBegan | RunEnded) -> None:
        """Appends a line, and first cuts a large file. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked() as file:
            size = os.fstat(file).st_size
            torn = size and os.pread(file, 1, size - 1) != b"\n"
            _write(file, b"\n" * bool(torn) + _line(line))
            if size > LARGE:
                self._cut()

    def runs(self) -> tuple[list[Run], list[Damage]]:
        """All runs, by their beginning."""
        found: dict[str, Run] = {}
        damages = []
        for number, text in enumerate(self._text().splitlines(), 1):
            try:
                line = msgspec.json.decode(text, type=RunBegan | RunEnded) if text else None
            except (msgspec.MsgspecError, UnicodeDecodeError):
                damages.append(Damage(self.path, number))
                continue
            if line is not None:
                began, ended = found.get(line.run, (None, None))
                found[line.run] = Run(line, ended) if isinstance(line, RunBegan) else Run(began, line)
        return sorted(found.values(), key=lambda run: run.began_ms), damages

    def _text(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The open file, locked; opened again if another run has put a shorter one in its place meanwhile."""
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if _is_at(file, self.path):
                    yield file
                    return
            finally:
                os.close(file)

    def _cut(self) -> None:
        fresh = self.path.with_name(f".{self.path.name}.new")
        with fresh.open("wb") as file:
            for run in kept(self.runs()[0], LARGE // 2):
                file.write(_text_of(run))
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(self.path)


def kept(runs: list[Run], most: int) -> list[Run]:
    """The newest runs, of at most this many bytes, and the newest one that was successful."""
    size, first = 0, len(runs)
    while first and (size := size + len(_text_of(runs[first - 1]))) <= most:
        first -= 1
    success = last_success(runs)
    newest = runs[first:]
    return newest if success is None or success in newest else [success, *newest]


def last_success(runs: list[Run]) -> Run | None:
    return next((run for run in reversed(runs) if run.ended and run.ended.code == 0), None)


def _text_of(run: Run) -> bytes:
    return b"".join(_line(line) for line in run if line is not None)


def _line(line: RunBegan | RunEnded) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def _write(file: int, text: bytes) -> None:
    """In one piece, or not at all: what a full disk left of it is taken back."""
    before = os.fstat(file).st_size
    written = os.write(file, text)
    if written < len(text):
        os.ftruncate(file, before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False
