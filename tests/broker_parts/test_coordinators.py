"""Coordinators of groups move with the partitions of their topic, and what was committed is there on the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.controller.elect_leaders import ElectionKind
from kafkad.errors import ErrorCode
from kafkad.names import GROUPS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition, home_partition
from kafkad.shard.leadership import Leadership
from kafkad.wire.messages.find_coordinator import FindCoordinatorRequest
from kafkad.wire.messages.heartbeat import HeartbeatRequest
from kafkad.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkad.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkad.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkad.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker_parts.several import MEMORY, NETWORK, Brokers

GROUP = "g"
LAG_MS = 10_000
HOME = TopicPartition(GROUPS_TOPIC, home_partition(GROUP, 2))


@pytest.fixture(params=[MEMORY, NETWORK])
def three(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path, request.param)
    brokers.start(1, 2, 3)
    brokers.meet()
    brokers.create("a", (1, 2, 3))
    yield brokers
    brokers.stop()


def coordinator(brokers: Brokers, asked: int) -> int:
    """The id, once there is one that has loaded."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])

    def found() -> int:
        answer = brokers.ended(brokers[asked].ask(request, 4)).coordinators[0]
        return int(answer.node_id) if not answer.error_code else -1

    brokers.until(lambda: found() in brokers.running and fetched(brokers, found())[0] == 0, advance_ms=10)
    return found()


def commit(brokers: Brokers, broker: int, offset: int, member: str = "", generation: int = -1) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=GROUP,
        member_id=member,
        generation_id_or_member_epoch=generation,
        topics=[OffsetCommitRequestTopic(name="a", partitions=[partition])],
    )
    answer = brokers.ended(brokers[broker].ask(request, 8))
    return int(answer.topics[0].partitions[0].error_code)


def fetched(brokers: Brokers, broker: int) -> tuple[int, int]:
    """The error, and what is committed."""
    topics = [OffsetFetchRequestTopics(name="a", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])
    group = brokers.ended(brokers[broker].ask(request, 8)).groups[0]
    if group.error_code:
        return int(group.error_code), -1
    return 0, int(group.topics[0].partitions[0].committed_offset)


def joined(brokers: Brokers, broker: int, member: str = "") -> tuple[str, int]:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member,
        protocol_type="consumer",
        protocols=protocols,
    )
    answer = brokers.ended(brokers[broker].ask(request, 9))
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        return joined(brokers, broker, answer.member_id)
    assert not answer.error_code
    sync = SyncGroupRequest(
        group_id=GROUP,
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"all")],
    )
    assert brokers.ended(brokers[broker].ask(sync, 5)).error_code == 0
    return answer.member_id, answer.generation_id


def test_a_group_goes_on_where_its_coordinator_went(three: Brokers) -> None:
    first = coordinator(three, 1)
    member, generation = joined(three, first)
    assert commit(three, first, 41, member, generation) == 0
    beat = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member)
    assert three.ended(three[first].ask(beat, 4)).error_code == 0
    for other in three.running.keys() - {first}:
        assert commit(three, other, 1) == ErrorCode.NOT_COORDINATOR
        assert fetched(three, other) == (ErrorCode.NOT_COORDINATOR, -1)
    three.leave(first)
    asked = min(three.running)
    second = coordinator(three, asked)
    assert second != first
    assert fetched(three, second) == (0, 41)
    assert three.ended(three[second].ask(beat, 4)).error_code == 0, "no rebalance: members notice nothing"
    assert commit(three, second, 42, member, generation) == 0
    three.start(first)
    three.until(lambda: three[first].parts.replicas.find(*HOME) is not None, advance_ms=10)
    three.until(lambda: first in three[second].partition(HOME).role.isr, advance_ms=10)
    elect = three.controller.parts.controller.elect_leaders
    three.ended(elect(ElectionKind.PREFERRED, [HOME], timeout_ms=5_000))
    three.until(lambda: three[first].partition(HOME).is_leader, advance_ms=10)
    assert coordinator(three, asked) == first
    assert fetched(three, first) == (0, 42)
    assert commit(three, second, 1) == ErrorCode.NOT_COORDINATOR, "it has unloaded the group"
    assert three.ended(three[first].ask(beat, 4)).error_code == 0


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Brokers]:
    settings = (f"replica.lag.time.max.ms={LAG_MS}", "auto.leader.rebalance.enable=false")
    brokers = Brokers(tmp_path, MEMORY, *settings)
    brokers.start(1, 2, 3)
    brokers.meet()
    brokers.create("a", (1, 2, 3))
    brokers.create(GROUPS_TOPIC, (3, 1, 2), (3, 1, 2))
    yield brokers
    brokers.stop()


