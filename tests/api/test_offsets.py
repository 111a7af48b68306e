"""OffsetCommit, OffsetFetch and OffsetDelete in every version, as Kafka 3.9 answers them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from kafkad.api import offset_commit, offset_fetch
from kafkad.api.context import Request
from kafkad.api.routes import OFFSET_COMMIT
from kafkad.errors import ErrorCode, KafkaError
from kafkad.group import records
from kafkad.group.coordinator import group_settings
from kafkad.group.group import Group
from kafkad.group.machine import OnEnd
from kafkad.group.offsets import Offsets, pack
from kafkad.group.records import GroupRecord, GroupWritten, MemberWritten, OffsetCommitted, offset_value
from kafkad.meta.store import ensure_path
from kafkad.meta.znodes import Partition as PartitionNode
from kafkad.model import PartitionState
from kafkad.net.connection import Connection
from kafkad.replica.partition import Partition
from kafkad.turns import Pieces, at_once
from kafkad.wire.frames import RequestHeader
from kafkad.wire.messages.delete_topics import DeleteTopicsRequest
from kafkad.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkad.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkad.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.one_broker import OneBroker

ELSEWHERE = PartitionState(leader=2, leader_epoch=9, isr=(2,), controller_epoch=1)
OK, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
STORED, OF_GROUPS, BY_ID = 0, range(1, 10), 10
NOBODY = bytes(15) + b"\7"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneBroker]:
    """One for all: each test has groups of its own."""
    directory: Path = tmp_path_factory.mktemp("offsets")
    started = OneBroker(directory, "offsets.topic.num.partitions=1", "offset.metadata.max.bytes=100")
    started.run(started.context.group_coordination.prepare())
    started.run_until(lambda: bool(list(started.context.group_coordination.shards())))
    started.create("here", 2)
    yield started
    started.stop()


def commit(broker: OneBroker, version: int, group: str, *asked: tuple[str, int, int], **more: Any) -> Any:
    """The codes, by topic and partition. More goes into the request, or into the offsets if they have such a field."""
    topics = []
    for name, index, offset in asked:
        one = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=None)
        for field in one.__slots__:  # type: ignore[attr-defined]
            if field in more:
                setattr(one, field, more[field])
        topic_id = topic_id_of(broker, name) if version >= BY_ID else bytes(16)
        topics.append(OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=[one]))
    request = OffsetCommitRequest(group_id=group, topics=topics)
    for field in request.__slots__:
        if field in more:
            setattr(request, field, more[field])
    answer = broker.ask(request, version)
    return [(topic.name, one.partition_index, one.error_code) for topic in answer.topics for one in topic.partitions]


def offsets_of(broker: OneBroker, group: str) -> Offsets:
    return broker.context.group_coordination.shard(group).machine.offsets


def topic_id_of(broker: OneBroker, name: str) -> bytes:
    known = broker.replicas.metadata.topics.get(name)
    return NOBODY if known is None else known.id


def fetch(
    broker: OneBroker, version: int, group: str, *asked: tuple[str, int], stable: bool = False
) -> list[tuple[str, int, int, int, str, ErrorCode]] | ErrorCode:
    """The committed offsets of some partitions, or of all when none is named; the group's error when it has one."""
    if version < 8:
        wanted = [OffsetFetchRequestTopic(name=name, partition_indexes=[index]) for name, index in asked]
        answer = broker.ask(OffsetFetchRequest(group_id=group, topics=wanted or None, require_stable=stable), version)
        code, topics = answer.error_code, answer.topics
    else:
        some = [
            OffsetFetchRequestTopics(
                name=name,
                topic_id=topic_id_of(broker, name) if version >= BY_ID else bytes(16),
                partition_indexes=[index],
            )
            for name, index in asked
        ]
        asked_group = OffsetFetchRequestGroup(group_id=group, topics=some or None)
        answer = broker.ask(OffsetFetchRequest(groups=[asked_group], require_stable=stable), version)
        [found] = answer.groups
        assert found.group_id == group
        code, topics = found.error_code, found.topics
    if code:
        return ErrorCode(code)
    names = {topic_id_of(broker, name): name for name in broker.replicas.metadata.topics}
    return [
        (
            names.get(topic.topic_id, "?") if version >= BY_ID else topic.name,
            one.partition_index,
            one.committed_offset,
            one.committed_leader_epoch,
            one.metadata,
            one.error_code,
        )
        for topic in topics
        for one in topic.partitions
    ]


