"""Two controllers send at the same time, as they may when one does not know yet that it was replaced."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import pytest

from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, StorageError
from kafkad.log.checkpoint import HIGH_WATERMARKS
from kafkad.log.directories import BrokenPartition, LogDirectory
from kafkad.log.fsync import OnDone
from kafkad.log.log import Log
from kafkad.log.move import Moves
from kafkad.model import ALL_TOPICS, LEADER_DURING_DELETE
from kafkad.names import NO_TOPIC_ID, TopicPartition
from kafkad.replica.durable import Durable
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import Partition, ReplicaParts
from kafkad.replica.prompt_disks import PATIENCE_MS
from kafkad.replica.waits import Waits
from kafkad.wire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from kafkad.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from kafkad.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.fakes import give_way_each_time
from tests.one_broker import OneBroker

OLD, NEW = 7, 8


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    broker = OneBroker(tmp_path)
    yield broker
    broker.stop()


def test_requests_of_controllers_are_carried_out_one_after_the_other(broker: OneBroker) -> None:
    parts = broker.parts
    settings_are_read = asyncio.Event()

    async def load_configs(topics: Iterable[str]) -> None:
        await settings_are_read.wait()

    async def scenario() -> None:
        waits = Waits(broker.timers, parts.platform.clock, asyncio.get_running_loop().call_soon)
        held = ReplicaParts(broker_id=1, clock=parts.platform.clock, waits=waits, durable=parts.durable)
        replicas = ReplicaManager(
            held, parts.platform.logs, parts.settings.of_topic, load_configs, halt=lambda why: None
        )
        led = LeaderAndIsrPartitionState(leader=1, leader_epoch=1, isr=[1], replicas=[1], is_new=True)
        topic = LeaderAndIsrTopicState(topic_name="a", topic_id=ID, partition_states=[led])
        gone = StopReplicaPartitionState(partition_index=0, leader_epoch=2, delete_partition=True)
        requests = [
            replicas.leader_and_isr(LeaderAndIsrRequest(controller_epoch=OLD, topic_states=[topic])),
            replicas.stop_replica(
                StopReplicaRequest(
                    controller_epoch=NEW,
                    topic_states=[StopReplicaTopicState(topic_name="a", partition_states=[gone])],
                )
            ),
            replicas.update_metadata(UpdateMetadataRequest(controller_id=9, controller_epoch=OLD)),
        ]
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(request) for request in requests]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        settings_are_read.set()
        answers = await asyncio.gather(*tasks)
        assert [answer.error_code for answer in answers] == [0, 0, ErrorCode.STALE_CONTROLLER_EPOCH]
        assert replicas.find("a", 0) is None, "what the older one gave was taken away by the newer one"
        assert replicas.metadata.controller_id != 9

    broker.run(scenario())


@pytest.mark.parametrize(
    ("topic", "partition"), [("../../out", 0), ("a/b", 0), ("", 0), (".", 0), ("n" * 250, 0), ("a\nb", 0), ("a", -1)]
)
def test_a_topic_that_cannot_be_gets_no_directory(broker: OneBroker, topic: str, partition: int) -> None:
    """Neither outside of the log directories nor so that the disk's refusal takes one offline."""
    directories = broker.parts.platform.logs.directories
    led = LeaderAndIsrPartitionState(
        partition_index=partition, leader=1, leader_epoch=1, isr=[1], replicas=[1], is_new=True
    )
    named = LeaderAndIsrTopicState(topic_name=topic, topic_id=ID, partition_states=[led])
    answer = broker.run(broker.replicas.leader_and_isr(LeaderAndIsrRequest(controller_epoch=NEW, topic_states=[named])))
    [refused] = answer.topics[0].partition_errors
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert all(directory.failure is None for directory in directories)
    assert not any(Path(directory.path, f"{topic}-{partition}").exists() for directory in directories)


