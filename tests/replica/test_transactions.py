"""Transactions in one partition: how far `read_committed` readers may see, on the leader and on a follower."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from kafkad.config import LogConfig
from kafkad.log.files import Files
from kafkad.log.log import Log
from kafkad.log.transactions import aborted_transactions
from kafkad.metrics import TopicProbe
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from kafkad.replica.markers import Marker, MarkerBatch
from kafkad.replica.partition import Partition, ReplicaParts, Role
from kafkad.replica.waits import Waits
from kafkad.timers import Timers
from kafkad.wire.records import BATCH_HEADER, Record, build_batch
from tests.fakes import FakeClock, HeldDisk

ME, OTHER = 1, 2
TP = TopicPartition("t", 0)
ALONE = Role(leader=ME, leader_epoch=4, partition_epoch=0, isr=(ME,), replicas=(ME,))
LEADING = replace(ALONE, isr=(ME, OTHER), replicas=(ME, OTHER))
FOLLOWING = replace(LEADING, leader=OTHER, leader_epoch=5)


class Held:
    def __init__(self, directory: Path, role: Role) -> None:
        self.clock = FakeClock()
        log = Log.open(str(directory / str(TP)), LogConfig(), Files(), self.clock, topic_partition=TP)
        waits = Waits(Timers(), self.clock, lambda call: None)
        parts = ReplicaParts(broker_id=ME, clock=self.clock, waits=waits, durable=cast(Durable, HeldDisk()))
        self.partition = Partition(TP, log, parts, TopicProbe(), 0)
        self.partition.become(role)
        self.sequences: dict[int, int] = {}

    def write(self, pid: int, epoch: int = 0) -> None:
        sequence = self.sequences.get(pid, 0)
        self.sequences[pid] = sequence + 1
        record = Record(0, self.clock.now_ms(), b"k", b"v")
        options = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": sequence}
        batch = build_batch([record], **options, transactional=True)
        self.partition.append(memoryview(batch), 0, len(batch), BATCH_HEADER.unpack_from(batch))

    def end(self, pid: int, *, commit: bool = True) -> None:
        MarkerBatch(Marker(pid, 0, commit, 0, 0, [TP]), self.clock.now_ms()).append(self.partition)

    @property
    def stable(self) -> int:
        return self.partition.last_stable_offset

    def undecided(self) -> int:
        return len(self.partition.log.producers._undecided)


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Held]:
    held = Held(tmp_path, LEADING)
    yield held
    held.partition.log.close()


def test_a_transaction_is_read_when_its_end_is_below_the_high_watermark(leader: Held) -> None:
    leader.write(1)  # 0
    leader.write(2)  # 1
    leader.end(1)  # 2
    leader.end(2)  # 3
    for high_watermark, stable in ((0, 0), (1, 0), (2, 0), (3, 1), (4, 4)):
        leader.partition.raise_high_watermark(high_watermark)
        assert leader.partition.visible(True) == (high_watermark, stable, stable)


def test_the_start_of_the_log_may_be_within_an_open_transaction(leader: Held) -> None:
    for _ in range(3):
        leader.write(1)
    leader.partition.raise_high_watermark(3)
    leader.partition.delete_records(2)
    assert leader.stable == 2


def test_a_follower_lets_readers_as_far_as_its_leader_did(tmp_path: Path, leader: Held) -> None:
    (tmp_path / "follower").mkdir()
    follower = Held(tmp_path / "follower", FOLLOWING)
    following = follower.partition
    leader.write(1)
    leader.write(2)
    leader.end(1, commit=False)
    leader.end(2)
    view = memoryview(Path(leader.partition.log.segments[0].path(".log")).read_bytes())
    following.log.append_copied(memoryview(bytearray(view)))
    for high_watermark, stable in ((0, 0), (2, 0), (3, 1), (4, 4)):
        following.raise_high_watermark(high_watermark)
        assert following.visible(True)[2] == stable
    assert aborted_transactions(following.log, 0, 4) == [(1, 0)]
    assert not follower.undecided()
    following.log.close()


@pytest.mark.parametrize("role", [ALONE, LEADING], ids=["alone", "with a follower"])
def test_nothing_is_left_of_transactions_that_nobody_reads(tmp_path: Path, role: Role) -> None:
    held = Held(tmp_path, role)
    for _ in range(20):
        held.write(1)
        held.end(1)
        held.partition.raise_high_watermark(held.partition.log.end_offset)
    assert not held.undecided()
    held.partition.log.close()


def test_the_age_of_the_oldest_open_transaction(leader: Held) -> None:
    producers = leader.partition.log.producers
    assert producers.oldest_transaction_ms() is None
    began = leader.clock.now_ms()
    leader.write(1)
    leader.clock.advance(10)
    leader.write(2)
    assert producers.oldest_transaction_ms() == began
    leader.end(1)
    assert producers.oldest_transaction_ms() == began + 10
    leader.write(2)
    leader.end(2)
    assert producers.oldest_transaction_ms() is None