@pytest.mark.parametrize("version", OF_GROUPS)
def test_what_is_committed_is_fetched_in_every_version(broker: OneBroker, version: int) -> None:
    group = f"versions-{version}"
    more: dict[str, Any] = {"committed_metadata": "why"}
    if version >= 6:
        more["committed_leader_epoch"] = 4
    assert commit(broker, version, group, ("here", 1, 5), **more) == [("here", 1, OK)]
    epoch = 4 if version >= 6 else -1
    for fetched in range(1, 10):
        seen = epoch if fetched >= 5 else -1
        assert fetch(broker, fetched, group, ("here", 1), ("here", 0), ("never", 7)) == [
            ("here", 1, 5, seen, "why", OK),
            ("here", 0, -1, -1, "", OK),
            ("never", 7, -1, -1, "", OK),
        ]
        if fetched >= 2:
            assert fetch(broker, fetched, group) == [("here", 1, 5, seen, "why", OK)]


def test_by_topic_id(broker: OneBroker) -> None:
    asked = ("here", 1, 5), ("never", 0, 5)
    assert commit(broker, BY_ID, "ids", *asked) == [("", 1, OK), ("", 0, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert fetch(broker, BY_ID, "ids", ("here", 1), ("never", 0)) == [
        ("here", 1, 5, -1, "", OK),
        ("?", 0, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    offsets_of(broker, "ids").apply(OffsetCommitted("ids", "gone", 0, 1, -1, "", 0))
    assert fetch(broker, BY_ID, "ids") == [("here", 1, 5, -1, "", OK)]


@pytest.mark.parametrize("version", range(10))
def test_topics_and_partitions_that_nobody_knows(broker: OneBroker, version: int) -> None:
    group = f"unknown-{version}"
    asked = ("never", 0, 5), ("here", 1, 6), ("here", 2, 7)
    assert commit(broker, version, group, *asked) == [("never", 0, UNKNOWN), ("here", 1, OK), ("here", 2, UNKNOWN)]
    assert commit(broker, version, group, ("never", 0, 5)) == [("never", 0, UNKNOWN)]


def test_thousands_of_partitions_are_sorted_out_in_pieces(broker: OneBroker) -> None:
    """Before they are asked for, which version 0 does last."""
    topic = OffsetFetchRequestTopic(name="t", partition_indexes=list(range(6400)))
    assert broker.stops(OffsetFetchRequest(group_id="g", topics=[topic]), 0) >= 100


def test_nothing_is_asked_of_a_group_for_unknown_topics(broker: OneBroker) -> None:
    assert commit(broker, 5, "nobody", ("never", 0, 1), generation_id_or_member_epoch=7) == [("never", 0, UNKNOWN)]
    assert commit(broker, 5, "nobody", ("here", 0, 1), generation_id_or_member_epoch=7) == [
        ("here", 0, ErrorCode.ILLEGAL_GENERATION)
    ]


def test_metadata_that_are_too_long(broker: OneBroker) -> None:
    large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit(broker, 5, "large", ("here", 0, 1), committed_metadata="m" * 101) == [("here", 0, large)]
    assert commit(broker, 0, "large", ("here", 0, 1), committed_metadata="m" * 101) == [("here", 0, large)]
    assert commit(broker, 5, "large", ("here", 0, 1), committed_metadata="m" * 32767) == [("here", 0, large)]


def test_many_offsets_are_encoded_in_turns_and_committed_at_once(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("wide", 500)
    encoded, committed = [0], set()

    def counted(*what: Any) -> bytes:
        encoded[-1] += 1
        return offset_value(*what)

    monkeypatch.setattr(records, "offset_value", counted)
    message = to_many(broker, "w", "wide")
    message.topics[0].partitions[3].committed_metadata = "m" * 101

    async def work() -> Any:
        pieces = handle_large(broker, message, 9)
        while True:
            committed.add(len(offsets_of(broker, "w").positions("w")))
            try:
                next(pieces)
            except StopIteration as end:
                return end.value
            encoded.append(0)

    [topic] = broker.run(work()).topics
    assert [number for number, one in enumerate(topic.partitions) if one.error_code] == [3]
    assert (sum(encoded), max(encoded) <= 100) == (499, True)
    assert committed == {0}
    assert len(offsets_of(broker, "w").positions("w")) == 499


def to_many(broker: OneBroker, group: str, topic: str) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=number, committed_offset=7) for number in range(500)]
    named = OffsetCommitRequestTopic(name=topic, topic_id=topic_id_of(broker, topic), partitions=partitions)
    return OffsetCommitRequest(group_id=group, topics=[named])


def handle_large(broker: OneBroker, message: OffsetCommitRequest, version: int) -> Pieces[Any]:
    """As one that comes in a large frame."""
    header, large = RequestHeader(OFFSET_COMMIT, version, 1, "test"), memoryview(bytes(5_000))
    request = Request(header, cast(Connection, broker.connection), large)
    return cast(Pieces[Any], offset_commit.handle(broker.context, request, message))


@pytest.mark.parametrize("anew", [False, True])
def test_a_topic_that_is_deleted_while_many_offsets_are_encoded_does_not_get_them_back(
    broker: OneBroker, anew: bool
) -> None:
    name = group = f"deleted-{anew}"
    broker.create(name, 500)
    pieces = handle_large(broker, to_many(broker, group, name), BY_ID)
    for _ in range(8):  # five to sort it out
        next(pieces)
    [result] = broker.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=5_000), 5).responses
    assert not result.error_code
    if anew:
        broker.create(name, 500)

    async def rest() -> Any:
        return at_once(pieces)

    [topic] = broker.run(rest()).topics
    assert {one.error_code for one in topic.partitions} == {ErrorCode.UNKNOWN_TOPIC_ID}
    assert group not in offsets_of(broker, group)


def test_times_of_old_versions(broker: OneBroker) -> None:
    commit(broker, 1, "times", ("here", 0, 1), commit_timestamp=17)
    commit(broker, 4, "times", ("here", 1, 1), retention_time_ms=60_000)
    offsets = offsets_of(broker, "times")
    first, second = offsets.committed("times", "here", 0), offsets.committed("times", "here", 1)
    assert first is not None and second is not None
    assert (first.commit_timestamp, first.expire_timestamp) == (17, -1)
    assert second.expire_timestamp == second.commit_timestamp + 60_000


@pytest.mark.parametrize("retention_ms", [2**63 - 1, -(2**63)])
def test_a_retention_that_leads_beyond_all_numbers_is_over(broker: OneBroker, retention_ms: int) -> None:
    """Java's numbers begin again at the least one."""
    assert commit(broker, 4, "overflow", ("here", 0, 1), retention_time_ms=retention_ms) == [("here", 0, OK)]
    committed = offsets_of(broker, "overflow").committed("overflow", "here", 0)
    assert committed is not None
    assert committed.expire_timestamp < 0


def topics_twice(*partitions: int) -> list[OffsetCommitRequestTopic]:
    """Each partition in a topic of its own, with its number's place as offset; one more topic has none."""
    return [
        OffsetCommitRequestTopic(
            name="here",
            topic_id=bytes(16),
            partitions=[
                OffsetCommitRequestPartition(partition_index=index, committed_offset=at, committed_metadata=None)
            ],
        )
        for at, index in enumerate(partitions)
    ] + [OffsetCommitRequestTopic(name="never", topic_id=bytes(16), partitions=[])]


def test_of_a_partition_that_is_named_twice_the_last_offset_counts(broker: OneBroker) -> None:
    """It is answered once, with its topic; what does not exist is answered as often as it is named."""
    request = OffsetCommitRequest(group_id="twice", topics=topics_twice(0, 1, 9, 0, 9))
    [topic] = broker.ask(request, 8).topics
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [
        (0, OK),
        (1, OK),
        (9, UNKNOWN),
        (9, UNKNOWN),
    ]
    assert fetch(broker, 5, "twice") == [("here", 0, 3, -1, "", OK), ("here", 1, 1, -1, "", OK)]


def test_what_is_fetched_or_deleted_twice_is_answered_once(broker: OneBroker) -> None:
    commit(broker, STORED, "doubled", ("here", 0, 3))
    commit(broker, 5, "doubled", ("here", 0, 3), ("here", 1, 3))
    assert fetch(broker, STORED, "doubled", ("here", 0), ("here", 0)) == [("here", 0, 3, -1, "", OK)]
    assert fetch(broker, 5, "doubled", ("here", 0), ("here", 0)) == [("here", 0, 3, -1, "", OK)]
    asked = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9, 0, 9)]
    topics = [OffsetDeleteRequestTopic(name="here", partitions=some) for some in (asked[:3], asked[3:], [])]
    answer = broker.ask(OffsetDeleteRequest(group_id="doubled", topics=topics), 0)
    assert [[(one.partition_index, one.error_code) for one in topic.partitions] for topic in answer.topics] == [
        [(0, OK), (9, UNKNOWN), (9, UNKNOWN)]
    ]


