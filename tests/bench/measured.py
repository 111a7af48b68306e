"""The machine as a bench needs it: the load generator, and a broker's CPU and memory as the kernel counts them."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

HERE = Path(__file__).parent
LONGEST_RUN_S = 300
OPEN_FILES = 65536
REPORTING = Path("/sys/module/page_reporting/parameters/page_reporting_order")
NEVER_REPORTED = 11
"""An order of pages that Linux does not have."""


def prepare() -> None:
    """Of a bench's own process: many connections, and SIGTERM ends what it started as Ctrl-C does."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(OPEN_FILES, hard), hard))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if REPORTING.exists() and int(REPORTING.read_text()) < NEVER_REPORTED:
        print(
            f"note: this machine gives free memory back to its host, so that files cost ten times as much to write now "
            f"and then; docs/decisions/2026-11-22-fresh-memory.md. For steady figures, as root: "
            f"echo {NEVER_REPORTED} > {REPORTING}, and use all memory once",
            file=sys.stderr,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One run of the load generator: what came through and how long single requests took (microseconds)."""

    requests: int
    bytes: float
    seconds: float
    p50: float
    p99: float
    p999: float
    slowest: float
    typical_p99: float
    """At a rate: the median of the p99 of each quarter of a second; 0 without."""

    @property
    def mb_s(self) -> float:
        return self.bytes / self.seconds / 1e6

    @property
    def requests_s(self) -> float:
        return self.requests / self.seconds


class LoadGenerator:
    """`lg.c`, compiled into `directory` at first use; with TLS that needs OpenSSL's headers."""

    def __init__(self, directory: Path, *, tls: bool = False) -> None:
        self.program = directory / "lg"
        source, options = str(HERE / "lg.c"), ["-DTLS", "-lssl", "-lcrypto"] if tls else []
        subprocess.run(["gcc", "-O2", "-msse4.2", "-w", "-o", str(self.program), source, *options], check=True)

    def command(self, mode: str, port: int, **options: object) -> list[str]:
        return [str(self.program), mode, f"port={port}", *(f"{name}={value}" for name, value in options.items())]

    def run(self, mode: str, port: int, **options: object) -> Load:
        with self.begin(mode, port, **options) as running:
            return running.wait()

    def begin(self, mode: str, port: int, **options: object) -> RunningLoad:
        return RunningLoad(self.command(mode, port, **options))


class RunningLoad:
    """The load generator at work; a context manager that ends it."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def stop(self) -> Load:
        """Have it end before it is through."""
        self._process.terminate()
        return self.wait()

    def wait(self) -> Load:
        out, complaints = self._process.communicate(timeout=LONGEST_RUN_S)
        if self._process.returncode:
            words = " ".join(self._command[1:])
            raise RuntimeError(f"{words} exited with {self._process.returncode}: {out[-500:]} {complaints[-500:]}")
        said = json.loads(out)
        latencies = {name: float(said[name]) for name in ("p50", "p99", "p999", "typical_p99")}
        return Load(
            requests=said["reqs"], bytes=said["bytes"], seconds=said["secs"], slowest=float(said["max"]), **latencies
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def process_tree(pid: int) -> Iterator[int]:
    """The process and its descendants, as far as they still live."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:  # the thread ended between the listing and the reading
            continue
        for child in children:
            yield from process_tree(int(child))


def cpu_seconds(pid: int) -> float:
    """CPU used so far by the process and its descendants, to the nanosecond."""
    total = 0.0
    for member in process_tree(pid):
        try:
            total += time.clock_gettime((~member << 3) | 2)  # the kernel's number for another process's CPU clock
        except OSError:  # it ended
            continue
    return total


def memory_mb(pid: int) -> float:
    """Proportional set size of the process and its descendants."""
    return _mapped_mb(pid, "Pss:")


def private_mb(pid: int) -> float:
    """What the process and its descendants have written themselves; the pages of program files, which others may share
    or not from one moment to the next, are not in it."""
    return _mapped_mb(pid, "Anonymous:")


def _mapped_mb(pid: int, *kinds: str) -> float:
    total = 0
    for member in process_tree(pid):
        try:
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
        except OSError:  # it ended
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith(kinds))
    return total / 1024


def peak_mb(pid: int) -> float:
    """The largest resident set that the process has had; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
