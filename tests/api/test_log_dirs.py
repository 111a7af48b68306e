"""DescribeLogDirs, AlterReplicaLogDirs."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable
from threading import current_thread

import pytest

from kafkad.api import alter_replica_log_dirs
from kafkad.config import LONG_MAX
from kafkad.errors import ErrorCode, StorageError
from kafkad.log.checkpoint_file import CheckpointFile
from kafkad.names import TopicPartition
from kafkad.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kafkad.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from kafkad.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkad.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkad.wire.records import Record
from tests.full_disk import no_room, refusal
from tests.one_broker import OneBroker


def describe(
    broker: OneBroker, version: int = 4, topics: list[DescribableLogDirTopic] | None = None
) -> list[DescribeLogDirsResult]:
    results: list[DescribeLogDirsResult] = broker.ask(DescribeLogDirsRequest(topics=topics), version).results
    return results


def placed(broker: OneBroker) -> dict[str, list[tuple[str, int, int, bool]]]:
    """Directory → (topic, partition, bytes, whether it is on its way there)."""
    return {
        result.log_dir: [
            (topic.name, p.partition_index, p.partition_size, p.is_future_key)
            for topic in result.topics
            for p in topic.partitions
        ]
        for result in describe(broker)
    }


def move(broker: OneBroker, path: str, topic: str, partition: int, version: int = 2) -> int:
    target = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[partition])])
    [result] = broker.ask(AlterReplicaLogDirsRequest(dirs=[target]), version).results
    assert result.topic_name == topic
    [answer] = result.partitions
    assert answer.partition_index == partition
    code: int = answer.error_code
    return code


@pytest.mark.parametrize("version", range(6))
def test_directories_and_what_is_in_them(broker: OneBroker, version: int) -> None:
    broker.create("t", partitions=2)
    broker.append("t", 1, Record(0, 100, None, b"x" * 100))
    size = broker.replicas.leader("t", 1).log.size
    results = describe(broker, version)
    assert [result.log_dir for result in results] == broker.directories
    found = {p.partition_index: p for result in results for topic in result.topics for p in topic.partitions}
    assert {index: (p.partition_size, p.offset_lag) for index, p in found.items()} == {0: (0, 0), 1: (size, 0)}
    assert all((result.total_bytes > 0) == (version >= 4) for result in results)


def test_only_what_is_asked_for_is_described(broker: OneBroker) -> None:
    broker.create("t", partitions=2)
    assert not any(result.topics for result in describe(broker, 4, []))
    asked = [DescribableLogDirTopic(topic="t", partitions=[1]), DescribableLogDirTopic(topic="missing", partitions=[0])]
    found = [p.partition_index for result in describe(broker, 4, asked) for t in result.topics for p in t.partitions]
    assert found == [1]


def test_many_replicas_are_described_in_pieces(broker: OneBroker) -> None:
    broker.create("t", partitions=20)
    assert broker.stops(DescribeLogDirsRequest(topics=None), 4) >= 40


def test_many_replicas_are_sorted_in_pieces(broker: OneBroker) -> None:
    broker.create("t", partitions=600)
    assert broker.stops(DescribeLogDirsRequest(topics=None), 4) > 2 * 600


@pytest.mark.parametrize("version", range(3))
def test_a_replica_moves_with_its_records(broker: OneBroker, version: int) -> None:
    broker.create("t")
    for offset in range(100):
        broker.append("t", 0, Record(0, offset, None, b"x" * 50_000))
    size = broker.replicas.leader("t", 0).log.size
    [source] = [path for path, replicas in placed(broker).items() if replicas]
    [target] = [path for path in broker.directories if path != source]
    assert move(broker, target, "t", 0, version) == 0
    assert ("t", 0, size, False) in placed(broker)[source]
    broker.run_until(lambda: not placed(broker)[source])
    assert placed(broker) == {source: [], target: [("t", 0, size, False)]}
    assert broker.append("t", 0, Record(0, 1, None, b"after")) == 100
    leader = broker.replicas.leader("t", 0)
    assert leader.log.directory.startswith(target)
    assert (leader.high_watermark, leader.read(0, 1 << 20, 101, at_least_one=True) is not None) == (101, True)


def test_what_checkpoints_say_of_an_earlier_replica_is_forgotten_in_a_thread(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("t")
    logs, tp = broker.replicas.logs, TopicPartition("t", 0)
    home, other = broker.directories
    threads = []
    rewrite = CheckpointFile.rewrite_without

    def rewritten(file: CheckpointFile, gone: set[TopicPartition]) -> None:
        threads.append(current_thread())
        rewrite(file, gone)

    monkeypatch.setattr(CheckpointFile, "rewrite_without", rewritten)
    for write in logs.collect_high_watermarks({tp: 0}):
        write.write()
    assert move(broker, other, "t", 0) == ErrorCode.NONE
    broker.run_until(lambda: not os.path.exists(os.path.join(home, "t-0")))
    assert move(broker, home, "t", 0) == ErrorCode.NONE
    assert threads
    assert current_thread() not in threads


def test_moves_keep_to_the_rate_that_is_set(broker: OneBroker) -> None:
    """With none at all, the first step is the last one."""
    broker.create("t", partitions=2)
    for partition in range(2):
        broker.append("t", partition, Record(0, 100, None, b"value"))

    def set_rate(rate: str) -> None:
        name = "replica.alter.log.dirs.io.max.bytes.per.second"
        change = AlterableConfig(name=name, config_operation=0, value=rate)
        resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
        [result] = broker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert result.error_code == ErrorCode.NONE
        broker.run_until(lambda: broker.parts.settings.config.long(name) == int(rate))

    def at_home() -> list[bool]:
        return [os.path.dirname(broker.replicas.get("t", index).log.directory) == home[index] for index in range(2)]

    home = [os.path.dirname(broker.replicas.get("t", index).log.directory) for index in range(2)]
    set_rate("0")
    dirs = [
        AlterReplicaLogDir(path=home[1 - index], topics=[AlterReplicaLogDirTopic(name="t", partitions=[index])])
        for index in range(2)
    ]
    broker.ask(AlterReplicaLogDirsRequest(dirs=dirs), 2)
    copies = [broker.replicas.logs.future(TopicPartition("t", index)) for index in range(2)]
    broker.run_until(lambda: any(copy is not None and copy.size for copy in copies))
    for _ in range(3):
        broker.settle()
    assert sorted(copy is not None and copy.size > 0 for copy in copies) == [False, True]
    set_rate(str(LONG_MAX))
    broker.run_until(lambda: not any(at_home()))


def test_a_topic_may_be_deleted_while_it_moves(broker: OneBroker) -> None:
    broker.create("t")
    for offset in range(100):
        broker.append("t", 0, Record(0, offset, None, b"x" * 50_000))
    [source] = [path for path, replicas in placed(broker).items() if replicas]
    [target] = [path for path in broker.directories if path != source]
    assert move(broker, target, "t", 0) == 0
    [gone] = broker.run(broker.controller.delete_topics(["t"], timeout_ms=5_000))
    assert gone.error is None
    broker.settle()
    assert placed(broker) == {source: [], target: []}


class _Beside:
    """Turns in which something else happens, before the third part of the work."""

    def __init__(self, happens: Callable[[], Awaitable[object]]) -> None:
        self.given = 0
        self._happens = happens

    async def give_way(self) -> None:
        self.given += 1
        if self.given == 3:
            await self._happens()


def test_many_moves_give_way_and_a_topic_may_go_meanwhile(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create("t", partitions=2)
    broker.create("gone", partitions=2)
    turns = _Beside(lambda: broker.controller.delete_topics(["gone"], timeout_ms=5_000))
    monkeypatch.setattr(alter_replica_log_dirs, "Turns", lambda: turns)
    topics = [AlterReplicaLogDirTopic(name=name, partitions=[0, 1]) for name in ("t", "gone")]
    target = AlterReplicaLogDir(path=broker.directories[0], topics=topics)
    results = broker.ask(AlterReplicaLogDirsRequest(dirs=[target]), 2).results
    assert turns.given == 10, "at each topic, and twice at each partition"
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [[p.error_code for p in result.partitions] for result in results] == [[0, 0], [unknown, unknown]]
    broker.settle()
    assert not any(name == "gone" for replicas in placed(broker).values() for name, *_ in replicas)


def test_of_a_partition_that_is_named_twice_the_last_directory_counts(broker: OneBroker) -> None:
    broker.create("t", partitions=2)
    before = placed(broker)

    def ask(*asked: tuple[str, list[int]]) -> list[tuple[int, int]]:
        dirs = [
            AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name="t", partitions=partitions)])
            for path, partitions in asked
        ]
        [result] = broker.ask(AlterReplicaLogDirsRequest(dirs=dirs), 2).results
        return [(answer.partition_index, answer.error_code) for answer in result.partitions]

    other = next(path for path in broker.directories if ("t", 0) not in [each[:2] for each in before[path]])
    assert ask((other, [0, 0]), ("/nowhere", [0])) == [(0, ErrorCode.LOG_DIR_NOT_FOUND)]
    broker.settle()
    assert placed(broker) == before
    assert ask(("/nowhere", [0, 1]), (other, [0])) == [(0, 0), (1, ErrorCode.LOG_DIR_NOT_FOUND)]
    broker.settle()
    assert [each[:2] for each in placed(broker)[other]].count(("t", 0)) == 1


def test_moves_that_cannot_be(broker: OneBroker) -> None:
    broker.create("t")
    known = broker.directories[0]
    assert move(broker, "/nowhere", "t", 0) == ErrorCode.LOG_DIR_NOT_FOUND
    assert move(broker, "relative", "t", 0) == ErrorCode.LOG_DIR_NOT_FOUND
    assert move(broker, known, "t", 9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(broker, known, "missing", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("at", [0, 1])
def test_a_replica_that_is_not_here_yet_is_made_where_it_is_wanted(broker: OneBroker, at: int) -> None:
    wanted = broker.directories[at]
    assert move(broker, broker.directories[1 - at], "later", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(broker, wanted, "later", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(broker, "/nowhere", "later", 0) == ErrorCode.LOG_DIR_NOT_FOUND
    broker.create("later")
    assert placed(broker)[wanted] == [("later", 0, 0, False)]


def test_partitions_of_a_failed_directory_have_no_leader_until_it_is_back(broker: OneBroker) -> None:
    for topic in ("one", "two"):
        broker.create(topic)
    failed = broker.directories[0]
    [(lost, *_)] = placed(broker)[failed]
    [kept] = {"one", "two"} - {lost}

    async def fail() -> None:
        broker.replicas.directory_failed(StorageError(failed, "it is broken"))

    broker.run(fail())
    leaders: dict[str, int] = {}

    def told() -> bool:
        for topic in broker.ask(MetadataRequest(topics=None), 9).topics:
            [partition] = topic.partitions
            leaders[topic.name] = partition.leader_id
            assert partition.offline_replicas == ([1] if partition.leader_id < 0 else [])
        return leaders[lost] < 0

    broker.run_until(told)
    assert leaders == {lost: -1, kept: 1}
    assert [result.error_code for result in describe(broker)] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert broker.append(kept, 0, Record(0, 1, None, b"goes on")) == 0


def test_a_full_disk_is_said_once(broker: OneBroker, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        broker.replicas.directory_failed(refusal(broker.directories[0]))
    assert len(caplog.messages) == 1
    assert "No space left" in caplog.text
    assert all(result.error_code == ErrorCode.NONE for result in describe(broker))


def test_a_topic_made_on_a_full_disk_is_there_once_there_is_room(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leader() -> int:
        [topic] = broker.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9).topics
        return int(topic.partitions[0].leader_id)

    async def try_again() -> int:
        return len(list(broker.replicas.make_what_was_refused()))

    with monkeypatch.context() as patched:
        patched.setattr(broker.replicas.logs.files, "mkdir", no_room)
        broker.create("t")
        broker.run_until(lambda: leader() < 0)
        assert broker.run(try_again()) == 0
    assert broker.run(try_again()) == 1
    broker.run_until(lambda: leader() == 1)
    assert broker.append("t", 0, Record(0, 1, None, b"first")) == 0
    assert broker.run(try_again()) == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_leader_epoch_begins_although_its_file_cannot_be_written_for_now(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(path: str, data: bytes, *, durable: bool) -> None:
        raise OSError(number, os.strerror(number), path)

    broker.create("t")
    broker.lead("t", 0, leader=2)
    with monkeypatch.context() as patched:
        patched.setattr(broker.replicas.logs.files, "write_file", refuse)
        broker.lead("t", 0, leader=1)
    partition = broker.replicas.leader("t", 0)
    assert broker.append("t", 0, Record(0, 1, None, b"committed at once")) == 0
    assert (partition.high_watermark, partition.log.epochs.entries) == (1, [(2, 0)])
