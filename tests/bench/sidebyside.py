"""kafkad next to real Apache Kafka, in one run, on this machine: the same raw load, interleaved, medians.

    make bench ARGS="[--reps 3] [--only TEXT] [--versions 3.9,4.3] [--java] [--json FILE]"

Prints for each piece of work and broker: MB/s, requests/s, broker CPU per request and per GB, p50/p99/p99.9 latency,
and kafkad's ratio to the best Kafka of that row (above 1 is ahead). --java adds Kafka's own producer-perf with every
codec and its consumer-perf. Needs gcc, Java 17 and, once, mvn. Absolute figures differ from
machine to machine; only the ratios of one run mean anything. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench.measured import LoadGenerator, cpu_seconds, memory_mb, prepare
from tests.oracle import kafka as oracle

KAFKAD = f"{sys.executable} -m kafkad --set listeners=PLAINTEXT://127.0.0.1:{{port}} --set log.dirs={{dir}}"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
JAVA_RECORDS = 300_000
FETCH_MB_S = 8
"""The column of consumer-perf's output."""

Row = dict[str, float]
Table = dict[str, dict[str, Row]]
"""Work → broker → column → value."""


@dataclass(frozen=True, slots=True)
class Work:
    name: str
    mode: str
    topic: str
    options: dict[str, int]


WORK = (
    Work("produce 16 KB", "produce", "a", {"recs": 16, "msg": 1000, "n": 10000}),
    Work("produce 16 KB of 100 B", "produce", "a", {"recs": 148, "msg": 100, "n": 10000}),
    Work("produce 64 KB", "produce", "a", {"recs": 64, "msg": 1000, "n": 3000}),
    Work("produce 1 MB", "produce", "a", {"recs": 100, "msg": 10000, "n": 200}),
    Work("produce 6 partitions x 100 B", "produce", "b__p6", {"parts": 6, "ppr": 6, "recs": 1, "msg": 100, "n": 10000}),
    Work("produce 100 B, 4 connections", "produce", "a", {"recs": 1, "msg": 100, "n": 40000, "conns": 4}),
    Work("produce 16 KB, 100 connections", "produce", "a", {"recs": 16, "msg": 1000, "n": 10000, "conns": 100}),
    Work("produce 1 KB at 2000/s", "produce", "a", {"recs": 1, "msg": 1000, "rate": 2000, "n": 8000}),
    Work("fetch 1 MB", "fetch", "f", {"maxb": 1 << 20, "loops": 3}),
    Work("fetch 64 KB", "fetch", "f", {"maxb": 65536, "loops": 2}),
)


@dataclass(frozen=True, slots=True)
class Broker:
    name: str
    port: int
    pid: int

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"


Measure = Callable[[Broker], Row]


class Comparison:
    """Several brokers, side by side, under the same load."""

    def __init__(self, generator: LoadGenerator, brokers: Sequence[Broker]) -> None:
        self.generator = generator
        self.brokers = list(brokers)

    def warm_up(self, work: Sequence[Work]) -> None:
        """Fills the topic that is fetched and lets the JIT settle."""
        for broker in self.brokers:
            create_topics(broker)
            self._wait_for_leaders(broker)
            self.generator.run("produce", broker.port, topic="f", recs=16, msg=1000, n=8000)
            for _ in range(2):
                for item in work:
                    if "rate" not in item.options:
                        self.generator.run(item.mode, broker.port, topic=item.topic, **item.options)

    def _wait_for_leaders(self, broker: Broker) -> None:
        """Kafka answers the creation of topics before it leads them."""
        for _ in range(100):
            try:
                for topic in ("a", "f"):
                    self.generator.run("produce", broker.port, topic=topic, recs=1, msg=10, n=1)
                self.generator.run("produce", broker.port, topic="b__p6", parts=6, ppr=6, recs=1, msg=10, n=1)
            except RuntimeError:
                time.sleep(0.1)
            else:
                return
        raise RuntimeError(f"{broker.name} does not lead its new topics")

    def measure(self, work: Sequence[Work], repetitions: int) -> Table:
        return self._by_turns({item.name: partial(self._run, item) for item in work}, repetitions)

    def measure_java(self, repetitions: int) -> Table:
        for broker in self.brokers:
            java_producer("none", broker, topic="read")
        clients: dict[str, Measure] = {f"java producer {codec}": partial(java_producer, codec) for codec in CODECS}
        return self._by_turns(clients | {"java consumer": java_consumer}, repetitions)

    def _by_turns(self, measures: Mapping[str, Measure], repetitions: int) -> Table:
        """The median of each; brokers take turns, and another one begins each round."""
        samples: dict[str, dict[str, list[Row]]] = {}
        for repetition in range(repetitions):
            turn = repetition % len(self.brokers)
            for name, measure in measures.items():
                for broker in self.brokers[turn:] + self.brokers[:turn]:
                    samples.setdefault(name, {}).setdefault(broker.name, []).append(measure(broker))
            print(f"round {repetition + 1} of {repetitions}", flush=True)
        return {
            name: {broker: {column: statistics.median(row[column] for row in rows) for column in rows[0]}
                   for broker, rows in by_broker.items()}
            for name, by_broker in samples.items()
        }  # fmt: skip

    def _run(self, item: Work, broker: Broker) -> Row:
        os.sync()
        time.sleep(0.2)
        before = cpu_seconds(broker.pid)
        load = self.generator.run(item.mode, broker.port, topic=item.topic, **item.options)
        used = cpu_seconds(broker.pid) - before
        return {
            "mb_s": load.mb_s,
            "req_s": load.requests_s,
            "cpu_us_req": used / load.requests * 1e6,
            "cpu_s_gb": used / load.bytes * 1e9,
            "p50": load.p50,
            "p99": load.p99,
            "p999": load.p999,
        }