def test_what_a_controller_has_given_up_half_way_is_followed_as_far_as_it_was_done(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next controller repeats none of it: the roles are known already, and nobody would begin to fetch."""
    replicas = broker.replicas
    followed: list[str] = []
    replicas.on_roles_changed = lambda changed: followed.extend(str(partition.tp) for partition in changed)
    give_way_each_time(monkeypatch)
    request = election(*range(20), topic_id=ID, leader=2, isr=[1, 2], is_new=True)

    async def scenario() -> None:
        carrying_out = asyncio.create_task(replicas.leader_and_isr(request))
        while len(replicas.of_topic("a")) < 3:
            await asyncio.sleep(0)
        carrying_out.cancel()
        await asyncio.wait([carrying_out])

    broker.run(scenario())
    assert 3 <= len(followed) < 20
    assert sorted(followed) == sorted(str(partition.tp) for partition in replicas.of_topic("a").values())


def test_of_many_replicas_on_a_full_disk_some_leave_their_isrs_in_a_turn(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller asks about all of them at once; one that was deleted before its turn has nothing to leave."""
    replicas = broker.replicas
    count = 450
    assert set(give(broker, ID, *range(count), isr=[1, 2])) == {ErrorCode.NONE}
    told: list[int] = []
    later: list[Callable[[], None]] = []
    left: list[TopicPartition] = []
    monkeypatch.setattr(replicas, "on_roles_changed", lambda changed: left.extend(one.tp for one in changed))
    monkeypatch.setattr(replicas, "ask_for_leader_and_isr", lambda: told.append(len(left)))
    monkeypatch.setattr(replicas.waits, "soon", later.append)
    full = replicas.logs.directories[0].path
    there = [tp for tp in replicas.logs.directories[0].logs if tp.topic == "a"]
    assert len(there) == count / 2
    turns = 0

    async def run_full() -> None:
        nonlocal turns
        error = StorageError(full, "no room")
        error.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replicas.directory_failed(error)
        gone = there.pop()
        await replicas.stop_replica(deletion(gone.partition))
        left.remove(gone)
        while later:
            before = len(left)
            assert told == []
            later.pop()()
            assert len(left) - before <= 200
            turns += 1

    broker.run(run_full())
    assert turns == 2
    assert left == there
    assert told == [len(left)]
    assert [one.tp for one in replicas if one.role.leader == -1] == there


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
    held: list[OnDone] = []

    def hang(directory: str, work: Callable[[], None], on_done: OnDone) -> None:
        assert directory == first.path
        held.append(on_done)

    monkeypatch.setattr(replicas.durable, "in_thread", hang)

    async def turns() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

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
        assert len(held) == 1, "it is not asked more and more while it does not answer"
        held.pop()(None)
        assert await deleted(gone, later) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        held.pop()(None)
        assert await deleted(later) == [ErrorCode.NONE]
        assert not held

    broker.run(scenario())
    assert sum("has not answered" in record.message for record in caplog.records) == 2


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
    held: list[tuple[Callable[[], None], OnDone]] = []
    logs.prefer(TopicPartition("a", gone), first.path)

    def hang(directory: str, work: Callable[[], None], on_done: OnDone) -> None:
        assert directory == first.path
        held.append((work, on_done))

    monkeypatch.setattr(replicas.durable, "in_thread", hang)

    async def scenario() -> None:
        making = asyncio.create_task(replicas.leader_and_isr(election(gone, leader_epoch=9)))
        electing = asyncio.create_task(replicas.leader_and_isr(election(stays, leader_epoch=9)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not making.done()
        broker.timers.expire(logs.clock.monotonic_ms() + PATIENCE_MS)
        assert (await making).topics[0].partition_errors[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await electing
        assert replicas.leader("a", stays).leader_epoch == 9
        await broker.parts.upkeep.make_what_was_refused()
        assert replicas.find("a", gone) is None, "it was to be in that directory"
        assert len(held) == 1, "it is not asked more and more while it does not answer"
        [(work, on_done)] = held
        work()
        on_done(None)
        await broker.parts.upkeep.make_what_was_refused()
        assert replicas.get("a", gone).high_watermark == 0
        assert logs.directory_of(TopicPartition("a", gone)) is first

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
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        mkdir(path)

    with monkeypatch.context() as patched:
        patched.setattr(logs.files, "mkdir", refuse)
        assert made(broker) == [1]
    assert made(broker) == [0, 1]
    assert logs.directory_of(TopicPartition("a", 0)) is logs.directories[0]


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
    begin, short = Durable._begin, [True]

    def begun(durable: Durable, directory: str, work: Callable[[], None]) -> asyncio.Future[None]:
        if short:
            short.pop()
            raise MemoryError
        return begin(durable, directory, work)

    monkeypatch.setattr(Durable, "_begin", begun)
    with pytest.raises(MemoryError):
        delete(broker, 0)
    assert delete(broker, 0, 1) == {ErrorCode.NONE}


def delete(broker: OneBroker, *partitions: int) -> set[int]:
    """Partitions of topic `a`; the codes that the controller gets for them."""
    answer = broker.run(broker.replicas.stop_replica(deletion(*partitions)))
    return {error.error_code for error in answer.partition_errors}


def deletion(*partitions: int) -> StopReplicaRequest:
    states = [
        StopReplicaPartitionState(partition_index=index, leader_epoch=-2, delete_partition=True) for index in partitions
    ]
    topic = StopReplicaTopicState(topic_name="a", partition_states=states)
    return StopReplicaRequest(controller_epoch=NEW, topic_states=[topic])


def test_an_election_waits_for_no_checkpoint_and_a_new_partition_for_its_predecessors_alone(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which a slow disk is just being told, by a thread."""
    replicas, logs = broker.replicas, broker.replicas.logs
    give(broker, ID, 0, 1)
    begun, goes_on = Event(), Event()
    write_file = logs.files.write_file

    def slow(path: str, data: bytes, *, durable: bool = True) -> None:
        if path.endswith(HIGH_WATERMARKS) and not begun.is_set():
            begun.set()
            assert goes_on.wait(60)
        write_file(path, data, durable=durable)

    monkeypatch.setattr(logs.files, "write_file", slow)
    place = logs.directory_of(TopicPartition("a", 1))
    assert place is not None
    writing = Thread(target=place.collect_high_watermarks({TopicPartition("a", 1): 100}).write)
    writing.start()
    assert begun.wait(60)
    assert delete(broker, 1) == {ErrorCode.NONE}

    async def elect() -> None:
        request = election(1, 0, topic_id=ID, leader_epoch=2)
        carrying_out = asyncio.create_task(replicas.leader_and_isr(request))
        try:
            for _ in range(50):
                await asyncio.sleep(0)
            assert replicas.leader("a", 0).leader_epoch == 2
            assert replicas.find("a", 1) is None
        finally:
            goes_on.set()
        answer = await carrying_out
        assert [(each.partition_index, each.error_code) for each in answer.topics[0].partition_errors] == [
            (1, ErrorCode.NONE),
            (0, ErrorCode.NONE),
        ]

    broker.run(elect())
    writing.join()
    assert replicas.leader("a", 1).high_watermark == 0
    assert logs.checkpointed_high_watermark(TopicPartition("a", 1)) == 0


def test_partitions_are_made_without_a_wait_for_checkpoints_that_are_being_written(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some in a turn, and between two of them the next checkpoints are collected."""
    logs = broker.replicas.logs
    give(broker, ID, 0, 1)
    written: list[str] = []
    write_file = logs.files.write_file

    def write(path: str, data: bytes, *, durable: bool = True) -> None:
        written.append(os.path.basename(path))
        write_file(path, data, durable=durable)

    monkeypatch.setattr(logs.files, "write_file", write)
    late = logs.collect_high_watermarks({TopicPartition("a", 0): 100, TopicPartition("a", 1): 100})
    assert delete(broker, 0) == {ErrorCode.NONE}
    assert give(broker, ID, 0, 2, 3) == [ErrorCode.NONE] * 3
    assert HIGH_WATERMARKS not in written
    for one in late:
        one.write()
    assert [logs.checkpointed_high_watermark(TopicPartition("a", index)) for index in range(4)] == [0, 100, 0, 0]


def test_what_passes_is_logged_with_what_would_help(broker: OneBroker, caplog: pytest.LogCaptureFixture) -> None:
    replicas = broker.replicas
    for code in (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOSPC):
        error = StorageError(replicas.logs.directories[0].path, errno.errorcode[code])
        error.__cause__ = OSError(code, os.strerror(code))
        broker.run(_refused(replicas, error))
    first, second, third = (record.message for record in caplog.records)
    assert first == "ENOSPC; writes that need more space there are refused until there is room"
    assert "ulimit -n" in second
    assert "room" not in second
    assert third == "EAGAIN; it is tried again"


async def _refused(replicas: ReplicaManager, error: StorageError) -> None:
    replicas.directory_failed(error)


def test_a_setting_of_the_broker_is_taken_by_some_in_a_turn_and_only_where_it_matters(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would wake all consumers that wait for its records."""
    replicas = broker.replicas
    give(broker, ID, *range(450))
    told: list[Partition] = []
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(replicas.waits, "soon", later.append)
    take = Partition.update_config

    def update_config(partition: Partition, config: LogConfig) -> None:
        told.append(partition)
        take(partition, config)

    monkeypatch.setattr(Partition, "update_config", update_config)

    def override(**settings: str) -> None:
        broker.parts.settings.override(
            cluster_wide={name.replace("_", "."): settings[name] for name in settings}, per_broker={}
        )
        replicas.all_configs_changed()

    override(min_insync_replicas="2")
    assert len(told) == 200
    while later:
        later.pop()()
    assert told == list(replicas)
    assert {partition.log.config.min_insync_replicas for partition in replicas} == {2}
    override(min_insync_replicas="2", log_cleaner_threads="2")
    while later:
        later.pop()()
    assert len(told) == 450


def test_who_refused_to_lead_has_its_setting_before_the_controller_is_asked_again(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = broker.replicas
    give(broker, ID, *range(450))
    refused = list(replicas)[-1]
    replicas.lost_tails.refused.add(refused.tp)
    monkeypatch.setattr(replicas.waits, "soon", lambda later: None)
    asked: list[bool] = []
    monkeypatch.setattr(
        replicas, "ask_for_leader_and_isr", lambda: asked.append(refused.log.config.unclean_leader_election)
    )
    broker.parts.settings.override(cluster_wide={"unclean.leader.election.enable": "true"}, per_broker={})
    replicas.all_configs_changed()
    assert asked == [True]


def test_an_error_while_a_replica_leaves_its_isr_keeps_no_other_from_leaving(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replicas = broker.replicas
    count = 450
    assert set(give(broker, ID, *range(count), isr=[1, 2])) == {ErrorCode.NONE}
    told: list[int] = []
    later: list[Callable[[], None]] = []
    left: list[TopicPartition] = []
    full = replicas.logs.directories[0].path
    there = [tp for tp in replicas.logs.directories[0].logs if tp.topic == "a"]

    def refuse(partition: Partition) -> None:
        if partition.tp in (there[0], there[-1]):
            raise ZeroDivisionError

    monkeypatch.setitem(replicas.role_watchers, "a", refuse)
    monkeypatch.setattr(replicas, "on_roles_changed", lambda changed: left.extend(one.tp for one in changed))
    monkeypatch.setattr(replicas, "ask_for_leader_and_isr", lambda: told.append(len(left)))
    monkeypatch.setattr(replicas.waits, "soon", later.append)

    async def run_full() -> None:
        error = StorageError(full, "no room")
        error.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replicas.directory_failed(error)
        while later:
            later.pop()()

    broker.run(run_full())
    assert left == there
    assert told == [len(there)]
    for tp in (there[0], there[-1]):
        assert f"internal error while {tp} leaves its ISR" in caplog.text


def give(broker: OneBroker, topic_id: bytes, *partitions: int, isr: Sequence[int] = (1,)) -> list[int]:
    """New partitions of topic `a`; the codes that the controller gets for them."""
    request = election(*partitions, topic_id=topic_id, isr=isr, is_new=True)
    answer = broker.run(broker.replicas.leader_and_isr(request))
    return [each.error_code for each in answer.topics[0].partition_errors]


def election(
    *partitions: int,
    topic_id: bytes = NO_TOPIC_ID,
    leader: int = 1,
    leader_epoch: int = 1,
    isr: Sequence[int] = (1,),
    is_new: bool = False,
) -> LeaderAndIsrRequest:
    """Of a leader for partitions of topic `a`, which all of the ISR have."""
    states = [
        LeaderAndIsrPartitionState(
            partition_index=index,
            leader=leader,
            leader_epoch=leader_epoch,
            isr=list(isr),
            replicas=list(isr),
            is_new=is_new,
        )
        for index in partitions
    ]
    topic = LeaderAndIsrTopicState(topic_name="a", topic_id=topic_id, partition_states=states)
    return LeaderAndIsrRequest(controller_epoch=NEW, topic_states=[topic])


def give_without_room(broker: OneBroker, topic_id: bytes, *partitions: int) -> None:
    def full(path: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(broker.replicas.logs.files, "mkdir", full)
        assert set(give(broker, topic_id, *partitions)) == {ErrorCode.KAFKA_STORAGE_ERROR}


def made(broker: OneBroker) -> list[int]:
    """The partitions that are here after another try, of which the controller is told."""
    told: list[bool] = []
    broker.replicas.ask_for_leader_and_isr = lambda: told.append(True)

    async def try_again() -> None:
        for _ in broker.replicas.make_what_was_refused():
            pass

    broker.run(try_again())
    assert told
    return sorted(broker.replicas.of_topic("a"))


ID, OTHER_ID = bytes(15) + b"a", bytes(15) + b"b"


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

    def full(path: str, data: bytes, *, durable: bool = True) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def written(path: str, data: bytes, *, durable: bool = True) -> None:
        if path.endswith(HIGH_WATERMARKS):
            threads.add(current_thread())
        write_file(path, data, durable=durable)

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_file", full)
        give_without_room(broker, ID, 0)
    monkeypatch.setattr(files, "write_file", written)
    broker.run(broker.parts.upkeep.make_what_was_refused())
    assert broker.replicas.get("a", 0).high_watermark == 0
    assert len(threads) == 1
    assert current_thread() not in threads


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

    def full(path: str, data: bytes, *, durable: bool = True) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with monkeypatch.context() as patched:
        patched.setattr(logs.files, "write_file", full)
        give_without_room(broker, replicas.get("a", stays).log.topic_id, gone)
    held: list[OnDone] = []
    monkeypatch.setattr(replicas.durable, "in_thread", lambda directory, work, on_done: held.append(on_done))

    async def scenario() -> None:
        making = asyncio.create_task(replicas.forget_their_predecessors())
        deleting = asyncio.create_task(replicas.stop_replica(deletion(stays)))
        for _ in range(2):
            for _ in range(20):
                await asyncio.sleep(0)
            held.pop()(None)
        await making
        assert [error.error_code for error in (await deleting).partition_errors] == [ErrorCode.NONE]

    broker.run(scenario())


def test_a_partition_whose_log_is_of_another_topic_keeps_none_behind_it_away(broker: OneBroker) -> None:
    give_without_room(broker, ID, 0, 1)
    logs = broker.replicas.logs
    logs.create(TopicPartition("a", 0), OTHER_ID, broker.parts.settings.of_topic("a"))
    assert made(broker) == [1]


def test_a_disk_that_fails_when_there_is_room_again_keeps_no_partition_away_from_another_disk(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_without_room(broker, ID, 0, 1)
    logs = broker.replicas.logs
    create = logs.create
    failing = [broker.directories[0]]

    def create_with_failure(tp: TopicPartition, *args: Any, **options: Any) -> Log:
        if failing:
            raise StorageError(failing.pop(), "it is broken")
        return create(tp, *args, **options)

    monkeypatch.setattr(logs, "create", create_with_failure)
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


def test_a_topic_that_is_recreated_while_partitions_are_made_has_those_of_its_own(broker: OneBroker) -> None:
    give_without_room(broker, ID, 0, 1)

    making = broker.replicas.make_what_was_refused()
    assert next(making) == ("a", 0)
    give_without_room(broker, OTHER_ID, 1)
    assert list(making) == [("a", 1)]
    assert broker.replicas.get("a", 1).log.topic_id == OTHER_ID


@pytest.mark.parametrize(
    ("topic_id", "controller_epoch", "leader_epoch", "holders", "stays"),
    [
        (ID, NEW, 2, [2, 3], False),
        (ID, NEW, 1, [2, 3], True),
        (ID, NEW, 2, [2, 1], True),
        (ID, OLD, 2, [2, 3], True),
        (OTHER_ID, OLD, 2, [2, 3], True),
    ],
    ids=["moved", "late", "here", "of an old controller", "another topic of an old controller"],
)
def test_what_only_others_have_in_a_later_epoch_is_given_up(
    broker: OneBroker, topic_id: bytes, controller_epoch: int, leader_epoch: int, holders: list[int], stays: bool
) -> None:
    """Its log is left alone, and goes on when the partition is moved back."""
    replicas = broker.replicas
    assert give(broker, ID, 0, 1) == [ErrorCode.NONE, ErrorCode.NONE]
    log = replicas.get("a", 0).log
    told: list[TopicPartition] = []
    replicas.on_roles_changed = lambda changed: told.extend(partition.tp for partition in changed)
    state = UpdateMetadataPartitionState(leader=2, leader_epoch=leader_epoch, isr=holders, replicas=holders)
    topic = UpdateMetadataTopicState(topic_name="a", topic_id=topic_id, partition_states=[state])
    request = UpdateMetadataRequest(controller_epoch=controller_epoch, topic_states=[topic])
    broker.run(replicas.update_metadata(request))
    assert sorted(replicas.of_topic("a")) == ([0, 1] if stays else [1])
    assert told == ([] if stays else [TopicPartition("a", 0)])
    assert give(broker, ID, 0) == [ErrorCode.STALE_CONTROLLER_EPOCH if stays else ErrorCode.NONE]
    assert replicas.get("a", 0).log is log


@pytest.mark.parametrize("holders", [[2, 3], [1, 2]], ids=["elsewhere", "here"])
def test_what_is_of_an_earlier_topic_is_given_up(broker: OneBroker, holders: list[int]) -> None:
    """The new one's epochs begin anew. Its log is left alone, and not taken for the new one's."""
    replicas = broker.replicas
    assert give(broker, ID, 0, 1) == [ErrorCode.NONE, ErrorCode.NONE]
    log = replicas.get("a", 0).log
    state = UpdateMetadataPartitionState(leader=2, leader_epoch=0, isr=holders, replicas=holders)
    topic = UpdateMetadataTopicState(topic_name="a", topic_id=OTHER_ID, partition_states=[state])
    broker.run(replicas.update_metadata(UpdateMetadataRequest(controller_epoch=NEW, topic_states=[topic])))
    assert sorted(replicas.of_topic("a")) == [1]
    assert give(broker, OTHER_ID, 0) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert replicas.logs.get(TopicPartition("a", 0)) is log
    assert give(broker, ID, 0) == [ErrorCode.NONE]
    assert replicas.get("a", 0).log is log


def test_a_leader_is_given_up_when_another_topic_of_its_name_is_to_be_led(broker: OneBroker) -> None:
    assert give(broker, ID, 0, 1) == [ErrorCode.NONE, ErrorCode.NONE]
    assert give(broker, OTHER_ID, 0) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert sorted(broker.replicas.of_topic("a")) == [1]


@pytest.mark.parametrize(("kind", "left"), [(0, ["a", "b"]), (ALL_TOPICS, ["b"])], ids=["some topics", "all topics"])
def test_what_is_of_no_topic_is_given_up_by_who_hears_of_all_topics(
    broker: OneBroker, kind: int, left: list[str]
) -> None:
    broker.create("b")
    assert give(broker, ID, 0, 1) == [ErrorCode.NONE, ErrorCode.NONE]
    give_without_room(broker, ID, 2)
    broker.run(
        broker.replicas.update_metadata(
            UpdateMetadataRequest(controller_epoch=NEW, type=kind, topic_states=[state_of_b(broker)])
        )
    )
    assert sorted({partition.tp.topic for partition in broker.replicas}) == left
    assert TopicPartition("a", 0) in broker.replicas.logs.logs
    assert not (kind == ALL_TOPICS and broker.replicas._refused_for_now)


def state_of_b(broker: OneBroker) -> UpdateMetadataTopicState:
    topic = broker.replicas.metadata.topic("b")
    return UpdateMetadataTopicState(topic_name="b", topic_id=topic.id, partition_states=list(topic.partitions.values()))


def test_a_replica_that_waits_for_room_is_given_up_where_only_others_have_it(broker: OneBroker) -> None:
    give_without_room(broker, ID, 0, 1)
    state = UpdateMetadataPartitionState(leader=2, leader_epoch=2, isr=[2, 3], replicas=[2, 3])
    topic = UpdateMetadataTopicState(topic_name="a", topic_id=ID, partition_states=[state])
    broker.run(broker.replicas.update_metadata(UpdateMetadataRequest(controller_epoch=NEW, topic_states=[topic])))
    assert made(broker) == [1]