def test_version_0_is_kept_in_the_metadata_store(broker: OneBroker) -> None:
    assert commit(broker, STORED, "old", ("here", 1, 12), committed_metadata="not kept") == [("here", 1, OK)]
    data, _ = broker.run(broker.store.get("/consumers/old/offsets/here/1"))
    assert data == b"12"
    assert fetch(broker, STORED, "old", ("here", 1), ("here", 0), ("never", 0)) == [
        ("here", 1, 12, -1, "", OK),
        ("here", 0, -1, -1, "", UNKNOWN),
        ("never", 0, -1, -1, "", UNKNOWN),
    ]
    assert fetch(broker, 5, "old", ("here", 1)) == [("here", 1, -1, -1, "", OK)]
    broker.run(ensure_path(broker.store, "/consumers/old/offsets/here/9"))
    broker.run(broker.store.set("/consumers/old/offsets/here/9", b"12"))
    assert fetch(broker, STORED, "old", ("here", 9)) == [("here", 9, -1, -1, "", UNKNOWN)]


@pytest.mark.parametrize("version", range(7, 11))
def test_an_open_transaction(broker: OneBroker, version: int) -> None:
    group = f"open-{version}"
    commit(broker, 5, group, ("here", 0, 3), ("here", 1, 4))
    offsets = offsets_of(broker, group)
    offsets.apply(OffsetCommitted(group, "here", 1, 9, -1, "", 0), 77)
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    expected = [("here", 0, 3, -1, "", OK), ("here", 1, -1, -1, "", unstable)]
    assert fetch(broker, version, group, ("here", 0), ("here", 1), stable=True) == expected
    assert fetch(broker, version, group, stable=True) == expected
    assert fetch(broker, version, group, ("here", 1)) == [("here", 1, 4, -1, "", OK)]


