"""A load on a topic of a cluster, and the check of its whole history.

An idempotent producer with acks=all writes numbered records to every partition; a consumer reads them as they become
visible. At the end nothing that was acknowledged may be missing or stand elsewhere, nothing be there twice, nothing
that was read be gone, and all replicas have the same bytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import count, pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from kafkad.wire.records import iter_batches

EACH_LEADS_ONE = ([1, 2, 3], [2, 3, 1], [3, 1, 2])
"""Broker n leads partition n - 1."""
SETTLING_S = 10
WHOLE_S = 90
GROUP = "unused"
"""Consumers have to name one, and are in none."""
_EVERY_S = 0.005
_VALUE_BYTES = 200
_numbers = count(1)
_CLIENT = {
    "topic.metadata.refresh.interval.ms": 1000,
    "retry.backoff.ms": 100,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 200,
    "socket.connection.setup.timeout.ms": 2000,
    "topic.metadata.propagation.max.ms": 600_000,
    "broker.address.family": "v4",
    "log_level": 0,
}
"""Topics stay known to a client although a broker of Kafka that has just started does not know them yet. All records
wait as long before they are sent again, which a greatest wait below the first one brings about: librdkafka 2.16 gives
up on a batch ("Unable to reconstruct MessageSet") of which some were sent more often than others, and wait for longer.
"""


class Replica(Protocol):
    """A broker's process."""

    log_dirs: list[Path]


class LoadedCluster(Protocol):
    """A cluster as a load looks at it."""

    ids: tuple[int, ...]

    @property
    def brokers(self) -> Mapping[int, Replica]: ...

    @property
    def bootstrap(self) -> str: ...

    def replicas(self, topic: str, partition: int) -> list[int]: ...

    def is_whole(self, topic: str, partitions: int) -> bool: ...

    def until(self, condition: Callable[[], bool], what: str, seconds: float = WHOLE_S) -> float: ...


class Acknowledged(NamedTuple):
    """`offset` is None where librdkafka only knows that the record is there: the answer to a later one says so."""

    at: float
    offset: int | None


class Anomalies(NamedTuple):
    """What a history must not have, one line for each."""

    lost: list[str]
    """Acknowledged, and not there."""
    moved: list[str]
    """Acknowledged at another offset than it has, or there more than once."""
    vanished: list[str]
    """Read where something else is now."""
    different: list[str]
    """Partitions whose replicas have other bytes than one another."""
    other: list[str]

    def __str__(self) -> str:
        return "\n".join(line for lines in self for line in lines[:20])


