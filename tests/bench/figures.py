"""What kafkad promises about time and memory, measured: one line for each figure, with its limit.

    python -m tests.bench.figures [--only TEXT]

Exits 1 when a figure is beyond its limit. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kafkad.wire.frames import RequestHeader, encode_request
from kafkad.wire.messages.metadata import MetadataRequest
from tests.bench.measured import LoadGenerator, memory_mb, prepare
from tests.broker import KafkadProcess, RawClient
from tests.clients.asker import Asker, Plain, batch
from tests.clients.probes import fetch, list_offsets

GB = 1 << 30
ROUNDS = 3
PRODUCE_16_KB = {"recs": 16, "msg": 1000}


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    limit: float
    unit: str
    at_least: bool = False
    """True if the limit is the least that is good, not the most."""

    @property
    def good(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        sign, verdict = ("≥" if self.at_least else "≤"), ("" if self.good else "  MISSED")
        return f"{self.name:52} {self.value:10.2f} {self.unit:5} {sign} {self.limit:g}{verdict}"


class Bench:
    """A scratch directory, the load generator, and kafkad processes in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.generator = LoadGenerator(directory)
        self._brokers = 0

    def kafkad(self, **settings: str) -> KafkadProcess:
        self._brokers += 1
        return KafkadProcess(
            self.directory / f"kafkad-{self._brokers}",
            {name.replace("_", "."): value for name, value in settings.items()},
        )


def new_topic(name: str, partitions: int = 1, **configs: str) -> Plain:
    settings = [{"name": setting.replace("_", "."), "value": value} for setting, value in configs.items()]
    return {
        "name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": settings,
    }  # fmt: skip


def create(asker: Asker, *topics: Plain) -> None:
    answer = asker.ask("CreateTopics", 4, {"topics": list(topics), "timeout_ms": 60000})
    refused = [topic for topic in answer.topics if topic.error_code]
    assert not refused, refused[0]


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def median_ms(work: Callable[[], object], times: int) -> float:
    return statistics.median(seconds(work) for _ in range(times)) * 1000


def start_and_memory(bench: Bench) -> Iterator[Figure]:
    starts = []
    for _ in range(5):
        kafkad = bench.kafkad()
        starts.append(seconds(kafkad.start))
        kafkad.stop()
    yield Figure("answers its first request after", statistics.median(starts), 0.35, "s")
    with bench.kafkad() as kafkad:
        time.sleep(2)  # settled: nothing is due any more
        yield Figure("idle memory (PSS)", memory_mb(kafkad.pid), 60, "MB")
        for connections in (1, 4, 100):
            bench.generator.run("produce", kafkad.port, topic="a", conns=connections, n=20000, **PRODUCE_16_KB)
        bench.generator.run("fetch", kafkad.port, topic="a", maxb=1 << 20, loops=2)
        yield Figure("memory after load (PSS)", memory_mb(kafkad.pid), 120, "MB")


@contextlib.contextmanager
def held(bench: Bench, port: int, connections: int, *, slow: bool) -> Iterator[None]:
    """That many connections that do nothing, or send a byte a second."""
    command = bench.generator.command("idle", port, conns=connections, slow=int(slow), secs=600)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()  # "ready"
        try:
            yield
        finally:
            holder.kill()


def many_connections(bench: Bench) -> Iterator[Figure]:
    with bench.kafkad() as kafkad:

        def p99() -> float:
            return bench.generator.run(
                "produce", kafkad.port, topic="a", recs=1, msg=1000, rate=2000, n=8000, doze=1
            ).p99

        p99()
        before, ratios = memory_mb(kafkad.pid), []
        for turn in range(ROUNDS):
            alone = p99()
            with held(bench, kafkad.port, 5000, slow=False):
                if not turn:
                    memory = (memory_mb(kafkad.pid) - before) * 1024 / 5000
                    yield Figure("memory of an idle connection", memory, 1, "KB")
                with held(bench, kafkad.port, 1000, slow=True):
                    ratios.append(p99() / alone)
        yield Figure("p99 beside 5,000 idle and 1,000 slow connections", statistics.median(ratios), 1.5, "x")


def many_partitions(bench: Bench) -> Iterator[Figure]:
    kafkad = bench.kafkad()
    with kafkad:
        asker = Asker(kafkad.port)
        thousand = [new_topic(f"topic-{i}") for i in range(1000)]
        yield Figure("create 1,000 topics", seconds(lambda: create(asker, *thousand)), 10, "s")
        for i in range(90):
            create(asker, new_topic(f"large-{i}", 100))
        write_to_each(asker, {f"topic-{i}": 1 for i in range(1000)} | {f"large-{i}": 100 for i in range(90)})
        asker.client.close()
        assert kafkad.stop() == 0
        yield Figure("start with 10,000 partitions after a clean stop", seconds(kafkad.start), 3, "s")
        kafkad.kill()
        yield Figure("start with 10,000 partitions after a kill", seconds(kafkad.start), 6, "s")
        asker = Asker(kafkad.port)

        def metadata() -> None:
            assert sum(len(topic.partitions) for topic in asker.ask("Metadata", 12, {"topics": None}).topics) >= 10_000

        metadata()
        yield Figure("memory with 10,000 partitions (PSS)", memory_mb(kafkad.pid), 250, "MB")
        yield Figure("Metadata of 10,000 partitions", raw_metadata_ms(kafkad.port), 40, "ms")
        asker.client.close()


