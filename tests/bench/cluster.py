"""Three kafkads beside three brokers of real Kafka 3.9, each three with a ZooKeeper: the same work by turns, medians.

    make bench-cluster ARGS="[--only TEXT] [--reps 3] [--seconds 10] [--without kafka|kafkad]"

`--only` takes the measurements that give a figure whose name holds the text, or one of several with semicolons
between. One line is printed for each figure, with kafkad's ratio to Kafka (above 1 is ahead) and what is promised.
Exits 1 when a promise is not kept. CPU is that of the three brokers together, for each GB that a producer sent. Run
nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tests.bench import host
from tests.bench.clusters import SESSION_MS, Cluster, kafkads, kafkas, log_bytes
from tests.bench.compared import KAFKA, KAFKAD, Promise, Values
from tests.bench.measured import Load as Traffic
from tests.bench.measured import LoadGenerator, prepare
from tests.bench.txn_load import committed
from tests.cluster.history import Load
from tests.oracle import kafka as oracle
from tests.supervisor.host import Host

RECORD = bytes(1000)
ONE = ([1, 2, 3],)
EACH_LEADS_ONE = ([1, 2, 3], [2, 3, 1], [3, 1, 2])
EACH_LEADS_TWO = EACH_LEADS_ONE * 2
SHORT_LOGS = {"retention_bytes": "600000000", "segment_bytes": "134217728"}
CAUGHT_UP_BYTES = 1_000_000_000
NEARLY_BYTES = 100_000
"""A follower that misses less than this, of a partition that is written all the time, has its data."""
PARTITIONS_PER_TOPIC = 100
TOPICS_AT_ONCE = 10
LONG_SESSION_MS = 18_000
"""Kafka's default, for what keeps ZooKeeper so busy that shorter sessions may end."""
PAUSE_S = 3
"""Until a cluster has nothing left to do."""
_ENDLESS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Work:
    """What measurements have in common: the load generator, and how long a load lasts."""

    generator: LoadGenerator
    seconds: float


# -- produce ------------------------------------------------------------------------------------------------------


def records(cluster: Cluster, work: Work) -> Values:
    yield from _records(cluster, work, "1 KB records, acks=all", "all", ONE)


def six_partitions(cluster: Cluster, work: Work) -> Values:
    yield from _records(cluster, work, "1 KB records to six partitions", "all", EACH_LEADS_TWO)


def acks_1(cluster: Cluster, work: Work) -> Values:
    yield from _records(cluster, work, "1 KB records, acks=1", "1", ONE)


def _records(cluster: Cluster, work: Work, name: str, acks: str, assignment: Sequence[list[int]]) -> Values:
    """By librdkafka as it comes, for as long as it takes until all brokers have them."""
    topic = cluster.new_topic(*assignment, **SHORT_LOGS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks, "linger.ms": 5, "log_level": 0})
    before, begun = cluster.cpu_seconds(), time.monotonic()
    sent = 0
    while time.monotonic() < begun + work.seconds:
        for partition in range(len(assignment)):
            try:
                for _ in range(100):
                    producer.produce(topic, RECORD, partition=partition)
                    sent += 1
            except BufferError:
                producer.poll(0.005)
        producer.poll(0)
    assert producer.flush(60) == 0, "records are not answered"
    took = time.monotonic() - begun
    _await_records(cluster, topic, len(assignment), sent)
    yield f"{name}: MB/s", sent * len(RECORD) / took / 1e6
    yield f"{name}: CPU of all brokers", (cluster.cpu_seconds() - before) / sent / len(RECORD) * 1e9
    cluster.delete(topic)


def _await_records(cluster: Cluster, topic: str, partitions: int, sent: int) -> None:
    """Until all brokers have them; a record that was refused would be missing for ever."""
    asker = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "log_level": 0})
    places = [TopicPartition(topic, partition) for partition in range(partitions)]

    def committed() -> int:
        return sum(asker.get_watermark_offsets(place, 30)[1] for place in places)

    cluster.until(lambda: committed() >= sent, f"{topic} has {sent} records, and not {committed()}", every_s=0.02)
    asker.close()


