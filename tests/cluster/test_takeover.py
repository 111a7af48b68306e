"""A Kafka 3.9 cluster is taken over by kafkad broker by broker under load, on the same directories, and back again."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Thread

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker import KafkadProcess
from tests.cluster.history import Load, create
from tests.oracle.kafka import Kafka, free_port, java, missing, tool

pytestmark = [
    pytest.mark.long,
    pytest.mark.java,
    pytest.mark.timeout(900),
    pytest.mark.skipif(missing("3.9") is not None, reason=missing("3.9") or ""),
]

TOPIC = "loaded"
ASSIGNMENT = ([1, 2, 3], [2, 3, 1], [3, 1, 2])
SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "10000",
    "offsets.topic.num.partitions": "6",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "auto.leader.rebalance.enable": "false",
}
SECONDS = 120
KEPT_PRODUCER = Path(__file__).with_name("KeptProducer.java")
MORE = 20
"""Transactions, among which are several that began after a change."""
MOST_S = 5
"""What a clean hand-over may cost a producer where the JVMs of three brokers share two busy cores."""


class JavaBroker:
    """One broker of a Kafka cluster, as `Load` looks at it."""

    def __init__(self, kafka: Kafka, broker: int) -> None:
        self._kafka = kafka
        self._place = broker - 1
        self.log_dirs = [kafka.log_directory(self._place)]

    def stop(self) -> None:
        self._kafka.brokers[self._place].stop()


class MixedCluster:
    """Three brokers with the ids 1, 2 and 3, each of which is Kafka's or kafkad's; all begin as Kafka's."""

    def __init__(self, kafka: Kafka, directory: Path, **settings: str) -> None:
        """`settings` are those of kafkads beside SETTINGS, with underscores for dots."""
        self.ids = (1, 2, 3)
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.bootstrap = kafka.bootstrap
        self.brokers: dict[int, JavaBroker | KafkadProcess] = {id_: JavaBroker(kafka, id_) for id_ in self.ids}
        self._kafka = kafka
        self._directory = directory
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})

    def take_over(self, broker: int) -> None:
        """Stops Kafka's broker and starts kafkad on its directory, with its settings."""
        self.brokers[broker].stop()
        self._start(broker, self._kafka.ports[broker - 1], [self._kafka.log_directory(broker - 1)])

    def give_back(self, broker: int) -> None:
        self.stop(broker)
        self._kafka.restart(broker - 1)
        self.brokers[broker] = JavaBroker(self._kafka, broker)

    def join(self, broker: int) -> None:
        """A kafkad of its own, beside Kafka's brokers."""
        self._start(broker, free_port(), None)
        self.ids = (2, 3)

    def reassign(self, topic: str, partition: int, replicas: list[int]) -> None:
        """By Kafka's own tool."""
        moves = [{"topic": topic, "partition": partition, "replicas": replicas}]
        plan = self._directory / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        words = ["--bootstrap-server", self.bootstrap, "--reassignment-json-file", str(plan), "--execute"]
        subprocess.run(tool("3.9", "reassign-partitions", *words), check=True, stdout=subprocess.DEVNULL)

    def _start(self, broker: int, port: int, log_dirs: list[Path] | None) -> None:
        assert self._kafka.zookeeper is not None
        kafkad = KafkadProcess(self._directory / str(broker), log_dirs=log_dirs)
        kafkad.port = port
        kafkad.settings |= {
            **SETTINGS,
            **self._settings,
            "broker.id": str(broker),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "zookeeper.connect": f"127.0.0.1:{self._kafka.zookeeper.port}",
        }
        self.brokers[broker] = kafkad.start()
        self.bootstrap = ",".join(sorted({*self.bootstrap.split(","), kafkad.bootstrap}))

    def stop(self, broker: int) -> None:
        assert not self.brokers[broker].stop(), f"broker {broker} did not end well"

    def elect(self) -> None:
        """Each partition's first replica leads it."""
        self._admin.elect_leaders(ElectionType.PREFERRED).result(60)

    def replicas(self, topic: str, partition: int) -> list[int]:
        return list(self._admin.list_topics(topic, timeout=10).topics[topic].partitions[partition].replicas)

    def is_whole(self, topic: str, partitions: int) -> bool:
        found = self._admin.list_topics(topic, timeout=10).topics[topic].partitions
        return len(found) == partitions and all(set(found[p].isrs) == set(self.ids) for p in found)

    def until(self, condition: Callable[[], bool], what: str, seconds: float = SECONDS) -> float:
        begun = time.monotonic()
        while not condition():
            assert time.monotonic() < begun + seconds, f"not within {seconds} s: {what}"
            time.sleep(0.1)
        return time.monotonic() - begun


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MixedCluster]:
    with Kafka("3.9", brokers=3, heap="384m", settings=SETTINGS) as kafka:
        cluster = MixedCluster(kafka, tmp_path)
        try:
            yield cluster
        finally:
            for broker in cluster.ids:
                _end(cluster.brokers[broker])


def test_broker_by_broker_and_back(cluster: MixedCluster) -> None:
    create(cluster, TOPIC, *ASSIGNMENT)
    member = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "kept", "enable.auto.commit": False})
    member.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
    load = Load(cluster, TOPIC, len(ASSIGNMENT))
    with load:
        for change in (cluster.take_over, cluster.give_back):
            for broker in cluster.ids:
                begun = time.monotonic()
                change(broker)
                cluster.until(lambda: cluster.is_whole(TOPIC, len(ASSIGNMENT)), "all replicas are in sync")
                load.until_all_go_on()
                gap = load.gap(begun)
                print(f"{change.__name__} {broker}: longest gap {gap:.2f} s, in all {time.monotonic() - begun:.1f} s")
                assert gap < MOST_S
                [kept] = member.committed([TopicPartition(TOPIC, 0)], timeout=30)
                assert kept.offset == 1
    member.close()
    load.check()


