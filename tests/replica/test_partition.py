"""A leader's partition over a real log: high watermark, fencing, and who waits for it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import cast

import pytest

from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.files import Files
from kafkad.log.log import Log
from kafkad.metrics import TopicProbe
from kafkad.model import BrokerInfo
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from kafkad.replica.isr import LagLimits
from kafkad.replica.leading import IsrChange
from kafkad.replica.partition import Partition, ReplicaParts, Role
from kafkad.replica.waits import FetchWait, Waits
from kafkad.timers import Timers
from kafkad.wire.records import BATCH_HEADER, Record, build_batch
from tests.fakes import FakeClock, HeldDisk
from tests.log.consistency import check

ME = 1
LEADER = Role(leader=ME, leader_epoch=4, partition_epoch=0, isr=(ME,), replicas=(ME,))
TP = TopicPartition("t", 0)


class Turns:
    """An event loop's call_soon, run when the test says."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def __call__(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def run(self) -> int:
        calls, self.soon = self.soon, []
        for call in calls:
            call()
        return len(calls)


class Made:
    def __init__(self, directory: Path, config: LogConfig | None = None) -> None:
        self.clock = FakeClock()
        self.timers = Timers()
        self.turns = Turns()
        self.waits = Waits(self.timers, self.clock, self.turns)
        self.log = Log.open(str(directory / "t-0"), config or LogConfig(), Files(), self.clock, topic_partition=TP)
        self.disk = HeldDisk()
        self.asked: list[IsrChange] = []
        self.asks = True
        self.parts = ReplicaParts(
            broker_id=ME,
            clock=self.clock,
            waits=self.waits,
            durable=cast(Durable, self.disk),
            lag=LagLimits(10_000),
            on_isr_change=self._ask,
        )
        self.partition = Partition(TP, self.log, self.parts, TopicProbe(), 0)

    def _ask(self, partition: Partition, change: IsrChange) -> bool:
        assert partition is self.partition
        self.asked.append(change)
        return self.asks

    def append(self, count: int = 3) -> int:
        batch = memoryview(build_batch([Record(i, 1_000, b"k", b"v") for i in range(count)]))
        return self.partition.append(batch, 0, len(batch), BATCH_HEADER.unpack_from(batch))


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    made = Made(tmp_path)
    yield made
    made.log.close()
    assert not check(made.log.directory)


