"""What lies in the log directories and not in the metadata store: adopted, or a reason not to start."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkad.broker.adoption_guard import refuse_partial_adoption
from kafkad.broker.findings import tell_of_foreign, tell_of_kraft, tell_of_mended
from kafkad.broker.identity import StartError, claim_directories
from kafkad.broker.stored_topics import StoredTopics
from kafkad.broker.takeover import pass_over_known_producers, take_over
from kafkad.config import Config as BrokerConfig
from kafkad.config import LogConfig
from kafkad.config import load as load_config
from kafkad.controller.adoption import AdoptedTopic, adopt
from kafkad.controller.registration import prepare
from kafkad.log.directories import BrokenPartition, ForeignDirectoryError, NameTakenError
from kafkad.log.loading import IdOf
from kafkad.log.manager import LogManager, NoLogDirectoryError
from kafkad.meta.embedded import EmbeddedSession, EmbeddedStore
from kafkad.meta.security_znodes import Acls
from kafkad.meta.store import ensure_path
from kafkad.meta.znodes import TOPICS, Config, ControllerEpoch, Partition, ProducerIdBlock, Topic, TopicDeletion
from kafkad.model import PartitionState
from kafkad.names import GROUPS_TOPIC, NO_TOPIC_ID, TopicPartition, id_text
from kafkad.wire.records import BATCH_HEADER, Record, build_batch
from tests.fakes import FakeClock, FaultyFiles
from tests.one_broker import CLUSTER_ID, NoSync

BROKER = 1
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
A, B = b"A" * 16, b"B" * 16
CONFIG = load_config(None, [], {})


def new_store() -> EmbeddedSession:
    session = EmbeddedStore.in_memory(FakeClock()).session()
    asyncio.run(prepare(session))
    return session


@contextmanager
def logs_in(
    *directories: Path, clock: FakeClock | None = None, id_of: IdOf = lambda tp: NO_TOPIC_ID
) -> Iterator[LogManager]:
    logs = LogManager([str(directory) for directory in directories], NoSync(), clock or FakeClock())
    logs.lock()
    logs.claim(CLUSTER_ID, BROKER)
    logs.load(lambda topic: LogConfig(), id_of=id_of)
    try:
        yield logs
    finally:
        logs.close()


@contextmanager
def locked(*directories: Path) -> Iterator[LogManager]:
    """Before their logs are loaded."""
    logs = LogManager([str(directory) for directory in directories], NoSync(), FakeClock())
    logs.lock()
    try:
        yield logs
    finally:
        for directory in logs.directories:
            directory.release()


def append(logs: LogManager, tp: TopicPartition, topic_id: bytes, epoch: int = 0, producer_id: int = -1) -> None:
    number = 0 if producer_id >= 0 else -1
    batch = build_batch(
        [Record(0, 1_700_000_000_000, None, b"v")],
        producer_id=producer_id,
        producer_epoch=number,
        base_sequence=number,
    )
    view = memoryview(batch)
    logs.create(tp, topic_id, LogConfig()).append(view, 0, len(view), BATCH_HEADER.unpack_from(view), epoch)


def written_by_others(directory: Path, *partitions: tuple[TopicPartition, bytes]) -> None:
    with logs_in(directory) as logs:
        for tp, topic_id in partitions:
            append(logs, tp, topic_id)


def adopted_before(store: EmbeddedSession, *partitions: tuple[TopicPartition, bytes]) -> None:
    topics = [AdoptedTopic(tp.topic, topic_id, {tp.partition: 0}) for tp, topic_id in partitions]
    asyncio.run(adopt(store, BROKER, topics, 0))
    asyncio.run(ensure_path(store, ControllerEpoch.PATH))


def claimed(store: EmbeddedSession, *directories: Path, alone: bool = True) -> None:
    with locked(*directories) as logs:
        asyncio.run(claim_directories(store, logs, CLUSTER_ID, BROKER, alone=alone))


def taken_over(store: EmbeddedSession, logs: LogManager) -> dict[str, str]:
    return asyncio.run(take_over_anew(store, logs, CONFIG))


async def take_over_anew(store: EmbeddedSession, logs: LogManager, config: BrokerConfig) -> dict[str, str]:
    return await take_over(store, await StoredTopics.read(store), BROKER, logs, config)


def state(store: EmbeddedSession, tp: TopicPartition) -> PartitionState:
    data, stat = asyncio.run(store.get(Partition.path(*tp)))
    return Partition.decode(data, stat.version)


def topic(store: EmbeddedSession, name: str) -> Topic:
    return Topic.decode(asyncio.run(store.get(Topic.path(name)))[0])


def names(store: EmbeddedSession) -> list[str]:
    return asyncio.run(store.children(TOPICS))


def check(store: EmbeddedSession, *directories: Path) -> None:
    """The first is that of the metadata store."""
    with locked(*directories) as logs:
        first = str(directories[0])
        asyncio.run(refuse_partial_adoption(store, CLUSTER_ID, BROKER, logs.directories, metadata_dir=first))


def refusal(store: EmbeddedSession, *directories: Path) -> str:
    with pytest.raises(StartError) as refused:
        check(store, *directories)
    return str(refused.value)


# What is stored


def test_a_start_decodes_each_topic_once_and_hands_it_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store()
    written_by_others(tmp_path, (A0, A), (B0, B))
    with logs_in(tmp_path) as logs:
        taken_over(store, logs)
        stored = asyncio.run(StoredTopics.read(store))
        decoded: list[bytes] = []
        decode = Topic.decode

        def decode_counted(data: bytes) -> Topic:
            decoded.append(data)
            return decode(data)

        monkeypatch.setattr(Topic, "decode", decode_counted)
        assert [stored.id_of(tp) for tp in (A0, A1, TopicPartition("none", 0))] == [A, bytes(16), bytes(16)]
        asyncio.run(take_over(store, stored, BROKER, logs, CONFIG))
        nodes = {name: asyncio.run(store.get(Topic.path(name)))[0] for name in ("a", "b")}
        taken = stored.take("a", nodes["a"])
        assert taken is not None
        assert taken.topic_id == A
        assert stored.take("b", b"{}") is None, "it was written since"
        assert sorted(decoded) == sorted(nodes.values())
        assert not stored


# Adoption


def test_what_another_broker_has_made_since_becomes_ours(tmp_path: Path) -> None:
    store = new_store()
    adopted_before(store, (A0, A))
    config = Config.path(Config.entity_path(Config.TOPICS, "a"))
    asyncio.run(store.set(config, Config.encode({"retention.ms": "7"})))
    with logs_in(tmp_path) as logs:
        for tp, topic_id, epoch in ((A0, A, 0), (TopicPartition("a", 2), A, 5), (B0, B, 3)):
            append(logs, tp, topic_id, epoch)
        assert not taken_over(store, logs)
    assert topic(store, "a").topic_id == A
    assert sorted(topic(store, "a").partitions) == [0, 1, 2]
    assert topic(store, "b").topic_id == B
    epochs = [state(store, TopicPartition("a", number)).leader_epoch for number in range(3)]
    assert [*epochs, state(store, B0).leader_epoch] == [0, 0, 5, 3]
    assert Config.decode(asyncio.run(store.get(config))[0]) == {"retention.ms": "7"}, "those that the store has stay"


def test_nothing_is_adopted_of_another_topic_of_that_name_nor_of_one_that_is_to_be_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = new_store()
    adopted_before(store, (A0, A), (B0, B))
    asyncio.run(store.create(TopicDeletion.path("b")))
    with logs_in(tmp_path) as logs:
        append(logs, A1, B)
        append(logs, TopicPartition("b", 1), B)
        append(logs, TopicPartition("c", 0), A)
        append(logs, TopicPartition("c", 1), B)
        append(logs, TopicPartition("copied", 0), A)
        logs.directories[0].failure = "its disk has failed"
        left = taken_over(store, logs)
        logs.directories[0].failure = None
    assert {name: path.rpartition("/")[2] for name, path in left.items()} == {
        "a": "a-1",
        "b": "b-1",
        "c": "c-1",
        "copied": "copied-0",
    }
    assert names(store) == ["a", "b"]
    assert [sorted(topic(store, name).partitions) for name in ("a", "b")] == [[0], [0]]
    told = [record.message for record in caplog.records if "not adopted" in record.message]
    assert [text.split()[0] for text in told] == ["a", "c", "copied"]
    assert f": {tmp_path}/c-0 with id {id_text(A)}, {tmp_path}/c-1 with id {id_text(B)}. Move those away" in told[1]
    assert f"{tmp_path}/copied-0 has the same topic id as {tmp_path}/a-1, {tmp_path}/c-0. Move away the one" in told[2]


def test_a_first_start_with_a_copy_of_a_partition_is_refused(tmp_path: Path) -> None:
    store = new_store()
    written_by_others(tmp_path, (A0, A), (B0, B))
    copy = tmp_path / "a-0-20241130"
    shutil.copytree(tmp_path / "a-0", copy)
    with logs_in(tmp_path) as logs, pytest.raises(StartError) as refused:
        taken_over(store, logs)
    assert f"{tmp_path}/a-0 has the same topic id as {copy}. Move away the one that is the copy" in str(refused.value)
    assert not names(store)
    shutil.rmtree(copy)
    with logs_in(tmp_path) as logs:
        taken_over(store, logs)
    assert names(store) == ["a", "b"]


def test_a_start_after_the_first_goes_on_without_what_cannot_be_adopted(tmp_path: Path) -> None:
    """Also where all topics have been deleted meanwhile."""
    store = new_store()
    written_by_others(tmp_path, (TopicPartition("a", 20241130), A))
    for _ in range(2):
        with logs_in(tmp_path) as logs, pytest.raises(StartError, match="a is not adopted"):
            taken_over(store, logs)
        claimed(store, tmp_path)
    asyncio.run(ensure_path(store, ControllerEpoch.PATH))
    with logs_in(tmp_path) as logs:
        assert taken_over(store, logs) == {"a": f"{tmp_path}/a-20241130"}
    assert not names(store)


def test_a_partition_that_cannot_be_opened_is_adopted_in_its_leader_epoch(tmp_path: Path) -> None:
    store = new_store()
    with logs_in(tmp_path) as logs:
        append(logs, A0, A, epoch=4)
        append(logs, A1, A)
    (tmp_path / "a-0" / "partition.metadata").write_text("torn")
    with logs_in(tmp_path) as logs:
        assert A0 in logs.broken
        taken_over(store, logs)
    assert state(store, A0).leader_epoch == 4


def test_a_topic_is_adopted_with_its_id_also_where_none_of_its_partitions_can_be_opened(tmp_path: Path) -> None:
    store = new_store()
    written_by_others(tmp_path, (A0, A))
    with logs_in(tmp_path) as logs, not_opened(logs, A0):
        taken_over(store, logs)
    assert topic(store, "a").topic_id == A


def test_nothing_is_adopted_while_a_partition_cannot_be_opened_for_now(tmp_path: Path) -> None:
    """Its id may not be read either, and it would never be that of the topic."""
    store = new_store()
    written_by_others(tmp_path, (A0, A))
    with (
        logs_in(tmp_path) as logs,
        not_opened(logs, A0, may_pass=True),
        pytest.raises(StartError, match="a-0 cannot be opened now: Too many open files"),
    ):
        taken_over(store, logs)
    assert not names(store)


@contextmanager
def not_opened(logs: LogManager, tp: TopicPartition, *, may_pass: bool = False) -> Iterator[None]:
    [directory] = logs.directories
    log = directory.logs.pop(tp)
    del logs.logs[tp]
    directory.broken[tp] = BrokenPartition(log.directory, "Too many open files", may_pass)
    yield
    log.close()


def test_nothing_is_adopted_while_a_log_directory_is_offline(tmp_path: Path) -> None:
    store = new_store()
    one, two = tmp_path / "one", tmp_path / "two"
    written_by_others(one, (A0, A))
    written_by_others(two, (A1, A))
    checkpoint = two / "recovery-point-offset-checkpoint"
    whole = checkpoint.read_text()
    checkpoint.write_text("0\n1\ntorn\n")
    with logs_in(one, two) as logs, pytest.raises(StartError, match=f"a-0, but .*{checkpoint}"):
        taken_over(store, logs)
    assert not names(store)
    checkpoint.write_text(whole)
    with logs_in(one, two) as logs:
        taken_over(store, logs)
    assert sorted(topic(store, "a").partitions) == [0, 1]


SEGMENT = "00000000000000000000.log"


def test_a_directory_that_is_only_named_like_a_partition_is_left_alone_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = new_store()
    written_by_others(tmp_path, (A0, A))
    foreign = {"backup-2024": "kafka.tar.gz", "a b-0": SEGMENT, "old-7": None, f"big-{2**31}": SEGMENT}
    for name, file in foreign.items():
        (tmp_path / name).mkdir()
        if file is not None:
            (tmp_path / name / file).touch()
    with locked(tmp_path) as before:
        assert before.directories[0].current_partitions() == [A0]
    with logs_in(tmp_path) as logs:
        tell_of_foreign(logs)
        assert taken_over(store, logs) == {}
    assert names(store) == ["a"]
    for name, file in foreign.items():
        assert [path.name for path in (tmp_path / name).iterdir()] == [file] * (file is not None)
    [told] = [record.message for record in caplog.records if "hold none" in record.message]
    assert sorted(told.rpartition(": ")[2].split(", ")) == sorted(str(tmp_path / name) for name in foreign)


def test_a_directory_beside_a_known_topic_that_is_only_named_like_its_partition_is_left_alone(tmp_path: Path) -> None:
    store = new_store()
    adopted_before(store, (A0, A))
    written_by_others(tmp_path, (A0, A))
    own = tmp_path / "a-30"
    own.mkdir()
    (own / "notes.txt").touch()
    stored = asyncio.run(StoredTopics.read(store))
    with logs_in(tmp_path, id_of=stored.id_of) as logs:
        assert logs.foreign == [str(own)]
        assert not taken_over(store, logs)
    assert sorted(topic(store, "a").partitions) == [0]
    assert [path.name for path in own.iterdir()] == ["notes.txt"]


def test_what_a_migration_to_kraft_that_was_rolled_back_has_left_is_left_alone_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = new_store()
    written_by_others(tmp_path, (A0, A))
    kraft = tmp_path / "__cluster_metadata-0"
    kraft.mkdir()
    for name in (SEGMENT, "partition.metadata"):
        (kraft / name).touch()
    check(store, tmp_path)
    with logs_in(tmp_path) as logs:
        tell_of_kraft(logs)
        assert not taken_over(store, logs)
    assert names(store) == ["a"]
    assert sorted(path.name for path in kraft.iterdir()) == sorted((SEGMENT, "partition.metadata"))
    [told] = [record.message for record in caplog.records if "rolled back" in record.message]
    assert told.endswith(f": {kraft}")


def test_a_partition_that_the_store_does_not_know_is_given_no_topic_id(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be of another topic of that name, or of none."""
    store = new_store()
    adopted_before(store, (A0, A))
    for name in ("a-0", "a-20241130"):
        (tmp_path / name).mkdir()
        (tmp_path / name / SEGMENT).touch()
    with logs_in(tmp_path, id_of=asyncio.run(StoredTopics.read(store)).id_of) as logs:
        assert logs.mended == [f"{tmp_path}/a-0/partition.metadata"]
        tell_of_mended(logs)
    [told] = caplog.messages
    assert told.startswith("1 partitions had no topic id that can be read, as Kafkas before 2.8, crashes and ")
    assert told.endswith(f"written to {tmp_path}/a-0/partition.metadata")
    assert not (tmp_path / "a-20241130" / "partition.metadata").exists()


