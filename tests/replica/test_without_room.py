"""Disks without room: replicas leave their ISRs, and partitions are made once it is there."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import current_thread
from typing import Any

import pytest

from kafkad.errors import ErrorCode, StorageError
from kafkad.log.checkpoint import HIGH_WATERMARKS
from kafkad.log.log import Log
from kafkad.names import TopicPartition
from kafkad.replica.partition import Partition
from kafkad.replica.prompt_disks import PATIENCE_MS
from tests.fakes import FakeClock, HeldDisk, fails_once, turns
from tests.full_disk import no_room, refusal
from tests.one_broker import OneBroker
from tests.replica.requests import ID, OTHER_ID, delete, deletion, election, give, give_without_room, made


@dataclass(frozen=True)
class Leaving:
    """What is seen of the replicas in the first log directory, half of 450, while they leave their ISRs."""

    there: list[TopicPartition]
    later: list[Callable[[], None]] = field(default_factory=list)
    """What is to be done in the next turns of the loop."""
    left: list[TopicPartition] = field(default_factory=list)
    told: list[int] = field(default_factory=list)
    """How many had left, each time that the controller was to ask."""


def leaving(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> Leaving:
    replicas, count = broker.replicas, 450
    assert set(give(broker, ID, *range(count), isr=[1, 2])) == {ErrorCode.NONE}
    seen = Leaving([tp for tp in replicas.logs.directories[0].logs if tp.topic == "a"])
    assert len(seen.there) == count / 2
    monkeypatch.setattr(replicas, "on_roles_changed", lambda changed: seen.left.extend(one.tp for one in changed))
    monkeypatch.setattr(replicas, "ask_for_leader_and_isr", lambda: seen.told.append(len(seen.left)))
    monkeypatch.setattr(replicas.waits, "soon", seen.later.append)
    return seen


def test_of_many_replicas_on_a_full_disk_some_leave_their_isrs_in_a_turn(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller asks about all of them at once; one that was deleted before its turn has nothing to leave."""
    replicas, seen, turns = broker.replicas, leaving(broker, monkeypatch), 0

    async def run_full() -> None:
        nonlocal turns
        replicas.directory_failed(refusal(broker.directories[0]))
        gone = seen.there.pop()
        await replicas.stop_replica(deletion(gone.partition))
        seen.left.remove(gone)
        while seen.later:
            before = len(seen.left)
            assert seen.told == []
            seen.later.pop()()
            assert len(seen.left) - before <= 200
            turns += 1

    broker.run(run_full())
    assert turns == 2
    assert seen.left == seen.there
    assert seen.told == [len(seen.left)]
    assert [one.tp for one in replicas if one.role.leader == -1] == seen.there


