"""What a bench needs of the machine: the load generator, and a broker's CPU and memory as the kernel counts them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One run of the load generator: what came through and how long single requests took (microseconds)."""

    requests: int
    bytes: float
    seconds: float
    p50: float
    p99: float
    p999: float

    @property
    def mb_s(self) -> float:
        return self.bytes / self.seconds / 1e6

    @property
    def requests_s(self) -> float:
        return self.requests / self.seconds


class LoadGenerator:
    """`lg.c`, compiled into `directory` at first use."""

    def __init__(self, directory: Path) -> None:
        self.program = directory / "lg"
        source = str(HERE / "lg.c")
        subprocess.run(["gcc", "-O2", "-msse4.2", "-w", "-o", str(self.program), source], check=True)

    def command(self, mode: str, port: int, **options: object) -> list[str]:
        return [str(self.program), mode, f"port={port}", *(f"{name}={value}" for name, value in options.items())]

    def run(self, mode: str, port: int, **options: object) -> Load:
        command = self.command(mode, port, **options)
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command[1:])} exited with {done.returncode}: {done.stderr[-500:]}")
        said = json.loads(done.stdout)
        latencies = {name: float(said[name]) for name in ("p50", "p99", "p999")}
        return Load(requests=said["reqs"], bytes=said["bytes"], seconds=said["secs"], **latencies)


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
    total = 0
    for member in process_tree(pid):
        try:
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
        except OSError:  # it ended
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024