class Load:
    """A context manager: traffic while the block runs, at 200 records a second for each partition.

    A producer that is not idempotent may write a record twice, and goes on where the cluster has lost some.
    """

    def __init__(
        self,
        cluster: LoadedCluster,
        topic: str,
        partitions: int,
        *,
        acks: str = "all",
        idempotent: bool = True,
        client: Mapping[str, str] | None = None,
    ) -> None:
        """`client` has settings of librdkafka: where its clients connect, and as whom."""
        self.cluster = cluster
        self.topic = topic
        self.partitions = range(partitions)
        self.sent: dict[int, int] = dict.fromkeys(self.partitions, 0)
        self.acknowledged: dict[int, dict[str, Acknowledged]] = {p: {} for p in self.partitions}
        self.read: dict[int, dict[int, str]] = {p: {} for p in self.partitions}
        self.anomalies: list[str] = []
        self.told: list[KafkaError] = []
        """What went wrong with connections and logins, as its clients were told."""
        self._settings: Mapping[str, str] = {}
        self._client: Mapping[str, Any] = {}
        self._acks = acks
        self._idempotent = idempotent and acks == "all"
        self._acks_at: dict[int, list[float]] = {p: [] for p in self.partitions}
        self._stopping = threading.Event()
        self._producing = threading.Thread(target=self._produce, name="producer")
        self._consuming = threading.Thread(target=self._consume, name="consumer")
        self.move(client or {})
        self._producer = self._new_producer()

    def __enter__(self) -> Self:
        self._producing.start()
        self._consuming.start()
        self.until_all_go_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._producing.join()
        left = self._producer.flush(60)
        if error is None:
            assert left == 0, f"{left} records are not answered"
        self._consuming.join()

    # -- while it runs ---------------------------------------------------------------------------------------------

    def move(self, client: Mapping[str, str]) -> None:
        """Its clients end when what they have sent is answered, and others with these settings go on."""
        self._settings = client
        self._client = {
            **_CLIENT,
            "bootstrap.servers": self.cluster.bootstrap,
            "error_cb": self.told.append,
            **client,
        }

    def run(self, seconds: float) -> None:
        time.sleep(seconds)

    def until_all_go_on(self, partitions: Iterable[int] | None = None, seconds: float = 120) -> None:
        """Until a record that is sent from now on was acknowledged for each partition, or for some."""
        sent = dict(self.sent)
        end = time.monotonic() + seconds
        for partition in self.partitions if partitions is None else partitions:
            while f"{partition}:{sent[partition] + 1}" not in self.acknowledged[partition]:
                assert time.monotonic() < end, f"partition {partition} takes no records: {self.anomalies[:3]}"
                time.sleep(0.005)

    def gap(self, since: float, partition: int | None = None) -> float:
        """The longest time without an acknowledgement from a moment until now, of one partition or the worst."""
        worst = 0.0
        for p in self.partitions if partition is None else [partition]:
            times = [since, *(at for at in self._acks_at[p] if at >= since), time.monotonic()]
            worst = max([worst, *(b - a for a, b in pairwise(times))])
        return worst

    def _new_producer(self) -> Producer:
        return Producer(
            {
                **self._client,
                "acks": self._acks,
                "enable.idempotence": self._idempotent,
                "linger.ms": 0,
                "request.timeout.ms": 4000,
                "delivery.timeout.ms": 120_000,
                "queue.buffering.max.messages": 1_000_000,
            }
        )

    def _produce(self) -> None:
        due, client = time.monotonic(), self._client
        while not self._stopping.is_set():
            if self._client is not client:
                client = self._client
                if left := self._producer.flush(60):
                    self.anomalies.append(f"{left} records are not answered")
                self._producer = self._new_producer()
            for partition in self.partitions:
                number = self.sent[partition] + 1
                value = f"{partition}:{number}".ljust(_VALUE_BYTES)
                try:
                    self._producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)
                except BufferError:
                    break
                except KafkaException as error:
                    self.anomalies.append(f"the producer has failed: {error}")
                    return
                self.sent[partition] = number
            due = max(due + _EVERY_S, time.monotonic() - 0.1)
            self._producer.poll(max(due - time.monotonic(), 0))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition, now = message.partition(), time.monotonic()
        value = _text(message)
        if error is not None:
            self.anomalies.append(f"{value} was not taken: {error}")
            return
        self.acknowledged[partition][value] = Acknowledged(now, message.offset())
        self._acks_at[partition].append(now)

    def _consume(self) -> None:
        while not self._stopping.is_set():
            self._consume_as(self._client)

    def _consume_as(self, client: Mapping[str, Any]) -> None:
        consumer = Consumer(
            {
                **client,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
            }
        )
        consumer.assign([TopicPartition(self.topic, p, OFFSET_BEGINNING) for p in self.partitions])
        while self._client is client and not self._stopping.is_set():
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._AUTO_OFFSET_RESET:
                    self.anomalies.append(f"a consumer was told that its offset is none: {error}")
                elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    self.anomalies.append(f"a consumer may not read: {error}")
                continue
            self._note_read(message)
        consumer.close()

    def _note_read(self, message: Message) -> None:
        read, offset, value = self.read[message.partition()], message.offset(), _text(message)
        before = read.setdefault(offset, value)
        if before != value:
            self.anomalies.append(f"offset {offset} was read as {before} and as {value}")

    # -- afterwards ------------------------------------------------------------------------------------------------

    def whole(self, seconds: float = WHOLE_S) -> float:
        """Waits until all replicas are in sync; returns how long that took."""
        return self.cluster.until(
            lambda: self.cluster.is_whole(self.topic, len(self.partitions)),
            f"all replicas of {self.topic} are in sync",
            seconds,
        )

    def segments(self, broker: int, partition: int) -> list[Path]:
        """The files of a replica with the records, in their order."""
        name = f"{self.topic}-{partition}"
        return [
            path for place in self.cluster.brokers[broker].log_dirs for path in sorted((place / name).glob("*.log"))
        ]

    def check(self) -> None:
        """After the block, with all brokers up."""
        found = self.found()
        assert not any(found), str(found)

    def found(self) -> Anomalies:
        """Compares the history with what is there after the block, with all brokers up."""
        self.whole()
        there = self._all_records()
        found = Anomalies([], [], [], self._different_replicas(), list(self.anomalies))
        for partition in self.partitions:
            self._compare(partition, there[partition], found)
        return found

    def _compare(self, partition: int, there: dict[int, str], found: Anomalies) -> None:
        where: dict[str, list[int]] = {}
        for offset, value in there.items():
            where.setdefault(value, []).append(offset)
        if self._idempotent:
            doubled = {value: at for value, at in where.items() if len(at) > 1}
            writers = self._writers(partition) if doubled else {}
            for value, at in doubled.items():
                found.moved.append(f"{value} is there at {', '.join(f'{offset} ({writers[offset]})' for offset in at)}")
        for value, (_, offset) in self.acknowledged[partition].items():
            if value not in where:
                found.lost.append(f"{value} was acknowledged at {offset}, and is lost")
            elif offset is not None and offset not in where[value]:
                found.moved.append(f"{value} was acknowledged at {offset}, and is at {where[value]}")
        for offset, value in self.read[partition].items():
            if there.get(offset) != value:
                found.vanished.append(f"{value} was read at {offset}, where {there.get(offset)} is now")

    def _writers(self, partition: int) -> dict[int, str]:
        """By whom the record at each offset was written, and as which of the records that it sent."""
        writers = {}
        for segment in self.segments(self.cluster.replicas(self.topic, partition)[0], partition):
            for _, header in iter_batches(memoryview(segment.read_bytes())):
                for index in range(header.last_offset_delta + 1):
                    writers[header.base_offset + index] = (
                        f"producer {header.producer_id}, epoch {header.producer_epoch}, "
                        f"sequence {header.base_sequence + index}, leader epoch {header.leader_epoch}"
                    )
        return writers

    def _all_records(self) -> dict[int, dict[int, str]]:
        self.move(self._settings)  # the brokers of when the load began may be gone
        consumer = Consumer({**self._client, "group.id": GROUP, "enable.auto.commit": False})
        there: dict[int, dict[int, str]] = {p: {} for p in self.partitions}
        ends = {p: consumer.get_watermark_offsets(TopicPartition(self.topic, p), 30)[1] for p in self.partitions}
        consumer.assign([TopicPartition(self.topic, p, OFFSET_BEGINNING) for p in self.partitions])
        end = time.monotonic() + 60
        while any(len(there[p]) < ends[p] for p in self.partitions):
            assert time.monotonic() < end, f"cannot read all: {[(len(there[p]), ends[p]) for p in self.partitions]}"
            for message in consumer.consume(10_000, 0.5):
                if message.error() is None:
                    there[message.partition()][message.offset()] = _text(message)
        consumer.close()
        return there

    def _different_replicas(self) -> list[str]:
        """Followers may still be fetching the last records."""
        end = time.monotonic() + SETTLING_S
        while (different := self._compared_replicas()) and time.monotonic() < end:
            time.sleep(0.1)
        return different

    def _compared_replicas(self) -> list[str]:
        different = []
        for partition in self.partitions:
            logs = {
                broker: b"".join(segment.read_bytes() for segment in self.segments(broker, partition))
                for broker in self.cluster.replicas(self.topic, partition)
            }
            if len(set(logs.values())) > 1:
                sizes = {broker: len(log) for broker, log in logs.items()}
                different.append(f"the replicas of partition {partition} differ: {sizes}")
        return different