@pytest.mark.parametrize("file", [SEGMENT, "partition.metadata"])
def test_a_segment_or_an_id_makes_a_partition(tmp_path: Path, file: str) -> None:
    store = new_store()
    (tmp_path / "a-0").mkdir()
    (tmp_path / "a-0" / file).touch()
    with logs_in(tmp_path) as logs:
        assert logs.foreign == []
        taken_over(store, logs)
    assert names(store) == ["a"]


def test_a_directory_that_cannot_be_looked_into_counts_as_a_partition(tmp_path: Path) -> None:
    files = FaultyFiles()
    logs = LogManager([str(tmp_path)], files, FakeClock())
    logs.lock()
    (tmp_path / "a-0").mkdir()

    def refuse(path: str) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    files.list_files = refuse  # type: ignore[method-assign]
    assert logs.directories[0].current_partitions() == [A0]
    with pytest.raises(NoLogDirectoryError, match=f"opening the log in {tmp_path}/a-0: Permission denied"):
        logs.load(lambda topic: LogConfig())


def test_a_known_partition_that_a_crash_has_left_without_any_file_is_opened(tmp_path: Path) -> None:
    """Its checkpoints say what it had."""
    (tmp_path / "a-0").mkdir()
    logs = LogManager([str(tmp_path)], NoSync(), FakeClock())
    logs.lock()
    logs.load(lambda topic: LogConfig(), id_of=lambda tp: A)
    assert (list(logs.logs), logs.foreign) == ([A0], [])
    logs.close()