def test_groups_that_nobody_knows_and_many_at_once(broker: OneBroker) -> None:
    commit(broker, 5, "many", ("here", 0, 3))
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("many", "nobody")]
    answer = broker.ask(OffsetFetchRequest(groups=groups), 9)
    assert [(group.group_id, group.error_code, len(group.topics)) for group in answer.groups] == [
        ("many", OK, 1),
        ("nobody", OK, 0),
    ]


@pytest.mark.parametrize("version", range(8, 11))
def test_a_group_that_is_named_twice_is_answered_once_for_all_that_it_is_named_with(
    broker: OneBroker, version: int
) -> None:
    commit(broker, 5, "repeated", ("here", 0, 3), ("here", 1, 4))

    def answered(*asked: tuple[str, int | None]) -> dict[str, list[int]]:
        """The partitions in the answer by group; None is a question for all."""
        topic_id = topic_id_of(broker, "here")
        groups = [
            OffsetFetchRequestGroup(
                group_id=group,
                topics=None
                if index is None
                else [OffsetFetchRequestTopics(name="here", topic_id=topic_id, partition_indexes=[index])],
            )
            for group, index in asked
        ]
        answer = broker.ask(OffsetFetchRequest(groups=groups), version)
        names = [group.group_id for group in answer.groups]
        assert len(names) == len(set(names))
        return {
            group.group_id: [one.partition_index for topic in group.topics for one in topic.partitions]
            for group in answer.groups
        }

    assert answered(("repeated", 1), ("nobody", 0), ("repeated", 0), ("repeated", 1)) == {
        "repeated": [1, 0],
        "nobody": [0],
    }
    assert answered(("repeated", None), ("repeated", None)) == {"repeated": [0, 1]}
    assert answered(("repeated", 1), ("repeated", None), ("repeated", 1)) == {"repeated": [0, 1]}