def test_a_coordinator_that_is_cut_off_tells_no_old_offsets(in_memory: Brokers) -> None:
    """It does not know of the next one, and a client that reaches both would process again what it has committed."""
    three = in_memory
    assert coordinator(three, 1) == 3
    assert commit(three, 3, 41) == 0
    three.cut.update({frozenset({3, 1}), frozenset({3, 2})})
    three.until(lambda: three[1].partition(HOME).is_leader, advance_ms=50)
    assert three[3].partition(HOME).is_leader
    assert coordinator(three, 1) == 1
    assert commit(three, 1, 42) == 0
    assert fetched(three, 3) == (ErrorCode.NOT_COORDINATOR, -1)
    three.work_for(2 * LAG_MS)
    assert fetched(three, 3) == (ErrorCode.NOT_COORDINATOR, -1)
    assert fetched(three, 1) == (0, 42)


def test_followers_that_have_died_do_not_keep_a_coordinator_from_answering(in_memory: Brokers) -> None:
    """For a while they are still in the ISR."""
    three = in_memory
    assert coordinator(three, 1) == 3
    assert commit(three, 3, 41) == 0
    three.work_for(2_000)
    three.cut.add(frozenset({3, 2}))
    for _ in range(20):
        assert fetched(three, 3) == (0, 41)
        three.work_for(200)
    assert 2 in three[3].partition(HOME).role.isr


@pytest.mark.parametrize(("kind", "topic"), [(0, GROUPS_TOPIC), (1, TRANSACTIONS_TOPIC)])
def test_a_broker_that_has_been_told_of_no_topic_yet_does_not_try_to_make_one(
    in_memory: Brokers, caplog: pytest.LogCaptureFixture, kind: int, topic: str
) -> None:
    """Clients that are still connected ask as soon as it is started again."""
    three = in_memory
    if topic == TRANSACTIONS_TOPIC:
        three.create(topic, (1, 2))
    three.leave(3)
    three.cut.add(frozenset({1, 3}))
    three.start(3)
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[GROUP])

    def code() -> int:
        return int(three.ended(three[3].ask(request, 4)).coordinators[0].error_code)

    assert code() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [message for message in caplog.messages if "cannot create" in message] == []
    three.cut.clear()
    three.until(lambda: code() == ErrorCode.NONE, advance_ms=10)


def test_groups_go_on_without_the_metadata_store_however_long_fetches_of_followers_wait(tmp_path: Path) -> None:
    three = Brokers(tmp_path, MEMORY, "replica.fetch.wait.max.ms=20000")
    three.start(1, 2, 3)
    three.meet()
    three.create("a", (1, 2, 3))
    three.create(GROUPS_TOPIC, (3, 1, 2), (3, 1, 2))
    assert coordinator(three, 1) == 3
    assert commit(three, 3, 41) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(three[3].session, "get", lambda path: asyncio.Event().wait())
        for _ in range(8):
            three.work_for(3_000)
            assert fetched(three, 3) == (0, 41)
    three.stop()


def test_a_coordinator_that_stood_still_asks_the_metadata_store(
    in_memory: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = in_memory
    assert coordinator(three, 1) == 3
    shard = three[3].parts.coordinators.groups.shard(GROUP)
    three.until(lambda: three[3].parts.coordinators.leadership.is_sure(shard), advance_ms=10)
    asked: list[object] = []
    confirm = Leadership.confirm
    monkeypatch.setattr(Leadership, "confirm", lambda leads, read: asked.append(read) or confirm(leads, read))
    assert fetched(three, 3)[0] == 0
    assert not asked
    three.clock.advance(5_000)
    assert fetched(three, 3)[0] == 0
    assert asked == [shard]