def test_somebodys_own_directory_with_the_name_of_a_known_partition_stays_refused_at_the_next_start(
    tmp_path: Path,
) -> None:
    own = tmp_path / "a-0" / "notes.txt"
    own.parent.mkdir()
    own.touch()
    logs = LogManager([str(tmp_path)], NoSync(), FakeClock())
    logs.lock()
    logs.load(lambda topic: LogConfig(), id_of=lambda tp: A)
    assert (list(logs.logs), logs.foreign) == ([], [str(own.parent)])
    with pytest.raises(NameTakenError, match="move it away"):
        logs.create(A0, A, LogConfig())
    assert [path.name for path in own.parent.iterdir()] == [own.name]
    logs.close()


@pytest.mark.parametrize(
    ("there", "stored", "is_adopted"),
    [
        ([100], 0, True),
        ([101], 0, False),
        ([*range(10), 109], 0, True),
        ([*range(10), 121], 0, False),
        ([0, 101], 10, True),
        ([0, 121], 10, False),
        ([0, 20_241_130], 400, False),
        ([2**31 - 1], 0, False),
    ],
)
def test_a_partition_far_behind_the_others_is_not_adopted(
    tmp_path: Path, there: Sequence[int], stored: int, is_adopted: bool
) -> None:
    """Each partition that is missing would be made."""
    store = new_store()
    if stored:
        adopted_before(store, (TopicPartition("a", stored - 1), A))
    for number in there:
        (tmp_path / f"a-{number}").mkdir()
        (tmp_path / f"a-{number}" / "partition.metadata").write_text(f"version: 0\ntopic_id: {id_text(A)}")
    with logs_in(tmp_path) as logs:
        if is_adopted:
            assert not taken_over(store, logs)
            assert len(topic(store, "a").partitions) == max(there) + 1
        elif stored:
            assert taken_over(store, logs) == {"a": f"{tmp_path}/a-{there[-1]}"}
            assert len(topic(store, "a").partitions) == stored
        else:
            with pytest.raises(StartError, match=f"Move {tmp_path}/a-{there[-1]} away"):
                taken_over(store, logs)
            assert not names(store)