def test_a_disk_that_does_not_forget_a_predecessor_holds_up_no_election_and_its_partition_is_made_later(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas, logs = broker.replicas, broker.replicas.logs
    first, second = logs.directories
    give(broker, ID, 0, 1)
    for write in logs.collect_high_watermarks({TopicPartition("a", 0): 100, TopicPartition("a", 1): 100}):
        write.write()
    [gone], [stays] = ([tp.partition for tp in directory.logs] for directory in (first, second))
    delete(broker, gone)
    disk = HeldDisk()
    logs.prefer(TopicPartition("a", gone), first.path)
    monkeypatch.setattr(replicas.durable, "in_thread", disk.in_thread)

    async def scenario() -> None:
        making = asyncio.create_task(replicas.leader_and_isr(election(gone, leader_epoch=9)))
        electing = asyncio.create_task(replicas.leader_and_isr(election(stays, leader_epoch=9)))
        await turns()
        assert not making.done()
        broker.timers.expire(logs.clock.monotonic_ms() + PATIENCE_MS)
        assert (await making).topics[0].partition_errors[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await electing
        assert replicas.leader("a", stays).leader_epoch == 9
        await broker.parts.upkeep.make_what_was_refused()
        assert replicas.find("a", gone) is None, "it was to be in that directory"
        assert len(disk.waiting) == 1, "it is not asked more and more while it does not answer"
        disk.finish()
        await broker.parts.upkeep.make_what_was_refused()
        assert replicas.get("a", gone).high_watermark == 0
        assert logs.directory_of(TopicPartition("a", gone)) is first
        assert disk.directories == {first.path}

    broker.run(scenario())


def test_a_full_directory_that_one_partition_is_to_be_in_keeps_none_away_from_others(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, mkdir = broker.replicas.logs, broker.replicas.logs.files.mkdir
    full, _ = broker.directories
    logs.prefer(TopicPartition("a", 0), full)
    give_without_room(broker, ID, 0, 1)

    def refuse(path: str) -> None:
        if path.startswith(full):
            no_room(path)
        mkdir(path)

    with monkeypatch.context() as patched:
        patched.setattr(logs.files, "mkdir", refuse)
        assert made(broker) == [1]
    assert made(broker) == [0, 1]
    assert logs.directory_of(TopicPartition("a", 0)) is logs.directories[0]


def test_an_error_while_a_replica_leaves_its_isr_keeps_no_other_from_leaving(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen = leaving(broker, monkeypatch)
    ends = seen.there[0], seen.there[-1]

    def refuse(partition: Partition) -> None:
        if partition.tp in ends:
            raise ZeroDivisionError

    monkeypatch.setitem(broker.replicas.role_watchers, "a", refuse)

    async def run_full() -> None:
        broker.replicas.directory_failed(refusal(broker.directories[0]))
        while seen.later:
            seen.later.pop()()

    broker.run(run_full())
    assert seen.left == seen.there
    assert seen.told == [len(seen.there)]
    for tp in ends:
        assert f"internal error while {tp} leaves its ISR" in caplog.text


def test_predecessors_of_what_was_refused_are_forgotten_in_a_thread(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(broker, ID, 0)
    logs = broker.replicas.logs
    for write in logs.collect_high_watermarks({TopicPartition("a", 0): 100}):
        write.write()
    delete(broker, 0)
    files, write_file = logs.files, logs.files.write_file
    threads: set[object] = set()

    def written(path: str, data: bytes, *, durable: bool = True) -> None:
        if path.endswith(HIGH_WATERMARKS):
            threads.add(current_thread())
        write_file(path, data, durable=durable)

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_file", no_room)
        give_without_room(broker, ID, 0)
    monkeypatch.setattr(files, "write_file", written)
    broker.run(broker.parts.upkeep.make_what_was_refused())
    assert broker.replicas.get("a", 0).high_watermark == 0
    assert len(threads) == 1
    assert current_thread() not in threads


def test_a_partition_whose_log_is_of_another_topic_keeps_none_behind_it_away(broker: OneBroker) -> None:
    give_without_room(broker, ID, 0, 1)
    logs = broker.replicas.logs
    logs.create(TopicPartition("a", 0), OTHER_ID, broker.parts.settings.of_topic("a"))
    assert made(broker) == [1]


def test_a_disk_that_fails_when_there_is_room_again_keeps_no_partition_away_from_another_disk(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_without_room(broker, ID, 0, 1)
    fails_once(monkeypatch, broker.replicas.logs, "create", StorageError(broker.directories[0], "it is broken"))
    assert made(broker) == [1]
    assert made(broker) == [0, 1]


def test_a_disk_that_has_not_forgotten_a_predecessor_keeps_no_partition_behind_it_away(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_without_room(broker, ID, 0, 1)
    logs = broker.replicas.logs
    create = logs.create

    def create_the_other(tp: TopicPartition, *args: Any, **options: Any) -> Log:
        if tp.partition == 0:
            why = BlockingIOError(errno.EAGAIN, "its predecessor is still in a checkpoint")
            raise StorageError(broker.directories[0], str(why)) from why
        return create(tp, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(logs, "create", create_the_other)
        assert made(broker) == [1]
    assert made(broker) == [0, 1]


def test_a_log_directory_that_has_room_again_is_told_of_once_nothing_is_refused_any_more(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kafkad.replica.manager")
    full, clock = broker.directories[0], FakeClock()
    monkeypatch.setattr(broker.replicas.logs, "clock", clock)
    for _ in range(2):
        caplog.clear()
        for _ in range(4):
            broker.replicas.directory_failed(refusal(full))
            clock.advance(15_000)
            list(broker.replicas.make_what_was_refused())
        assert [record.levelname for record in caplog.records] == ["ERROR"], "it is too little for what comes"
        clock.advance(45_000)
        list(broker.replicas.make_what_was_refused())
        list(broker.replicas.make_what_was_refused())
        assert caplog.messages[1:] == [f"log directory {full} takes records again: there is room"]


def test_a_topic_that_is_recreated_while_partitions_are_made_has_those_of_its_own(broker: OneBroker) -> None:
    give_without_room(broker, ID, 0, 1)

    making = broker.replicas.make_what_was_refused()
    assert next(making) == ("a", 0)
    give_without_room(broker, OTHER_ID, 1)
    assert list(making) == [("a", 1)]
    assert broker.replicas.get("a", 1).log.topic_id == OTHER_ID
