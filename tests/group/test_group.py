"""The life of a classic group beside its members: restarts, deletion, commits, what it consumes."""

from __future__ import annotations

import logging
import struct
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.coordinator import GroupCoordinator
from kafkad.group.events import State
from kafkad.group.group import PREVIOUS
from kafkad.group.records import GroupForgotten, GroupWritten, MemberWritten, OffsetCommitted, OffsetForgotten
from kafkad.metrics import PAUSE
from kafkad.shard.coordination import LoadTimes
from kafkad.turns import at_once
from tests.group.life import G, Life

OK = ErrorCode.NONE


# Starts, ends


def test_a_stable_group_goes_on_after_a_restart(life: Life) -> None:
    members = life.stable(2)
    before = life.machine.groups[G].describe()
    life.restart()
    assert life.machine.groups[G].describe() == before
    life.advance(9999)
    assert [life.heartbeat(member, 1) for member in members] == [OK, OK]
    assert life.join(members[1]).answer.leader == members[0]


def test_who_leads_is_known_after_a_restart(life: Life) -> None:
    """It need not be the one who is written first."""
    members = [MemberWritten(name, None, "c", "/127.0.0.1", 60_000, 10_000, b"r", b"") for name in "ab"]
    life.log.append(GroupWritten(G, "consumer", 3, "range", "b", 0, tuple(members)))
    life.restart()
    assert life.join("a").answer.leader == "b"


def test_a_restart_tells_who_waits_to_look_for_the_coordinator(life: Life) -> None:
    members = life.stable(2)
    joins = life.join(members[0])
    life.restart()
    assert joins.error == ErrorCode.NOT_COORDINATOR
    assert life.state() is State.STABLE
    for member in members:
        life.join(member)
    syncs = life.sync(members[1], 2)
    life.restart()
    assert syncs.error == ErrorCode.NOT_COORDINATOR
    assert life.generation() == 1
    assert len(life.timers) == 1


def test_very_many_members_are_answered_a_few_at_a_time(life: Life) -> None:
    """Others of the event loop have their turns in between."""
    asked = [life.join() for _ in range(100)]
    life.machine.unloaded()
    assert 0 < sum(one.answered for one in asked) < 50
    life.turn()
    assert all(one.error == ErrorCode.NOT_COORDINATOR for one in asked)


def test_a_group_is_deleted_with_its_offsets(life: Life) -> None:
    [member] = life.stable()
    for partition in range(2500):
        life.write([OffsetCommitted(G, "t", partition, 1, -1, "", 0)], lambda error: None)
    with pytest.raises(KafkaError) as refused:
        life.delete()
    assert refused.value.code == ErrorCode.NON_EMPTY_GROUP
    life.leave(member)
    life.log.clear()
    assert life.delete().answer is None
    assert life.log[-1] == GroupForgotten(G)
    assert sorted(life.log[:-1]) == [OffsetForgotten(G, "t", partition) for partition in range(2500)]
    assert not life.machine.names()
    with pytest.raises(KafkaError) as gone:
        life.delete()
    assert gone.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_many_offsets_is_deleted_some_at_a_time(life: Life) -> None:
    for partition in range(2500):
        life.write([OffsetCommitted(G, "t", partition, 1, -1, "", 0)], lambda error: None)
    life.log.clear()
    life.busy = True
    asked = life.delete()
    assert not asked.answered
    assert 0 < len(life.log) < 1000
    assert life.join().error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    go_on(life)
    assert asked.answer is None
    assert len(life.log) == 2500
    assert not life.machine.names()


def test_a_deletion_says_what_went_wrong_first_and_forgets_what_it_can(life: Life) -> None:
    for partition in range(2500):
        life.write([OffsetCommitted(G, "t", partition, 1, -1, "", 0)], lambda error: None)
    life.busy = True
    life.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    asked = life.delete()
    life.failure = None
    go_on(life)
    assert asked.answer.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert 0 < len(life.machine.offsets.positions(G)) < 1000
    assert life.state() is State.EMPTY


def test_while_a_group_is_being_deleted_nobody_gets_in(life: Life) -> None:
    [member] = life.stable()
    life.leave(member)
    life.hold = True
    asked = life.delete()
    busy = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert life.join().error == busy
    assert life.join(member).error == busy
    assert life.sync(member, 1).error == busy
    assert life.heartbeat(member, 1) == busy
    with pytest.raises(KafkaError):
        life.leave(member)
    with pytest.raises(KafkaError):
        life.machine.groups[G].check_commit("", None, -1, 0.0)
    life.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert asked.answer is not None
    life.hold = False
    assert life.state() is State.EMPTY
    assert life.generation() == 2
    assert life.delete().answer is None
    assert not life.machine.groups