# Before the directories are claimed


def test_an_empty_directory_keeps_partitions_from_being_adopted(tmp_path: Path) -> None:
    store = new_store()
    used, empty = tmp_path / "used", tmp_path / "empty"
    written_by_others(used, (A0, A))
    assert f"a-0, but {empty} is empty, without meta.properties" in refusal(store, used, empty)
    check(store, used)
    claimed(store, used, empty)
    adopted_before(store, (A0, A))
    check(store, used, empty)
    check(store, used, empty, tmp_path / "added")


def test_a_directory_that_was_away_brings_no_deleted_topic_back(tmp_path: Path) -> None:
    store = new_store()
    used, away = tmp_path / "used", tmp_path / "away"
    written_by_others(used, (A0, A))
    claimed(store, used)
    adopted_before(store, (A0, A))
    written_by_others(away, (B0, B))
    properties = away / "meta.properties"
    whole = properties.read_text()
    properties.write_text(whole.replace(CLUSTER_ID, "another"))
    with pytest.raises(ForeignDirectoryError):
        check(store, used, away)
    properties.write_text(whole)
    assert refusal(store, used, away).startswith(f"{away} has partitions that the metadata store does not know: b-0.")
    adopted_before(store, (B0, B))
    check(store, used, away)


@pytest.mark.parametrize("are_stored", [True, False])
def test_no_deleted_topic_comes_back_by_an_upgrade(tmp_path: Path, are_stored: bool) -> None:
    """An earlier kafkad has let in directories with partitions that it did not know, and left those alone; the first
    ones did not store which they had. Such in the directory of the store are of no deleted topics."""
    store = new_store()
    used, away = tmp_path / "used", tmp_path / "away"
    written_by_others(used, (A0, A), (A1, A))
    written_by_others(away, (B0, B))
    adopted_before(store, (A0, A))
    if are_stored:
        claimed(store, used, away, alone=False)
    check(store, used)
    properties = away / "meta.properties"
    whole = properties.read_text()
    properties.write_text("version=x\n")
    claimed(store, used, away)
    properties.write_text(whole)
    assert refusal(store, used, away).startswith(f"{away} has partitions that the metadata store does not know: b-0.")
    assert refusal(store, away, used).startswith(f"{used} has partitions that the metadata store does not know: a-1.")
    adopted_before(store, (B0, B))
    check(store, used, away)
    claimed(store, used, away)
    with logs_in(away) as logs:
        append(logs, TopicPartition("b", 1), B)
    check(store, used, away)


