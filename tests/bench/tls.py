"""What TLS costs: kafkad's CPU for each request over TLS 1.3, beside its own without, and beside Kafka's with.

    make bench-tls ARGS="[--reps 3] [--only TEXT] [--versions 3.9,4.3] [--json FILE]"

The certificate is ECDSA P-256. Limits are shares of the best Kafka's CPU in the same run; without one they are not
looked at. Two figures are kafkad's alone: the memory of a connection that is idle, and how long others wait while a
thousand clients that come back begin their handshakes in the same moment.

Needs gcc with OpenSSL's headers. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from tests.bench.measured import LoadGenerator, cpu_seconds, memory_mb, prepare
from tests.bench.sidebyside import Broker, create_topics
from tests.bench.txn_load import share
from tests.broker import API_VERSIONS_V0, RawClient
from tests.certificates import Authority
from tests.oracle import kafka as oracle

Row = dict[str, float]
CROWD, ROUNDS, IDLE = 1000, 5, 500
MOST_RAISED_MS, MOST_IDLE_KB = 5.0, 20.0
EVERY_S = 0.002


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
    options = settings(directory, plain, tls) | {
        "log.dirs": str(directory / "kafkad"),
        "kafkad.max.unauthenticated.connections.per.ip": str(CROWD),
    }
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


# -- kafkad's alone ------------------------------------------------------------------------------------------------


def idle_connections(broker: Encrypted) -> int:
    """1 if each takes more memory than it may."""
    context = _trusting_all()
    before = memory_mb(broker.plain.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(IDLE):
            client = stack.enter_context(RawClient(broker.port))
            stack.enter_context(context.wrap_socket(client.socket))
        time.sleep(1)
        each_kb = (memory_mb(broker.plain.pid) - before) * 1024 / IDLE
    return _said("memory of an idle connection", each_kb, MOST_IDLE_KB, "KB")


def crowds(broker: Encrypted) -> int:
    """1 if others wait for longer than they may. Their p99 is that of what they ask while a crowd is let in."""
    context = _trusting_all()
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        alone = [waited for _, waited in process.submit(others, broker.plain.port, 5.0).result()]
        asked = process.submit(others, broker.plain.port, 30.0)
        spans = []
        for _ in range(ROUNDS):
            time.sleep(1)
            spans.append(crowd(broker.port, context))
        beside = [waited for at, waited in asked.result() if any(begin <= at <= end for begin, end in spans)]
    seconds = statistics.median(end - begin for begin, end in spans)
    print(
        f"a crowd is in after {seconds:.2f} s; p99 of others {share(alone, 0.99):.2f} ms, {share(beside, 0.99):.2f} ms"
    )
    raised = share(beside, 0.99) - share(alone, 0.99)
    return _said(f"p99 of others raised by a crowd of {CROWD}", raised, MOST_RAISED_MS, "ms")


def crowd(port: int, context: ssl.SSLContext) -> tuple[float, float]:
    """The time from the first greeting, of which all are sent at once, to the end of the last handshake."""
    with contextlib.ExitStack() as stack:
        clients = [
            _Client(stack.enter_context(socket.create_connection(("127.0.0.1", port))), context) for _ in range(CROWD)
        ]
        time.sleep(0.5)
        begin = time.monotonic()
        for client in clients:
            client.send()
        for client in clients:
            client.receive()
        end = time.monotonic()
        for client in clients:
            client.finish()
    return begin, end


class _Client:
    """A handshake, one step after the other."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = sock
        self._received, self._sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._sent)
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()

    def send(self) -> None:
        self._socket.sendall(self._sent.read())

    def receive(self) -> None:
        self._received.write(self._socket.recv(1 << 16))

    def finish(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.receive()
            else:
                break
        self.send()


def others(port: int, seconds: float) -> list[tuple[float, float]]:
    """When another client has asked, and for how many seconds it has waited: for the broker, and for no disk."""
    waits: list[tuple[float, float]] = []
    end = time.monotonic() + seconds
    with RawClient(port, timeout=60) as client:
        while (begin := time.monotonic()) < end:
            client.exchange(API_VERSIONS_V0)
            waits.append((begin, time.monotonic() - begin))
            time.sleep(EVERY_S)
    return waits


def _trusting_all() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _said(name: str, value: float, limit: float, unit: str) -> int:
    print(f"{name:44} {value:8.2f} {unit}, limit {limit:g}: {'ok' if value <= limit else 'MISSED'}", flush=True)
    return value > limit


ALONE: dict[str, Callable[[Encrypted], int]] = {"idle connections": idle_connections, "crowd": crowds}


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
        missed = sum(figure(brokers[-1]) for name, figure in ALONE.items() if options.only in name)
    if options.json:
        options.json.write_text(json.dumps(table, indent=1))
    return missed + show(table, work)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
