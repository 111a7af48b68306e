"""A topic that was moved away from a broker, deleted and made again while the broker was down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.errors import ErrorCode
from kafkad.meta.znodes import Partition, Topic
from kafkad.names import TopicPartition
from tests.broker_parts.several import MEMORY, Brokers

A0 = TopicPartition("a", 0)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path, MEMORY, "auto.leader.rebalance.enable=false")
    brokers.start(1, 2, 3)
    brokers.meet()
    yield brokers
    brokers.stop()


def replicas(brokers: Brokers) -> tuple[int, ...]:
    data, _ = brokers.run(brokers[3].session.get(Topic.path("a")))
    return Topic.decode(data).partitions[0].replicas


def isr(brokers: Brokers) -> tuple[int, ...]:
    data, stat = brokers.run(brokers[3].session.get(Partition.path(*A0)))
    return Partition.decode(data, stat.version).isr


def move(brokers: Brokers, *target: int) -> None:
    outcome = brokers.ended(brokers.controller.parts.controller.alter_partition_reassignments({A0: target}))
    assert outcome == {A0: None}


def test_the_log_of_the_old_topic_is_neither_used_nor_touched(three: Brokers, tmp_path: Path) -> None:
    three.create("a", (2, 3))
    assert three.ended(three[2].produce(A0, b"old")).error_code == ErrorCode.NONE
    three.until(lambda: three[3].partition(A0).log.end_offset == 1, advance_ms=10)
    three.leave(2)
    directory = tmp_path / "2" / "a-0"
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in (".log", ".metadata")}
    assert len(before) == 2
    move(three, 1, 3)
    three.until(lambda: replicas(three) == (1, 3), advance_ms=10)
    [deleted] = three.ended(three.controller.parts.controller.delete_topics(["a"], timeout_ms=5_000))
    assert deleted.error is None
    three.until(lambda: all("a" not in three[b].parts.replicas.metadata.topics for b in (1, 3)), advance_ms=10)
    three.create("a", (1, 3))
    assert three.ended(three[1].produce(A0, b"new", b"newer")).error_code == ErrorCode.NONE
    three.start(2)
    three.until(lambda: "a" in three[2].parts.replicas.metadata.topics, advance_ms=10)
    move(three, 1, 2)
    deadline = three.clock.monotonic_ms() + 5_000
    three.until(lambda: three.clock.monotonic_ms() >= deadline, advance_ms=10)
    assert set(isr(three)) == {1, 3}
    assert replicas(three) == (1, 2, 3), "the move waits for somebody to remove the directory"
    assert {name: (directory / name).read_bytes() for name in before} == before
