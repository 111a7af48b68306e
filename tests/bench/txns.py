"""Transactions: kafkad next to real Apache Kafka, in one run, on this machine: the same load by turns, medians.

    make bench-txn ARGS="[--only TEXT] [--reps 3] [--seconds 5] [--versions 3.9,4.3] [--without-kafkad] [--json FILE]"

Prints for each piece of work and broker: transactions/s, how long a transaction and its end took (ms), broker CPU for
1,000 transactions, how often clients were told to try again (CONCURRENT_TRANSACTIONS); then what is promised, with
kafkad's ratio to the better Kafka (above 1 is ahead). Exits 1 when a promise is not kept. `--versions ''` is kafkad
alone. Absolute figures differ from machine to machine; only the ratios of one run mean anything. Run nothing else
meanwhile.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.bench.compared import Promise
from tests.bench.measured import cpu_seconds, prepare
from tests.bench.sidebyside import KAFKAD, Broker, Row, Table, start_kafkad
from tests.bench.txn_load import (
    RawWork,
    Times,
    committed,
    copied,
    create_topic,
    fill,
    read_to_end,
    serves_implicit,
    several,
    share,
)
from tests.oracle import kafka as oracle

COMMAND = f"{KAFKAD} --set transaction.state.log.replication.factor=1 --set offsets.topic.replication.factor=1"
COPIED = 20_000
READ = 300_000
READ_AT_ONCE = 1000
_topics = count()


@dataclass(frozen=True, slots=True)
class Work:
    """What all pieces of work are given: the broker, a new topic, and the time."""

    broker: Broker
    topic: str
    seconds: float


Measure = Callable[[Work], Row]


def raw(partitions: int, records: int, ids: int, *, implicit: bool) -> Measure:
    def measure(work: Work) -> Row:
        if implicit and not serves_implicit(work.broker.port):
            return {}
        create_topic(work.broker.bootstrap, work.topic, partitions)
        load = RawWork(work.broker.port, work.topic, partitions, records, ids, implicit=implicit)
        return timed(work, lambda: load.run(work.seconds))

    return measure


def confluent(partitions: int, records: int, producers: int = 1) -> Measure:
    def measure(work: Work) -> Row:
        create_topic(work.broker.bootstrap, work.topic, partitions)
        where = (work.broker.bootstrap, work.topic, partitions, records, work.seconds)
        return timed(work, lambda: several(*where, producers))

    return measure


def copy(work: Work) -> Row:
    bootstrap, source = work.broker.bootstrap, f"{work.topic}-source"
    for name in (source, work.topic):
        create_topic(bootstrap, name, 1)
    fill(bootstrap, source, COPIED)
    return timed(work, lambda: copied(bootstrap, source, work.topic, 100, COPIED))


def reading(work: Work) -> Row:
    """Of committed transactions, by those who care and those who do not, by turns; the best of three."""
    bootstrap = work.broker.bootstrap
    create_topic(bootstrap, work.topic, 1)
    written = 0
    while written < READ:
        times = committed(bootstrap, work.topic, work.topic, 1, READ_AT_ONCE, work.seconds)
        written += READ_AT_ONCE * len(times.whole)
    rates: dict[str, float] = {}
    for isolation in ("read_uncommitted", "read_committed") * 3:
        records, seconds = read_to_end(bootstrap, work.topic, isolation)
        rates[isolation] = max(rates.get(isolation, 0), records / seconds)
    return {
        "records_s": rates["read_committed"],
        "of_uncommitted": 100 * rates["read_committed"] / rates["read_uncommitted"],
    }


def timed(work: Work, run: Callable[[], Times]) -> Row:
    os.sync()
    before = cpu_seconds(work.broker.pid)
    times = run()
    used = cpu_seconds(work.broker.pid) - before
    return {
        "txn_s": len(times.whole) / times.wall,
        "p50": share(times.whole, 0.5),
        "p99": share(times.whole, 0.99),
        "end_p50": share(times.end, 0.5),
        "end_p99": share(times.end, 0.99),
        "cpu_s": used / len(times.whole) * 1000,
        "refused": float(times.refused),
    }


def faster(ratio: float) -> tuple[str, Promise]:
    return "txn_s", Promise(name="transactions/s", unit="/s", at_least=True, ratio=ratio)


def cheaper(ratio: float) -> tuple[str, Promise]:
    return "cpu_s", Promise(name="broker CPU for 1,000", unit="s", ratio=ratio)


def within(limit: float) -> tuple[str, Promise]:
    return "p99", Promise(name="transaction: p99", unit="ms", limit=limit)


NEVER_REFUSED = ("refused", Promise(name="CONCURRENT_TRANSACTIONS", unit="", limit=0))
THREE_QUARTERS, HALF = cheaper(4 / 3), cheaper(2)

WORK: Mapping[str, tuple[Measure, Sequence[tuple[str, Promise]]]] = {
    "raw TV1, one id": (raw(1, 10, 1, implicit=False), (faster(1.7), THREE_QUARTERS, NEVER_REFUSED)),
    "raw TV1, 10 partitions": (raw(10, 100, 1, implicit=False), (faster(1), HALF, NEVER_REFUSED)),
    "raw TV1, 32 ids": (raw(1, 10, 32, implicit=False), (faster(1.3), THREE_QUARTERS, NEVER_REFUSED)),
    "raw TV2, one id": (raw(1, 10, 1, implicit=True), (faster(1.7), THREE_QUARTERS, NEVER_REFUSED)),
    "raw TV2, 10 partitions": (raw(10, 100, 1, implicit=True), (faster(1), HALF, NEVER_REFUSED)),
    "raw TV2, 32 ids": (raw(1, 10, 32, implicit=True), (faster(1.3), THREE_QUARTERS, NEVER_REFUSED)),
    "confluent 1 record": (confluent(1, 1), (faster(1), THREE_QUARTERS)),
    "confluent 100 records": (confluent(1, 100), (faster(1.1), within(5), THREE_QUARTERS)),
    "confluent 10 partitions": (confluent(10, 100), (faster(2), HALF)),
    "confluent 8 producers": (confluent(10, 10, 8), (faster(1), THREE_QUARTERS)),
    "confluent consume-transform-produce": (copy, (faster(2.5), within(10), THREE_QUARTERS)),
    "read_committed": (
        reading,
        (
            ("of_uncommitted", Promise(name="of what read_uncommitted gets", unit="%", at_least=True, limit=90)),
            ("records_s", Promise(name="records/s", unit="/s", at_least=True)),
        ),
    ),
}
COLUMNS = ("txn_s", "p50", "p99", "end_p50", "end_p99", "cpu_s", "refused", "records_s", "of_uncommitted")


def measure_all(brokers: Sequence[Broker], names: Sequence[str], repetitions: int, seconds: float) -> Table:
    """The median of each; brokers take turns, and another one begins each round."""
    samples: dict[str, dict[str, list[Row]]] = {}
    for repetition in range(repetitions):
        turn = repetition % len(brokers)
        for name in names:
            for broker in [*brokers[turn:], *brokers[:turn]]:
                row = measured(name, Work(broker, f"bench-{next(_topics)}", seconds))
                if row:
                    samples.setdefault(name, {}).setdefault(broker.name, []).append(row)
        print(f"round {repetition + 1} of {repetitions}", flush=True)
    return {
        name: {
            broker: {column: statistics.median(row[column] for row in rows) for column in rows[0]}
            for broker, rows in by_broker.items()
        }
        for name, by_broker in samples.items()
    }


def measured(name: str, work: Work) -> Row:
    """Nothing where it fails: the other figures are worth having all the same."""
    try:
        return WORK[name][0](work)
    except Exception as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        print(f"{name} on {work.broker.name} FAILED: {said}", flush=True)
        return {}


def show(table: Table) -> None:
    print(f"{'work':36} {'broker':7}", *(f"{column:>14}" for column in COLUMNS))
    for name, by_broker in table.items():
        for broker, row in by_broker.items():
            cells = (f"{row[column]:14.2f}" if column in row else " " * 14 for column in COLUMNS)
            print(f"{name:36} {broker:7}", *cells)


def promises(table: Table, names: Sequence[str]) -> int:
    """Prints what is promised, and returns how much of it is not kept; what kafkad could not do is not."""
    missed = 0
    print(f"\n{'':54} {'kafkad':>12} {'best Kafka':>12} {'':6} {'limit':>9} ahead by")
    for name in names:
        by_broker = table.get(name, {})
        mine = by_broker.get("kafkad")
        if mine is None:
            print(f"{name:54} {'FAILED':>12}")
            missed += 1
            continue
        others = [row for broker, row in by_broker.items() if broker != "kafkad"]
        for column, promise in WORK[name][1]:
            best = max if promise.at_least else min
            kafkas = best(row[column] for row in others) if others else None
            line, kept = promise.line(mine[column], kafkas)
            print(line.replace(f"{promise.name:54}", f"{f'{name}: {promise.name}':54}"))
            missed += not kept
    return missed


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only the work whose name holds this text")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of each piece of work")
    parser.add_argument("--versions", default="3.9,4.3", help="real Kafkas beside it; empty: only kafkad")
    parser.add_argument("--without-kafkad", action="store_true", help="only the real Kafkas, without promises")
    parser.add_argument("--json", type=Path, help="also write the table here")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    prepare()
    names = [name for name in WORK if options.only in name]
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="txns-")))
        brokers = []
        for version in filter(None, options.versions.split(",")):
            kafka = stack.enter_context(oracle.Kafka(version))
            brokers.append(Broker(version, kafka.ports[0], kafka.pids[0]))
        if not options.without_kafkad:
            brokers.append(start_kafkad(COMMAND, scratch / "kafkad", stack))
        warm_up(brokers, names)
        table = measure_all(brokers, names, options.reps, options.seconds)
        show(table)
        if options.json:
            options.json.write_text(json.dumps(table, indent=1))
        return 0 if options.without_kafkad or not promises(table, names) else 1


def warm_up(brokers: Sequence[Broker], names: Sequence[str]) -> None:
    """Lets the JIT settle, and everybody make the topics of coordinators."""
    begin = time.monotonic()
    for broker in brokers:
        for name in names:
            if name != "read_committed":
                measured(name, Work(broker, f"warm-{next(_topics)}", 2))
    print(f"warm after {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