def refusal(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        call()
    return refused.value.code


def test_a_new_leader_notes_its_epoch_and_stamps_it_on_batches(made: Made) -> None:
    made.partition.become(LEADER)
    assert made.append() == 0
    assert made.log.epochs.latest == 4
    made.partition.become(replace(LEADER, leader_epoch=6))
    made.append()
    assert made.log.epochs.entries == [(4, 0), (6, 3)]


def test_a_leader_in_an_earlier_epoch_than_its_log_knows_is_an_error_in_the_log(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    made.partition.become(LEADER)
    made.append()
    made.partition.become(replace(LEADER, leader_epoch=5))
    assert not caplog.records
    Partition(TP, made.log, made.parts, TopicProbe(), 0).become(replace(LEADER, leader_epoch=3))
    [told] = caplog.records
    assert told.message.startswith("t-0 is led here in leader epoch 3, and its log has records of epoch 5: ")


def test_of_throttled_replicas_those_that_are_in_sync_do_not_wait(made: Made) -> None:
    made.partition.become(replace(LEADER, isr=(ME, 2), replicas=(ME, 2, 3)))
    assert not made.partition.serves_throttled(3)
    throttled = replace(made.log.config, leader_replication_throttled_replicas=frozenset(["*"]))
    made.partition.update_config(throttled)
    assert [made.partition.serves_throttled(follower) for follower in (2, 3)] == [False, True]


def test_alone_in_the_isr_the_high_watermark_follows_every_append(made: Made) -> None:
    made.partition.become(LEADER)
    made.append()
    assert made.partition.high_watermark == made.log.end_offset == 3


def test_the_high_watermark_stands_while_the_isr_is_too_small(tmp_path: Path) -> None:
    made = Made(tmp_path, LogConfig(min_insync_replicas=2))
    partition = made.partition
    partition.become(Role(leader=ME, leader_epoch=0, isr=(ME,), replicas=(ME, 2)))
    made.append()
    assert partition.high_watermark == 0
    assert refusal(partition.check_acks_all) == ErrorCode.NOT_ENOUGH_REPLICAS
    partition.update_config(LogConfig(min_insync_replicas=1))
    assert partition.high_watermark == 3
    partition.check_acks_all()
    made.log.close()


def test_clients_are_fenced_by_the_leader_epoch(made: Made) -> None:
    partition = made.partition
    partition.become(LEADER)
    partition.check_leader(-1)
    partition.check_leader(4)
    assert refusal(lambda: partition.check_leader(3)) == ErrorCode.FENCED_LEADER_EPOCH
    assert refusal(lambda: partition.check_leader(5)) == ErrorCode.UNKNOWN_LEADER_EPOCH
    partition.become(replace(LEADER, leader=2, leader_epoch=5))
    assert refusal(lambda: partition.check_leader(5)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_reads_end_at_the_limit_and_refuse_what_is_outside(made: Made) -> None:
    partition = made.partition
    partition.become(LEADER)
    for _ in range(4):
        made.append()
    found = partition.read(0, 1 << 20, 6, True)
    assert found is not None
    assert found.length == made.log.size // 2
    assert partition.read(12, 1 << 20, 12, True) is None
    assert partition.read(8, 1 << 20, 6, True) is None
    for offset in (-1, 13):
        assert refusal(lambda offset=offset: partition.read(offset, 1, 12, True)) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_delete_records_moves_the_start_up_to_the_high_watermark(made: Made) -> None:
    partition = made.partition
    partition.become(LEADER)
    made.append(10)
    assert partition.delete_records(4) == 4
    assert partition.delete_records(2) == 2
    assert partition.low_watermark == partition.log.start_offset == 4
    for offset in (11, -2):
        assert refusal(lambda offset=offset: partition.delete_records(offset)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.delete_records(-1) == 10


def test_a_deletion_is_over_when_no_live_follower_has_the_records_any_more(made: Made) -> None:
    partition, ended = made.partition, dict[int, KafkaError | None]()

    def wait(*offsets: int) -> None:
        for offset in offsets:
            partition.when_deleted(offset, partial(ended.__setitem__, offset))

    partition.become(replace(LEADER, isr=(1, 2, 3), replicas=(1, 2, 3)))
    brokers = made.parts.metadata.brokers
    brokers.update({broker: BrokerInfo(id=broker, endpoints=()) for broker in (2, 3)})
    made.append(10)
    for broker in (2, 3):
        partition.fetched_by(broker, 10, 0)
    partition.delete_records(6)
    wait(4, 5, 6)
    partition.fetched_by(2, 10, 6)
    assert (partition.low_watermark, ended) == (0, {})
    partition.fetched_by(3, 10, 5)
    assert (partition.low_watermark, ended) == (5, {4: None, 5: None})
    del brokers[3]
    partition.brokers_changed(made.parts.metadata.brokers)
    assert (partition.low_watermark, ended) == (6, {4: None, 5: None, 6: None})
    wait(3)
    assert ended.pop(3) is None, "at once"
    brokers[3] = BrokerInfo(id=3, endpoints=())
    wait(7, 8)
    partition.forget_deletion(next(iter(partition.deletion_waits)))
    partition.become(replace(LEADER, leader=2, leader_epoch=LEADER.leader_epoch + 1))
    wait(9)
    assert 7 not in ended
    for offset in (8, 9):
        error = ended[offset]
        assert error is not None
        assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_only_a_plain_leader_appends_batches_as_they_are(made: Made) -> None:
    partition = made.partition
    assert not partition.appends_as_is
    partition.become(LEADER)
    assert partition.appends_as_is
    for config in (
        LogConfig(cleanup_policy=frozenset({"compact"})),
        LogConfig(compression_type="zstd"),
        LogConfig(message_timestamp_type="LogAppendTime"),
        LogConfig(flush_messages=1),
        LogConfig(flush_bytes=1000),
    ):
        partition.update_config(config)
        assert not partition.appends_as_is
    partition.update_config(LogConfig())
    assert partition.appends_as_is
    partition.retire()
    assert not partition.appends_as_is


@pytest.mark.parametrize("role", [LEADER, replace(LEADER, leader=2)], ids=["leader", "follower"])
def test_a_retired_replica_is_freed_without_the_collector_of_cycles(tmp_path: Path, role: Role) -> None:
    """Those that were here at the start are never looked at by it."""
    made = Made(tmp_path, LogConfig(read_flushed_only=True))
    made.partition.become(role)
    made.partition.retire()
    replica = weakref.ref(made.partition)
    gc.disable()
    try:
        del made.partition
        assert replica() is None
    finally:
        gc.enable()
    made.log.close()


def test_a_failed_replica_serves_nobody_with_the_reason(made: Made) -> None:
    made.partition.become(LEADER)
    made.partition.fail(StorageError("/disk", "it is gone"))
    assert refusal(lambda: made.partition.check_leader(-1)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert not made.partition.appends_as_is


def test_a_failed_leader_asks_for_no_other_isr(made: Made) -> None:
    partition = made.partition
    partition.become(WITH_FOLLOWER)
    made.append()
    made.clock.advance(10_001)
    partition.fail(StorageError("/disk", "it is gone"))
    partition.expel_laggards()
    partition.isr_altered((ME,), 4, 1)
    assert not made.asked
    assert partition.role.isr == (ME, 2)
    assert partition.high_watermark == 0


class Told:
    """A watcher that stirs its wait, as a consumer's and a follower's do."""

    def __init__(self, wait: FetchWait | None = None) -> None:
        self.wait = wait
        self.heard: list[str] = []

    def watermark_moved(self) -> None:
        self._hear("watermark")

    def end_moved(self) -> None:
        self._hear("end")

    def _hear(self, what: str) -> None:
        self.heard.append(what)
        if self.wait is not None:
            self.wait.stir()


def test_a_wait_is_tried_once_a_turn_and_ends_when_it_is_answered(made: Made) -> None:
    partition = made.partition
    partition.become(LEADER)
    tries: list[bool] = []

    def attempt(final: bool) -> bool:
        tries.append(final)
        partition.watchers[told] = None
        return made.log.end_offset >= 6

    told = Told(made.waits.fetch(500, attempt))
    partition.watchers[told] = None
    made.append()
    assert made.turns.run() == 1
    assert tries == [False]
    made.append()
    partition.watchers[told] = None
    made.append()
    assert made.turns.run() == 1
    assert tries == [False, False]
    assert made.waits.fetches == 0
    made.clock.advance(1000)
    assert made.timers.expire(made.clock.monotonic_ms()) == 0


def test_a_wait_is_answered_with_what_there_is_at_its_deadline(made: Made) -> None:
    tries: list[bool] = []

    def attempt(final: bool) -> bool:
        tries.append(final)
        return final

    made.waits.fetch(500, attempt)
    made.clock.advance(499)
    assert made.timers.expire(made.clock.monotonic_ms()) == 0
    made.clock.advance(1)
    assert made.timers.expire(made.clock.monotonic_ms()) == 1
    made.turns.run()
    assert tries == [True]
    assert made.waits.fetches == 0


def test_a_wait_that_has_ended_is_not_tried(made: Made) -> None:
    tries: list[bool] = []
    wait = made.waits.fetch(500, lambda final: bool(tries.append(final)))  # type: ignore[func-returns-value]
    wait.stir()
    wait.end()
    wait.end()
    made.turns.run()
    assert (tries, made.waits.fetches) == ([], 0)


def test_followers_are_told_of_appends_and_consumers_of_what_is_committed(made: Made) -> None:
    partition = made.partition
    partition.become(WITH_FOLLOWER)
    consumer, follower = Told(), Told()

    def watch() -> None:
        partition.watchers[consumer] = None
        partition.end_watchers[follower] = None

    watch()
    made.append(2)
    made.append(1)
    assert (consumer.heard, follower.heard) == ([], ["end"]), "once"
    partition.fetched_by(2, 2, 0)
    assert (consumer.heard, follower.heard) == (["watermark"], ["end"])
    watch()
    partition.delete_records(1)
    assert consumer.heard == ["watermark", "watermark"]
    watch()
    partition.retire()
    assert (consumer.heard[2:], follower.heard[1:]) == (["watermark"], ["end"])


def test_consumers_are_told_when_the_log_has_moved_for_all_of_a_copy_is_on_the_disk(tmp_path: Path) -> None:
    made = Made(tmp_path, LogConfig(read_flushed_only=True))
    partition = made.partition
    partition.become(LEADER)
    made.append()
    consumer = Told()
    partition.watchers[consumer] = None
    assert partition.visible(False)[2] == 0
    copy = Log.open(str(tmp_path / "copy"), made.log.config, Files(), made.clock, topic_partition=TP)
    [segment] = made.log.segments
    copy.append_copied(memoryview(Path(segment.path(".log")).read_bytes()))
    copy.flush()
    partition.take_log(copy)
    assert partition.visible(False)[2] == 3
    assert consumer.heard == ["watermark"]
    made.log.close()
    copy.close()


def test_who_waits_for_the_high_watermark_is_called_when_it_is_there(made: Made) -> None:
    heard: list[tuple[str, ErrorCode | None]] = []

    def wait(name: str, offset: int) -> None:
        made.partition.when_committed(offset, lambda error: heard.append((name, error and error.code)))

    made.partition.become(replace(LEADER, isr=(ME, 2), replicas=(ME, 2)))
    made.append(2)
    wait("now", 0)
    wait("two", 2)
    made.append(2)
    wait("four", 4)
    assert heard == [("now", None)]
    made.partition.become(replace(LEADER, leader_epoch=5, replicas=(ME, 2)))
    assert heard == [("now", None), ("two", None), ("four", None)]
    made.partition.become(replace(LEADER, leader_epoch=6, isr=(ME, 2), replicas=(ME, 2)))
    made.append(1)
    wait("five", 5)
    made.partition.become(replace(LEADER, leader=2, leader_epoch=7, isr=(ME, 2), replicas=(ME, 2)))
    assert heard[3:] == [("five", ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_who_waits_for_less_than_those_before_is_called_as_soon_as_it_is_there(made: Made) -> None:
    """A producer that sends a batch again waits for where it stands already."""
    heard: list[int] = []
    made.partition.become(WITH_FOLLOWER)
    made.append(6)
    for end in (4, 6, 2, 4, 1):
        made.partition.when_committed(end, lambda error, end=end: heard.append(end))  # type: ignore[misc]
    made.partition.fetched_by(2, 3, 0)
    assert heard == [1, 2]
    made.partition.fetched_by(2, 5, 0)
    assert heard == [1, 2, 4, 4]
    made.partition.fetched_by(2, 6, 0)
    assert heard == [1, 2, 4, 4, 6]


Heard = list[ErrorCode | None]
WITH_FOLLOWER = replace(LEADER, isr=(ME, 2), replicas=(ME, 2))


def wait(made: Made) -> Heard:
    heard: Heard = []
    made.partition.when_committed(made.log.end_offset, lambda error: heard.append(error and error.code))
    return heard


def durable(directory: Path, **settings: int) -> Made:
    return Made(directory, LogConfig(acks_fsync=True, **settings))


def test_alone_an_append_commits_at_once_unless_the_disk_has_to_have_it(made: Made) -> None:
    partition = made.partition
    assert not partition.commits_at_once
    partition.become(LEADER)
    assert partition.commits_at_once
    made.append()
    assert wait(made) == [None]
    partition.update_config(LogConfig(acks_fsync=True))
    assert not partition.commits_at_once
    partition.update_config(LogConfig())
    partition.become(replace(WITH_FOLLOWER, leader_epoch=5))
    assert not partition.commits_at_once


def test_with_acks_fsync_alone_the_disk_is_waited_for(tmp_path: Path) -> None:
    made = durable(tmp_path)
    made.partition.become(LEADER)
    made.append()
    first, second = wait(made), wait(made)
    assert not first
    made.disk.finish()
    assert (first, second) == ([None], [])
    made.disk.finish(StorageError("/disk", "it is gone"))
    assert second == [ErrorCode.KAFKA_STORAGE_ERROR]
    made.log.close()


def test_with_acks_fsync_and_a_follower_both_are_waited_for(tmp_path: Path) -> None:
    made = durable(tmp_path)
    made.partition.become(WITH_FOLLOWER)
    made.append()
    heard = wait(made)
    made.partition.become(replace(LEADER, leader_epoch=5, replicas=(ME, 2)))
    assert not heard
    made.disk.finish()
    assert heard == [None]
    made.log.close()


def test_whoever_is_in_sync_no_more_when_the_disk_has_it_is_missed(tmp_path: Path) -> None:
    made = durable(tmp_path, min_insync_replicas=2)
    partition = made.partition
    partition.become(WITH_FOLLOWER)
    made.append()
    partition.high_watermark = made.log.end_offset
    heard = wait(made)
    partition.become(replace(WITH_FOLLOWER, leader_epoch=5, isr=(ME,)))
    made.disk.finish()
    assert heard == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    made.log.close()


@pytest.mark.parametrize("lose", ["role", "disk", "partition"])
def test_who_waits_for_followers_hears_of_a_lost_leader_and_so_does_who_comes_later(made: Made, lose: str) -> None:
    made.partition.become(WITH_FOLLOWER)
    made.append()
    before = wait(made)
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if lose == "role":
        made.partition.become(replace(WITH_FOLLOWER, leader=2, leader_epoch=5))
    elif lose == "disk":
        made.partition.fail(StorageError("/disk", "it is gone"))
        code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        made.partition.retire()
    assert before == wait(made) == [code]


# -- with followers

OF_THREE = Role(leader=ME, leader_epoch=4, partition_epoch=7, isr=(ME, 2), replicas=(ME, 2, 3))


def alive(made: Made, *brokers: int) -> None:
    for broker in brokers:
        made.parts.metadata.brokers[broker] = BrokerInfo(id=broker, endpoints=())


def test_the_high_watermark_follows_those_in_sync(made: Made) -> None:
    partition = made.partition
    partition.become(replace(OF_THREE, isr=(ME, 2, 3)))
    made.append(4)
    heard = wait(made)
    partition.fetched_by(2, 4, 0)
    assert partition.high_watermark == 0, "of broker 3 nothing is known"
    partition.fetched_by(3, 3, 0)
    assert (partition.high_watermark, heard) == (3, [])
    partition.fetched_by(3, 4, 0)
    assert (partition.high_watermark, heard) == (4, [None])


def test_who_is_taken_away_by_a_reassignment_is_waited_for_until_it_is_out_of_the_isr(made: Made) -> None:
    """As long as it is in there, it may be elected. Kafka's leader forgets it one step before."""
    partition = made.partition
    partition.become(replace(OF_THREE, isr=(ME, 2, 3)))
    made.append(4)
    partition.fetched_by(2, 4, 0)
    heard = wait(made)
    partition.become(replace(OF_THREE, leader_epoch=5, isr=(ME, 2, 3), replicas=(ME, 2)))
    assert (partition.high_watermark, heard) == (0, [])
    partition.become(replace(OF_THREE, leader_epoch=6, isr=(ME, 2), replicas=(ME, 2)))
    assert (partition.high_watermark, heard) == (4, [None])


@pytest.mark.parametrize(("epoch", "committed"), [(5, 4), (6, 0)])
def test_what_followers_had_is_forgotten_if_another_may_have_led_meanwhile(
    made: Made, epoch: int, committed: int
) -> None:
    """They may have truncated it, as they followed that one."""
    partition = made.partition
    partition.become(replace(OF_THREE, isr=(ME, 2, 3)))
    made.append(4)
    partition.fetched_by(3, 4, 0)
    heard = wait(made)
    partition.become(replace(OF_THREE, leader_epoch=epoch, isr=(ME, 3)))
    assert (partition.high_watermark, heard) == (committed, [None] if committed else [])
    partition.fetched_by(3, 4, 0)
    assert (partition.high_watermark, heard) == (4, [None])


def test_who_catches_up_is_proposed_and_waited_for_from_then_on(made: Made) -> None:
    partition = made.partition
    alive(made, 2, 3)
    partition.become(OF_THREE)
    made.append(4)
    partition.fetched_by(2, 4, 0)
    partition.fetched_by(3, 3, 0)
    assert not made.asked
    partition.fetched_by(3, 4, 0)
    change = IsrChange((ME, 2, 3), (ME, 2), 4, 7)
    assert made.asked == [change]
    made.append(2)
    partition.fetched_by(2, 6, 0)
    assert partition.high_watermark == 4, "either ISR may be the true one"
    partition.isr_altered((ME, 2, 3), 4, 8)
    assert (partition.role.isr, partition.role.partition_epoch) == ((ME, 2, 3), 8)
    partition.fetched_by(3, 6, 0)
    assert partition.high_watermark == 6
    assert made.asked == [change], "one change at a time, and none that is needless"


def test_a_refused_change_leaves_the_isr_as_it_was(made: Made) -> None:
    partition = made.partition
    alive(made, 3)
    partition.become(OF_THREE)
    partition.fetched_by(3, 0, 0)
    [change] = made.asked
    made.append(2)
    partition.fetched_by(2, 2, 0)
    partition.isr_kept(change._replace(leader_epoch=3))
    assert partition.high_watermark == 0
    made.clock.advance(20_000)
    partition.isr_kept(change)
    assert partition.high_watermark == 2
    partition.fetched_by(3, 1, 0)
    partition.fetched_by(3, 2, 0)
    assert len(made.asked) == 1, "not with each of its fetches"
    partition.brokers_changed(made.parts.metadata.brokers)
    partition.fetched_by(3, 2, 0)
    assert len(made.asked) == 2
    partition.isr_kept(made.asked[-1])
    partition.expel_laggards()
    partition.fetched_by(3, 2, 0)
    assert len(made.asked) == 3


def test_who_is_refused_keeps_nobody_else_out(made: Made) -> None:
    partition = made.partition
    alive(made, 2, 3, 4)
    partition.become(replace(OF_THREE, isr=(ME,), replicas=(ME, 2, 3, 4)))
    made.append(2)
    partition.fetched_by(2, 2, 0)
    for follower in (3, 4):
        partition.fetched_by(follower, 2, 0)
    partition.isr_altered((ME,), 4, 8)
    assert made.asked[-1].isr == (ME, 2, 3, 4), "all have caught up by now"
    assert not partition.isr_kept(made.asked[-1]), "it may be any of them"
    assert made.asked[-1].isr == (ME, 2)
    assert partition.isr_kept(made.asked[-1])
    assert made.asked[-1].isr == (ME, 3)
    partition.isr_altered((ME, 3), 4, 9)
    assert made.asked[-1].isr == (ME, 3, 4)
    partition.isr_altered((ME, 3, 4), 4, 10)
    asked = len(made.asked)
    partition.fetched_by(2, 2, 0)
    assert len(made.asked) == asked, "not with each of its fetches"
    partition.expel_laggards()
    partition.fetched_by(2, 2, 0)
    assert made.asked[-1].isr == (ME, 3, 4, 2)


def test_who_has_registered_anew_is_not_refused_for_what_it_was(made: Made) -> None:
    partition = made.partition
    alive(made, 2, 3)
    partition.become(replace(OF_THREE, leader_epoch=3))
    made.append(2)
    partition.become(OF_THREE)
    partition.fetched_by(3, 2, 0, 70)
    [change] = made.asked
    partition.fetched_by(3, 2, 0, 80)
    partition.isr_kept(change)
    assert [change.joining for change in made.asked] == [((3, 70),), ((3, 80),)]


def test_who_joins_is_proposed_as_it_was_registered_when_it_had_everything(made: Made) -> None:
    """It may have lost its power since, and what it had with that: then the controller knows a later registration."""
    partition = made.partition
    alive(made, 2, 3)
    partition.become(replace(OF_THREE, leader_epoch=3))
    made.append(2)
    partition.become(OF_THREE)
    partition.fetched_by(3, 2, 0, 70)
    change = IsrChange((ME, 2, 3), (ME, 2), 4, 7, ((3, 70),))
    assert made.asked == [change], "of those in sync the controller knows better"
    partition.isr_kept(change)
    partition.fetched_by(3, 2, 0, 70)
    assert len(made.asked) == 1, "it is still refused"
    partition.fetched_by(3, 0, 0, 80)
    partition.fetched_by(3, 2, 0, 70)
    assert len(made.asked) == 1, "that fetch is an old one"
    partition.become(replace(OF_THREE, leader_epoch=5))
    partition.fetched_by(3, 2, 0, 80)
    assert made.asked[1].joining == ((3, 80),)
    partition.isr_kept(made.asked[1])
    partition.fetched_by(3, 2, 0)
    assert made.asked[2].joining == (), "where it does not say it nobody knows"


@pytest.mark.parametrize("how", ["refused", "dead", "behind"])
def test_who_kept_up_and_is_gone_is_not_waited_for(made: Made, how: str) -> None:
    """A broker that shuts down keeps up until the end. Without producers that go on, no fetch would ever tell."""
    partition = made.partition
    alive(made, 2, 3)
    partition.become(OF_THREE)
    made.asks = how == "refused"  # else the controller cannot be asked now
    partition.fetched_by(3, 0, 0)
    [change] = made.asked
    made.append(2)
    partition.fetched_by(2, 2, 0)
    assert partition.high_watermark == 0
    if how == "refused":
        assert partition.isr_kept(change), "this is news"
    elif how == "dead":
        del made.parts.metadata.brokers[3]
        partition.brokers_changed(made.parts.metadata.brokers)
    else:
        made.clock.advance(10_001)
        partition.expel_laggards()
    assert partition.high_watermark == 2


def test_who_was_gone_neither_joins_nor_is_waited_for_before_it_has_fetched_again(made: Made) -> None:
    """Its process may need a while until then, and its machine may have lost what it had."""
    partition = made.partition
    alive(made, 2, 3)
    partition.become(OF_THREE)
    made.append(2)
    made.asks = False
    for follower in (2, 3):
        partition.fetched_by(follower, 2, 0)
    del made.asked[:]
    gone = made.parts.metadata.brokers.pop(3)
    partition.brokers_changed(made.parts.metadata.brokers)
    made.parts.metadata.brokers[3] = gone
    partition.brokers_changed(made.parts.metadata.brokers)
    partition.fetched_by(2, 2, 0)
    assert not made.asked
    made.append(2)
    partition.fetched_by(2, 4, 0)
    assert partition.high_watermark == 4
    partition.fetched_by(3, 4, 0)
    assert [change.isr for change in made.asked] == [(ME, 2, 3)]


@pytest.mark.parametrize("why", ["not alive", "nobody asks", "behind the start of the epoch"])
def test_who_may_not_join_is_not_waited_for(made: Made, why: str) -> None:
    partition = made.partition
    if why == "behind the start of the epoch":
        alive(made, 3)
        made.partition.become(replace(OF_THREE, leader_epoch=3))
        made.append(2)
    made.asks = why != "nobody asks"
    if not made.asks:
        alive(made, 3)
    partition.become(replace(OF_THREE, leader=2, leader_epoch=4))
    partition.become(replace(OF_THREE, leader_epoch=5))
    partition.fetched_by(3, 0, 0)
    assert bool(made.asked) is not made.asks
    assert partition.leading is not None
    assert partition.leading.maximal == {ME, 2}


def test_who_lags_is_expelled_but_counts_until_the_controller_has_said_so(made: Made) -> None:
    partition = made.partition
    partition.become(OF_THREE)
    made.append(2)
    made.clock.advance(10_000)
    partition.expel_laggards()
    assert not made.asked
    made.clock.advance(1)
    partition.expel_laggards()
    assert made.asked == [IsrChange((ME,), (ME, 2), 4, 7)]
    heard = wait(made)
    assert (partition.high_watermark, heard) == (0, [])
    partition.isr_altered((ME,), 3, 9)
    partition.isr_altered((ME,), 4, 6)
    assert not heard, "news of another state"
    partition.isr_altered((ME,), 4, 8)
    assert (partition.high_watermark, heard) == (2, [None])
    made.append(1)
    assert partition.high_watermark == 3
    assert not partition.commits_at_once, "somebody may join"


def test_who_was_expelled_comes_back_by_a_fetch(made: Made) -> None:
    """All that it has may be committed, as the high watermark waited for it; it may be gone all the same."""
    partition = made.partition
    alive(made, 2)
    partition.become(OF_THREE)
    partition.fetched_by(2, 0, 0)
    made.append(2)
    made.clock.advance(10_001)
    partition.expel_laggards()
    partition.log.config = replace(partition.log.config, min_insync_replicas=2)
    partition.isr_altered((ME,), 4, 8)
    assert (partition.high_watermark, made.asked) == (0, [IsrChange((ME,), (ME, 2), 4, 7)])
    partition.fetched_by(2, 0, 0)
    assert made.asked[1:] == [IsrChange((ME, 2), (ME,), 4, 8)]


def test_an_idle_partition_expels_nobody(made: Made) -> None:
    made.partition.become(OF_THREE)
    made.partition.fetched_by(2, 0, 0)
    made.clock.advance(3_600_000)
    made.partition.expel_laggards()
    assert not made.asked


def test_only_followers_may_fetch_as_such(made: Made) -> None:
    made.partition.become(OF_THREE)
    made.partition.check_replica(3, 4)
    assert refusal(lambda: made.partition.check_replica(5, 4)) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert refusal(lambda: made.partition.check_replica(5, -1)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(lambda: made.partition.check_replica(ME, -1)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_position_outside_the_log_says_nothing_about_a_follower(made: Made) -> None:
    made.partition.become(OF_THREE)
    made.append(2)
    made.partition.fetched_by(2, 3, 0)
    assert made.partition.high_watermark == 0


class Follows:
    """The fetch of a follower that followed in this leader epoch at this time."""

    def __init__(self, leader_epoch: int, at_ms: float) -> None:
        self._leader_epoch = leader_epoch
        self.at_ms = at_ms

    def followed_ms(self, leader_epoch: int) -> float:
        return self.at_ms if leader_epoch == self._leader_epoch else -inf


def test_nobody_else_leads_while_all_in_sync_follow(made: Made) -> None:
    partition = made.partition
    partition.become(replace(OF_THREE, leader_epoch=5, isr=(ME, 2, 3)))
    second, third = Follows(5, 1_000), Follows(5, 2_000)
    partition.fetched_through(2, second)
    assert not partition.is_followed(1_000), "3 could lead"
    partition.fetched_through(3, third)
    assert partition.is_followed(1_000)
    assert not partition.is_followed(1_001)
    second.at_ms = 2_000
    assert partition.is_followed(2_000)
    partition.become(replace(OF_THREE, leader_epoch=6, isr=(ME, 2, 3)))
    assert not partition.is_followed(1_000), "they have not heard of that yet"
    partition.become(replace(OF_THREE, leader_epoch=7, leader=2, isr=(ME, 2, 3)))
    assert not partition.is_followed(-inf)


def test_one_alone_in_sync_leads_until_it_has_proposed_another(made: Made) -> None:
    """The controller may have let that one in, and elected it, before its answer is here."""
    partition = made.partition
    alive(made, 2)
    partition.become(replace(OF_THREE, isr=(ME,)))
    assert partition.is_followed(1e9)
    partition.fetched_by(2, 0, 0)
    assert made.asked[-1].isr == (ME, 2)
    assert not partition.is_followed(1_000)
    partition.fetched_through(2, Follows(partition.leader_epoch, 1_000))
    assert partition.is_followed(1_000)
    assert partition.isr_kept(made.asked[-1])
    assert partition.is_followed(1e9)