def requests_of_100_kb(cluster: Cluster, work: Work) -> Values:
    load, cpu = _requests(cluster, work, recs=100, msg=1000, inflight=5)
    yield "100 KB requests, 5 in flight: MB/s", load.mb_s
    yield "100 KB requests, 5 in flight: CPU of all brokers", cpu / load.bytes * 1e9


def one_in_flight(cluster: Cluster, work: Work) -> Values:
    load, cpu = _requests(cluster, work, recs=1, msg=1000, inflight=1)
    yield "1 KB, one in flight: requests/s", load.requests_s
    yield "1 KB, one in flight: CPU of all brokers", cpu / load.requests * 1e6


def at_200_a_second(cluster: Cluster, work: Work) -> Values:
    load, _ = _requests(cluster, work, recs=1, msg=1000, rate=200, doze=1)
    yield "1 KB at 200/s: p50", load.p50 / 1000
    yield "1 KB at 200/s: p99", load.p99 / 1000


def _requests(cluster: Cluster, work: Work, **options: int) -> tuple[Traffic, float]:
    """With acks=all to one partition; and the CPU of all brokers."""
    topic = cluster.new_topic(*ONE, **SHORT_LOGS)
    port = cluster.brokers[cluster.leader(topic)].port
    time.sleep(0.5)
    before = cluster.cpu_seconds()
    with work.generator.begin("produce", port, topic=topic, acks=-1, n=_ENDLESS, **options) as running:
        time.sleep(work.seconds)
        load = running.stop()
    cpu = cluster.cpu_seconds() - before
    cluster.delete(topic)
    return load, cpu


def transactions(cluster: Cluster, work: Work) -> Values:
    """Of one librdkafka, each with a hundred records."""
    for name, assignment in (("one partition", ONE), ("six partitions", EACH_LEADS_TWO)):
        topic = cluster.new_topic(*assignment, **SHORT_LOGS)
        before = cluster.cpu_seconds()
        times = committed(cluster.bootstrap, topic, topic, len(assignment), 100, work.seconds)
        cpu = cluster.cpu_seconds() - before
        yield f"transactions in {name}: per second", len(times.whole) / times.wall
        yield f"transactions in {name}: CPU of all brokers for 1,000", cpu / len(times.whole) * 1000
        cluster.delete(topic)


def memory(cluster: Cluster, work: Work) -> Values:
    """After a load of all kinds, if it was not measured alone."""
    topic = cluster.new_topic(*EACH_LEADS_TWO)
    with Load(cluster, topic, len(EACH_LEADS_TWO)) as load:
        load.run(work.seconds)
    yield "memory of the largest broker (PSS)", cluster.largest_mb()
    cluster.delete(topic)


# -- faults -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _loaded(cluster: Cluster) -> Iterator[Load]:
    """200 records a second to each of three partitions, each led by another broker."""
    topic = cluster.new_topic(*EACH_LEADS_ONE)
    with Load(cluster, topic, len(EACH_LEADS_ONE)) as load:
        load.run(1)
        yield load
        load.until_all_go_on()
    cluster.delete(topic)


def _whole(cluster: Cluster, load: Load) -> None:
    cluster.until(lambda: cluster.is_whole(load.topic, len(load.partitions)), "all replicas are in sync")


def broker_killed(cluster: Cluster, work: Work) -> Values:
    broker = cluster.others(cluster.controller)[0]
    with _loaded(cluster) as load:
        gaps, after = _gaps_of_kill(cluster, load, broker)
    yield "leader killed: longest gap", gaps.pop(broker - 1)
    yield "follower killed: longest gap", max(gaps.values())
    yield "broker killed: all go on after its session", after