def test_transactions_go_on_over_each_change(cluster: MixedCluster) -> None:
    """Those that are open while a broker changes are ended afterwards, by coordinators of either kind."""
    create(cluster, TOPIC, *ASSIGNMENT)
    settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "transaction.timeout.ms": 300_000}
    producers = [Producer({**settings, "transactional.id": f"id-{number}"}) for number in range(12)]
    for producer in producers:
        producer.init_transactions(SECONDS)
    committed = set()
    changes = [(change, broker) for change in (cluster.take_over, cluster.give_back) for broker in cluster.ids]
    for turn, (change, broker) in enumerate(changes):
        for number, producer in enumerate(producers):
            producer.begin_transaction()
            for partition in range(len(ASSIGNMENT)):
                producer.produce(TOPIC, f"{turn} {number} {partition}", partition=partition)
            producer.flush(SECONDS)
        change(broker)
        cluster.until(lambda: cluster.is_whole(TOPIC, len(ASSIGNMENT)), "all replicas are in sync")
        for number, producer in enumerate(producers):
            if (turn + number) % 3 == 0:
                producer.abort_transaction(SECONDS)
            else:
                producer.commit_transaction(SECONDS)
                committed |= {f"{turn} {number} {partition}" for partition in range(len(ASSIGNMENT))}
        cluster.until(  # a commit is answered before its markers are written
            partial(_reads, cluster, sorted(committed)),
            f"what was committed is read after {change.__name__} {broker}, and nothing else",
        )


def test_a_producer_of_4_x_goes_on_when_the_brokers_are_given_back(cluster: MixedCluster) -> None:
    """It was told transactions that a Kafka 3.9 does not take, and only another connection tells it otherwise."""
    create(cluster, TOPIC, *ASSIGNMENT)
    for broker in cluster.ids:
        cluster.take_over(broker)
        cluster.until(lambda: cluster.is_whole(TOPIC, len(ASSIGNMENT)), "all replicas are in sync")
    words = [str(KEPT_PRODUCER), cluster.bootstrap, TOPIC, str(len(ASSIGNMENT))]
    command = java("4.3", *words, options=["-Xmx256m"])
    told: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as producer:
        assert producer.stdout is not None
        reader = Thread(target=lambda stdout: told.extend(map(str.strip, stdout)), args=[producer.stdout])
        reader.start()

        def goes_on() -> None:
            enough = len(told) + MORE
            cluster.until(lambda: len(told) >= enough or producer.poll() is not None, "more transactions are committed")
            assert set(told) == {"committed"}

        try:
            goes_on()
            for broker in cluster.ids:
                cluster.give_back(broker)
                cluster.until(lambda: cluster.is_whole(TOPIC, len(ASSIGNMENT)), "all replicas are in sync")
                goes_on()
                cluster.elect()
                goes_on()
        finally:
            producer.kill()
            reader.join()


def _reads(cluster: MixedCluster, expected: list[str]) -> bool:
    return sorted(_read_committed(cluster)) == expected


def _read_committed(cluster: MixedCluster) -> list[str]:
    """All records, to the end of each partition: nothing that is still open stands before it."""
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.partition.eof": True})
    reader.assign([TopicPartition(TOPIC, partition, 0) for partition in range(len(ASSIGNMENT))])
    values, ended, deadline = [], 0, time.monotonic() + SECONDS
    while ended < len(ASSIGNMENT):
        assert time.monotonic() < deadline, "the end of committed records was not reached"
        message = reader.poll(1)
        if message is None:
            continue
        if message.error() is None:
            values.append(message.value().decode())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended += 1
    reader.close()
    return values


@pytest.mark.parametrize("protocol", ["3.9", "3.2"])
def test_by_reassignment(protocol: str, tmp_path: Path) -> None:
    """kafkads join a Kafka broker, which is the controller; they get its partition with its records, and it goes.

    At both ends of the protocol versions that kafkad speaks with other brokers.
    """
    settings = {**SETTINGS, "offsets.topic.replication.factor": "1", "inter.broker.protocol.version": protocol}
    with Kafka("3.9", brokers=1, heap="384m", settings=settings) as kafka:
        cluster = MixedCluster(kafka, tmp_path, inter_broker_protocol_version=protocol)
        cluster.ids = (1,)
        cluster.brokers = {1: cluster.brokers[1]}
        create(cluster, TOPIC, [1], min_insync_replicas="1")
        load = Load(cluster, TOPIC, 1)
        try:
            with load:
                for broker in (2, 3):
                    cluster.join(broker)
                load.run(2)
                cluster.reassign(TOPIC, 0, [2, 3])
                cluster.until(lambda: cluster.is_whole(TOPIC, 1), "the kafkads have the partition")
                load.until_all_go_on()
                cluster.brokers.pop(1).stop()
                load.until_all_go_on()
            load.check()
        finally:
            for process in cluster.brokers.values():
                _end(process)


def _end(broker: JavaBroker | KafkadProcess) -> None:
    if isinstance(broker, KafkadProcess) and broker.alive():
        broker.kill()
