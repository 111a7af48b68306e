"""A quota of 10 MB/s: how well it is held, and what others notice of those who are held to it.

    make bench-quotas ARGS="[--seconds 30] [--connections 1,100] [--versions 3.9,4.3] [--settle 32] [--only KIND]"

Clients send 16 KB produces and read 100 KB fetches as fast as they are answered, without a look at the throttle time:
the broker alone holds them. Another client, without a quota, produces 1 KB a hundred times a second. Prints the rate
over `--seconds`, once what may be taken at once is gone (`--settle`), and p99 of the other client, idle and beside the
load. Exits 1 when a promise is not kept. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import struct
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from kafkad.wire.apis import request_class
from kafkad.wire.frames import RequestHeader, encode_request
from kafkad.wire.records import Record, build_batch
from tests.bench.measured import prepare
from tests.bench.sidebyside import KAFKAD, Broker, start_kafkad
from tests.bench.txn_load import share
from tests.broker import RawClient
from tests.clients.asker import KEYS, Asker, Plain, from_plain, produce
from tests.oracle import kafka as oracle

QUOTA = 10_000_000
HELD = "held"
"""The client id that has the quota."""
WRITTEN, READ, OTHER_TOPIC = "written", "read", "others"
"""Produces go to one, whose old records go away; fetches take the same from another, again and again."""
KINDS = ("produce", "fetch")
EVERY_S = 0.01
MOST_RAISED_MS = 5.0
MOST_OFF_PERCENT = 2.0


class Taken:
    """Bytes of requests or answers, by when they were."""

    def __init__(self) -> None:
        self.begin = time.monotonic()
        self.bytes: list[tuple[float, int]] = []

    def add(self, count: int) -> None:
        self.bytes.append((time.monotonic() - self.begin, count))

    def rate(self, after: float, seconds: float) -> float:
        return sum(count for at, count in self.bytes if after <= at < after + seconds) / seconds


def packed(api: str, version: int, question: Plain, client_id: str) -> bytes:
    header = RequestHeader(KEYS[api], version, 1, client_id)
    return encode_request(header, from_plain(request_class(KEYS[api]), question, version))


def produce_frame(topic: str, size: int, client_id: str) -> bytes:
    records = [Record(0, 1_700_000_000_000, None, bytes(size))]
    return packed("Produce", 9, produce(topic, bytes(build_batch(records))), client_id)


def fetch_frame(topic: str, size: int, client_id: str) -> bytes:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": size}
    topics = [{"topic": topic, "partitions": [partition]}]
    return packed("Fetch", 11, {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": size, "topics": topics}, client_id)


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: bytes) -> int:
    """The size of the answer."""
    writer.write(frame)
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    await reader.readexactly(size)
    return int(size)


async def load(port: int, frame: bytes, taken: Taken, *, of_answers: bool) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        while True:
            answer = await exchange(reader, writer, frame)
            taken.add(answer if of_answers else len(frame) - 4)
    finally:
        writer.close()


def others(port: int, seconds: float) -> float:
    """p99 of another client in ms, which no work of the others' in its own process delays."""
    frame = produce_frame(OTHER_TOPIC, 1000, "other")
    times: list[float] = []
    until = time.monotonic() + seconds
    with RawClient(port) as client:
        while time.monotonic() < until:
            begin = time.perf_counter()
            client.send(frame)
            client.receive_frame()
            times.append(time.perf_counter() - begin)
            time.sleep(EVERY_S)
    return share(times, 0.99)


async def measured(port: int, kind: str, connections: int, settle: float, seconds: float) -> tuple[float, float, float]:
    """The rate in MB/s, and p99 of the others in ms: idle, then beside the load."""
    frame = produce_frame(WRITTEN, 16_000, HELD) if kind == "produce" else fetch_frame(READ, 100_000, HELD)
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        idle = await loop.run_in_executor(process, others, port, seconds / 3)
        taken = Taken()
        loads = [
            asyncio.ensure_future(load(port, frame, taken, of_answers=kind == "fetch")) for _ in range(connections)
        ]
        await asyncio.sleep(settle)
        loaded = await loop.run_in_executor(process, others, port, seconds)
    for each in loads:
        each.cancel()
    await asyncio.wait(loads)
    return taken.rate(settle, seconds) / 1e6, idle, loaded


def set_quotas(broker: Broker) -> None:
    asker = Asker(broker.port)
    for topic in (WRITTEN, READ, OTHER_TOPIC):
        asker.create(topic, retention_ms="-1", retention_bytes="500000000", segment_bytes="100000000")
    for _ in range(20):
        asker.ask("Produce", 7, produce(READ, bytes(build_batch([Record(0, 0, None, bytes(16_000))]))))
    ops = [{"key": f"{who}_byte_rate", "value": float(QUOTA)} for who in ("producer", "consumer")]
    entry = {"entity": [{"entity_type": "client-id", "entity_name": HELD}], "ops": ops}
    answer = asker.ask("AlterClientQuotas", 0, {"entries": [entry]})
    assert not answer.entries[0].error_code, answer
    asker.client.close()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument(
        "--settle", type=float, default=32, help="seconds after which what may be taken at once is gone"
    )
    parser.add_argument("--connections", default="1,100")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--versions", default="3.9,4.3", help="real Kafkas beside it; empty: only kafkad")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    prepare()
    missed = 0
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quotas-")))
        brokers = [start_kafkad(KAFKAD, scratch / "kafkad", stack)]
        for version in filter(None, options.versions.split(",")):
            kafka = stack.enter_context(oracle.Kafka(version))
            brokers.append(Broker(version, kafka.ports[0], kafka.pids[0]))
        for broker in brokers:
            set_quotas(broker)
        print(f"{'':28} {'broker':7} {'MB/s':>8} {'of 10':>8} {'p99 idle':>9} {'loaded':>9}")
        for kind in [options.only] if options.only else KINDS:
            for connections in map(int, options.connections.split(",")):
                for broker in brokers:
                    rate, idle, loaded = asyncio.run(
                        measured(broker.port, kind, connections, options.settle, options.seconds)
                    )
                    off = 100 * (rate * 1e6 / QUOTA - 1)
                    kept = abs(off) <= MOST_OFF_PERCENT and loaded - idle <= MOST_RAISED_MS
                    missed += broker.name == "kafkad" and not kept
                    verdict = "" if kept or broker.name != "kafkad" else "  MISSED"
                    name = f"{kind}, {connections} connections"
                    print(
                        f"{name:28} {broker.name:7} {rate:8.3f} {off:+7.2f}% {idle:9.2f} {loaded:9.2f}{verdict}",
                        flush=True,
                    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