def controller_killed(cluster: Cluster, work: Work) -> Values:
    with _loaded(cluster) as load:
        gaps, after = _gaps_of_kill(cluster, load, cluster.controller)
    yield "controller killed: longest gap", max(gaps.values())
    yield "controller killed: all go on after its session", after


def _gaps_of_kill(cluster: Cluster, load: Load, broker: int) -> tuple[dict[int, float], float]:
    """By partition, and the longest of them that is not the session's; broker n leads partition n - 1. It is back at
    the end. ZooKeeper ends a session up to a tick late, and counts from the last time that it heard of it."""
    begun = time.monotonic()
    cluster.brokers[broker].kill()
    cluster.until(lambda: broker not in cluster.live(), "the session has ended")
    ended = time.monotonic()
    load.until_all_go_on()
    gaps = {partition: load.gap(begun, partition) for partition in load.partitions}
    after = load.gap(ended)
    cluster.revive()
    _whole(cluster, load)
    return gaps, after


def told_to_stop(cluster: Cluster, work: Work) -> Values:
    """One broker after the other, by SIGTERM."""
    gaps = []
    with _loaded(cluster) as load:
        for broker in cluster.ids:
            begun = time.monotonic()
            cluster.brokers[broker].end()
            load.run(0.5)
            load.until_all_go_on()
            gaps.append(load.gap(begun))
            cluster.revive()
            _whole(cluster, load)
    yield "SIGTERM of each in turn: longest gap", max(gaps)


def killed_and_started(cluster: Cluster, work: Work) -> Values:
    """Kafka's broker gives up while its old session is still there, and is started again and again, as by systemd."""
    broker = cluster.others(cluster.controller)[0]
    process, before = cluster.brokers[broker], cluster.registration(broker)

    def launched(condition: Callable[[], bool]) -> bool:
        if not process.alive():
            process.launch()
        return condition()

    process.kill()
    cluster.until(partial(launched, lambda: cluster.registration(broker) != before), "its old session is over")
    served = partial(oracle.knows_brokers, process.port, len(cluster.ids))
    yield "killed and started: serves after its session", cluster.until(partial(launched, served), "it serves")
    cluster.revive()


def catching_up(cluster: Cluster, work: Work) -> Values:
    """A follower that was away fetches 1 GB, beside a producer with acks=all of 200 requests a second."""
    topic = cluster.new_topic(*ONE)
    leader = cluster.leader(topic)
    follower = next(broker for broker in cluster.others(leader) if broker != cluster.controller)
    there, here = (partial(log_bytes, cluster.brokers[broker], f"{topic}-0") for broker in (leader, follower))
    cluster.brokers[follower].end()
    cluster.until(lambda: follower not in cluster.live(), "it is gone")
    port = cluster.brokers[leader].port
    work.generator.run("produce", port, topic=topic, acks=-1, recs=64, msg=1000, total=CAUGHT_UP_BYTES)
    os.sync()
    producing = {"topic": topic, "acks": -1, "recs": 1, "msg": 1000, "rate": 200, "doze": 1, "n": _ENDLESS}
    with work.generator.begin("produce", port, **producing) as running:
        cluster.brokers[follower].launch()
        had = here()
        cluster.until(lambda: here() > had, "it fetches")
        took = cluster.until(lambda: here() > there() - NEARLY_BYTES, "it has all")
        rate = (here() - had) / took / 1e6
        whole = cluster.until(lambda: cluster.is_whole(topic, 1), "it is in sync")
        load = running.stop()
    yield "catching up 1 GB: MB/s", rate
    yield "catching up 1 GB: p99 of a producer beside it", load.p99 / 1000
    yield "in-sync set whole after the follower has all", whole
    cluster.delete(topic)


# -- many partitions ----------------------------------------------------------------------------------------------


def thousand_partitions(cluster: Cluster, work: Work) -> Values:
    yield from _partitions(cluster, work, 10, "1,000 partitions")