def test_a_directory_that_is_offline_from_the_first_on_can_be_mended(tmp_path: Path) -> None:
    store = new_store()
    used, torn = tmp_path / "used", tmp_path / "torn"
    written_by_others(used, (A0, A))
    written_by_others(torn, (A1, A))
    properties = torn / "meta.properties"
    whole = properties.read_text()
    properties.write_text("version=x\n")
    assert f"a-0, but a log directory cannot be used, where more of them may be: {torn}/" in refusal(store, used, torn)
    properties.write_text(whole)
    check(store, used, torn)
    claimed(store, used, torn)
    properties.write_text("version=x\n")
    check(store, used, torn)


# An older copy of the store


def test_partitions_go_on_in_the_leader_epochs_of_their_logs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = new_store()
    adopted_before(store, (A0, A), (B0, B))
    with logs_in(tmp_path) as logs:
        append(logs, A0, A, epoch=2)
        append(logs, B0, B)
        before = state(store, B0)
        for _ in range(2):
            taken_over(store, logs)
            assert state(store, A0).leader_epoch == 2
            assert state(store, A0).partition_epoch == 1, "written once"
            assert state(store, B0) == before
    [told] = [record.message for record in caplog.records if "older than the logs" in record.message]
    assert told.endswith(": a-0")


