"""A group whose coordinator dies: its members go on, and their commits after a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from kafkad.names import java_hash
from tests.cluster.history import Load, create
from tests.cluster.processes import SESSION_MS, Cluster
from tests.oracle.zookeeper import missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.timeout(300),
    pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or ""),
]

TOPIC, GROUP, PARTITIONS = "loaded", "readers", 3
CLIENT_S = 8.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as cluster:
        create(cluster, TOPIC, [1, 2, 3], [2, 3, 1], [3, 1, 2])
        yield cluster


class Member(threading.Thread):
    """Reads, and commits after each batch."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        super().__init__(name=f"member-{number}")
        self.assigned: list[list[int]] = []
        self.read: dict[int, list[int]] = {}
        self.commits_at: list[float] = []
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": GROUP,
                "group.instance.id": str(number),
                "session.timeout.ms": 30_000,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._on_assign)

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


def test_its_coordinator_is_killed(cluster: Cluster) -> None:
    load = Load(cluster, TOPIC, PARTITIONS)
    with load:
        members = [Member(cluster, number) for number in range(2)]
        for member in members:
            member.start()
        try:
            cluster.until(lambda: all(member.commits_at for member in members), "both read and commit")
            offsets = int(cluster.brokers[1].settings["offsets.topic.num.partitions"])
            coordinator = cluster.leader("__consumer_offsets", (java_hash(GROUP) & 0x7FFF_FFFF) % offsets)
            assert coordinator is not None
            assigned = [list(member.assigned) for member in members]
            begun = time.monotonic()
            cluster.kill(coordinator)
            cluster.until(lambda: all(member.commits_at[-1] > begun + 1 for member in members), "both commit again")
            gap = max(member.commits_at[-1] for member in members) - begun
            print(f"coordinator killed: both commit after {gap:.2f} s; session {SESSION_MS / 1000} s")
            assert gap <= SESSION_MS / 1000 + CLIENT_S
            assert [member.assigned for member in members] == assigned, "nobody had to join again"
            cluster.start(coordinator)
            load.until_all_go_on()
        finally:
            for member in members:
                member.stop()
    for member in members:
        for offsets_read in member.read.values():
            assert len(offsets_read) == len(set(offsets_read)), "nothing was delivered twice"
    load.check()