def test_what_is_coordinated_elsewhere(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before version 2 the error has no place but beside each partition."""
    monkeypatch.setattr(broker.coordinators.groups, "_shards", {})
    monkeypatch.setattr(broker.coordinators.groups, "_by_key", {})
    elsewhere = ErrorCode.NOT_COORDINATOR
    assert commit(broker, 5, "g", ("here", 0, 1)) == [("here", 0, elsewhere)]
    assert fetch(broker, 1, "g", ("here", 0)) == [("here", 0, -1, -1, "", elsewhere)]
    for version in range(2, 11):
        assert fetch(broker, version, "g", ("here", 0)) == elsewhere
        assert fetch(broker, version, "g") == elsewhere
    with pytest.raises(KafkaError, match="does not coordinate"):
        delete(broker, "g", ("here", 0))


def test_where_another_may_coordinate_the_metadata_store_decides(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every client looks for the coordinator on this code."""
    assert commit(broker, 5, "doubted", ("here", 0, 7)) == [("here", 0, OK)]
    told = {version: fetch(broker, version, "doubted", ("here", 0)) for version in range(1, 11)}
    monkeypatch.setattr(Partition, "is_followed", lambda partition, since_ms: False)
    for version in range(1, 11):
        assert fetch(broker, version, "doubted", ("here", 0)) == told[version]
    shard = broker.context.group_coordination.shard("doubted")
    broker.run(broker.store.set(PartitionNode.path(*shard.partition.tp), PartitionNode.encode(ELSEWHERE)))
    broker.context.leadership._confirmed.clear()
    assert fetch(broker, 1, "doubted", ("here", 0)) == [("here", 0, -1, -1, "", ErrorCode.NOT_COORDINATOR)]
    for version in range(2, 11):
        assert fetch(broker, version, "doubted", ("here", 0)) == ErrorCode.NOT_COORDINATOR
        assert fetch(broker, version, "doubted") == ErrorCode.NOT_COORDINATOR
    groups = [OffsetFetchRequestGroup(group_id=group, topics=[]) for group in ("doubted", "too")]
    answered = broker.ask(OffsetFetchRequest(groups=groups), 8).groups
    assert [(one.group_id, one.error_code) for one in answered] == [
        ("doubted", ErrorCode.NOT_COORDINATOR),
        ("too", ErrorCode.NOT_COORDINATOR),
    ]


def test_groups_elsewhere_are_told_of_in_many_turns(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether another may coordinate them is asked once for each partition, not for each group."""
    asked: list[object] = []
    turns: list[int] = []
    monkeypatch.setattr(broker.context.leadership, "is_sure", lambda shard: asked.append(shard) and False)

    async def lost(shard: object) -> bool:
        return False

    def counted(pieces: Pieces[object]) -> Awaitable[object]:
        items = list(pieces)
        turns.append(len(items))
        return asyncio.sleep(0)

    monkeypatch.setattr(broker.context.leadership, "confirm", lost)
    names = [f"many{number}" for number in range(300)]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=[]) for name in names]
    monkeypatch.setattr(offset_fetch, "in_turns", counted)
    answered = broker.ask(OffsetFetchRequest(groups=groups), 8).groups
    assert [(one.group_id, one.error_code) for one in answered] == [(name, ErrorCode.NOT_COORDINATOR) for name in names]
    assert len(asked) == len(set(asked)) == len(turns)
    assert sum(turns) == len(names)


def delete(broker: OneBroker, group: str, *asked: tuple[str, int]) -> list[tuple[str, int, ErrorCode]]:
    topics = [
        OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
        for name, index in asked
    ]
    answer = broker.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)
    assert answer.error_code == OK
    return [(topic.name, one.partition_index, one.error_code) for topic in answer.topics for one in topic.partitions]


def test_offsets_are_deleted(broker: OneBroker) -> None:
    commit(broker, 5, "deleting", ("here", 0, 1), ("here", 1, 1))
    assert delete(broker, "deleting", ("here", 0), ("never", 0), ("here", 9)) == [
        ("here", 0, OK),
        ("here", 9, UNKNOWN),
        ("never", 0, UNKNOWN),
    ]
    assert fetch(broker, 5, "deleting") == [("here", 1, 1, -1, "", OK)]
    assert delete(broker, "deleting") == []
    assert fetch(broker, 5, "deleting") == [("here", 1, 1, -1, "", OK)]


def test_very_many_offsets_are_deleted_in_pieces(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group ends with its last offset, which is not the last that is named."""
    written = with_many_offsets(broker, "deep", monkeypatch)
    named = [("deep", index) for index in range(600)]
    assert {code for *_, code in delete(broker, "deep", *named)} == {OK}
    assert sum(written) == 400
    assert max(written) <= 300
    assert "deep" not in broker.context.group_coordination.shard("deep").machine.names()


def test_members_that_come_while_very_many_offsets_are_deleted_keep_the_others(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = b"\0\0\0\0\0\1\0\4held\xff\xff\xff\xff"
    member = MemberWritten("m", None, "c", "/127.0.0.1", 60_000, 10_000, subscription, b"")
    record = GroupWritten("held", "consumer", 1, "range", "m", 5, (member,))
    machine = broker.context.group_coordination.shard("held").machine

    def join() -> None:
        machine.groups["held"] = Group.restored(record, group_settings(broker.config))

    written = with_many_offsets(broker, "held", monkeypatch, join)
    codes = [code for *_, code in delete(broker, "held", *[("held", index) for index in range(400)])]
    [deleted] = written
    assert codes == [OK] * deleted + [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * (400 - deleted)
    assert machine.offsets.positions("held") == {("held", index) for index in range(deleted, 400)}


def with_many_offsets(
    broker: OneBroker, group: str, monkeypatch: pytest.MonkeyPatch, after_write: Callable[[], None] = lambda: None
) -> list[int]:
    """Of the first 400 partitions of a topic of its name. How many are then deleted at once."""
    broker.create(group, 600)
    machine = broker.context.group_coordination.shard(group).machine
    for index in range(400):
        machine.offsets.put(group, (group, index), pack(5, -1, "", 2**50))
    written = []
    write = machine._write_all

    def write_all(tombstones: Sequence[GroupRecord], on_end: OnEnd) -> None:
        written.append(len(tombstones))
        write(tombstones, on_end)
        after_write()

    monkeypatch.setattr(machine, "_write_all", write_all)
    return written


@pytest.mark.parametrize("asked", [(), (("never", 0),), (("here", 0),)])
def test_deleting_from_a_group_that_does_not_exist(broker: OneBroker, asked: tuple[tuple[str, int], ...]) -> None:
    with pytest.raises(KafkaError) as refused:
        delete(broker, "nobody", *asked)
    assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_a_deleted_topic_go(broker: OneBroker) -> None:
    broker.create("short-lived")
    commit(broker, 5, "topics", ("short-lived", 0, 1), ("here", 1, 1))
    broker.ask(DeleteTopicsRequest(topic_names=["short-lived"], timeout_ms=5000), 5)
    broker.run_until(lambda: offsets_of(broker, "topics").positions("topics") == {("here", 1)})