@pytest.mark.parametrize(
    ("known", "given_out", "follows"),
    [
        ([7], 999, 1000),
        ([7, 1000], 999, 5_000_000),
        ([4_999_999], 999, 5_000_000),
        ([5_000_000, 2**63 - 1], 999, 1000),
        ([7_000_000], 6_999_999, 7_000_000),
    ],
)
def test_producer_ids_that_logs_know_are_not_given_out_again(
    tmp_path: Path, known: Sequence[int], given_out: int, follows: int
) -> None:
    store = new_store()
    asyncio.run(store.set(ProducerIdBlock.path(), ProducerIdBlock(BROKER, given_out - 999, given_out).encode()))
    with logs_in(tmp_path, clock=FakeClock(5_000_123)) as logs:
        for producer_id in known:
            append(logs, A0, A, producer_id=producer_id)
        asyncio.run(pass_over_known_producers(store, BROKER, logs))
    block = ProducerIdBlock.decode(asyncio.run(store.get(ProducerIdBlock.path()))[0])
    assert block is not None
    assert block.last + 1 == follows


def test_a_start_goes_on_though_nobody_can_read_which_producer_ids_were_given_out(tmp_path: Path) -> None:
    store = new_store()
    asyncio.run(store.set(ProducerIdBlock.path(), b"nonsense"))
    with logs_in(tmp_path, clock=FakeClock(5_000_123)) as logs:
        append(logs, A0, A)
        asyncio.run(pass_over_known_producers(store, BROKER, logs))
        assert asyncio.run(store.get(ProducerIdBlock.path()))[0] == b"nonsense"
        taken_over(store, logs)
    block = ProducerIdBlock.decode(asyncio.run(store.get(ProducerIdBlock.path()))[0])
    assert block is not None
    assert block.last == 4_999_999