def create_topics(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    keep = {"retention.bytes": "600000000", "segment.bytes": "134217728"}
    partitions = {"a": 1, "f": 1, "b__p6": 6, "perf": 1}
    topics = [NewTopic(name, count, 1, config=keep) for name, count in partitions.items()]
    topics.append(NewTopic("read", 1, 1))  # retention would leave the consumer other codecs here than there
    for future in admin.create_topics(topics).values():
        future.result(30)


def java_producer(codec: str, broker: Broker, topic: str = "perf") -> Row:
    """MB/s of Kafka 3.9's producer-perf."""
    load = ["--topic", topic, "--num-records", str(JAVA_RECORDS), "--record-size", "1000", "--throughput", "-1"]
    client = [f"bootstrap.servers={broker.bootstrap}", "acks=all", "linger.ms=5", "batch.size=65536"]
    client.append(f"compression.type={codec}")
    said = _output(oracle.tool("3.9", "producer-perf", *load, "--producer-props", *client, archived=False))
    return {"mb_s": float(said.splitlines()[-1].split("(")[1].split(" ")[0])}


def java_consumer(broker: Broker) -> Row:
    """MB/s of Kafka 3.9's consumer-perf in a new group, without the time that joining it took."""
    load = ["--topic", "read", "--messages", str(JAVA_RECORDS), "--group", f"perf-{time.time_ns()}", "--hide-header"]
    said = _output(oracle.tool("3.9", "consumer-perf", "--bootstrap-server", broker.bootstrap, *load, archived=False))
    return {"mb_s": float(said.splitlines()[-1].split(", ")[FETCH_MB_S])}


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout.strip()


def ratios(mine: Row, others: Sequence[Row]) -> Row:
    """The lead over the best of the others: more of what should be high, less of what should be low."""
    ahead = {"mb_s": mine["mb_s"] / max(other["mb_s"] for other in others)}
    for column in ("cpu_us_req", "p50", "p99", "p999"):
        if column in mine:
            ahead[column] = min(other[column] for other in others) / mine[column]
    return ahead


def show(table: Table) -> None:
    columns = ("mb_s", "req_s", "cpu_us_req", "cpu_s_gb", "p50", "p99", "p999")
    print(f"{'work':32} {'broker':7}", *(f"{column:>10}" for column in columns))
    for name, by_broker in table.items():
        for broker, row in by_broker.items():
            cells = (f"{row[column]:10.1f}" if column in row else " " * 10 for column in columns)
            print(f"{name:32} {broker:7}", *cells)
        others = [row for broker, row in by_broker.items() if broker != "kafkad"]
        if "kafkad" in by_broker and others:
            by_broker["ratio"] = ratios(by_broker["kafkad"], others)
            print(f"{'':32} ahead by", "  ".join(f"{column} x{r:.2f}" for column, r in by_broker["ratio"].items()))


def start_kafkad(template: str, directory: Path, stack: contextlib.ExitStack) -> Broker:
    port = oracle.free_port()
    begin = time.monotonic()
    server = oracle.Server(shlex.split(template.format(port=port, dir=directory)), port)
    stack.callback(server.stop)
    server.wait_ready()
    print(f"kafkad accepts connections after {time.monotonic() - begin:.2f} s", flush=True)
    return Broker("kafkad", port, server.pid)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafkad", default=KAFKAD, help="command with {port} and {dir}; empty: only Kafka")
    parser.add_argument("--versions", default="3.9,4.3", help="real Kafkas beside it; empty: only kafkad")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--only", default="", help="only the work whose name holds this text")
    parser.add_argument("--java", action="store_true", help="also Kafka's own clients")
    parser.add_argument("--json", type=Path, help="also write the table here")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    prepare()
    work = [item for item in WORK if options.only in item.name]
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sidebyside-")))
        brokers = []
        for version in filter(None, options.versions.split(",")):
            kafka = stack.enter_context(oracle.Kafka(version))
            brokers.append(Broker(version, kafka.ports[0], kafka.pids[0]))
        if options.kafkad:
            brokers.append(start_kafkad(options.kafkad, scratch / "kafkad", stack))
        comparison = Comparison(LoadGenerator(scratch), brokers)
        comparison.warm_up(work)
        table = comparison.measure(work, options.reps)
        if options.java:
            table |= comparison.measure_java(options.reps)
        show(table)
        table["memory"] = {broker.name: {"pss_mb": memory_mb(broker.pid)} for broker in brokers}
        print("memory (PSS) MB:", {name: round(row["pss_mb"]) for name, row in table["memory"].items()})
        if options.json:
            options.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
