"""Transactions while brokers die: how long none is committed, and that each is there whole or not at all.

Of a real client, which waits now and then before it asks again; and of one that does not, which shows what the brokers
take.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from typing import Protocol

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from kafkad.names import TRANSACTIONS_TOPIC, home_partition
from tests.cluster.gaps import JAVA_S, SESSION_S
from tests.cluster.history import EACH_LEADS_ONE, create
from tests.cluster.processes import Cluster
from tests.cluster.raw_transactions import Aborted, RawTransactions
from tests.oracle.zookeeper import missing

pytestmark = [
    pytest.mark.long,
    pytest.mark.java,
    pytest.mark.timeout(900),
    pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or ""),
]

SECONDS = 60
PARTITIONS = range(len(EACH_LEADS_ONE))
STATES = 50
"""`transaction.state.log.num.partitions`"""
OURS_S = 1.0
"""What brokers may take beside the session of the one that died."""
LIBRDKAFKA_S = 3.0
"""The same, and what librdkafka waits before it asks again: 0.6 to 1.9 s where the brokers took 0.2 to 0.7."""
_numbers = count(1)


class Client(Protocol):
    def transact(self, value: str, commit: bool) -> None:
        """One transaction with a record in every partition; Aborted where it was to be committed and is not."""

    def close(self) -> None: ...


class Confluent:
    """librdkafka, as quick as it can be set."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._topic = name
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": SECONDS * 1000,
                "linger.ms": 0,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.max.ms": 200,
                "socket.connection.setup.timeout.ms": 2000,
                "metadata.recovery.strategy": "none",
                "log_level": 0,
            }
        )
        self._producer.init_transactions(SECONDS)

    def close(self) -> None:
        pass

    def transact(self, value: str, commit: bool) -> None:
        producer = self._producer
        producer.begin_transaction()
        try:
            for partition in PARTITIONS:
                producer.produce(self._topic, value, partition=partition)
            if commit:
                _commit(producer)
            else:
                producer.flush(SECONDS)
                producer.abort_transaction(SECONDS)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(SECONDS)
            raise Aborted from None


def raw(cluster: Cluster, name: str) -> RawTransactions:
    return RawTransactions({id_: broker.port for id_, broker in cluster.brokers.items()}, name, name, PARTITIONS)


NewClient = Callable[[Cluster, str], Client]


class Transactions(threading.Thread):
    """A context manager: one transaction after the other while the block runs; every fourth is aborted."""

    def __init__(self, cluster: Cluster, new_client: NewClient) -> None:
        super().__init__(name="transactions")
        self.name_of_topic = f"in-transactions-{next(_numbers)}"
        self.committed: dict[str, float] = {}
        """What was committed, and when that was answered."""
        self.aborted: set[str] = set()
        self.failures: list[str] = []
        self._cluster = cluster
        self.client = new_client.__name__
        self.allowed_s = JAVA_S if cluster.kind == "kafka" else LIBRDKAFKA_S if new_client is Confluent else OURS_S
        """What may come to the session of a broker that died."""
        self._new_client = new_client
        self._stopping = threading.Event()
        self._begun = count()

    @property
    def coordinator(self) -> int:
        leader = self._cluster.leader(TRANSACTIONS_TOPIC, home_partition(self.name_of_topic, STATES))
        assert leader is not None
        return leader

    def __enter__(self) -> Transactions:
        create(self._cluster, self.name_of_topic, *EACH_LEADS_ONE)
        self.start()
        self.until_they_go_on()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join()

    def until_they_go_on(self) -> None:
        before = len(self.committed)
        self._cluster.until(lambda: len(self.committed) > before + 3, "transactions are committed")

    def gap(self, since: float) -> float:
        """The longest time without a commit, from then until now."""
        times = [since, *(at for at in self.committed.values() if at >= since), time.monotonic()]
        return max(b - a for a, b in pairwise(times))

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                client = self._new_client(self._cluster, self.name_of_topic)
                with contextlib.closing(client):
                    while not self._stopping.is_set():
                        self._one(client)
            except (KafkaException, Aborted) as error:
                self.failures.append(repr(error))

    def _one(self, client: Client) -> None:
        number = next(self._begun)
        value, commit = str(number), number % 4 != 3
        if not commit:
            self.aborted.add(value)
        try:
            client.transact(value, commit)
        except Aborted:
            self.aborted.add(value)
            raise
        if commit:
            self.committed[value] = time.monotonic()

    def check(self) -> None:
        there = self._read()
        for partition, values in there.items():
            assert len(values) == len(set(values)), f"a record is twice in partition {partition}"
            assert not self.aborted & set(values), "what was aborted is read"
            assert self.committed.keys() <= set(values), "what was committed is lost"
            assert set(values) == set(there[0]), "a transaction is there in part"

    def _read(self) -> dict[int, list[str]]:
        topic = self.name_of_topic
        there: dict[int, list[str]] = {partition: [] for partition in PARTITIONS}
        consumer = Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in PARTITIONS])
        ended, deadline = 0, time.monotonic() + SECONDS
        while ended < len(there):
            assert time.monotonic() < deadline, "the end of what is committed was not reached"
            message = consumer.poll(1)
            if message is None:
                continue
            error, value = message.error(), message.value()
            if error is None:
                assert isinstance(value, bytes)
                there[message.partition()].append(value.decode())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
        consumer.close()
        return there


def _commit(producer: Producer) -> None:
    """An answer that did not come is asked for again, as librdkafka wants it."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            producer.commit_transaction(SECONDS)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > end:
                raise
        else:
            return


@pytest.fixture(params=["confluent", "raw"])
def transactions(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Transactions]:
    if request.param == "raw" and cluster.kind == "kafka":
        pytest.skip("Kafka 3.9 has no transactions of version 2")
    made = Transactions(cluster, Confluent if request.param == "confluent" else raw)
    with made:
        yield made
    made.check()


@pytest.mark.parametrize("victim", ["coordinator", "leader", "controller"])
def test_killed_and_started_again(cluster: Cluster, transactions: Transactions, victim: str) -> None:
    """Each broker leads one partition; the leader that is killed is neither of the other two, if there is a third."""
    controller, coordinator = cluster.controller, transactions.coordinator
    assert controller is not None
    others = [broker for broker in cluster.ids if broker not in (controller, coordinator)]
    broker = {"coordinator": coordinator, "leader": others[0], "controller": controller}[victim]
    begun = time.monotonic()
    cluster.kill(broker)
    cluster.until_gone(broker)
    ended = time.monotonic() - begun
    transactions.until_they_go_on()
    gap = transactions.gap(begun)
    print(
        f"{cluster.kind}, {transactions.client}: {victim} killed ({broker}; controller {controller}, coordinator "
        f"{coordinator}), its session over after {ended:.2f} s: {gap:.2f} s without a commit; "
        f"{transactions.failures or 'no failures'}"
    )
    cluster.start(broker)
    cluster.until(lambda: cluster.is_whole(transactions.name_of_topic, len(PARTITIONS)), "all replicas are in sync")
    transactions.until_they_go_on()
    assert gap <= SESSION_S + transactions.allowed_s