def test_a_topic_that_is_known_with_fewer_partitions_keeps_its_settings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is promised of records that these do not keep."""
    store = new_store()
    adopted_before(store, (A0, A))
    written_by_others(tmp_path, (A0, A), (A1, A))
    with logs_in(tmp_path, clock=FakeClock(1_700_000_000_000 + 30 * 24 * 3_600_000)) as logs:
        taken_over(store, logs)
    assert sorted(topic(store, "a").partitions) == [0, 1]
    assert "they keep all" not in caplog.text


# A Kafka that ran meanwhile


def settings(store: EmbeddedSession, name: str) -> dict[str, str]:
    return dict(Config.decode(asyncio.run(store.get(Config.path(Config.entity_path(Config.TOPICS, name))))[0]))


def test_a_topic_that_was_made_again_takes_the_place_of_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = new_store()
    adopted_before(store, (TopicPartition("a", 3), A))
    asyncio.run(
        store.set(Config.path(Config.entity_path(Config.TOPICS, "a")), Config.encode({"max.message.bytes": "7"}))
    )
    with logs_in(tmp_path) as logs:
        append(logs, A0, B, epoch=5)
        append(logs, A1, B)
        for _ in range(2):
            assert not taken_over(store, logs)
    assert topic(store, "a").topic_id == B
    assert sorted(topic(store, "a").partitions) == [0, 1]
    assert sorted(asyncio.run(store.children(Topic.partitions_path("a")))) == ["0", "1"]
    assert (state(store, A0).leader_epoch, state(store, A0).isr, state(store, A1).leader_epoch) == (5, (BROKER,), 0)
    assert settings(store, "a") == {"max.message.bytes": "7"}
    [told] = [record.message for record in caplog.records if "made again" in record.message]
    assert told.endswith(": a")
    assert "do not hold the settings" not in caplog.text


def test_a_topic_that_was_made_again_keeps_what_other_settings_may_have_protected(tmp_path: Path) -> None:
    store = new_store()
    adopted_before(store, (A0, A))
    asyncio.run(
        store.set(Config.path(Config.entity_path(Config.TOPICS, "a")), Config.encode({"max.message.bytes": "7"}))
    )
    written_by_others(tmp_path, (A0, B))
    with logs_in(tmp_path, clock=FakeClock(1_700_000_000_000 + 30 * 24 * 3_600_000)) as logs:
        taken_over(store, logs)
    assert settings(store, "a") == {"max.message.bytes": "7", "retention.ms": "-1", "retention.bytes": "-1"}


def test_the_groups_topic_that_was_made_again_keeps_its_settings(tmp_path: Path) -> None:
    store = new_store()
    groups = TopicPartition(GROUPS_TOPIC, 0)
    adopted_before(store, (groups, A))
    before = settings(store, GROUPS_TOPIC)
    written_by_others(tmp_path, (groups, B))
    with logs_in(tmp_path, clock=FakeClock(1_700_000_000_000 + 30 * 24 * 3_600_000)) as logs:
        taken_over(store, logs)
    assert topic(store, GROUPS_TOPIC).topic_id == B
    assert settings(store, GROUPS_TOPIC) == before


def test_a_topic_that_is_on_disk_in_part_as_the_store_knows_it_is_left_alone(tmp_path: Path) -> None:
    store = new_store()
    adopted_before(store, (A1, A))
    before = topic(store, "a")
    with logs_in(tmp_path) as logs:
        append(logs, A0, A)
        append(logs, A1, B)
        assert not taken_over(store, logs)
    assert topic(store, "a") == before


def test_a_topic_that_is_to_be_deleted_is_not_replaced(tmp_path: Path) -> None:
    store = new_store()
    adopted_before(store, (A0, A))
    asyncio.run(store.create(TopicDeletion.path("a")))
    with logs_in(tmp_path) as logs:
        append(logs, A0, B)
        taken_over(store, logs)
    assert topic(store, "a").topic_id == A


def test_no_topic_is_replaced_while_a_log_directory_is_offline(tmp_path: Path) -> None:
    """The one that the store knows may be in there."""
    store = new_store()
    adopted_before(store, (A0, A))
    one, two = tmp_path / "one", tmp_path / "two"
    written_by_others(one, (A0, B))
    two.mkdir()
    (two / "recovery-point-offset-checkpoint").write_text("0\n1\ntorn\n")
    with logs_in(one, two) as logs, pytest.raises(StartError, match="a-0, but a log directory cannot be used"):
        taken_over(store, logs)
    assert topic(store, "a").topic_id == A


def test_partitions_that_are_on_no_disk_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A lost directory deletes no topic; nor does a Kafka that has deleted it, but nobody has to wonder."""
    store = new_store()
    adopted_before(store, (A0, A), (TopicPartition("b", 9), B), (TopicPartition("deleting", 0), b"D" * 16))
    asyncio.run(store.create(TopicDeletion.path("deleting")))
    with logs_in(tmp_path) as logs:
        append(logs, A0, A)
        taken_over(store, logs)
        assert len(topic(store, "b").partitions) == 10
        logs.directories[0].failure = "its disk has failed"
        taken_over(store, logs)
        logs.directories[0].failure = None
    [told] = [record.message for record in caplog.records if "created empty" in record.message]
    assert told.startswith("10 partitions")
    assert told.endswith(": b-0, b-1, b-2, b-3, b-4 and 5 more")


