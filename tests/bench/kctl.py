"""What kctl's commands cost in CPU time, over a broker with 1,000 topics, 5,000 partitions and 200 groups; and what
100 MB of records cost it.

    python -m tests.bench.kctl [--only TEXT] [--runs N] [--bootstrap HOST:PORT]

Beside Kafka's own tools where there is Java, and kcat where it is installed. `--bootstrap` names a broker that has
those topics and groups already, as this program fills one; without it a kafkad is started. Exits 1 when a figure is
beyond its limit.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import which
from typing import NamedTuple

from tests.bench.figures import Figure, create, new_topic
from tests.bench.groups import commit, commit_until_taken, find_coordinator
from tests.bench.measured import prepare
from tests.broker import KafkadProcess, RawClient
from tests.clients.asker import Asker
from tests.oracle.kafka import missing, tool

TOPICS, PARTITIONS, GROUPS = 1000, 5, 200
KAFKA = "3.9"
_TOPICS_AT_ONCE = 100
TRAFFIC, RECORDS, RECORD_BYTES, TRAFFIC_RUNS = "traffic", 100_000, 1000, 3
_KCAT_READS = ("-C", "-o", "beginning", "-c", str(RECORDS), "-e", "-q")


class Work(NamedTuple):
    """A command of kctl, the CPU time it may take, and the tool of Kafka's that does most of the same."""

    name: str
    words: tuple[str, ...]
    limit_ms: float
    kafka: tuple[str, ...] = ()


WORKS = (
    Work("kctl --help", ("--help",), 90),
    Work("topics list, with sizes", ("topics", "list"), 130, ("topics", "--list")),
    Work("topics describe, all", ("topics", "describe"), 250, ("topics", "--describe")),
    Work("groups lag, all", ("groups", "lag"), 250, ("consumer-groups", "--describe", "--all-groups")),
)


def cpu_ms(command: Sequence[str], source: Path = Path(os.devnull)) -> float:
    """User and system time of one run, which reads `source`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with source.open("rb") as stdin:
        done = subprocess.run(
            command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, text=True
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-500:]}"
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def figures(bootstrap: str, runs: int, only: str) -> Iterator[Figure]:
    """The least of some runs of each: what else the machine does can only add to it."""
    works = [work for work in WORKS if only in work.name]
    least = dict.fromkeys(works, float("inf"))
    for _ in range(runs):
        for work in works:
            command = [sys.executable, "-m", "kctl", "-b", bootstrap, *work.words]
            least[work] = min(least[work], cpu_ms(command))
    for work in works:
        yield Figure(work.name, least[work], work.limit_ms, "ms")


def of_records(bootstrap: str, directory: Path, runs: int, only: str) -> Iterator[Figure | str]:
    """The cost of 100 MB of lines, there and then back, and kcat's where it is installed."""
    if only not in "produce and consume 100 MB of lines":
        return
    lines = directory / "lines"
    with lines.open("wb") as file:
        for number in range(RECORDS):
            file.write(b"%08d %b\n" % (number, b"x" * (RECORD_BYTES - 10)))
    kctl = [sys.executable, "-m", "kctl", "-b", bootstrap]
    kcat = ["kcat", "-b", bootstrap, "-t", TRAFFIC]
    works = [
        ("produce 100 MB of lines", [*kctl, "produce", TRAFFIC], 1200, [*kcat, "-P"]),
        ("consume 100 MB of lines", [*kctl, "consume", TRAFFIC, "--to", str(RECORDS)], 900, [*kcat, *_KCAT_READS]),
    ]
    for name, command, limit, other in works:
        yield Figure(name, min(cpu_ms(command, lines) for _ in range(runs)), limit, "ms")
        if which("kcat"):
            yield f"{'  kcat':52} {min(cpu_ms(other, lines) for _ in range(runs)):10.2f} ms"


def of_kafka(bootstrap: str, only: str) -> Iterator[str]:
    for work in WORKS:
        if work.kafka and only in work.name:
            name, *words = work.kafka
            spent = cpu_ms(tool(KAFKA, name, "--bootstrap-server", bootstrap, *words, archived=False))
            yield f"{'  kafka-' + name + ' ' + ' '.join(words):52} {spent:10.2f} ms"


def fill(port: int) -> None:
    """The topics, and groups that have read a record of five partitions each."""
    names = [f"many-{number:04d}" for number in range(TOPICS)]
    asker = Asker(port)
    for first in range(0, TOPICS, _TOPICS_AT_ONCE):
        create(asker, *(new_topic(name, PARTITIONS) for name in names[first : first + _TOPICS_AT_ONCE]))
    create(asker, new_topic(TRAFFIC, 1))
    find_coordinator(asker, "group-000")
    with RawClient(port) as client:
        for number in range(GROUPS):
            commit_until_taken(client, commit(f"group-{number:03d}", names[number], range(PARTITIONS), offset=0))


@contextlib.contextmanager
def filled_broker(directory: Path) -> Iterator[str]:
    with KafkadProcess(directory / "kafkad", {"auto.create.topics.enable": "false"}) as broker:
        fill(broker.port)
        yield broker.bootstrap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only commands whose name holds this text")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--bootstrap", help="a broker that is filled already")
    options = parser.parse_args()
    prepare()
    missed = 0
    with tempfile.TemporaryDirectory(prefix="kctl-") as scratch, contextlib.ExitStack() as stack:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's second start finds the bytecode of the first
        os.environ["PYTHONPYCACHEPREFIX"] = f"{scratch}/bytecode"
        os.environ["KCTL_CONFIG"] = f"{scratch}/contexts.yaml"
        bootstrap = options.bootstrap or stack.enter_context(filled_broker(Path(scratch)))
        for figure in figures(bootstrap, options.runs, options.only):
            print(figure, flush=True)
            missed += not figure.good
        for told in of_records(bootstrap, Path(scratch), min(options.runs, TRAFFIC_RUNS), options.only):
            print(told, flush=True)
            missed += isinstance(told, Figure) and not told.good
        if missing(KAFKA) is None:
            for line in of_kafka(bootstrap, options.only):
                print(line, flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