def ten_thousand_partitions(cluster: Cluster, work: Work) -> Values:
    yield from _partitions(cluster, work, 100, "10,000 partitions")


def _partitions(cluster: Cluster, work: Work, topics: int, name: str) -> Values:
    """With three replicas each."""
    names = [f"many-{number}" for number in range(topics)]
    begun = time.monotonic()
    for at in range(0, topics, TOPICS_AT_ONCE):
        cluster.create(*(NewTopic(topic, PARTITIONS_PER_TOPIC, 3) for topic in names[at : at + TOPICS_AT_ONCE]))
    yield f"{name}: created and led", time.monotonic() - begun
    cluster.until(partial(_all_whole, cluster, names), "all replicas are in sync", every_s=0.2)
    time.sleep(PAUSE_S)
    yield f"{name}: busiest broker while idle", 100 * cluster.busiest(work.seconds)
    yield f"{name}: elections after a death", _elections(cluster, cluster.others(cluster.controller)[0], names)
    yield f"{name}: elections of a new controller", _elections(cluster, cluster.controller, names)
    yield f"{name}: memory of the largest broker (PSS)", cluster.largest_mb()


def _elections(cluster: Cluster, broker: int, names: list[str]) -> float:
    """Seconds from the end of a killed broker's session until it leads nothing and is in no ISR. It is back then."""
    cluster.brokers[broker].kill()
    cluster.until(lambda: broker not in cluster.live(), "the session has ended")
    ended_ms = time.time() * 1000

    def is_out() -> bool:
        time.sleep(0.5)
        return all(broker not in (state["leader"], *state["isr"]) for state, _ in _states(cluster, names))

    cluster.until(is_out, "it leads nothing and is in no ISR")
    written_ms: float = max(stat.mtime for _, stat in _states(cluster, names))
    cluster.revive()
    cluster.until(partial(_all_whole, cluster, names), "all replicas are in sync", every_s=0.2)
    return max(written_ms - ended_ms, 0) / 1000


def _states(cluster: Cluster, names: list[str]) -> list[Any]:
    return [each for name in names for each in cluster.states(name, PARTITIONS_PER_TOPIC)]


def _all_whole(cluster: Cluster, names: list[str]) -> bool:
    return all(cluster.is_whole(name, PARTITIONS_PER_TOPIC) for name in names)


# -- one host -----------------------------------------------------------------------------------------------------


def two_brokers_of_a_host(target: host.Cluster, work: Work) -> Values:
    """`kafkad --brokers 2` beside one Kafka."""
    host.measure(work.generator, target, 10_000)
    row = host.measure(work.generator, target, 10_000)
    yield "--brokers 2, 16 KB, 100 connections: MB/s", row["mb_s"]
    yield "--brokers 2, 16 KB, 100 connections: CPU", row["cpu_s_gb"]


# -- the table ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def three_brokers(side: str, directory: Path) -> Iterator[Cluster]:
    with kafkads(directory, side) if side == KAFKAD else kafkas(side) as cluster:
        yield cluster


@contextlib.contextmanager
def three_kafkads_with_long_sessions(side: str, directory: Path) -> Iterator[Cluster]:
    with kafkads(directory, side, LONG_SESSION_MS) as cluster:
        yield cluster


@contextlib.contextmanager
def one_host(side: str, directory: Path) -> Iterator[host.Cluster]:
    partitions = 2
    if side == KAFKA:
        with oracle.Kafka("3.9") as kafka:
            yield host.cluster(side, kafka.pids[0], kafka.ports[0], partitions)
    else:
        with Host(directory, partitions, {"kafkad.placement.start": "0"}) as brokers:
            yield host.cluster(side, brokers.pid, brokers.port, partitions)