@pytest.mark.parametrize(
    ("said", "level"), [(ErrorCode.NOT_COORDINATOR, "INFO"), (ErrorCode.COORDINATOR_NOT_AVAILABLE, "WARNING")]
)
def test_a_partition_that_has_moved_is_no_trouble(
    life: Life, said: ErrorCode, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    joins = life.join()
    life.advance(3000)
    life.hold = True
    life.sync(joins.answer.member_id, 1, {joins.answer.member_id: b"all"})
    life.refuse(said)
    [told] = [record for record in caplog.records if "could not write generation" in record.message]
    assert told.levelname == level


def test_a_group_that_is_deleted_while_its_first_record_is_on_its_way_stays_deleted(life: Life) -> None:
    life.hold = True
    joins = life.join()
    life.advance(3000)
    member = joins.answer.member_id
    life.sync(member, 1, {member: b"all"})
    life.leave(member)
    life.advance(60_000)
    assert life.state() is State.EMPTY
    assert not life.log
    deletion = life.delete()
    assert not deletion.answered
    life.commit()
    assert deletion.answer is None
    assert life.log[-1] == GroupForgotten(G)
    assert not life.machine.names()
    life.restart()
    assert not life.machine.names()


def test_a_late_record_of_a_group_does_not_take_the_timer_of_the_next_one(life: Life) -> None:
    life.hold = True
    life.join()
    [member] = life.machine.groups[G].describe().members
    life.leave(member.member_id)
    life.advance(3000)
    assert life.state() is State.EMPTY
    life.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert life.delete().answer is not None
    life.failure = None
    joins = life.join()
    life.commit()
    life.advance(3000)
    assert joins.error == OK


def test_a_deletion_that_could_not_be_written_leaves_no_timer(life: Life) -> None:
    """An id was given out and may still be used: that is over with the deletion, and nothing rings for it."""
    [member] = life.stable()
    life.leave(member)
    life.join(needs_id=True, session_timeout_ms=10_000)
    life.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert life.delete().answer is not None
    life.failure = None
    assert len(life.timers) == 0
    life.advance(8000)
    joins = life.join()
    life.advance(3000)
    assert joins.error == OK


def test_ten_thousand_groups_come_and_go_without_a_trace(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "kafkad.group")
    for number in range(10_000):
        group = f"group-{number}"
        member = life.join(group=group, needs_id=number % 2 == 0).answers
        if number % 2 == 0:
            life.leave(member[0].member_id, group=group)
    life.advance(3000)
    assert Counter(life.machine.states()) == {State.EMPTY: 5000, State.COMPLETING: 5000}
    for group in list(life.machine.groups):
        life.leave(*[member.member_id for member in life.machine.groups[group].describe().members], group=group)
        life.delete(group)
    assert not life.machine.names()
    assert life.timers.next_deadline_ms() is None
    life.restart()
    assert not life.machine.names()


def test_offsets_alone_are_an_empty_group(life: Life) -> None:
    life.write([OffsetCommitted(G, "t", 0, 1, -1, "", 0)], lambda error: None)
    assert life.state() is State.EMPTY
    assert life.machine.names() == {G}
    assert list(life.machine.states()) == [State.EMPTY]
    assert life.delete().answer is None
    assert life.log[-1] == OffsetForgotten(G, "t", 0)
    assert not life.machine.names()


def test_groups_in_thousands_are_counted_some_at_a_time(life: Life) -> None:
    life.join()
    names = [f"group-{number}" for number in range(1_299)]
    life.write([OffsetCommitted(name, "t", 0, 1, -1, "", 0) for name in names], lambda error: None)
    coordination: Any = SimpleNamespace(shards=lambda: [life], load_times=LoadTimes())
    told = list(GroupCoordinator(coordination).collect())
    assert told[:3] == [PAUSE, PAUSE, told[2]]
    counts = {family.name: value for family in told if family is not None for _, value in family.samples}
    assert counts["kafka_coordinator_group_groupmetadatamanager_numgroups"] == 1_300
    assert counts["kafka_coordinator_group_groupmetadatamanager_numgroupsempty"] == 1_299
    assert counts["kafka_coordinator_group_groupmetadatamanager_numoffsets"] == 1_299


# Commits


def commits(life: Life, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
    group = life.machine.group(G)
    assert group is not None
    try:
        group.check_commit(member_id, instance_id, generation, life.clock.monotonic_ms())
    except KafkaError as error:
        return error.code
    return OK


def test_who_may_commit(life: Life) -> None:
    asked = [life.join(), life.join()]
    life.advance(6000)
    leader, follower = (one.answer.member_id for one in asked)
    assert commits(life, leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    life.sync(leader, 1, {})
    life.sync(follower, 1)
    assert commits(life, leader, 1) == OK
    assert commits(life, leader, 0) == ErrorCode.ILLEGAL_GENERATION
    assert commits(life, "stranger", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commits(life, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commits(life, leader, -1) == ErrorCode.ILLEGAL_GENERATION
    assert commits(life, leader, 1, "i") == ErrorCode.UNKNOWN_MEMBER_ID
    life.join(leader)
    assert commits(life, follower, 1) == OK
    life.leave(leader, follower)
    assert commits(life, "", -1) == OK
    assert commits(life, follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_keep_a_member_alive(life: Life) -> None:
    [member] = life.stable()
    for _ in range(5):
        life.advance(9000)
        assert commits(life, member, 1) == OK


def test_a_fenced_instance_cannot_commit(life: Life) -> None:
    asked = life.join(instance_id="a")
    life.advance(3000)
    old = asked.answer.member_id
    life.sync(old, 1, {})
    new = life.join(instance_id="a").answer.member_id
    assert commits(life, old, 1, "a") == ErrorCode.FENCED_INSTANCE_ID
    assert commits(life, new, 1, "a") == OK


# Many groups


def loaded_with(life: Life, groups: int) -> list[str]:
    """Each has one member, m. They have just been loaded; the last is not started as long as the life is busy."""
    names = [f"group-{number}" for number in range(groups)]
    member = MemberWritten("m", None, "c", "/127.0.0.1", 60_000, 10_000, b"r", b"")
    life.log += [GroupWritten(name, "consumer", 1, "range", "m", 0, (member,)) for name in names]
    life.busy = True
    life.restart()
    return names


def go_on(life: Life) -> None:
    life.busy = False
    life.turn()


def test_many_groups_are_started_some_at_a_time(life: Life) -> None:
    names = loaded_with(life, 300)
    assert 0 < len(life.timers) < len(names) / 2
    go_on(life)
    assert len(life.timers) == len(names)
    life.advance(9_999)
    assert {life.state(name) for name in names} == {State.STABLE}
    life.advance(1)
    assert {life.state(name) for name in names} == {State.EMPTY}


def test_a_group_serves_its_members_before_it_is_started(life: Life) -> None:
    last = loaded_with(life, 300)[-1]
    assert life.machine.heartbeat(last, "m", None, 1) == OK
    life.clock.advance(8_000)
    waits = life.join(group=last, session_timeout_ms=6_000)
    go_on(life)
    life.advance(1_999)
    assert life.join("m", group=last).error == OK
    assert waits.error == OK


def test_a_group_that_is_gone_before_it_is_started_is_left_alone(life: Life) -> None:
    last = loaded_with(life, 300)[-1]
    life.leave("m", group=last)
    life.delete(last)
    go_on(life)
    assert last not in life.machine.groups
    assert len(life.timers) == 299


def test_many_groups_are_unloaded_some_at_a_time_and_none_does_anything_meanwhile(life: Life) -> None:
    names = loaded_with(life, 300)
    go_on(life)
    waiting = [life.join(group=name) for name in names]
    life.busy = True
    life.machine.unloaded()
    assert not life.machine.groups
    assert not life.timers
    assert 0 < sum(one.answered for one in waiting) < len(names) / 2
    go_on(life)
    assert all(one.error == ErrorCode.NOT_COORDINATOR for one in waiting)


# What a group consumes


SUBSCRIPTION = b"\x00\x03" + b"\x00\x00\x00\x02" + b"\x00\x01a" + b"\x00\x01b" + b"\xff\xff\xff\xff" + b"newer"


def subscribes_to(life: Life, topic: str) -> bool:
    subscriptions = life.machine.groups[G].subscriptions
    at_once(subscriptions.read())
    return subscriptions.include(topic)


def test_a_group_of_consumers_knows_its_topics(life: Life) -> None:
    [member] = life.stable(protocols=(("range", SUBSCRIPTION),))
    for _ in range(2):
        assert [subscribes_to(life, topic) for topic in "abc"] == [True, True, False]
        life.restart()
    life.leave(member)
    assert not subscribes_to(life, "a")


@pytest.mark.parametrize("subscription", [b"", b"\x00", b"\xff\xff" + SUBSCRIPTION[2:], SUBSCRIPTION[:8]])
def test_a_subscription_that_cannot_be_read_may_be_to_anything(life: Life, subscription: bytes) -> None:
    life.stable(protocols=(("range", subscription),))
    assert subscribes_to(life, "z")


def test_of_other_kinds_of_groups_nothing_is_known(life: Life) -> None:
    life.stable(protocol_type="connect", protocols=(("range", SUBSCRIPTION),))
    assert subscribes_to(life, "z")


def test_no_subscription_is_read_before_somebody_asks_and_then_in_pieces_and_once(life: Life) -> None:
    def subscription(member: int) -> bytes:
        names = [f"topic-{member}-{number}".encode() for number in range(1000)]
        return struct.pack(">hi", 0, len(names)) + b"".join(struct.pack(">h", len(name)) + name for name in names)

    protocols = [(("range", subscription(member) + b"\xff\xff\xff\xff"),) for member in range(3)]
    for one in protocols:
        life.join(protocols=one)
    life.advance(6000)
    subscriptions = life.machine.groups[G].subscriptions
    assert subscriptions.are_unread
    assert sum(1 for _ in subscriptions.read()) > 3 * len(protocols)
    assert not list(subscriptions.read())
    assert subscriptions.topics == {f"topic-{member}-{number}" for member in range(3) for number in range(1000)}


def test_the_table_of_transitions_is_kafkas() -> None:
    assert {
        State.EMPTY: {State.PREPARING},
        State.PREPARING: {State.STABLE, State.COMPLETING, State.EMPTY},
        State.COMPLETING: {State.PREPARING},
        State.STABLE: {State.COMPLETING},
        State.DEAD: set(State) - {State.DEAD},
    } == PREVIOUS
