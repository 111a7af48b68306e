"""What kctl's offline commands cost, beside Kafka's own dump tool where Java is there: CPU seconds of whole processes.

    python -m tests.bench.segments [--only TEXT] [--quick]

Exits 1 when a promise is not kept. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kafkad.log.segment import Segment
from kafkad.wire.records import Record, build_batch
from tests.bench.compared import Promise
from tests.oracle.kafka import missing, tool

ROUNDS = 2
MB = 1_000_000
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
BEGUN_MS = 1_700_000_000_000
FIRST = "00000000000000000000.log"


class Cost(NamedTuple):
    cpu_s: float
    private_mb: float


class Figure(NamedTuple):
    """The arguments of kctl and of Kafka's tool; `promise` is in CPU seconds or, of `size` bytes, in MB/s."""

    promise: Promise
    kctl: Sequence[str]
    kafka: Sequence[str] = ()
    size: int = 0


def cost(command: Sequence[str]) -> Cost:
    """The best of some runs; the memory that was the process's own at its largest, seen every few milliseconds."""
    best = Cost(float("inf"), 0.0)
    for _ in range(ROUNDS):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
        most = 0.0
        while True:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            most = max(most, private_mb(process.pid))
            time.sleep(0.02)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"{' '.join(command)} exited with {process.returncode}"
        best = Cost(min(best.cpu_s, used.ru_utime + used.ru_stime), max(best.private_mb, most))
    return best


def private_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has just ended
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


def make_partition(directory: Path, *, records: int, size: int, batch: int) -> Path:
    """A partition with one segment of 16 KB batches, or so, with its indexes; its `.log`."""
    directory.mkdir()
    path = directory / FIRST
    text = bytes(range(32, 127)) * (size // 95 + 2)
    with path.open("wb") as file:
        for first in range(0, records, batch):
            some = [
                Record(n, BEGUN_MS + n // 10, b"key-%06d" % (n % 100_000), text[n % 95 : n % 95 + size])
                for n in range(first, min(first + batch, records))
            ]
            file.write(build_batch(some, leader_epoch=0))
    index(directory, path.stat().st_size)
    return path


def index(directory: Path, size: int) -> None:
    """As a broker would, so that check-log finds everything in order."""
    from kafkad.log.files import Files

    segment = Segment(Files(), str(directory), 0, size, 4096, 0)
    segment.rebuild_indexes()
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")


def figures(large: Path, small: Path) -> list[Figure]:
    dump, bare, files = "dump-segment", ["--kafka-format", "--values", "none"], "--files"

    def cpu(name: str, limit: float | None = None) -> Promise:
        return Promise(name=name, unit="s", limit=limit)

    def rate(name: str, limit: float) -> Promise:
        return Promise(name=name, unit="MB/s", limit=limit, at_least=True)

    return [
        Figure(cpu("the start alone, which is in all that follows"), ["version"], ["--version"]),
        Figure(
            cpu("266 MB of 950 B records: batches with CRC", 0.15),
            [dump, "--kafka-format", "--batches", str(large)],
            [files, str(large)],
        ),
        Figure(
            cpu("266 MB of 950 B records: a line per record", 1.6),
            [dump, *bare, str(large)],
            ["--deep-iteration", files, str(large)],
        ),
        Figure(
            cpu("165 MB of 100 B records: a line per record", 5.5),
            [dump, *bare, str(small)],
            ["--deep-iteration", files, str(small)],
        ),
        Figure(
            cpu("165 MB of 100 B records: a table of them"),
            [dump, str(small)],
            ["--print-data-log", files, str(small)],
        ),
        Figure(cpu("165 MB of 100 B records: JSON lines"), [dump, "-o", "json", str(small)]),
        Figure(rate("check-log of 950 B records", 1000), ["check-log", str(large.parent)], size=large.stat().st_size),
        Figure(
            rate("check-log --deep of 100 B records", 40),
            ["check-log", "--deep", str(small.parent)],
            size=small.stat().st_size,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only figures whose name holds this text")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: whether it runs, not how fast")
    options = parser.parse_args()
    share = 0.1 if options.quick else 1
    missed = 0
    print(f"{'CPU of the whole process':54} {'kctl':>12} {'Kafka 3.9':>12} {'':6} {'limit':>9} ahead by", flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        large = make_partition(Path(scratch) / "large-0", records=round(275_000 * share), size=942, batch=17)
        small = make_partition(Path(scratch) / "small-0", records=round(1_500_000 * share), size=90, batch=150)
        with_java = missing("3.9") is None
        most = 0.0
        for figure in figures(large, small):
            if options.only not in figure.promise.name:
                continue
            mine = cost([sys.executable, "-m", "kctl", *figure.kctl])
            kafkas = (
                cost(tool("3.9", "dump-log", *figure.kafka, archived=False)) if figure.kafka and with_java else None
            )
            most = max(most, mine.private_mb)
            value = figure.size / MB / mine.cpu_s if figure.size else mine.cpu_s
            line, kept = figure.promise.line(value, kafkas and kafkas.cpu_s)
            print(line, flush=True)
            missed += not kept
        line, kept = Promise(name="private memory", unit="MB", limit=60).line(most, None)
        print(line, flush=True)
        missed += not kept
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
