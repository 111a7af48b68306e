"""The quick way of OffsetCommit beside the general one: the same requests, the same bytes, the same offsets."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkad.api import offset_commit
from kafkad.errors import ErrorCode
from kafkad.group.coordinator import group_settings
from kafkad.group.group import Group
from kafkad.group.records import GroupWritten, MemberWritten, decode
from kafkad.net.connection import Ending
from kafkad.wire.messages.delete_topics import DeleteTopicsRequest
from kafkad.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkad.wire.records import BATCH_HEADER, HEADER_SIZE, crc_matches, parse_records
from tests.api.frames import Frames
from tests.one_broker import OneBroker

VERSIONS = range(2, 11)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frames]:
    directory: Path = tmp_path_factory.mktemp("commits")
    broker = OneBroker(directory, "offsets.topic.num.partitions=1", "offset.metadata.max.bytes=100")
    broker.run(broker.context.group_coordination.prepare())
    broker.run_until(lambda: bool(list(broker.context.group_coordination.shards())))
    broker.create("a", 3)
    broker.create("topic-with-a-long-name", 3)
    frames = Frames(broker)
    yield frames
    frames.close()
    broker.stop()


@pytest.fixture(autouse=True)
def new_connection(frames: Frames) -> None:
    frames.connection = frames.connect()


@pytest.fixture
def general(frames: Frames) -> Iterator[list[Any]]:
    """The requests that went the general way."""
    with frames.handled(offset_commit) as handled:
        yield handled


def commit(
    frames: Frames, version: int, group: str, offset: int, topic: str = "a", partition: int = 0, **more: Any
) -> OffsetCommitRequest:
    one = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=more.pop("metadata", "")
    )
    if version >= 6:
        one.committed_leader_epoch = more.pop("epoch", -1)
    known = frames.broker.replicas.metadata.topics.get(topic)
    topic_id = known.id if version >= 10 and known is not None else bytes(16)
    topics = [OffsetCommitRequestTopic(name=topic if version < 10 else "", topic_id=topic_id, partitions=[one])]
    return OffsetCommitRequest(group_id=group, topics=topics, **more)


def committed(frames: Frames, group: str) -> dict[Any, Any]:
    offsets = frames.broker.context.group_coordination.shard(group).machine.offsets.of_group(group)
    return {position: one[:3] for position, one in offsets}


def codes(answer: Any) -> list[int]:
    return [one.error_code for topic in answer.topics for one in topic.partitions]


@pytest.mark.parametrize("version", VERSIONS)
def test_only_the_first_of_its_kind_goes_the_general_way(frames: Frames, general: list[Any], version: int) -> None:
    frames.dispatcher._handlers.clear()
    group = f"repeats-{version}"
    for offset in range(5):
        for partition in range(3):
            assert codes(frames.ask(commit(frames, version, group, offset, partition=partition), version)) == [0]
    assert len(general) == 3
    assert committed(frames, group) == {("a", partition): (4, -1, "") for partition in range(3)}


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_are_the_same(frames: Frames, version: int) -> None:
    """One connection takes whichever way it finds; for the other, every request is the first."""
    dice = random.Random(version)
    quick = frames.connection
    for number in range(400):
        # As many bytes, of which one is too long and one is not: only a look at the characters tells.
        as_long = ["é" * 60, "m" * 120]
        more: dict[str, Any] = {
            "metadata": dice.choice(["", "", None, "why", *as_long, "m" * 101, "m" * 126, "m" * 127])
        }
        if version >= 6:
            more["epoch"] = dice.choice([-1, 0, 7])
        if dice.random() < 0.1:
            more["generation_id_or_member_epoch"] = 3
        if dice.random() < 0.1:
            more["member_id"] = "m"
        topic = dice.choice(["a", "topic-with-a-long-name", "unknown"])
        partition = dice.choice([0, 1, 9])
        group = dice.choice(["g", "h"])
        answers = []
        for way, connection in (("q", quick), ("f", frames.connect())):
            frames.connection = connection
            request = commit(frames, version, f"{way}{version}{group}", number, topic, partition, **more)
            answers.append(frames.begin(request, version))
        assert answers[0] == answers[1]
    assert quick.peer.prepared
    for group in ("g", "h"):
        found = committed(frames, f"q{version}{group}")
        assert found == committed(frames, f"f{version}{group}")
        assert len(found) == 4


@pytest.mark.parametrize("metadata", ["", "why", "m" * 100])
def test_both_ways_write_the_same(frames: Frames, general: list[Any], metadata: str) -> None:
    """But for its offset and its times, and so its checksum."""
    frames.dispatcher._handlers.clear()
    log = frames.broker.context.group_coordination.shard("written").partition.log
    batches = []
    for _ in range(2):
        at = log.size
        assert codes(frames.ask(commit(frames, 8, "written", 7, metadata=metadata, epoch=3), 8)) == [0]
        data = os.pread(log.segments[0].file.fd, log.size - at, at)
        header = BATCH_HEADER.unpack_from(data)
        assert crc_matches(memoryview(data), 0, header)
        [record] = parse_records(data[HEADER_SIZE:], header)
        assert record.value is not None and record.key is not None
        batches.append((header[1:4], header[5:7], header[9:], decode(record.key, record.value)[:6]))  # type: ignore[index]
    assert len(general) == 1
    assert batches[0] == batches[1]


def test_a_topic_that_goes(frames: Frames) -> None:
    frames.broker.create("gone")
    for _ in range(2):
        assert codes(frames.ask(commit(frames, 8, "gone", 1, "gone"), 8)) == [0]
    frames.broker.ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=5000), 5)
    assert codes(frames.ask(commit(frames, 8, "gone", 1, "gone"), 8)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_group_that_gets_members(frames: Frames) -> None:
    """From then on, who is no member may not commit."""
    for _ in range(2):
        assert codes(frames.ask(commit(frames, 8, "members", 1), 8)) == [0]
    machine = frames.broker.context.group_coordination.shard("members").machine
    member = MemberWritten("m", None, "c", "/127.0.0.1", 60_000, 45_000, b"", b"")
    stable = GroupWritten("members", "consumer", 3, "range", "m", 0, (member,))
    machine.groups["members"] = Group.restored(stable, group_settings(frames.broker.config))
    assert codes(frames.ask(commit(frames, 8, "members", 2), 8)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    for generation, code in ((3, 0), (3, 0), (2, ErrorCode.ILLEGAL_GENERATION), (3, 0)):
        more = {"generation_id_or_member_epoch": generation, "member_id": "m"}
        assert codes(frames.ask(commit(frames, 8, "members", 2, **more), 8)) == [code]


def test_a_coordinator_that_goes(frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        assert codes(frames.ask(commit(frames, 8, "moves", 1), 8)) == [0]
    coordination = frames.broker.coordinators.groups
    shard = coordination.shard("moves")
    monkeypatch.setattr(shard, "_serving", False)
    monkeypatch.setattr(coordination, "_shards", {})
    monkeypatch.setattr(coordination, "_by_key", {})
    assert codes(frames.ask(commit(frames, 8, "moves", 2), 8)) == [ErrorCode.NOT_COORDINATOR]


def test_bytes_behind_the_end_are_not_relied_on(frames: Frames, general: list[Any]) -> None:
    """A request whose repeating part could be mistaken: what is left over in its frame looks like an end."""
    frames.dispatcher._handlers.clear()
    message = commit(frames, 8, "left-over", 5)
    for _ in range(3):
        assert frames.begin(message, 8, left_over=b"\0\0\0\0\0\0\0\5\xff\xff\xff\xff\1\0\0\0") is not None
    assert len(general) == 3


def test_metadata_that_are_no_utf_8_go_the_general_way(frames: Frames, general: list[Any]) -> None:
    message = commit(frames, 8, "no-text", 5, metadata="why")
    assert codes(frames.ask(message, 8)) == [0]
    for turn in range(2):
        reply = frames.begin(message, 8, damage=(b"why", b"w\xff\xff"))
        assert reply is not None
        assert codes(frames.decode(reply, 8, 8)) == [0]
        assert len(general) == turn + 2
    assert committed(frames, "no-text") == {("a", 0): (5, -1, "w\ufffd\ufffd")}


@pytest.mark.parametrize("damage", [(b"test", b"t\xfcst"), (b"no-text", b"n\xfc-text")])
def test_names_that_are_no_utf_8_are_what_kafka_takes_them_for(frames: Frames, damage: tuple[bytes, bytes]) -> None:
    """A client id, and a group."""
    name = "no-text".replace(damage[0].decode(), damage[1].decode(errors="replace"))
    for offset in range(3):
        reply = frames.begin(commit(frames, 8, "no-text", offset), 8, damage=damage)
        assert reply is not None
        assert codes(frames.decode(reply, 8, 8)) == [0]
        assert committed(frames, name) == {("a", 0): (offset, -1, "")}


def test_ten_megabytes_of_metadata(frames: Frames) -> None:
    """No string of the protocol is that long; whoever sends one has its connection closed, as by Kafka."""
    message = commit(frames, 8, "blob", 5, metadata="why")
    with contextlib.suppress(Ending):  # at once; or in a later turn, as the request is large
        frames.begin(message, 8, damage=(b"\4why", b"\x81\xad\xe2\4" + b"m" * 10_000_000))
        frames.broker.run_until(lambda: frames.connection.closed)
    assert codes(frames.ask(message, 8)) == [0]


def test_a_connection_remembers_only_so_much(frames: Frames) -> None:
    for number in range(1000):
        frames.ask(commit(frames, 8, f"many-{number}", 5), 8)
    assert len(vars_of(frames.connection.peer.prepared[8])["_known"]) <= 128


def vars_of(slotted: Any) -> dict[str, Any]:
    return {name: getattr(slotted, name) for name in slotted.__slots__}