@dataclass(frozen=True, slots=True)
class Measurement:
    run: Callable[[Any, Work], Values]
    promises: Sequence[Promise]
    place: Callable[[str, Path], AbstractContextManager[Any]] = three_brokers
    """Opens what is measured."""
    shared: bool = True
    """True if it follows others in a place that stays open, with both sides; otherwise each run has one to itself."""
    warms: bool = False
    """True if a first run does not count: compilers have work then."""
    beside: bool = True
    """False if Kafka is not asked."""

    @property
    def names(self) -> list[str]:
        """Of its figures, as they are printed."""
        return [promise.name for promise in self.promises]


def at_least(name: str, unit: str, ratio: float | None) -> Promise:
    return Promise(name=name, unit=unit, at_least=True, ratio=ratio)


def at_most(name: str, unit: str, limit: float | None = None, ratio: float | None = None) -> Promise:
    return Promise(name=name, unit=unit, limit=limit, ratio=ratio)


def _rate_and_cpu(name: str) -> tuple[Promise, Promise]:
    return at_least(f"{name}: MB/s", "MB/s", 1.3), at_most(f"{name}: CPU of all brokers", "s/GB", ratio=2)


def _transactions(name: str) -> tuple[Promise, Promise]:
    return (
        at_least(f"transactions in {name}: per second", "/s", 1),
        at_most(f"transactions in {name}: CPU of all brokers for 1,000", "s", ratio=2),
    )


GAP_S = SESSION_MS / 1000 + 0.3


def _many(
    name: str, created_s: float | None, elections_s: float, idle: float | None, mb: float | None
) -> list[Promise]:
    return [
        at_most(f"{name}: created and led", "s", created_s),
        at_most(f"{name}: busiest broker while idle", "%", idle),
        at_most(f"{name}: elections after a death", "s", elections_s),
        at_most(f"{name}: elections of a new controller", "s", elections_s),
        at_most(f"{name}: memory of the largest broker (PSS)", "MB", mb),
    ]


MEASUREMENTS = (
    Measurement(records, _rate_and_cpu("1 KB records, acks=all"), warms=True),
    Measurement(six_partitions, _rate_and_cpu("1 KB records to six partitions"), warms=True),
    Measurement(acks_1, _rate_and_cpu("1 KB records, acks=1"), warms=True),
    Measurement(
        requests_of_100_kb,
        (
            at_least("100 KB requests, 5 in flight: MB/s", "MB/s", 1.5),
            at_most("100 KB requests, 5 in flight: CPU of all brokers", "s/GB"),
        ),
        warms=True,
    ),
    Measurement(
        one_in_flight,
        (
            at_least("1 KB, one in flight: requests/s", "/s", 1.5),
            at_most("1 KB, one in flight: CPU of all brokers", "µs"),
        ),
        warms=True,
    ),
    Measurement(
        at_200_a_second, (at_most("1 KB at 200/s: p50", "ms", ratio=1), at_most("1 KB at 200/s: p99", "ms", ratio=1))
    ),
    Measurement(transactions, (*_transactions("one partition"), *_transactions("six partitions")), warms=True),
    Measurement(memory, (at_most("memory of the largest broker (PSS)", "MB", 80),)),
    Measurement(
        broker_killed,
        (
            at_most("leader killed: longest gap", "s", GAP_S),
            at_most("follower killed: longest gap", "s", GAP_S),
            at_most("broker killed: all go on after its session", "s"),
        ),
    ),
    Measurement(
        controller_killed,
        (
            at_most("controller killed: longest gap", "s", GAP_S),
            at_most("controller killed: all go on after its session", "s"),
        ),
    ),
    Measurement(told_to_stop, (at_most("SIGTERM of each in turn: longest gap", "s", 0.2),)),
    Measurement(killed_and_started, (at_most("killed and started: serves after its session", "s", 0.5),)),
    Measurement(
        catching_up,
        (
            at_least("catching up 1 GB: MB/s", "MB/s", 1.3),
            at_most("catching up 1 GB: p99 of a producer beside it", "ms", ratio=1),
            at_most("in-sync set whole after the follower has all", "s", 0.3),
        ),
    ),
    Measurement(thousand_partitions, _many("1,000 partitions", 5, 0.5, 4, None), shared=False),
    Measurement(
        ten_thousand_partitions,
        _many("10,000 partitions", None, 5, None, 250),
        three_kafkads_with_long_sessions,
        shared=False,
        beside=False,
    ),
    Measurement(
        two_brokers_of_a_host,
        (
            at_least("--brokers 2, 16 KB, 100 connections: MB/s", "MB/s", host.AHEAD),
            at_most("--brokers 2, 16 KB, 100 connections: CPU", "s/GB"),
        ),
        one_host,
        shared=False,
    ),
)


