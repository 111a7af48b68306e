"""What TLS costs: kafkad's CPU for each request over TLS 1.3, beside its own without, and beside Kafka's with.

    make bench-tls ARGS="[--reps 3] [--only TEXT] [--versions 3.9,4.3] [--json FILE]"

The certificate is ECDSA P-256. Limits are shares of the best Kafka's CPU in the same run; without one they are not
looked at. Needs gcc with OpenSSL's headers. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.measured import LoadGenerator, cpu_seconds, prepare
from tests.bench.sidebyside import Broker, create_topics
from tests.certificates import Authority
from tests.oracle import kafka as oracle

Row = dict[str, float]


@dataclass(frozen=True, slots=True)
class Work:
    """`limit` is the most CPU for each request, as a share of Kafka's."""

    name: str
    mode: str
    topic: str
    limit: float
    options: dict[str, int]


WORK = (
    Work("produce 16 KB", "produce", "a", 1 / 2, {"recs": 16, "msg": 1000, "n": 10000}),
    Work("produce 16 KB, 50 connections", "produce", "a", 1 / 2, {"recs": 16, "msg": 1000, "n": 10000, "conns": 50}),
    Work("fetch 64 KB", "fetch", "f", 1 / 2, {"maxb": 65536, "loops": 2}),
    Work("fetch 1 MB", "fetch", "f", 2 / 3, {"maxb": 1 << 20, "loops": 3}),
    Work("connect", "connect", "", 1 / 3, {"n": 1000}),
)


@dataclass(frozen=True, slots=True)
class Encrypted:
    """A broker with a listener for each."""

    plain: Broker
    port: int

    @property
    def name(self) -> str:
        return self.plain.name


def settings(directory: Path, plain: int, tls: int) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://localhost:{tls}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "keys.pem"),
    }


def kafkad(directory: Path, stack: contextlib.ExitStack) -> Encrypted:
    plain, tls = oracle.free_port(), oracle.free_port()
    options = settings(directory, plain, tls) | {"log.dirs": str(directory / "kafkad")}
    words = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
    server = oracle.Server([sys.executable, "-m", "kafkad", *words], plain)
    stack.callback(server.stop)
    server.wait_ready()
    return Encrypted(Broker("kafkad", plain, server.pid), tls)


def kafka(version: str, directory: Path, stack: contextlib.ExitStack) -> Encrypted:
    plain, tls = oracle.free_port(), oracle.free_port()
    options = settings(directory, plain, tls)
    if version != "3.9":
        controller = oracle.free_port()
        options["listeners"] += f",CONTROLLER://127.0.0.1:{controller}"
        options["controller.quorum.voters"] = f"1@127.0.0.1:{controller}"
        options["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
    started = stack.enter_context(oracle.Kafka(version, port=plain, settings=options))
    return Encrypted(Broker(version, plain, started.pids[0]), tls)


def run(generator: LoadGenerator, work: Work, broker: Encrypted, *, tls: bool) -> Row:
    os.sync()
    time.sleep(0.2)
    port = broker.port if tls else broker.plain.port
    before = cpu_seconds(broker.plain.pid)
    load = generator.run(
        work.mode, port, plain=broker.plain.port, tls=int(tls), topic=work.topic or "a", **work.options
    )
    used = cpu_seconds(broker.plain.pid) - before
    return {"mb_s": load.mb_s, "req_s": load.requests_s, "cpu_us_req": used / load.requests * 1e6, "p99": load.p99}


def warm_up(generator: LoadGenerator, brokers: Sequence[Encrypted], work: Sequence[Work]) -> None:
    for broker in brokers:
        create_topics(broker.plain)
        time.sleep(1)
        generator.run("produce", broker.plain.port, topic="f", recs=16, msg=1000, n=8000)
        for item in work:
            run(generator, item, broker, tls=True)


def measure(
    generator: LoadGenerator, brokers: Sequence[Encrypted], work: Sequence[Work], repetitions: int
) -> dict[str, dict[str, Row]]:
    """Medians; brokers take turns, each with TLS and without."""
    samples: dict[str, dict[str, list[Row]]] = {}
    for repetition in range(repetitions):
        turn = repetition % len(brokers)
        for item in work:
            for broker in [*brokers[turn:], *brokers[:turn]]:
                for tls in (True, False):
                    name = f"{broker.name} {'TLS' if tls else 'plain'}"
                    row = run(generator, item, broker, tls=tls)
                    samples.setdefault(item.name, {}).setdefault(name, []).append(row)
        print(f"round {repetition + 1} of {repetitions}", flush=True)
    return {
        work_name: {
            name: {column: statistics.median(row[column] for row in rows) for column in rows[0]}
            for name, rows in by_broker.items()
        }
        for work_name, by_broker in samples.items()
    }


def show(table: dict[str, dict[str, Row]], work: Sequence[Work]) -> int:
    """How many limits are missed."""
    missed = 0
    print(f"{'work':32} {'broker':14}{'MB/s':>9}{'req/s':>9}{'CPU µs':>9}{'p99 µs':>9}")
    for item in work:
        rows = table[item.name]
        for name, row in rows.items():
            cells = "".join(f"{row[column]:9.0f}" for column in ("mb_s", "req_s", "cpu_us_req", "p99"))
            print(f"{item.name:32} {name:14}{cells}")
        mine = rows["kafkad TLS"]["cpu_us_req"]
        others = [row["cpu_us_req"] for name, row in rows.items() if name.endswith("TLS") and name != "kafkad TLS"]
        times = mine / rows["kafkad plain"]["cpu_us_req"]
        verdict = f"x{times:.2f} of its own without TLS"
        if others:
            share = mine / min(others)
            missed += share > item.limit
            verdict += f"; {share:.2f} of Kafka's, limit {item.limit:.2f}: {'ok' if share <= item.limit else 'MISSED'}"
        print(f"{'':32} {verdict}")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--versions", default="3.9,4.3", help="real Kafkas beside it; empty: only kafkad")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--only", default="", help="only the work whose name holds this text")
    parser.add_argument("--json", type=Path, help="also write the table here")
    options = parser.parse_args()
    prepare()
    work = [item for item in WORK if options.only in item.name]
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-tls-")))
        Authority().issue().write(directory / "keys.pem")
        brokers = [kafka(version, directory, stack) for version in filter(None, options.versions.split(","))]
        brokers.append(kafkad(directory, stack))
        generator = LoadGenerator(directory, tls=True)
        warm_up(generator, brokers, work)
        table = measure(generator, brokers, work, options.reps)
    if options.json:
        options.json.write_text(json.dumps(table, indent=1))
    return show(table, work)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
