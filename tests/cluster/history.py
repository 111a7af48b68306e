"""A load on a topic of a cluster, and the check of its whole history.

An idempotent producer with acks=all writes numbered records to every partition; a consumer reads them as they become
visible. At the end nothing that was acknowledged may be missing or stand elsewhere, nothing be there twice, nothing
that was read be gone, and all replicas have the same bytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

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

_EVERY_S = 0.005
_VALUE_BYTES = 200
_CLIENT = {
    "topic.metadata.refresh.interval.ms": 1000,
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 200,
    "socket.connection.setup.timeout.ms": 2000,
    "broker.address.family": "v4",
    "log_level": 0,
}


class Replica(Protocol):
    """A broker's process."""

    def log_directory(self) -> Path: ...


class LoadedCluster(Protocol):
    """A cluster as a load looks at it."""

    ids: tuple[int, ...]

    @property
    def brokers(self) -> Mapping[int, Replica]: ...

    @property
    def bootstrap(self) -> str: ...

    def is_whole(self, topic: str, partitions: int) -> bool: ...

    def until(self, condition: Callable[[], bool], what: str) -> float: ...

    def stop(self, broker: int) -> None: ...


class Acknowledged(NamedTuple):
    """`offset` is None where librdkafka only knows that the record is there: the answer to a later one says so."""

    at: float
    offset: int | None


class Load:
    """A context manager: traffic while the block runs, at 200 records a second for each partition."""

    def __init__(self, cluster: LoadedCluster, topic: str, partitions: int, *, acks: str = "all") -> None:
        self.cluster = cluster
        self.topic = topic
        self.partitions = range(partitions)
        self.sent: dict[int, int] = dict.fromkeys(self.partitions, 0)
        self.acknowledged: dict[int, dict[str, Acknowledged]] = {p: {} for p in self.partitions}
        self.read: dict[int, dict[int, str]] = {p: {} for p in self.partitions}
        self.anomalies: list[str] = []
        self._acks_at: dict[int, list[float]] = {p: [] for p in self.partitions}
        self._stopping = threading.Event()
        self._producing = threading.Thread(target=self._produce, name="producer")
        self._consuming = threading.Thread(target=self._consume, name="consumer")
        self._producer = Producer(
            {
                **_CLIENT,
                "bootstrap.servers": cluster.bootstrap,
                "acks": acks,
                "enable.idempotence": acks == "all",
                "linger.ms": 0,
                "request.timeout.ms": 4000,
                "delivery.timeout.ms": 120_000,
                "queue.buffering.max.messages": 1_000_000,
            }
        )

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

    def run(self, seconds: float) -> None:
        time.sleep(seconds)

    def until_all_go_on(self, partitions: Iterable[int] | None = None, seconds: float = 60) -> None:
        """Until a record that is sent from now on was acknowledged for each partition, or for some."""
        sent = dict(self.sent)
        end = time.monotonic() + seconds
        for partition in self.partitions if partitions is None else partitions:
            while f"{partition}:{sent[partition] + 1}" not in self.acknowledged[partition]:
                assert time.monotonic() < end, f"partition {partition} takes no records: {self.anomalies[:3]}"
                time.sleep(0.005)

    def gap(self, since: float, partition: int | None = None) -> float:
        """The longest time without an acknowledgement after a moment, of one partition or the worst."""
        worst = 0.0
        for p in self.partitions if partition is None else [partition]:
            times = [since, *(at for at in self._acks_at[p] if at >= since)]
            worst = max([worst, *(b - a for a, b in pairwise(times))])
        return worst

    def _produce(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
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
        consumer = Consumer(
            {
                **_CLIENT,
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
            }
        )
        consumer.assign([TopicPartition(self.topic, p, OFFSET_BEGINNING) for p in self.partitions])
        while not self._stopping.is_set():
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._AUTO_OFFSET_RESET:
                    self.anomalies.append(f"a consumer was told that its offset is none: {error}")
                continue
            self._note_read(message)
        consumer.close()

    def _note_read(self, message: Message) -> None:
        read, offset, value = self.read[message.partition()], message.offset(), _text(message)
        before = read.setdefault(offset, value)
        if before != value:
            self.anomalies.append(f"offset {offset} was read as {before} and as {value}")

    # -- afterwards ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """After the block, with all brokers up. Stops them."""
        self.cluster.until(lambda: self.cluster.is_whole(self.topic, len(self.partitions)), "the ISR is whole")
        there = self._all_records()
        anomalies = list(self.anomalies)
        for partition in self.partitions:
            anomalies += self._compared(partition, there[partition])
        for broker in self.cluster.ids:
            self.cluster.stop(broker)
        anomalies += self._different_replicas()
        assert anomalies == [], "\n".join(anomalies[:50])

    def _compared(self, partition: int, there: dict[int, str]) -> list[str]:
        where: dict[str, int] = {}
        anomalies = []
        for offset, value in there.items():
            if value in where:
                anomalies.append(f"{value} is there twice: at {where[value]} and {offset}")
            where[value] = offset
        for value, (_, offset) in self.acknowledged[partition].items():
            if value not in where:
                anomalies.append(f"{value} was acknowledged at {offset}, and is lost")
            elif offset is not None and where[value] != offset:
                anomalies.append(f"{value} was acknowledged at {offset}, and is at {where[value]}")
        for offset, value in self.read[partition].items():
            if there.get(offset) != value:
                anomalies.append(f"{value} was read at {offset}, where {there.get(offset)} is now")
        return anomalies

    def _all_records(self) -> dict[int, dict[int, str]]:
        consumer = Consumer(
            {**_CLIENT, "bootstrap.servers": self.cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False}
        )
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
        anomalies = []
        for partition in self.partitions:
            logs = {
                broker: _bytes_of(process.log_directory() / f"{self.topic}-{partition}")
                for broker, process in self.cluster.brokers.items()
            }
            if len(set(logs.values())) > 1:
                sizes = {broker: len(log) for broker, log in logs.items()}
                anomalies.append(f"the replicas of partition {partition} differ: {sizes}")
        return anomalies


def create(cluster: LoadedCluster, topic: str, *assignment: list[int], **configs: str) -> None:
    """Until all brokers are in sync."""
    admin = AdminClient({**_CLIENT, "bootstrap.servers": cluster.bootstrap})
    new = NewTopic(
        topic,
        num_partitions=len(assignment),
        replica_assignment=list(assignment),
        config={"min.insync.replicas": "2", **{name.replace("_", "."): value for name, value in configs.items()}},
    )
    admin.create_topics([new], operation_timeout=30)[topic].result(60)
    cluster.until(lambda: cluster.is_whole(topic, len(assignment)), "the topic is there")


def _text(message: Message) -> str:
    value = message.value()
    assert isinstance(value, bytes)
    return value.decode().rstrip()


def _bytes_of(directory: Path) -> bytes:
    return b"".join(segment.read_bytes() for segment in sorted(directory.glob("*.log")))