def write_to_each(asker: Asker, topics: dict[str, int]) -> None:
    records = batch(3)
    for topic, partitions in topics.items():
        data = [{"index": i, "records": records} for i in range(partitions)]
        topic_data = [{"name": topic, "partition_data": data}]
        answer = asker.ask("Produce", 7, {"acks": -1, "timeout_ms": 30000, "topic_data": topic_data})
        assert not any(part.error_code for part in answer.responses[0].partition_responses)


def raw_metadata_ms(port: int) -> float:
    """Median time until the whole answer has come, without decoding it."""
    question = encode_request(RequestHeader(3, 12, 1, "figures"), MetadataRequest(topics=None))
    with RawClient(port) as client:

        def ask() -> None:
            client.send(question)
            client.receive_frame()

        ask()
        return median_ms(ask, 10)


def fsync(bench: Bench) -> Iterator[Figure]:
    with bench.kafkad() as kafkad:
        asker = Asker(kafkad.port)
        create(asker, new_topic("off"), new_topic("on", kafkad_acks_fsync="true"))
        asker.client.close()

        def rate(topic: str) -> float:
            load = {"conns": 100, "acks": -1, "n": 20000, **PRODUCE_16_KB}
            return bench.generator.run("produce", kafkad.port, topic=topic, **load).requests_s

        rate("off")
        kept = statistics.median(rate("on") / rate("off") for _ in range(ROUNDS))
        yield Figure("throughput kept with kafkad.acks.fsync", kept, 0.5, "x", at_least=True)


def recovery(bench: Bench) -> Iterator[Figure]:
    for name, segment_bytes in (("segment", 2 * GB - 1), ("log of 200 KB segments", 200_000)):
        yield Figure(f"recovery of an unclean {name}", recovery_mb_s(bench, segment_bytes), 400, "MB/s", at_least=True)


def recovery_mb_s(bench: Bench, segment_bytes: int) -> float:
    kafkad = bench.kafkad(log_segment_bytes=str(segment_bytes))
    with kafkad:
        bench.generator.run("produce", kafkad.port, topic="large", total=GB, recs=64, msg=1000)
        size = sum(path.stat().st_size for path in (kafkad.log_directory() / "large-0").glob("*.log"))
        os.sync()
        kafkad.kill()
        unclean = seconds(lambda: kafkad.start(wait=False).wait_ready(120))
        kafkad.stop()
        clean = seconds(kafkad.start)
        return size / 1e6 / (unclean - clean)


def lookups(bench: Bench) -> Iterator[Figure]:
    with bench.kafkad() as kafkad:
        asker = Asker(kafkad.port)
        create(asker, new_topic("whole"), new_topic("parted", segment_bytes="16000"))
        for topic in ("whole", "parted"):
            bench.generator.run("produce", kafkad.port, topic=topic, n=1000, **PRODUCE_16_KB)
        assert len(list((kafkad.log_directory() / "parted-0").glob("*.log"))) >= 1000
        chance = random.Random(1)
        end = 16_000

        def ask_fetch(topic: str) -> None:
            question = fetch(topic, chance.randrange(end), topic_id=bytes(16))
            question["topics"][0]["partitions"][0]["partition_max_bytes"] = 1
            asker.ask("Fetch", 11, question)

        def ask_time(topic: str) -> None:
            asker.ask("ListOffsets", 7, list_offsets(topic, int(time.time() * 1000) - chance.randrange(60_000)))

        for name, ask in (("offset", ask_fetch), ("time", ask_time)):
            took: dict[str, list[float]] = {"whole": [], "parted": []}
            for _ in range(2000):
                for topic, samples in took.items():
                    samples.append(seconds(functools.partial(ask, topic)))
            whole, parted = map(statistics.median, took.values())
            yield Figure(f"lookup by {name}, 1,000 segments to 1", parted / whole, 1.25, "x")
        asker.client.close()


MEASUREMENTS = (start_and_memory, many_connections, many_partitions, fsync, recovery, lookups)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only measurements whose name holds this text")
    options = parser.parse_args()
    prepare()
    missed = 0
    with tempfile.TemporaryDirectory(prefix="figures-") as scratch:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's second start finds the bytecode of the first
        os.environ["PYTHONPYCACHEPREFIX"] = f"{scratch}/bytecode"
        bench = Bench(Path(scratch))
        for measurement in MEASUREMENTS:
            if options.only in measurement.__name__:
                try:
                    for figure in measurement(bench):
                        print(figure, flush=True)
                        missed += not figure.good
                except Exception as error:  # the others are worth having all the same
                    print(f"{measurement.__name__} FAILED: {error!r}", flush=True)
                    missed += 1
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
