"""A coordinator's topic on a broker: what is led is loaded, what is not led is refused."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Iterator

import pytest

from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.log import Log
from kafkad.log.move import Moves
from kafkad.log.scan import SkippedStretch, scan
from kafkad.names import TopicPartition, home_partition
from kafkad.shard import loading
from kafkad.wire.records import Record
from tests.one_broker import OneBroker
from tests.shard.coordinator import PARTITIONS, TOPIC, Coordinator
from tests.shard.pairs import Pair, Pairs


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
