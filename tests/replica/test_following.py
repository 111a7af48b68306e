"""A follower over a real log: what it takes from its leader, and what it cuts off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.batches import header_at
from kafkad.log.epochs import LeaderEpochs
from kafkad.log.files import Files
from kafkad.log.log import Log
from kafkad.metrics import TopicProbe
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from kafkad.replica.following import Following, Position, cut_offset
from kafkad.replica.partition import Partition, ReplicaParts, Role
from kafkad.replica.waits import Waits
from kafkad.timers import Timers
from kafkad.wire.records import MAGIC_AT, Record, build_batch
from tests.fakes import FakeClock, HeldDisk
from tests.log.conftest import pieces_of
from tests.log.consistency import check

TP = TopicPartition("t", 0)
FOLLOWER = Role(leader=2, leader_epoch=4, partition_epoch=0, isr=(1, 2), replicas=(1, 2))


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    clock = FakeClock()
    log = Log.open(str(tmp_path / "t-0"), LogConfig(), Files(), clock, topic_partition=TP)
    waits = Waits(Timers(), clock, lambda call: None)
    parts = ReplicaParts(broker_id=1, clock=clock, waits=waits, durable=cast(Durable, HeldDisk()))
    partition = Partition(TP, log, parts, TopicProbe(), 0)
    partition.become(FOLLOWER)
    yield partition
    log.close()
    assert not check(log.directory)


def following(partition: Partition) -> Following:
    assert partition.following is not None
    return partition.following


def sent(base: int, count: int, epoch: int) -> memoryview:
    records = [Record(base + i, 1_000, b"k", b"v") for i in range(count)]
    return memoryview(build_batch(records, base_offset=base, leader_epoch=epoch))


def test_records_are_taken_as_given_and_the_watermark_stays_within_the_log(partition: Partition) -> None:
    follower = following(partition)
    assert follower.position == Position(0, -1, 0)
    follower.append(sent(0, 3, 2), 1, 0)
    assert (partition.high_watermark, follower.position) == (1, Position(3, 2, 0))
    follower.append(sent(3, 2, 4), 100, 2)
    assert (partition.high_watermark, follower.position) == (5, Position(5, 4, 2))
    assert partition.log.epochs.entries == [(2, 2), (4, 3)]
    follower.append(memoryview(b""), 4, 2)
    assert partition.high_watermark == 5, "a new leader may know less of what is committed"


def test_its_lag_is_what_is_committed_and_not_here_yet(partition: Partition) -> None:
    follower = following(partition)
    for base, watermark, lag in ((0, 9, 6), (3, 9, 3), (6, 9, 0), (9, 10, 0)):
        follower.append(sent(base, 3, 4), watermark, 0)
        assert follower.lag == lag


def produced(producer: int, sequence: int, base: int = 0, epoch: int = 4) -> memoryview:
    record = Record(base, 1_000, b"k", b"v")
    return memoryview(
        build_batch(
            [record],
            base_offset=base,
            leader_epoch=epoch,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )
    )


def test_a_follower_that_leads_now_takes_no_first_batch_from_the_middle(partition: Partition) -> None:
    """Batches 0 to 2 were refused while the leader changed: they could never be appended once 3 is."""
    following(partition).append(produced(7, 0), 1, 0)
    partition.become(replace(FOLLOWER, leader=1, leader_epoch=5))

    def append(batch: memoryview) -> int:
        return partition.append(batch, 0, len(batch), header_at(batch, 0, len(batch)))

    with pytest.raises(KafkaError) as refused:
        append(produced(8, 3))
    assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS, "on which clients send it again, behind those"
    assert [append(produced(8, 0)), append(produced(8, 1))] == [1, 2]
    assert append(produced(7, 1)) == 3, "what the last leader took of a producer is known"


def test_a_follower_learns_from_the_log_that_its_leader_did_not_know_all_producers(partition: Partition) -> None:
    """That began empty, or led after an unclean election: it has taken a first batch from the middle."""
    following(partition).append(produced(7, 5), 1, 0)
    partition.become(replace(FOLLOWER, leader=1, leader_epoch=5))
    batch = produced(8, 3)
    assert partition.append(batch, 0, len(batch), header_at(batch, 0, len(batch))) == 1


def test_a_follower_that_has_not_the_whole_log_may_not_know_a_producer(partition: Partition) -> None:
    following(partition).start_again(10)
    partition.become(replace(FOLLOWER, leader=1, leader_epoch=5))
    batch = produced(8, 3)
    assert partition.append(batch, 0, len(batch), header_at(batch, 0, len(batch))) == 10


def test_a_log_of_many_segments_is_emptied_in_pieces(partition: Partition) -> None:
    follower = following(partition)
    for offset in range(40):
        follower.append(sent(offset, 1, 4), 0, 0)
        partition.log.roll()
    history = partition.log.history
    emptying = follower.empty()
    next(emptying)
    assert partition.log.history == history + 1, "whoever compacts it gives up"
    assert pieces_of(emptying) == (2, None)
    assert (partition.log.start_offset, partition.high_watermark) == (40, 40), "no reader waits for what is gone"
    assert len(partition.log.segments) == 1
    follower.start_again(100)
    assert (partition.log.start_offset, partition.log.end_offset) == (100, 100)


@pytest.mark.parametrize("gap", ["at the start", "in between"])
def test_a_follower_of_a_compacted_log_may_not_know_a_producer(partition: Partition, gap: str) -> None:
    follower = following(partition)
    follower.append(
        sent(500, 1, 4) if gap == "at the start" else memoryview(bytes(sent(0, 1, 4)) + bytes(sent(500, 1, 4))), 1, 0
    )
    partition.become(replace(FOLLOWER, leader=1, leader_epoch=5))
    batch = produced(8, 3)
    assert partition.append(batch, 0, len(batch), header_at(batch, 0, len(batch))) == 501


def test_what_does_not_fit_is_refused_and_what_came_before_it_stays(partition: Partition) -> None:
    follower = following(partition)
    with pytest.raises(KafkaError) as refused:
        follower.append(memoryview(bytes(sent(0, 3, 4)) + bytes(sent(2, 1, 4))), 9, 0)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    assert (follower.position.offset, partition.high_watermark) == (3, 3)


@pytest.mark.parametrize(("first", "second"), [(2, 1), (4, 5), (5, 5)])
def test_epochs_that_go_back_or_beyond_the_leaders_are_refused(partition: Partition, first: int, second: int) -> None:
    follower = following(partition)
    with pytest.raises(KafkaError, match="leader epoch") as refused:
        follower.append(memoryview(bytes(sent(0, 3, first)) + bytes(sent(3, 1, second))), 9, 0)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    assert follower.position.offset == (0 if first > FOLLOWER.leader_epoch else 3)
    follower.append(sent(follower.position.offset, 1, 4), 4, 0)


def test_a_log_without_epochs_begins_to_follow_at_its_high_watermark(partition: Partition) -> None:
    follower = following(partition)
    follower.append(sent(0, 3, -1), 2, 0)
    follower.append(sent(3, 2, -1), 4, 0)
    follower.begin()
    assert (follower.position, partition.high_watermark) == (Position(3, -1, 0), 3)
    follower.append(sent(3, 1, 4), 3, 0)
    follower.begin()
    assert follower.position == Position(4, 4, 0), "where there are epochs the leader says what is cut off"


@pytest.mark.parametrize("magic", [3, 0])
def test_what_is_malformed_is_refused_and_what_came_before_it_stays(partition: Partition, magic: int) -> None:
    follower = following(partition)
    malformed = bytearray(sent(3, 1, 4))
    malformed[MAGIC_AT] = magic
    with pytest.raises(KafkaError) as refused:
        follower.append(memoryview(bytes(sent(0, 3, 4)) + malformed), 9, 0)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    assert (follower.position.offset, partition.high_watermark) == (3, 3)
    follower.append(sent(3, 1, 4), 4, 0)
    assert (follower.position.offset, partition.high_watermark) == (4, 4)


def test_what_the_leader_never_had_is_cut_off(partition: Partition) -> None:
    follower = following(partition)
    for base, epoch in ((0, 1), (3, 2), (6, 4)):
        follower.append(sent(base, 3, epoch), base, 0)
    follower.truncate_to(follower.parting(3, 5))
    assert follower.position == Position(6, 2, 0), "first to the end of the largest epoch that both may know"
    follower.truncate_to(follower.parting(2, 3))
    assert follower.position == Position(3, 1, 0)
    assert partition.high_watermark == 3


def test_a_leader_whose_log_is_shorter_or_begins_later(partition: Partition) -> None:
    follower = following(partition)
    follower.append(sent(0, 3, 4), 3, 0)
    follower.append(sent(3, 3, 4), 4, 0)
    follower.truncate_to(3)
    assert (follower.position.offset, partition.high_watermark) == (3, 3)
    follower.start_again(100)
    assert (follower.position.offset, partition.log.start_offset) == (100, 100)
    assert partition.high_watermark == 100, "what was dropped before the start of a log was committed"
    follower.append(sent(100, 1, 4), 101, 100)
    assert partition.high_watermark == 101


def test_who_leads_or_is_gone_follows_nobody(partition: Partition) -> None:
    partition.become(Role(leader=1, leader_epoch=5, isr=(1, 2), replicas=(1, 2)))
    assert partition.following is None
    partition.become(Role(leader=2, leader_epoch=6, isr=(1, 2), replicas=(1, 2)))
    assert partition.leading is None
    partition.retire()
    assert partition.following is None


@pytest.mark.parametrize(
    ("epoch", "leader_end", "cut"),
    [
        (5, 25, 25),  # the same epoch: where the leader's ends
        (5, 99, 30),
        (3, 15, 15),
        (3, 25, 20),  # where our own ends, if that is less
        (4, 24, 20),  # an epoch we do not know: the end of the one before it, and then ask again
        (2, 12, 10),
        (1, 5, 5),
        (6, 28, 28),  # beyond all that we know
        (6, 50, 30),
    ],
)
def test_where_histories_part(tmp_path: Path, epoch: int, leader_end: int, cut: int) -> None:
    epochs = LeaderEpochs(str(tmp_path), Files())
    for known, start in ((1, 0), (3, 10), (5, 20)):
        epochs.assign(known, start)
    assert cut_offset(epochs, 30, epoch, leader_end) == cut
    assert cut_offset(LeaderEpochs(str(tmp_path), Files()), 30, epoch, leader_end) == min(leader_end, 30)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=6), st.integers(0, 500))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_leader_sends_is_taken_whole_or_refused(
    partition: Partition, damage: list[tuple[int, int]], length: int
) -> None:
    """A log that cannot be read afterwards would fail when the fixture ends."""
    follower = following(partition)
    base = follower.position.offset
    data = bytearray(b"".join(bytes(sent(base + 2 * i, 2, 4)) for i in range(3)))
    for at, byte in damage:
        data[at % len(data)] = byte
    before = partition.log.size
    try:
        follower.append(memoryview(data[:length] if length else data), base, 0)
    except KafkaError as refused:
        assert refused.code == ErrorCode.CORRUPT_MESSAGE
    assert partition.log.size - before <= len(data)
    assert follower.position.offset >= base
