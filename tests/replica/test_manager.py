"""What a broker does with requests of controllers, and with its settings."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from kafkad.broker.partition_metrics import partition_families
from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, StorageError
from kafkad.log.checkpoint import HIGH_WATERMARKS
from kafkad.metrics import Registry
from kafkad.names import TopicPartition
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import Partition, ReplicaParts
from kafkad.replica.waits import Waits
from kafkad.wire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from kafkad.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from kafkad.wire.messages.update_metadata import UpdateMetadataRequest
from tests.fakes import give_way_each_time, turns
from tests.full_disk import refusal
from tests.one_broker import OneBroker
from tests.replica.requests import ID, NEW, OLD, delete, deletion, election, give


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
        await turns()
        assert not any(task.done() for task in tasks)
        settings_are_read.set()
        answers = await asyncio.gather(*tasks)
        assert [answer.error_code for answer in answers] == [0, 0, ErrorCode.STALE_CONTROLLER_EPOCH]
        assert replicas.find("a", 0) is None, "what the older one gave was taken away by the newer one"
        assert replicas.metadata.controller_id != 9

    broker.run(scenario())


@pytest.mark.parametrize("delete_partition", [False, True])
def test_a_stop_of_an_earlier_leader_epoch_stops_nothing(broker: OneBroker, delete_partition: bool) -> None:
    """It is late: this broker leads again."""
    broker.run(broker.replicas.leader_and_isr(election(0, topic_id=ID, leader_epoch=5, is_new=True)))
    directory = Path(broker.directories[0], "a-0")

    def stop(leader_epoch: int) -> set[int]:
        stopped = StopReplicaPartitionState(
            partition_index=0, leader_epoch=leader_epoch, delete_partition=delete_partition
        )
        topic = StopReplicaTopicState(topic_name="a", partition_states=[stopped])
        request = StopReplicaRequest(controller_epoch=NEW, topic_states=[topic])
        return {error.error_code for error in broker.run(broker.replicas.stop_replica(request)).partition_errors}

    assert stop(4) == {ErrorCode.FENCED_LEADER_EPOCH}
    partition = broker.replicas.find("a", 0)
    assert partition is not None
    assert (partition.is_leader, directory.exists()) == (True, True)
    assert stop(5) == {ErrorCode.NONE}
    assert broker.replicas.find("a", 0) is None
    assert directory.exists() is not delete_partition


def test_what_is_meant_for_this_broker_before_it_registered_again_is_refused(broker: OneBroker) -> None:
    replicas = broker.replicas
    assert give(broker, ID, 0) == [ErrorCode.NONE]
    replicas.broker_epoch = 9
    of_before = {"controller_epoch": NEW, "broker_epoch": 8}
    election_of_before = election(1, topic_id=ID, is_new=True)
    election_of_before.broker_epoch = 8
    deletion_of_before = deletion(0)
    deletion_of_before.broker_epoch = 8
    answers: list[Any] = [
        broker.run(replicas.leader_and_isr(election_of_before)),
        broker.run(replicas.stop_replica(deletion_of_before)),
        broker.run(replicas.update_metadata(UpdateMetadataRequest(controller_id=7, **of_before))),
    ]
    assert {answer.error_code for answer in answers} == {ErrorCode.STALE_BROKER_EPOCH}
    assert replicas.find("a", 0) is not None
    assert replicas.find("a", 1) is None
    assert replicas.metadata.controller_id != 7


def test_replicas_that_may_be_in_an_offline_log_directory_are_counted_as_offline(broker: OneBroker) -> None:
    replicas = broker.replicas
    registry = Registry()
    registry.add(lambda: partition_families(replicas, lambda: 0, lambda: 0))

    def counted() -> tuple[int, int]:
        values = dict(line.rsplit(" ", 1) for line in registry.collect().splitlines())
        names = ("offlinereplicacount", "partitioncount")
        replicas_offline, partitions = (int(values[f"kafka_server_replicamanager_{name}"]) for name in names)
        return replicas_offline, partitions

    async def lose_a_disk() -> None:
        replicas.directory_failed(StorageError(broker.directories[0], "it is gone"))

    assert give(broker, ID, 0, 1) == [ErrorCode.NONE, ErrorCode.NONE]
    assert counted() == (0, 2)
    broker.run(lose_a_disk())
    assert counted() == (1, 2)
    broker.run(replicas.leader_and_isr(election(2, 3, topic_id=ID)))
    assert counted() == (3, 4)
    broker.run(broker.parts.upkeep.make_what_was_refused())
    assert counted() == (3, 4)
    assert give(broker, ID, 2) == [ErrorCode.NONE]
    delete(broker, 3)
    assert counted() == (1, 3)


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize(
    ("topic", "partition"), [("../../out", 0), ("a/b", 0), ("", 0), (".", 0), ("n" * 250, 0), ("a\nb", 0), ("a", -1)]
)
def test_a_topic_that_cannot_be_gets_no_directory(broker: OneBroker, topic: str, partition: int, is_gone: bool) -> None:
    """Neither outside of the log directories nor so that the disk's refusal takes one offline; also where the store
    says that there was one."""
    broker.replicas.lost_tails.gone = {TopicPartition(topic, partition): ID} if is_gone else {}
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
            await turns(50)
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
        broker.run(_refused(replicas, refusal(broker.directories[0], code)))
    first, second, third = (record.message for record in caplog.records)
    assert first == "No space left on device; writes that need more space there are refused until there is room"
    assert "ulimit -n" in second
    assert "room" not in second
    assert third == "Resource temporarily unavailable; it is tried again"


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
