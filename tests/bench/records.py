"""Records through `kctl`, in figures, on kafkad and on real Kafka 3.9, with Kafka's own tools beside it.

    python -m tests.bench.records [--only TEXT] [--quick] [--without kafka|kafkad]

Exits 1 when a promise is not kept. Run nothing else meanwhile.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.bench.compared import Measurement, Promise, Side, Values, main
from tests.bench.figures import create, new_topic
from tests.clients.probes import Asker
from tests.oracle.kafka import tool

RECORDS = 300_000
SIZE = 1000
ROUNDS = 3
MIB = 1 << 20


class Used(NamedTuple):
    out: str
    seconds: float
    cpu: float


def used(command: Sequence[str]) -> Used:
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[:8])} exited with {process.returncode}")
    return Used(out, time.perf_counter() - begin, usage.ru_utime + usage.ru_stime)


def kctl(side: Side, *words: object) -> list[str]:
    return [sys.executable, "-m", "kctl", "-b", f"127.0.0.1:{side.port}", *map(str, words)]


def median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(ROUNDS))


def records_of(side: Side) -> int:
    return round(RECORDS * side.bench.size)


def produce(side: Side) -> Values:
    count = records_of(side)
    mine = kctl(side, "perf", "produce", "-n", count, "--record-size", SIZE, "-o", "json")
    yield "perf produce, 1 KB records", median(lambda: json.loads(used(mine).out)["items"][0]["mb_per_second"])
    yield "perf produce, MB per second of its CPU", median(lambda: count * SIZE / 1e6 / used(mine).cpu)
    create_topic(side, "theirs")
    words = ["--topic", "theirs", "--num-records", str(count), "--record-size", str(SIZE), "--throughput", "-1"]
    theirs = tool(
        "3.9", "producer-perf", *words, "--producer-props", f"bootstrap.servers=127.0.0.1:{side.port}", archived=False
    )
    yield "the same with kafka-producer-perf-test", median(lambda: _last_mib(used(theirs).out) * MIB / 1e6)


def _last_mib(out: str) -> float:
    return float(re.findall(r"\(([\d.]+) MB/sec\)", out)[-1])


def consume(side: Side) -> Values:
    count = records_of(side)
    create_topic(side, "full")
    used(kctl(side, "perf", "produce", "--topic", "full", "-n", count, "--record-size", SIZE))
    megabytes = count * SIZE / 1e6
    for name, words in (
        ("consume to /dev/null, 1 KB records", []),
        ("the same with -o json", ["-o", "json"]),
        ("the same with a filter on the value", ["--grep", "no such thing"]),
    ):
        command = shell(kctl(side, "consume", "full", *words))
        yield name, median(lambda command=command: megabytes / used(command).seconds)  # type: ignore[misc]
    plain = shell(kctl(side, "consume", "full"))
    yield "consume, MB per second of its CPU", median(lambda: megabytes / used(plain).cpu)
    yield (
        "the same with kafka-console-consumer",
        median(lambda: megabytes / used(console_consumer(side, count)).seconds),
    )


def console_consumer(side: Side, count: int) -> list[str]:
    words = ["--bootstrap-server", f"127.0.0.1:{side.port}", "--topic", "full", "--from-beginning"]
    return shell(tool("3.9", "console-consumer", *words, "--max-messages", str(count), archived=False))


def shell(command: Sequence[str]) -> list[str]:
    """With its output thrown away, as a shell does it."""
    return ["sh", "-c", 'exec "$@" > /dev/null', "sh", *command]


def latency(side: Side) -> Values:
    command = kctl(side, "perf", "latency", "-n", round(2000 * side.bench.size), "-o", "json")
    yield "from producer to consumer, median", median(lambda: json.loads(used(command).out)["items"][0]["p50_ms"])


def create_topic(side: Side, name: str) -> None:
    asker = Asker(side.port)
    create(asker, new_topic(name))
    asker.client.close()


MEASUREMENTS = (
    Measurement(
        produce,
        (
            Promise(name="perf produce, 1 KB records", unit="MB/s", limit=60, at_least=True),
            Promise(name="perf produce, MB per second of its CPU", unit="MB/s", at_least=True),
            Promise(name="the same with kafka-producer-perf-test", unit="MB/s", at_least=True),
        ),
    ),
    Measurement(
        consume,
        (
            Promise(name="consume to /dev/null, 1 KB records", unit="MB/s", limit=60, at_least=True),
            Promise(name="consume, MB per second of its CPU", unit="MB/s", at_least=True),
            Promise(name="the same with -o json", unit="MB/s", at_least=True),
            Promise(name="the same with a filter on the value", unit="MB/s", at_least=True),
            Promise(name="the same with kafka-console-consumer", unit="MB/s", at_least=True),
        ),
    ),
    Measurement(latency, (Promise(name="from producer to consumer, median", unit="ms"),)),
)


if __name__ == "__main__":
    main(__doc__, MEASUREMENTS)
