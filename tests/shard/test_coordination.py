"""A coordinator's topic on a broker: what is led is loaded, what is not led is refused."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkad.controller.topics import MorePartitions, NewTopic
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.log import Log
from kafkad.log.move import Moves
from kafkad.log.scan import SkippedStretch, scan
from kafkad.names import NO_TOPIC_ID, TopicPartition, home_partition
from kafkad.shard import Coordination, Shard, coordination, loading
from kafkad.shard.partition_count import PartitionCount
from kafkad.shard.shard import CoordinatorParts
from kafkad.timers import Timer, Timers
from kafkad.wire.records import Record
from tests.fakes import FakeClock
from tests.one_broker import OneBroker
from tests.shard.pairs import Pair, Pairs

TOPIC = "__consumer_offsets"
PARTITIONS = 4


class Coordinator:
    def __init__(self, broker: OneBroker, *, serves_committed_only: bool = False) -> None:
        self.broker = broker
        self.machines: list[Pairs] = []
        self.make: Callable[[Shard[Pairs]], Pairs] = Pairs
        self.creations = 0
        self.replicas_asked_for = 1
        self.clock = FakeClock()
        self.timers = Timers()
        parts = CoordinatorParts(self.clock, self.timers, broker.replicas.directory_failed, codec=0)
        self.coordination: Coordination[Pairs] = Coordination(
            TOPIC,
            broker.replicas,
            PartitionCount(TOPIC, broker.replicas.metadata, broker.store),
            parts,
            make_machine=self._make_machine,
            create=self._create,
            serves_committed_only=serves_committed_only,
        )

    def _make_machine(self, shard: Shard[Pairs]) -> Pairs:
        machine = self.make(shard)
        self.machines.append(machine)
        return machine

    async def _create(self) -> None:
        self.creations += 1
        topic = NewTopic(name=TOPIC, partitions=PARTITIONS, replication_factor=self.replicas_asked_for)
        [result] = await self.broker.controller.create_topics([topic], timeout_ms=5_000)
        if result.error is not None:
            raise result.error

    async def start(self) -> None:
        self.coordination.start()

    def create_and_load(self) -> None:
        self.broker.create(TOPIC, PARTITIONS)
        self.broker.run(self.start())
        self.broker.run_until(lambda: not self.coordination.loading)

    def fill(self, count: int) -> None:
        """A topic of one partition, with records that no coordinator here has loaded."""
        self.broker.create(TOPIC, 1)
        for start in range(0, count, 1_000):
            records = [Record(number, 1, b"key %d" % (start + number), b"v") for number in range(1_000)]
            self.broker.append(TOPIC, 0, *records)

    def put(self, key: str, value: str) -> None:
        errors: list[KafkaError | None] = []

        async def write() -> None:
            self.coordination.shard(key).write([Pair(key, value)], errors.append)

        self.broker.run(write())
        assert errors == [None]

    def pairs_by_partition(self) -> dict[int, dict[str, str]]:
        return {machine.shard.index: machine.pairs for machine in self.machines if machine.shard is not None}

    def refusal(self, key: str) -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            self.coordination.shard(key)
        return refused.value.code

    def who(self, key: str) -> int | ErrorCode:
        try:
            return self.coordination.find(key).id
        except KafkaError as error:
            return error.code

    def stop(self) -> None:
        self.broker.run(self.coordination.stop())


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    broker = OneBroker(tmp_path)
    yield broker
    broker.stop()


@pytest.fixture
def coordinator(broker: OneBroker) -> Iterator[Coordinator]:
    coordinator = Coordinator(broker)
    yield coordinator
    coordinator.stop()


def test_keys_go_to_the_partitions_that_java_sends_them_to() -> None:
    assert home_partition("", 50) == 0
    assert home_partition("my-group", 50) == 12
    assert home_partition("polygenelubricants", 50) == 0, "its hash code is the smallest number"
    assert home_partition("gruppe-é-\U0001f600", 2**31) == 1164587495
    assert {home_partition(f"group-{number}", 50) for number in range(1_000)} == set(range(50))


def test_a_partition_that_is_loading_says_so_and_then_serves(
    broker: OneBroker, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes_ms = iter(range(1, PARTITIONS + 1))

    def slow(log: Log, report: Callable[[SkippedStretch], None]) -> Iterator[object]:
        coordinator.clock.advance(next(takes_ms))
        yield from scan(log, report)

    broker.create(TOPIC, PARTITIONS)
    broker.settle()  # the broker's own coordinator has loaded it
    monkeypatch.setattr(loading, "scan", slow)

    async def start() -> None:
        coordinator.coordination.start()
        assert coordinator.coordination.loading
        assert coordinator.refusal("a") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    broker.run(start())
    broker.run_until(lambda: not coordinator.coordination.loading)
    coordinator.put("a", "1")
    assert coordinator.coordination.shard("a").machine.pairs == {"a": "1"}
    assert [shard.index for shard in coordinator.coordination.shards()] == list(range(PARTITIONS))
    average, longest = coordinator.coordination.load_times.collect("prefix")
    assert (average.name, longest.name) == ("prefix_partition_load_time_avg", "prefix_partition_load_time_max")
    assert dict(longest.samples)[()] == PARTITIONS, "each was made to take a millisecond longer than the one before"
    assert dict(average.samples)[()] == (1 + PARTITIONS) / 2


def test_a_topic_that_comes_later_is_followed(broker: OneBroker, coordinator: Coordinator) -> None:
    broker.run(coordinator.start())
    assert coordinator.refusal("a") == ErrorCode.NOT_COORDINATOR
    broker.create(TOPIC, PARTITIONS)
    broker.run_until(lambda: not coordinator.coordination.loading)
    coordinator.put("a", "1")


def test_another_runtime_loads_what_the_first_wrote(broker: OneBroker, coordinator: Coordinator) -> None:
    coordinator.create_and_load()
    for number in range(20):
        coordinator.put(f"key {number}", str(number))
    coordinator.stop()
    assert {machine.state for machine in coordinator.machines} == {"unloaded"}
    second = Coordinator(broker)
    broker.run(second.start())
    broker.run_until(lambda: not second.coordination.loading)
    assert second.pairs_by_partition() == coordinator.pairs_by_partition()
    assert {machine.state for machine in second.machines} == {"loaded"}
    second.stop()


def test_after_a_stop_nothing_is_served(broker: OneBroker, coordinator: Coordinator) -> None:
    coordinator.create_and_load()
    shard = coordinator.coordination.shard("a")
    coordinator.stop()
    assert coordinator.refusal("a") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    errors: list[KafkaError | None] = []
    shard.write([Pair("a", "1")], errors.append)
    assert [error and error.code for error in errors] == [ErrorCode.NOT_COORDINATOR]


def test_a_deleted_topic_is_unloaded_and_a_new_one_begins_empty(broker: OneBroker, coordinator: Coordinator) -> None:
    coordinator.create_and_load()
    coordinator.put("a", "1")
    machine = coordinator.coordination.shard("a").machine
    broker.run(broker.controller.delete_topics([TOPIC], timeout_ms=5_000))
    assert machine.state == "unloaded"
    assert coordinator.refusal("a") == ErrorCode.NOT_COORDINATOR
    broker.create(TOPIC, PARTITIONS + 1)
    broker.run_until(lambda: not coordinator.coordination.loading)
    assert len(coordinator.coordination.shards()) == PARTITIONS + 1
    assert coordinator.coordination.shard("a").machine.pairs == {}


def test_partitions_that_are_added_take_no_keys_from_the_others(broker: OneBroker, coordinator: Coordinator) -> None:
    coordinator.create_and_load()
    keys = [f"key {number}" for number in range(100)]
    before = [coordinator.coordination.partition_for(key) for key in keys]
    more = MorePartitions(name=TOPIC, count=PARTITIONS + 3)
    broker.run(broker.controller.create_partitions([more], timeout_ms=5_000))
    assert [coordinator.coordination.partition_for(key) for key in keys] == before
    metadata = broker.replicas.metadata
    known = metadata.topics.pop(TOPIC)

    async def be_told_again() -> None:
        metadata._topic(TOPIC, known.id).partitions |= known.partitions
        await coordinator.coordination.prepare()

    broker.run(be_told_again())
    assert [coordinator.coordination.partition_for(key) for key in keys] == before


def test_no_key_is_given_to_a_shard_while_the_number_of_partitions_is_not_known(
    broker: OneBroker, coordinator: Coordinator
) -> None:
    """A leader may be told of its role before the metadata with the topic come."""
    broker.create(TOPIC, PARTITIONS + 1)
    broker.run(coordinator.start())
    topics = broker.replicas.metadata.topics
    topic = topics.pop(TOPIC)
    keys = [f"key {number}" for number in range(20)]
    assert {coordinator.refusal(key) for key in keys} == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    broker.run_until(lambda: not coordinator.coordination.loading)
    assert {coordinator.refusal(key) for key in keys} == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert {coordinator.who(key) for key in keys} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    topics[TOPIC] = topic
    found = [coordinator.coordination.shard(key).index for key in keys]
    assert found == [home_partition(key, PARTITIONS + 1) for key in keys]


def test_a_partition_that_the_controller_does_not_tell_of_is_counted_as_well(
    broker: OneBroker, coordinator: Coordinator
) -> None:
    """Nobody is told of one whose state cannot be read."""
    broker.create(TOPIC, PARTITIONS)
    told = broker.replicas.metadata.topics[TOPIC].partitions
    untold = told.pop(PARTITIONS - 1)
    broker.run(coordinator.start())
    broker.run_until(lambda: not coordinator.coordination.loading)
    keys = [f"key {number}" for number in range(100)]
    homes = [home_partition(key, PARTITIONS) for key in keys]
    assert [coordinator.coordination.partition_for(key) for key in keys] == homes
    lost = keys[homes.index(PARTITIONS - 1)]
    assert coordinator.who(lost) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    told[PARTITIONS - 1] = untold
    assert [coordinator.coordination.partition_for(key) for key in keys] == homes
    assert coordinator.who(lost) == 1


def test_partitions_are_counted_although_the_controller_tells_no_topic_ids(
    broker: OneBroker, coordinator: Coordinator
) -> None:
    coordinator.create_and_load()
    assert broker.replicas.metadata.topics[TOPIC].id != NO_TOPIC_ID
    broker.replicas.metadata.topics[TOPIC].id = NO_TOPIC_ID
    assert coordinator.coordination.partition_for("a") == home_partition("a", PARTITIONS)


def test_nothing_is_found_in_a_topic_whose_assignment_cannot_be_read(
    broker: OneBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create(TOPIC, PARTITIONS)
    path = f"/brokers/topics/{TOPIC}"
    assignment, _ = broker.run(broker.store.get(path))
    broker.run(broker.store.set(path, b"{"))
    coordinator = Coordinator(broker)
    broker.run(coordinator.start())
    broker.run_until(lambda: not coordinator.coordination.loading)

    async def ask() -> tuple[ErrorCode, int | ErrorCode]:
        await coordinator.coordination.prepare()
        return coordinator.refusal("a"), coordinator.who("a")

    assert broker.run(ask()) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert caplog.text.count(f"it is not known how many partitions {TOPIC} has: {path}: cannot be read") == 1
    broker.run(broker.store.set(path, assignment))
    broker.run(coordinator.coordination.prepare())
    assert coordinator.who("a") == 1
    assert coordinator.creations == 0
    coordinator.stop()


def test_where_nothing_is_led_no_number_of_partitions_is_guessed(broker: OneBroker, coordinator: Coordinator) -> None:
    broker.run(coordinator.start())
    with pytest.raises(KafkaError) as refused:
        coordinator.coordination.partition_for("a")
    assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert coordinator.refusal("a") == ErrorCode.NOT_COORDINATOR


def test_the_number_of_partitions_is_that_of_the_same_topic_before(broker: OneBroker, coordinator: Coordinator) -> None:
    coordinator.create_and_load()
    keys = [f"key {number}" for number in range(100)]
    before = [coordinator.coordination.partition_for(key) for key in keys]
    topics = broker.replicas.metadata.topics
    topic = topics.pop(TOPIC)
    coordinator.refusal("a")
    topics[TOPIC] = topic
    more = MorePartitions(name=TOPIC, count=PARTITIONS + 3)
    broker.run(broker.controller.create_partitions([more], timeout_ms=5_000))
    assert [coordinator.coordination.partition_for(key) for key in keys] == before


def test_a_leader_goes_on_in_the_next_epoch_and_loads_anew_when_it_was_not_told_of_one(
    broker: OneBroker, coordinator: Coordinator
) -> None:
    """Another broker may have coordinated meanwhile."""
    broker.create(TOPIC, 1)
    broker.run(coordinator.start())
    broker.run_until(lambda: not coordinator.coordination.loading)
    coordinator.put("a", "1")
    for _ in range(3):
        broker.lead(TOPIC, 0, leader=1)
    assert [machine.state for machine in coordinator.machines] == ["loaded"]
    broker.lead(TOPIC, 0, leader=1, epochs=2)
    broker.run_until(lambda: not coordinator.coordination.loading)
    assert [machine.state for machine in coordinator.machines] == ["unloaded", "loaded"]
    assert coordinator.coordination.shard("a").machine.pairs == {"a": "1"}


def test_a_disk_that_is_lost_takes_its_shards_with_it(broker: OneBroker, coordinator: Coordinator) -> None:
    coordinator.create_and_load()
    shards = {shard.index: shard for shard in coordinator.coordination.shards()}
    first = broker.replicas.logs.directories[0]
    lost = [index for index, shard in shards.items() if shard.partition.log.directory.startswith(first.path)]
    assert 0 < len(lost) < PARTITIONS
    broker.replicas.directory_failed(StorageError(first.path, "gone"))
    assert [shard.index for shard in coordinator.coordination.shards()] == [i for i in shards if i not in lost]
    assert {shards[index].machine.state for index in lost} == {"unloaded"}


def test_a_load_that_meets_an_error_of_ours_leaves_the_others_alone(
    broker: OneBroker, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(machine: Pairs) -> None:
        if machine.shard and machine.shard.index == 1:
            raise ZeroDivisionError

    monkeypatch.setattr(Pairs, "loaded", refuse)
    coordinator.create_and_load()
    assert [shard.index for shard in coordinator.coordination.shards()] == [0, 2, 3]
    key = next(key for key in map(str, range(99)) if coordinator.coordination.partition_for(key) == 1)
    assert coordinator.refusal(key) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert gc.isenabled()


@pytest.fixture
def careful(broker: OneBroker) -> Iterator[Coordinator]:
    """Of a topic with two partitions, the first of which has a record that its follower does not have yet."""
    coordinator = Coordinator(broker, serves_committed_only=True)
    broker.create(TOPIC, 2)
    broker.lead(TOPIC, 0, leader=1, isr=[1, 2])
    broker.append(TOPIC, 0, Record(0, 1, b"a", b"1"))
    broker.run(coordinator.start())
    broker.settle()
    yield coordinator
    coordinator.stop()


def test_nothing_is_decided_by_what_another_leader_may_not_have(broker: OneBroker, careful: Coordinator) -> None:
    assert [shard.index for shard in careful.coordination.shards()] == [1], "which does not wait for the other"
    assert [machine.state for machine in careful.machines] == ["loaded", "new"]
    assert careful.coordination.loading
    broker.lead(TOPIC, 0, leader=1, isr=[1, 2])
    broker.replicas.get(TOPIC, 0).fetched_by(2, 1, 0)
    assert [machine.pairs for machine in careful.machines] == [{}, {"a": "1"}]
    assert [machine.state for machine in careful.machines] == ["loaded", "loaded"]
    assert not careful.coordination.loading


def test_the_log_says_once_what_a_loaded_partition_waits_for(
    broker: OneBroker, careful: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    broker.work(careful.clock, careful.timers, 9_999)
    assert "is served when" not in caplog.text
    broker.work(careful.clock, careful.timers, 1)
    assert (
        f"{TOPIC}-0 is loaded, and is served when its in-sync replicas have all of it: what is below offset 0 is "
        "committed, and it ends at 1. Brokers [1, 2] are in sync, of [1, 2]; at least 1 have to be" in caplog.text
    )
    broker.work(careful.clock, careful.timers, 3_600_000)
    assert caplog.text.count("is served when") == 1


def test_the_log_says_nothing_of_a_wait_that_is_over(
    broker: OneBroker, careful: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    broker.replicas.get(TOPIC, 0).fetched_by(2, 1, 0)
    broker.work(careful.clock, careful.timers, 10_000)
    assert "is served when" not in caplog.text


def test_how_long_a_partition_takes_to_load_is_told_without_its_wait(broker: OneBroker, careful: Coordinator) -> None:
    assert careful.coordination.loading
    assert not careful.coordination.reading
    careful.clock.advance(60_000)
    broker.replicas.get(TOPIC, 0).fetched_by(2, 1, 0)
    assert not careful.coordination.loading
    times = careful.coordination.load_times
    assert (times.count, times.max_ms) == (2, 0)


def test_what_is_committed_is_served_also_while_too_few_replicas_are_in_sync(broker: OneBroker) -> None:
    careful = Coordinator(broker, serves_committed_only=True)
    broker.create(TOPIC, 1, {"min.insync.replicas": "2"})
    broker.lead(TOPIC, 0, leader=1, isr=[1, 2])
    broker.append(TOPIC, 0, Record(0, 1, b"a", b"1"))
    partition = broker.replicas.get(TOPIC, 0)
    partition.fetched_by(2, 1, 0)
    partition.isr_altered((1,), partition.leader_epoch, partition.role.partition_epoch + 1)
    assert not partition.enough_in_sync
    broker.run(careful.start())
    broker.settle()
    assert careful.coordination.shard("a").machine.pairs == {"a": "1"}
    careful.stop()


def test_who_leads_anew_does_not_go_on_with_what_was_not_committed(broker: OneBroker, careful: Coordinator) -> None:
    broker.lead(TOPIC, 0, leader=2)
    assert not careful.coordination.loading
    broker.lead(TOPIC, 0, leader=1, isr=[1, 2])
    broker.settle()
    broker.replicas.get(TOPIC, 0).fetched_by(2, 1, 0)
    assert [machine.state for machine in careful.machines] == ["loaded", "new", "loaded"]
    broker.lead(TOPIC, 0, leader=1, isr=[1, 2], epochs=2)
    broker.settle()
    assert [machine.state for machine in careful.machines] == ["loaded", "new", "unloaded", "loaded"]


def test_a_disk_that_is_lost_meanwhile_is_not_said_to_be_lost_by_who_waits(
    broker: OneBroker, careful: Coordinator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[StorageError] = []
    monkeypatch.setattr(careful.coordination._replicas, "directory_failed", said.append)
    directory = broker.replicas.get(TOPIC, 0).log.directory
    first = next(each for each in broker.replicas.logs.directories if directory.startswith(each.path))
    broker.replicas.logs.fail(StorageError(first.path, "gone"))
    broker.settle()
    assert not careful.coordination.loading
    assert not said
    assert "cannot load" not in caplog.text


class _Refusing:
    """Too many files are open: so many loads of partition 0 are refused."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    def scan(self, log: Log, report: Callable[[SkippedStretch], None]) -> Iterator[object]:
        if self.refusals and log.topic_partition.partition == 0:
            self.refusals -= 1
            cause = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            raise StorageError(os.path.dirname(log.directory), f"loading in {log.directory}: {cause}") from cause
        yield from scan(log, report)


