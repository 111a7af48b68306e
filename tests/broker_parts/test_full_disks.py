"""The disk of one broker is full: the others go on without its replicas, and it is back when there is room."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkad.cluster.metadata import MetadataCache
from kafkad.errors import ErrorCode
from kafkad.meta.znodes import Partition
from kafkad.model import PartitionState
from kafkad.names import TopicPartition
from kafkad.replica.full_disks import FullDisks
from kafkad.replica.partition import Role
from tests.broker_parts.several import MEMORY, Brokers
from tests.one_broker import NoSync

LED, FOLLOWED = (TopicPartition("a", partition) for partition in range(2))
"""By the broker whose disk gets full."""


class Disk(NoSync):
    is_full = False

    def pwrite(self, fd: int, data: bytes, at: int) -> int:  # type: ignore[override]
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(fd, data, at)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def brokers(tmp_path: Path, disk: Disk) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path, MEMORY, "auto.leader.rebalance.enable=false", "min.insync.replicas=2")
    brokers.files[1] = disk
    brokers.start(1, 2, 3)
    brokers.meet()
    brokers.create("a", (1, 2, 3), (2, 1, 3))
    for tp, leader in ((LED, 1), (FOLLOWED, 2)):
        assert produced(brokers, tp, leader) == ErrorCode.NONE
    yield brokers
    brokers.stop()


def produced(brokers: Brokers, tp: TopicPartition, leader: int) -> int:
    return int(brokers.ended(brokers[leader].produce(tp, b"value", timeout_ms=60_000)).error_code)


def state(brokers: Brokers, tp: TopicPartition) -> PartitionState:
    data, stat = brokers.run(brokers[3].session.get(Partition.path(*tp)))
    return Partition.decode(data, stat.version)


def end(brokers: Brokers, tp: TopicPartition, broker: int) -> int:
    return brokers[broker].partition(tp).log.end_offset


def test_others_lead_what_it_led_and_wait_for_nothing_that_it_followed(brokers: Brokers, disk: Disk) -> None:
    disk.is_full = True
    began_ms = brokers.clock.monotonic_ms()
    assert produced(brokers, LED, 1) == ErrorCode.KAFKA_STORAGE_ERROR
    brokers.until(lambda: state(brokers, LED).leader == 2, advance_ms=10)
    brokers.until(lambda: state(brokers, FOLLOWED).isr == (2, 3), advance_ms=10)
    assert produced(brokers, LED, 2) == produced(brokers, FOLLOWED, 2) == ErrorCode.NONE
    assert brokers.clock.monotonic_ms() < began_ms + 3_000, "nobody waited for the lag"
    assert state(brokers, LED).isr == (2, 3)


def test_a_follower_without_room_leaves_the_isr_at_once(brokers: Brokers, disk: Disk) -> None:
    disk.is_full = True
    began_ms = brokers.clock.monotonic_ms()
    assert produced(brokers, FOLLOWED, 2) == ErrorCode.NONE
    assert brokers.clock.monotonic_ms() < began_ms + 3_000, "nobody waited for the lag"
    assert state(brokers, FOLLOWED).isr == (2, 3)


def test_it_follows_again_when_there_is_room(brokers: Brokers, disk: Disk) -> None:
    for _ in range(2):
        disk.is_full = True
        assert produced(brokers, FOLLOWED, 2) == ErrorCode.NONE
        brokers.until(lambda: state(brokers, LED).leader == 2, advance_ms=10)
        for _ in range(3):
            assert produced(brokers, LED, 2) == ErrorCode.NONE
        brokers.until(lambda: False not in [1 not in state(brokers, tp).isr for tp in (LED, FOLLOWED)], advance_ms=10)
        disk.is_full = False
        brokers.until(lambda: all(1 in state(brokers, tp).isr for tp in (LED, FOLLOWED)), advance_ms=50)
        for tp in (LED, FOLLOWED):
            brokers.until(lambda tp=tp: end(brokers, tp, 1) == end(brokers, tp, 2), advance_ms=50)


def test_a_replica_that_nobody_else_has_stays_and_refuses(brokers: Brokers, disk: Disk) -> None:
    brokers.create("b", (1,))
    alone = TopicPartition("b", 0)
    disk.is_full = True
    assert produced(brokers, FOLLOWED, 2) == ErrorCode.NONE
    code = brokers.ended(brokers[1].produce(alone, b"value", acks=1)).error_code
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    assert state(brokers, alone).leader == 1
    disk.is_full = False
    assert brokers.ended(brokers[1].produce(alone, b"value", acks=1)).error_code == ErrorCode.NONE


def test_it_has_a_role_again_although_the_controller_had_not_asked_before_there_was_room(
    brokers: Brokers, disk: Disk
) -> None:
    """The controller dies meanwhile: the next one asks, and is told of both."""
    controller = brokers.controller.parts.replicas.broker_id
    disk.is_full = True
    brokers.cut_ways |= {(controller, 1)}
    produce = brokers[1].produce(LED, b"value")
    assert brokers.ended(produce).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.is_full = False
    brokers.cut_ways.clear()
    brokers.until(lambda: set(state(brokers, LED).isr) == {1, 2, 3} and state(brokers, LED).leader == 2, advance_ms=50)
    assert produced(brokers, LED, 2) == ErrorCode.NONE


def test_of_refused_appends_in_thousands_few_look_through_all_partitions() -> None:
    full = FullDisks(1, MetadataCache())
    assert [now_ms for now_ms in (0, 1, 999, 1000, 1001) if full.is_to_look("/disk", now_ms)] == [0, 1000]


def test_a_replica_that_is_moved_to_a_disk_with_room_comes_back_whatever_becomes_of_the_full_one() -> None:
    log = SimpleNamespace(directory="/full/a-0")
    role = Role(leader=1, leader_epoch=1, partition_epoch=1, isr=(1, 2), replicas=(1, 2))
    replica: Any = SimpleNamespace(
        tp=LED, log=log, role=role, is_leader=True, become=lambda role: None, stopped=False, failure=None
    )
    full = FullDisks(1, MetadataCache())
    assert full.leave("/full", replica)
    assert full.refuses(LED)
    assert not full.come_back(lambda directory: directory == "/roomy")
    replica.log = SimpleNamespace(directory="/roomy/a-0")
    assert full.come_back(lambda directory: directory == "/roomy")
    assert not full.refuses(LED)
