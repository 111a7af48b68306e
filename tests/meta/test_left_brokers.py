"""Fewer brokers on a host than before: partitions that would be left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafkad.clock import SystemClock
from kafkad.meta.embedded import EmbeddedStore
from kafkad.meta.left_brokers import partitions_left_behind
from kafkad.meta.store import ensure_path
from kafkad.meta.znodes import TOPICS, Topic
from kafkad.model import PartitionAssignment


def problem(
    directory: Path, brokers: tuple[int, ...], *, damaged: bool = False, **topics: dict[int, tuple[int, ...]]
) -> str | None:
    async def ask() -> str | None:
        store = EmbeddedStore.in_memory(SystemClock()).session()
        await ensure_path(store, TOPICS)
        for name, partitions in topics.items():
            assigned = {p: PartitionAssignment(replicas=replicas) for p, replicas in partitions.items()}
            await store.create(Topic.path(name), Topic(topic_id=bytes(16), partitions=assigned).encode())
        if damaged:
            await store.create(Topic.path("damaged"), b'{"partitions":{"0":["1"]}}')
        return await partitions_left_behind(store, [str(directory)], brokers)

    return asyncio.run(ask())


def test_partitions_of_a_broker_that_is_not_started_are_named(tmp_path: Path) -> None:
    for broker in (1, 2):
        (tmp_path / "brokers" / str(broker)).mkdir(parents=True)
    text = problem(tmp_path, (0,), orders={0: (0, 1), 1: (1, 2), 2: (0,)}, clicks={0: (1, 0)})
    assert text is not None
    assert "broker 1 has clicks-0, orders-0, orders-1; broker 2 has orders-1." in text
    assert "kctl partitions drain 1 2 --rf 1" in text
    text = problem(tmp_path, (0, 1), orders={0: (0, 1), 1: (1, 2)})
    assert text is not None
    assert "broker 2 has orders-1." in text


def test_brokers_without_partitions_may_go(tmp_path: Path) -> None:
    (tmp_path / "brokers" / "1").mkdir(parents=True)
    assert problem(tmp_path, (0,), orders={0: (0,)}) is None
    assert problem(tmp_path, (0, 1), orders={0: (0, 1)}) is None


def test_brokers_that_were_never_on_this_host_are_not_meant(tmp_path: Path) -> None:
    assert problem(tmp_path, (0,), orders={0: (0, 1)}) is None


def test_a_topic_that_cannot_be_read_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "brokers" / "1").mkdir(parents=True)
    text = problem(tmp_path, (0,), damaged=True, orders={0: (0, 1)})
    assert text is not None
    assert "broker 1 has orders-0." in text
    assert "/brokers/topics/damaged in the metadata store cannot be read" in caplog.text
