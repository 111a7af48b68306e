"""Members of a group that reads the topic of a load."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaException, TopicPartition

from kafkad.names import java_hash
from tests.cluster.processes import Cluster


def group_of(topic: str) -> str:
    return f"readers-of-{topic}"


def coordinator_of(cluster: Cluster, topic: str) -> int:
    """The broker that leads the group's partition."""
    offsets = int(cluster.brokers[1].settings["offsets.topic.num.partitions"])
    coordinator = cluster.leader("__consumer_offsets", (java_hash(group_of(topic)) & 0x7FFF_FFFF) % offsets)
    assert coordinator is not None
    return coordinator


class Member(threading.Thread):
    """A static member of a group of readers: reads, and commits after each batch."""

    def __init__(self, cluster: Cluster, topic: str, number: int) -> None:
        super().__init__(name=f"member-{number}")
        self.assigned: list[list[int]] = []
        self.read: dict[int, list[int]] = {}
        self.commits_at: list[float] = []
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group_of(topic),
                "group.instance.id": str(number),
                "session.timeout.ms": 30_000,
                "topic.metadata.refresh.interval.ms": 1000,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._on_assign)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned.append(sorted(each.partition for each in partitions))

    def run(self) -> None:
        while not self._stopping.is_set():
            messages = [each for each in self._consumer.consume(100, 0.2) if each.error() is None]
            for message in messages:
                self.read.setdefault(message.partition(), []).append(message.offset())
            if messages:
                self._commit()
        self._consumer.close()

    def _commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException:
            return
        self.commits_at.append(time.monotonic())

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def until_all_commit(cluster: Cluster, members: Iterable[Member], since: float) -> None:
    cluster.until(lambda: all(member.commits_at[-1:] > [since] for member in members), "all members commit")