def new_load(
    cluster: LoadedCluster,
    *assignment: list[int],
    acks: str = "all",
    idempotent: bool = True,
    client: Mapping[str, str] | None = None,
    **configs: str,
) -> Load:
    """On a new topic; without an assignment each of three brokers leads one partition and follows the others'."""
    topic = f"loaded-{next(_numbers)}"
    create(cluster, topic, *(assignment or EACH_LEADS_ONE), **configs)
    return Load(cluster, topic, len(assignment or EACH_LEADS_ONE), acks=acks, idempotent=idempotent, client=client)


def create(cluster: LoadedCluster, topic: str, *assignment: list[int], **configs: str) -> None:
    """Returns when all replicas are in sync."""
    admin = AdminClient({**_CLIENT, "bootstrap.servers": cluster.bootstrap})
    new = NewTopic(
        topic,
        num_partitions=len(assignment),
        replica_assignment=list(assignment),
        config={"min.insync.replicas": "2", **{name.replace("_", "."): value for name, value in configs.items()}},
    )
    admin.create_topics([new], operation_timeout=30)[topic].result(60)
    cluster.until(lambda: cluster.is_whole(topic, len(assignment)), f"{topic} is there")


def _text(message: Message) -> str:
    value = message.value()
    assert isinstance(value, bytes)
    return value.decode().rstrip()
