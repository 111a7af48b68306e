"""Followers copy what their leaders have: brokers on one loop and a clock of the test's own, by either kind of link."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkad.names import TopicPartition
from tests.broker_parts.several import MEMORY, NETWORK, Brokers

A0 = TopicPartition("a", 0)


@pytest.fixture(params=[MEMORY, NETWORK])
def three(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Brokers]:
    yield from cluster(tmp_path, request.param)


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Brokers]:
    yield from cluster(tmp_path, MEMORY)


def cluster(directory: Path, links: str) -> Iterator[Brokers]:
    brokers = Brokers(directory, links, "replica.lag.time.max.ms=10000")
    brokers.start(1, 2, 3)
    everybody = brokers.running.values()
    brokers.until(lambda: all(len(b.parts.replicas.metadata.brokers) == 3 for b in everybody), advance_ms=10)
    yield brokers
    brokers.stop()


def produced(brokers: Brokers, leader: int, *values: bytes, acks: int = -1) -> Any:
    """The answer, whenever it comes."""
    return brokers.ended(brokers[leader].produce(A0, *values, acks=acks))


def bytes_of(brokers: Brokers, broker: int, tp: TopicPartition = A0) -> bytes:
    directory = Path(brokers[broker].partition(tp).log.directory)
    return b"".join(file.read_bytes() for file in sorted(directory.glob("*.log")))


def ends(brokers: Brokers, tp: TopicPartition = A0) -> list[tuple[int, int]]:
    found = [broker.parts.replicas.find(*tp) for broker in brokers.running.values()]
    return [(p.log.end_offset, p.high_watermark) for p in found if p is not None]


def test_what_all_replicas_acknowledge_is_in_all_logs_byte_by_byte(three: Brokers) -> None:
    three.create("a", (2, 1, 3))
    for number in range(3):
        answer = produced(three, 2, b"one", b"two", b"three" * 1000)
        assert (answer.error_code, answer.base_offset) == (0, 3 * number)
    three.until(lambda: ends(three) == [(9, 9)] * 3, advance_ms=10)
    assert bytes_of(three, 1) == bytes_of(three, 2) == bytes_of(three, 3)
    assert len(bytes_of(three, 1)) > 15_000
