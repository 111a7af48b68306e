"""`kafkad --brokers 2` next to one real Kafka: one host, all of its load on one topic, by turns, medians.

    python -m tests.bench.host [--reps 3] [--brokers 2] [--versions 3.9] [--requests 10000]

16 KB requests over 100 connections to a topic with as many partitions as kafkad has brokers. Each connection writes one
partition, at its leader, as a client's would. Exit code 1 if kafkad is not as far ahead as it should be. Run nothing
else meanwhile: the load generators take their part of the same cores.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench.measured import LoadGenerator, cpu_seconds, memory_mb, prepare
from tests.bench.sidebyside import Row, ratios
from tests.oracle import kafka as oracle
from tests.supervisor.host import Host

TOPIC = "a"
CONNECTIONS = 100
AHEAD = 1.3
"""kafkad's MB/s over Kafka's, at least."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """`ports` are those of the leaders of each partition."""

    name: str
    pid: int
    ports: Sequence[int]


def cluster(name: str, pid: int, port: int, partitions: int) -> Cluster:
    """With the topic, and led."""
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    keep = {"retention.bytes": "600000000", "segment.bytes": "134217728"}
    admin.create_topics([NewTopic(TOPIC, partitions, 1, config=keep)])[TOPIC].result(30)
    while True:
        metadata = admin.list_topics(TOPIC, timeout=10)
        leaders = [partition.leader for _, partition in sorted(metadata.topics[TOPIC].partitions.items())]
        if len(leaders) == partitions and set(leaders) <= metadata.brokers.keys():
            return Cluster(name, pid, [metadata.brokers[leader].port for leader in leaders])
        time.sleep(0.1)


def measure(generator: LoadGenerator, target: Cluster, requests: int) -> Row:
    os.sync()
    time.sleep(0.2)
    before = cpu_seconds(target.pid)
    share = len(target.ports)
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(
                generator.begin(
                    "produce",
                    port,
                    topic=TOPIC,
                    first=partition,
                    recs=16,
                    msg=1000,
                    conns=CONNECTIONS // share,
                    n=requests // share,
                )
            )
            for partition, port in enumerate(target.ports)
        ]
        loads = [load.wait() for load in running]
    seconds = max(load.seconds for load in loads)
    used = cpu_seconds(target.pid) - before
    return {
        "mb_s": sum(load.bytes for load in loads) / seconds / 1e6,
        "req_s": sum(load.requests for load in loads) / seconds,
        "cpu_s_gb": used / sum(load.bytes for load in loads) * 1e9,
        "p50": max(load.p50 for load in loads),
        "p99": max(load.p99 for load in loads),
    }


def compare(generator: LoadGenerator, targets: Sequence[Cluster], repetitions: int, requests: int) -> dict[str, Row]:
    """The median of each, after a run that does not count."""
    rows: dict[str, list[Row]] = {target.name: [] for target in targets}
    for repetition in range(repetitions + 1):
        turn = repetition % len(targets)
        for target in [*targets[turn:], *targets[:turn]]:
            row = measure(generator, target, requests)
            if repetition:
                rows[target.name].append(row)
    return {
        name: {column: statistics.median(row[column] for row in taken) for column in taken[0]}
        for name, taken in rows.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=2)
    parser.add_argument("--versions", default="3.9", help="real Kafkas beside it; empty: only kafkad")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--requests", type=int, default=10_000)
    options = parser.parse_args()
    prepare()
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="host-")))
        targets = []
        for version in filter(None, options.versions.split(",")):
            kafka = stack.enter_context(oracle.Kafka(version))
            targets.append(cluster(version, kafka.pids[0], kafka.ports[0], options.brokers))
        host = stack.enter_context(Host(scratch / "kafkad", options.brokers, {"kafkad.placement.start": "0"}))
        targets.append(cluster("kafkad", host.pid, host.port, options.brokers))
        table = compare(LoadGenerator(scratch), targets, options.reps, options.requests)
        memory = {target.name: round(memory_mb(target.pid)) for target in targets}
    print(f"produce 16 KB, {CONNECTIONS} connections, {options.brokers} partitions")
    for name, row in table.items():
        print(f"{name:7}", "  ".join(f"{column} {value:.1f}" for column, value in row.items()))
    print("memory (PSS) MB:", memory)
    others = [row for name, row in table.items() if name != "kafkad"]
    if not others:
        return 0
    ahead = ratios(table["kafkad"], others)["mb_s"]
    print(f"ahead by x{ahead:.2f}, at least x{AHEAD}")
    return 0 if ahead >= AHEAD else 1


if __name__ == "__main__":
    sys.exit(main())
