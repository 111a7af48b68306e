"""A partition counts as deleted when the disks know, and its deletion holds up nothing else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest

from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, StorageError
from kafkad.log.directories import BrokenPartition, LogDirectory
from kafkad.log.fsync import OnDone
from kafkad.log.move import Moves
from kafkad.model import LEADER_DURING_DELETE
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from kafkad.replica.prompt_disks import PATIENCE_MS
from kafkad.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.fakes import HeldDisk, fails_once, turns
from tests.full_disk import no_room
from tests.one_broker import OneBroker
from tests.replica.requests import NEW, delete, deletion, election, give_without_room


def test_a_partition_counts_as_deleted_when_the_disk_knows(broker: OneBroker) -> None:
    """After a power cut its directory would have its old name again, and the topic would be forgotten."""
    broker.create("a", 4)
    replicas = broker.replicas
    bad = replicas.logs.directories[0]
    there = {tp.partition for tp in bad.logs}
    assert len(there) == 2

    def refuse() -> None:
        raise StorageError(bad.path, "Input/output error")

    bad.sync_names = refuse  # type: ignore[method-assign]
    answer = broker.run(replicas.stop_replica(deletion(*range(5))))
    refused = {error.partition_index for error in answer.partition_errors if error.error_code}
    assert refused == there | {4}, "of one that is nowhere, nobody knows where it was"
    assert [directory.failure is None for directory in replicas.logs.directories] == [False, True]


@pytest.mark.parametrize("is_open", [True, False])
def test_the_log_of_another_topic_is_not_deleted(
    broker: OneBroker, caplog: pytest.LogCaptureFixture, is_open: bool
) -> None:
    """It may be the only copy of what a Kafka has written in a topic that it has made again."""
    tp = TopicPartition("a", 0)
    logs = broker.replicas.logs
    log = logs.create(tp, b"x" * 16, LogConfig())
    if not is_open:
        [place] = [directory for directory in logs.directories if directory.logs.pop(tp, None)]
        del logs.logs[tp]
        place.broken[tp] = BrokenPartition(log.directory, "damaged")
    assert not deleted(broker, b"y" * 16)
    [told] = [record.message for record in caplog.records if "not deleted" in record.message]
    assert told.startswith(log.directory)
    assert os.path.exists(log.directory)
    assert not deleted(broker, b"x" * 16)
    assert not os.path.exists(log.directory)


def deleted(broker: OneBroker, topic_id: bytes) -> int:
    """The answer to a controller that deletes the topic with this id."""
    state = UpdateMetadataPartitionState(partition_index=0, leader=LEADER_DURING_DELETE, leader_epoch=1)
    topic = UpdateMetadataTopicState(topic_name="a", topic_id=topic_id, partition_states=[state])
    broker.run(broker.replicas.update_metadata(UpdateMetadataRequest(controller_epoch=NEW, topic_states=[topic])))
    [code] = delete(broker, 0)
    return code


def test_a_deletion_waits_for_the_disks_that_had_it_alone_and_for_these_side_by_side(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("a", 4)
    replicas = broker.replicas
    first, second = replicas.logs.directories
    asked: dict[Callable[[], None], OnDone] = {}

    def side_by_side(directory: str, work: Callable[[], None], on_done: OnDone) -> None:
        asked[work] = on_done
        if len(asked) == wanted:
            for answer in asked.values():
                asyncio.get_running_loop().call_soon(answer, None)

    monkeypatch.setattr(replicas.durable, "in_thread", side_by_side)
    wanted = 1
    assert delete(broker, *(tp.partition for tp in first.logs)) == {ErrorCode.NONE}
    assert list(asked) == [first.sync_names]
    asked.clear()
    wanted = 2
    assert delete(broker, *(tp.partition for tp in second.logs), 7) == {ErrorCode.NONE}
    assert len(asked) == 2, "one that is nowhere may have been anywhere"
    asked.clear()
    moved_away = TopicPartition("a", 8)
    for directory in (first, second):
        directory.put_away.add(moved_away)
    assert delete(broker, 9) == {ErrorCode.NONE}
    asked.clear()
    assert delete(broker, moved_away.partition) == {ErrorCode.NONE}
    assert len(asked) == 2, "what a disk knew of when another was deleted is not remembered"


def test_a_deletion_on_a_disk_that_hangs_holds_up_no_election_and_is_true_once_the_disk_knows(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create("a", 4)
    replicas = broker.replicas
    first, second = replicas.logs.directories
    gone, later = (tp.partition for tp in first.logs)
    stays, _ = (tp.partition for tp in second.logs)
    disk = HeldDisk()
    monkeypatch.setattr(replicas.durable, "in_thread", disk.in_thread)

    async def deleted(*partitions: int) -> list[int]:
        deleting = asyncio.create_task(replicas.stop_replica(deletion(*partitions)))
        await turns()
        if not deleting.done():
            broker.timers.expire(replicas.logs.clock.monotonic_ms() + PATIENCE_MS)
        return [error.error_code for error in (await deleting).partition_errors]

    async def scenario() -> None:
        deleting = asyncio.create_task(replicas.stop_replica(deletion(gone)))
        electing = asyncio.create_task(replicas.leader_and_isr(election(stays, leader_epoch=9)))
        await turns()
        assert not deleting.done()
        broker.timers.expire(replicas.logs.clock.monotonic_ms() + PATIENCE_MS)
        assert (await deleting).partition_errors[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await electing
        assert replicas.leader("a", stays).leader_epoch == 9
        assert await deleted(gone, later) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        assert len(disk.waiting) == 1, "it is not asked more and more while it does not answer"
        disk.finish()
        assert await deleted(gone, later) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        disk.finish()
        assert await deleted(later) == [ErrorCode.NONE]
        assert not disk.waiting
        assert disk.directories == {first.path}

    broker.run(scenario())
    assert sum("has not answered" in record.message for record in caplog.records) == 2


def test_a_deletion_waits_for_the_disk_that_the_replica_had_moved_from(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its old name back after a power cut, what it was copied from would be the replica again."""
    broker.create("a")
    logs, tp = broker.replicas.logs, TopicPartition("a", 0)
    source = logs.directory_of(tp)
    [target] = [directory for directory in logs.directories if directory is not source]
    moves = Moves(logs)
    moves.start(tp, target.path)
    assert moves.step(tp).caught_up
    moved = moves.finish(tp)
    assert moved is not None
    moved.put_away()
    asked: list[str] = []
    monkeypatch.setattr(LogDirectory, "sync_names", lambda directory: asked.append(directory.path))
    assert delete(broker, 0) == {ErrorCode.NONE}
    assert sorted(asked) == sorted(broker.directories)
    assert not any(directory.put_away for directory in logs.directories)