def test_a_load_that_is_refused_for_a_while_is_tried_again(
    broker: OneBroker, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = _Refusing(9)
    broker.create(TOPIC, 2)
    broker.settle()  # the broker's own coordinator has loaded it
    monkeypatch.setattr(loading, "scan", refusing.scan)
    broker.run(coordinator.start())
    broker.settle()
    for pause_ms in (100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000):
        broker.work(coordinator.clock, coordinator.timers, pause_ms - 1)
        assert [shard.index for shard in coordinator.coordination.shards()] == [1]
        assert coordinator.coordination.loading
        broker.work(coordinator.clock, coordinator.timers, 1)
    assert [shard.index for shard in coordinator.coordination.shards()] == [1, 0]
    assert not coordinator.coordination.loading
    assert broker.replicas.logs.live == broker.replicas.logs.directories


def test_a_load_that_memory_is_too_short_for_is_tried_again_however_little_is_left(
    broker: OneBroker, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = ["for its records", "for an empty one", "for the words"]
    held: list[int] = []

    def pairs(shard: Shard[Pairs]) -> Pairs:
        coordinator.machines.clear()
        gc.collect()
        held.append(len([each for each in gc.get_objects() if type(each) is Pairs and each.shard is shard]))
        if len(held) == 2 and short:
            raise MemoryError(short.pop(0))
        return Pairs(shard)

    def scanned(log: Log, report: Callable[[SkippedStretch], None]) -> Iterator[object]:
        for number, batch in enumerate(scan(log, report)):
            if number and len(short) == 3:
                raise MemoryError(short.pop(0))
            yield batch

    def warn(*words: object) -> None:
        if len(short) == 1:
            raise MemoryError(short.pop(0))

    coordinator.fill(3_000)
    broker.settle()
    monkeypatch.setattr(coordinator, "make", pairs)
    monkeypatch.setattr(loading, "scan", scanned)
    monkeypatch.setattr(logging.getLogger("kafkad.shard.coordination"), "warning", warn)
    broker.run(coordinator.start())
    broker.settle()
    for pause_ms in (100, 200):
        assert coordinator.coordination.loading
        broker.work(coordinator.clock, coordinator.timers, pause_ms)
    assert len(coordinator.coordination.shard("a").machine.pairs) == 3_000
    assert (short, held) == ([], [0, 0, 0])


@pytest.mark.parametrize("short_of", ["its records", "another shard", "the timer"])
def test_a_load_that_memory_is_too_short_for_twice_is_tried_again(
    broker: OneBroker, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, short_of: str
) -> None:
    short = ["its records", short_of]
    at = coordinator.timers.at

    def run_out(of: str) -> None:
        if short and short[0] == of:
            raise MemoryError(short.pop(0))

    def scanned(log: Log, report: Callable[[SkippedStretch], None]) -> Iterator[object]:
        run_out("its records")
        yield from scan(log, report)

    def made(*parts: object) -> Shard[Pairs]:
        run_out("another shard")
        return Shard(*parts)  # type: ignore[arg-type]

    def timer(deadline_ms: float, action: Callable[[], None]) -> Timer:
        run_out("the timer")
        return at(deadline_ms, action)

    coordinator.fill(3)
    broker.settle()
    monkeypatch.setattr(loading, "scan", scanned)
    monkeypatch.setattr(coordination, "Shard", made)
    monkeypatch.setattr(coordinator.timers, "at", timer)
    broker.run(coordinator.start())
    for pause_ms in (0, 100, 200):
        broker.settle()
        broker.work(coordinator.clock, coordinator.timers, pause_ms)
    assert not short
    assert len(coordinator.coordination.shard("key 0").machine.pairs) == 1_000


class _ShortForTheWait:
    """Memory is too short for the timer of a partition that waits until what was loaded is committed."""

    def __init__(self, broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.coordinator = Coordinator(broker, serves_committed_only=True)
        broker.create(TOPIC, 1)
        broker.lead(TOPIC, 0, leader=1, isr=[1, 2])
        for number in range(3):
            broker.append(TOPIC, 0, Record(0, 1, b"key %d" % number, b"v"))
        self._at, self._short = self.coordinator.timers.at, [True]
        monkeypatch.setattr(self.coordinator.timers, "at", self._timer)
        broker.run(self.coordinator.start())
        broker.settle()

    def _timer(self, deadline_ms: float, action: Callable[[], None]) -> Timer:
        if self._short:
            self._short.pop()
            raise MemoryError
        return self._at(deadline_ms, action)


def test_what_is_committed_while_its_load_is_to_be_repeated_is_served_when_that_is_done(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = _ShortForTheWait(broker, monkeypatch).coordinator
    assert coordinator.coordination.loading
    broker.replicas.get(TOPIC, 0).fetched_by(2, 3, 0)
    broker.settle()
    broker.work(coordinator.clock, coordinator.timers, 100)
    assert len(coordinator.coordination.shard("key 0").machine.pairs) == 3
    coordinator.stop()


def test_what_is_committed_while_its_load_is_repeated_is_not_served_by_halves(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = _ShortForTheWait(broker, monkeypatch).coordinator
    served: list[int] = []

    def scanned(log: Log, report: Callable[[SkippedStretch], None]) -> Iterator[object]:
        for number, batch in enumerate(scan(log, report)):
            if number == 2:
                broker.replicas.get(TOPIC, 0).fetched_by(2, 3, 0)
                served.extend(shard.index for shard in coordinator.coordination.shards())
            yield batch

    monkeypatch.setattr(loading, "scan", scanned)
    broker.work(coordinator.clock, coordinator.timers, 100)
    assert not served
    assert len(coordinator.coordination.shard("key 0").machine.pairs) == 3
    coordinator.stop()


def test_a_refused_load_is_not_tried_again_by_who_does_not_lead(
    broker: OneBroker, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = _Refusing(2)
    broker.create(TOPIC, 1)
    broker.settle()
    monkeypatch.setattr(loading, "scan", refusing.scan)
    broker.run(coordinator.start())
    broker.settle()
    broker.lead(TOPIC, 0, leader=2)
    assert coordinator.refusal("a") == ErrorCode.NOT_COORDINATOR
    broker.work(coordinator.clock, coordinator.timers, 60_000)
    assert refusing.refusals == 1
    broker.lead(TOPIC, 0, leader=1)
    broker.settle()
    broker.work(coordinator.clock, coordinator.timers, 100)
    assert coordinator.coordination.shard("a").machine.pairs == {}


def test_a_load_that_is_refused_by_a_disk_for_good_takes_it_offline(
    broker: OneBroker, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(log: Log, report: Callable[[SkippedStretch], None]) -> Iterator[object]:
        raise StorageError(os.path.dirname(log.directory), "Input/output error")

    broker.create(TOPIC, 1)
    broker.settle()
    monkeypatch.setattr(loading, "scan", refuse)
    broker.run(coordinator.start())
    broker.settle()
    assert coordinator.refusal("a") == ErrorCode.NOT_COORDINATOR
    assert not coordinator.coordination.loading
    assert len(broker.replicas.logs.live) == 1
    assert coordinator.timers.next_deadline_ms() is None


def test_a_disk_that_cannot_be_waited_for_is_taken_offline(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that cannot be opened for its fsync is told only to those who wait for that."""
    careful = Coordinator(broker, serves_committed_only=True)
    broker.create(TOPIC, 1, {"kafkad.acks.fsync": "true"})
    broker.settle()
    broker.append(TOPIC, 0, Record(0, 1, b"a", b"1"))

    def refuse(log: Log, on_done: Callable[[StorageError | None], None]) -> None:
        on_done(StorageError(os.path.dirname(log.directory), "Input/output error"))

    monkeypatch.setattr(broker.durable, "sync", refuse)
    broker.run(careful.start())
    broker.settle()
    assert careful.refusal("a") == ErrorCode.NOT_COORDINATOR
    assert not careful.coordination.loading
    assert len(broker.replicas.logs.live) == 1
    assert careful.timers.next_deadline_ms() is None
    careful.stop()


def test_others_get_their_turns_while_a_partition_is_loaded(broker: OneBroker, coordinator: Coordinator) -> None:
    records = 20_000
    coordinator.fill(records)

    async def load() -> int:
        coordinator.coordination.start()
        turns = 0
        while coordinator.coordination.loading:
            assert coordinator.refusal("a") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert broker.run(load()) > 2
    assert len(coordinator.coordination.shard("a").machine.pairs) == records


def test_small_partitions_do_not_wait_for_large_ones(broker: OneBroker, coordinator: Coordinator) -> None:
    broker.create(TOPIC, 3)
    for index, size in enumerate((3, 1, 2)):
        broker.append(TOPIC, index, *[Record(number, 1, b"key %d" % number, b"v") for number in range(size)])
    broker.run(coordinator.start())
    broker.run_until(lambda: not coordinator.coordination.loading)
    assert [shard.index for shard in coordinator.coordination.shards()] == [1, 2, 0]


class _Held:
    """Turns that do not end before they are told to: a load in which something else happens."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def give_way(self) -> None:
        await self.may_end.wait()


def test_a_partition_that_goes_while_it_is_loaded_is_let_go(
    broker: OneBroker, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.fill(1_000)

    async def load() -> None:
        turns = _Held()
        monkeypatch.setattr(loading, "Turns", lambda: turns)
        coordinator.coordination.start()
        await asyncio.sleep(0)
        assert coordinator.coordination.loading
        await broker.controller.delete_topics([TOPIC], timeout_ms=5_000)
        assert not coordinator.coordination.loading
        assert coordinator.refusal("a") == ErrorCode.NOT_COORDINATOR
        turns.may_end.set()

    broker.run(load())
    assert not coordinator.coordination.shards()
    assert {machine.state for machine in coordinator.machines} == {"new"}
    broker.create(TOPIC, 1)
    broker.run_until(lambda: not coordinator.coordination.loading)
    coordinator.put("a", "1")


def test_a_partition_that_comes_back_while_it_is_loaded_is_loaded_from_the_start(
    broker: OneBroker, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has been read of it may have been cut off while another broker led."""
    coordinator.fill(1_000)

    async def begin() -> _Held:
        turns = _Held()
        monkeypatch.setattr(loading, "Turns", lambda: turns)
        coordinator.coordination.start()
        await asyncio.sleep(0)
        return turns

    turns = broker.run(begin())
    broker.lead(TOPIC, 0, leader=2)
    broker.lead(TOPIC, 0, leader=1)
    turns.may_end.set()
    broker.run_until(lambda: not coordinator.coordination.loading)
    assert [machine.state for machine in coordinator.machines] == ["new", "loaded"]
    assert not coordinator.machines[0].applied
    assert len(coordinator.coordination.shard("a").machine.pairs) == 1_000


def test_a_log_that_moves_to_another_directory_while_it_is_loaded_is_loaded_from_there(
    broker: OneBroker, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the one before have other names then: to go on would look as if its disk had failed."""
    coordinator.fill(1_000)
    tp, logs = TopicPartition(TOPIC, 0), broker.replicas.logs
    home = os.path.dirname(logs.logs[tp].directory)
    [target] = [directory.path for directory in logs.directories if directory.path != home]

    async def begin() -> _Held:
        turns = _Held()
        monkeypatch.setattr(loading, "Turns", lambda: turns)
        coordinator.coordination.start()
        await asyncio.sleep(0)
        return turns

    turns = broker.run(begin())
    moves = Moves(logs)
    moves.start(tp, target)
    while not moves.step(tp).caught_up:
        pass
    moved = moves.finish(tp)
    assert moved is not None
    broker.replicas.get(*tp).take_log(moved.log)
    turns.may_end.set()
    broker.run_until(lambda: not coordinator.coordination.loading)
    assert [machine.state for machine in coordinator.machines] == ["new", "loaded"]
    assert len(coordinator.coordination.shard("a").machine.pairs) == 1_000


def test_the_topic_is_made_when_somebody_looks_for_a_coordinator(broker: OneBroker, coordinator: Coordinator) -> None:
    broker.run(coordinator.start())

    assert coordinator.who("a") == ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def prepare() -> None:
        await asyncio.gather(*[coordinator.coordination.prepare() for _ in range(3)])

    broker.run(prepare())
    assert [coordinator.who(key) for key in "abc"] == [1, 1, 1]
    assert coordinator.creations == 1
    assert len(broker.replicas.metadata.topics[TOPIC].partitions) == PARTITIONS


def test_a_topic_that_cannot_be_made_is_tried_again(broker: OneBroker, coordinator: Coordinator) -> None:
    coordinator.replicas_asked_for = 2
    for _ in range(2):
        with pytest.raises(KafkaError, match="Replication factor"):
            broker.run(coordinator.coordination.prepare())
    coordinator.replicas_asked_for = 1
    broker.run(coordinator.coordination.prepare())
    broker.run(coordinator.coordination.prepare())
    assert coordinator.who("a") == 1
    assert coordinator.creations == 3