class Bench:
    """A context manager: both sides, and what is kept open for the measurements that share it."""

    def __init__(self, sides: Sequence[str], repetitions: int, seconds: float) -> None:
        self._sides = sides
        self._repetitions = repetitions
        self._stack = contextlib.ExitStack()
        self._scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-cluster-")))
        self._numbers = count(1)
        self._work = Work(LoadGenerator(self._scratch), seconds)
        self._shared: dict[str, Any] = {}
        self._open = self._stack.enter_context(contextlib.ExitStack())

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def medians(self, measurement: Measurement) -> dict[str, dict[str, float]]:
        """By the name of a value and the side."""
        sides = [side for side in self._sides if measurement.beside or side != KAFKA]
        samples: dict[str, dict[str, list[float]]] = {}
        if not measurement.shared:
            self._close_shared()
        for repetition in range(-1 if measurement.warms else 0, self._repetitions):
            turn = repetition % len(sides)
            for side in sides[turn:] + sides[:turn]:
                for name, value in self._run(measurement, side).items():
                    if repetition >= 0:
                        samples.setdefault(name, {}).setdefault(side, []).append(value)
        return {
            name: {side: statistics.median(values) for side, values in by_side.items()}
            for name, by_side in samples.items()
        }

    def _run(self, measurement: Measurement, side: str) -> dict[str, float]:
        os.sync()
        if measurement.shared:
            return dict(measurement.run(self._kept(measurement, side), self._work))
        with measurement.place(side, self._directory()) as place:
            return dict(measurement.run(place, self._work))

    def _kept(self, measurement: Measurement, side: str) -> Cluster:
        for each in self._sides:
            if each not in self._shared:
                self._shared[each] = self._open.enter_context(measurement.place(each, self._directory()))
        cluster: Cluster = self._shared[side]
        cluster.revive()
        return cluster

    def _close_shared(self) -> None:
        self._open.close()
        self._shared.clear()

    def _directory(self) -> Path:
        directory = self._scratch / str(next(self._numbers))
        directory.mkdir()
        return directory


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only measurements with a figure whose name holds this text")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="how long each load lasts")
    parser.add_argument("--without", choices=["kafka", "kafkad"], help="leave one of the two out")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    prepare()
    sides = [name for name in (KAFKA, KAFKAD) if options.without is None or options.without != name.split()[0].lower()]
    wanted = options.only.split(";")
    chosen = [each for each in MEASUREMENTS if any(text in name for text in wanted for name in each.names)]
    if not chosen:
        print(f"no figure is called {options.only!r}", file=sys.stderr)
        return 2
    missed = 0
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's second start finds the bytecode of the first
    print(f"{'':54} {KAFKAD:>12} {KAFKA:>12} {'':6} {'limit':>9} ahead by", flush=True)
    with Bench(sides, options.reps, options.seconds) as bench:
        for measurement in chosen:
            values: dict[str, dict[str, float]] = {}
            try:
                values = bench.medians(measurement)
            except Exception as error:  # the other figures are worth having all the same
                print(f"{measurement.run.__name__} FAILED: {error!r}"[:400], flush=True)
                missed += 1
            for promise in measurement.promises:
                line, kept = promise.line(*(values.get(promise.name, {}).get(name) for name in (KAFKAD, KAFKA)))
                print(line, flush=True)
                missed += not kept
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