def test_a_deletion_that_memory_was_too_short_for_is_done_when_it_is_asked_for_again(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("a", 2)
    fails_once(monkeypatch, Durable, "_begin", MemoryError())
    with pytest.raises(MemoryError):
        delete(broker, 0)
    assert delete(broker, 0, 1) == {ErrorCode.NONE}


def test_a_deletion_waits_while_a_disk_forgets_predecessors_of_what_was_refused(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the disk has something else to do is no reason to refuse it."""
    broker.create("a", 4)
    replicas, logs = broker.replicas, broker.replicas.logs
    gone, stays = (tp.partition for tp in logs.directories[0].logs)
    for write in logs.collect_high_watermarks({TopicPartition("a", gone): 100}):
        write.write()
    delete(broker, gone)

    with monkeypatch.context() as patched:
        patched.setattr(logs.files, "write_file", no_room)
        give_without_room(broker, replicas.get("a", stays).log.topic_id, gone)
    disk = HeldDisk()
    monkeypatch.setattr(replicas.durable, "in_thread", disk.in_thread)

    async def scenario() -> None:
        making = asyncio.create_task(replicas.forget_predecessors_of_refused())
        deleting = asyncio.create_task(replicas.stop_replica(deletion(stays)))
        for _ in range(2):
            await turns()
            disk.finish()
        await making
        assert [error.error_code for error in (await deleting).partition_errors] == [ErrorCode.NONE]

    broker.run(scenario())