# Rights


@pytest.mark.parametrize(
    ("is_open", "others"),
    [
        (True, ()),
        (False, ("authorizer.class.name=",)),
        (False, ("allow.everyone.if.no.acl.found=false",)),
    ],
)
def test_what_acls_may_have_protected_is_not_opened_to_everybody(
    tmp_path: Path, is_open: bool, others: Sequence[str], caplog: pytest.LogCaptureFixture
) -> None:
    store = new_store()
    authorizer = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"
    config = load_config(None, [authorizer, "allow.everyone.if.no.acl.found=true", *others], {})
    for parent in Acls.PARENTS:
        for kind in Acls.RESOURCE_TYPES:
            asyncio.run(ensure_path(store, f"{parent}/{kind}"))
    written_by_others(tmp_path, (A0, A))
    with logs_in(tmp_path) as logs:
        if is_open:
            with pytest.raises(StartError, match="a-0, without the ACLs of their cluster"):
                asyncio.run(take_over_anew(store, logs, config))
            assert not names(store)
            closed = load_config(None, [authorizer], {})
            assert not asyncio.run(take_over_anew(store, logs, closed))
        assert not asyncio.run(take_over_anew(store, logs, config))
        assert names(store) == ["a"]
        append(logs, B0, B)
        assert not asyncio.run(take_over_anew(store, logs, config))
        assert ("b-0, without the ACLs of their cluster" in caplog.text) is is_open
