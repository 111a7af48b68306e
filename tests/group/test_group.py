"""What members of a classic group are told, on a clock that a test moves."""

from __future__ import annotations

import pytest

from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.events import JoinedMember, Leaving, State
from kafkad.group.group import PREVIOUS, Group
from kafkad.group.records import GroupForgotten, GroupWritten, OffsetCommitted, OffsetForgotten
from tests.group.life import RANGE, G, Life

OK = ErrorCode.NONE


@pytest.fixture
def life() -> Life:
    return Life()


# Joining


def test_the_first_to_join_leads_and_hears_of_all(life: Life) -> None:
    first = life.join(protocols=(("range", b"1"),))
    life.advance(2000)
    second = life.join(protocols=(("range", b"2"),))
    life.advance(3999)
    assert not first.answered
    assert not second.answered
    life.advance(1)
    leader, follower = first.answer, second.answer
    assert (leader.error, leader.generation, leader.protocol_type, leader.protocol) == (OK, 1, "consumer", "range")
    assert leader.leader == leader.member_id
    assert leader.members == (
        JoinedMember(leader.member_id, None, b"1"),
        JoinedMember(follower.member_id, None, b"2"),
    )
    assert (follower.leader, follower.members, follower.generation) == (leader.member_id, (), 1)
    assert life.state() is State.COMPLETING


def test_the_first_rebalance_is_delayed_while_members_come_but_not_longer_than_they_wait() -> None:
    life = Life(rebalance_delay_ms=3000)
    first = life.join(rebalance_timeout_ms=7000)
    for _ in range(3):
        life.advance(2000)
        life.join(rebalance_timeout_ms=7000)
        assert not first.answered
    life.advance(999)
    assert not first.answered
    life.advance(1)
    assert len(first.answer.members) == 4


def test_a_group_that_had_members_before_is_delayed_once(life: Life) -> None:
    [member] = life.stable()
    assert life.leave(member) == [OK]
    asked = life.join()
    life.advance(1500)
    other = life.join()
    life.advance(1500)
    assert asked.answer.generation == other.answer.generation == 3


def test_a_new_member_has_to_ask_again_with_its_id(life: Life) -> None:
    asked = life.join(needs_id=True)
    assert asked.error == ErrorCode.MEMBER_ID_REQUIRED
    member = asked.answer.member_id
    again = life.join(member, needs_id=True)
    life.advance(3000)
    assert (again.error, again.answer.member_id) == (OK, member)


def test_an_id_that_is_not_used_is_forgotten_and_the_group_with_it(life: Life) -> None:
    member = life.join(needs_id=True).answer.member_id
    life.advance(9999)
    assert G in life.machine.groups
    life.advance(1)
    assert not life.machine.groups
    assert life.join(member).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert life.timers.next_deadline_ms() is None


def test_a_rebalance_waits_for_ids_that_were_given_out(life: Life) -> None:
    [member] = life.stable()
    pending = life.join(needs_id=True).answer.member_id
    again = life.join(member)
    assert not again.answered
    assert life.leave(pending) == [OK]
    assert again.error == OK


def test_a_generation_comes_together_when_all_have_joined_again(life: Life) -> None:
    members = life.stable(3)
    new = life.join()
    asked = [life.join(member) for member in members[:2]]
    assert not any(one.answered for one in (new, *asked))
    asked.append(life.join(members[2]))
    assert {one.answer.generation for one in (new, *asked)} == {2}
    assert asked[0].answer.leader == members[0]


def test_who_does_not_join_again_in_time_is_put_out(life: Life) -> None:
    leader, follower, third = life.stable(3)
    asked = life.join(follower, protocols=(*RANGE, ("other", b"")))
    for _ in range(8):
        life.advance(7500)
        for member in (leader, third):
            life.heartbeat(member, 1)
    assert (asked.answer.leader, len(asked.answer.members)) == (follower, 1)
    assert life.heartbeat(leader, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_lost_its_answer_gets_it_again(life: Life) -> None:
    asked = [life.join(), life.join()]
    life.advance(6000)
    for one in asked:
        assert life.join(one.answer.member_id).answer == one.answer
    leader, follower = (one.answer.member_id for one in asked)
    life.sync(leader, 1, {})
    assert life.join(follower).answer == asked[1].answer
    assert life.state() is State.STABLE


def test_a_leader_that_joins_again_starts_a_rebalance(life: Life) -> None:
    [leader] = life.stable()
    assert life.join(leader).answer.generation == 2


def test_changed_metadata_starts_a_rebalance(life: Life) -> None:
    leader, follower = life.stable(2)
    life.join(follower, protocols=(("range", b"changed"),))
    assert life.state() is State.PREPARING
    assert life.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_second_join_of_a_member_ends_the_first(life: Life) -> None:
    leader, follower = life.stable(2)
    first = life.join(leader)
    second = life.join(leader)
    assert first.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert not second.answered
    life.join(follower)
    assert second.error == OK


def test_all_members_know_the_protocol_that_most_vote_for(life: Life) -> None:
    a, b, c = ("a", b""), ("b", b""), ("c", b"")
    asked = [life.join(protocols=protocols) for protocols in ((a, b, c), (c, b), (b, c))]
    life.advance(6000)
    assert {one.answer.protocol for one in asked} == {"b"}


@pytest.mark.parametrize("protocols", [(), (("other", b""),)])
def test_a_member_that_shares_no_protocol_is_refused(life: Life, protocols: tuple[tuple[str, bytes], ...]) -> None:
    life.stable()
    assert life.join(protocols=protocols).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_mixed_and_missing_types_of_protocol_are_refused(life: Life) -> None:
    assert life.join(protocol_type="").error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not life.machine.groups
    life.stable(protocol_type="connect")
    assert life.join(protocol_type="consumer").error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("session_timeout_ms", [5999, 1_800_001, -1])
def test_session_timeouts_have_bounds(life: Life, session_timeout_ms: int) -> None:
    asked = life.join(session_timeout_ms=session_timeout_ms)
    assert asked.error == ErrorCode.INVALID_SESSION_TIMEOUT
    assert not life.machine.groups


def test_a_member_that_nobody_knows(life: Life) -> None:
    assert life.join("stranger").error == ErrorCode.UNKNOWN_MEMBER_ID
    life.stable()
    assert life.join("stranger").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert life.heartbeat("stranger", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert life.sync("stranger", 1).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert life.leave("stranger") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert life.heartbeat("m", 1, group="nowhere") == ErrorCode.UNKNOWN_MEMBER_ID
    assert life.leave("m", group="nowhere") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert life.sync("m", 1, group="nowhere").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody() -> None:
    life = Life(max_size=2)
    members = life.stable(2)
    asked = life.join()
    assert (asked.error, asked.answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert [life.heartbeat(member, 1) for member in members] == [OK, OK]


def test_a_group_that_is_too_big_after_a_start_keeps_who_comes_first() -> None:
    life = Life()
    members = life.stable(3)
    life.settings = Life(max_size=2).settings
    life.restart()
    assert life.state() is State.PREPARING
    asked = [life.join(member) for member in members]
    assert asked[2].error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [one.answer.generation for one in asked[:2]] == [2, 2]


# Syncing


def test_everybody_gets_what_the_leader_assigned_when_it_is_written(life: Life) -> None:
    asked = [life.join(), life.join()]
    life.advance(6000)
    leader, follower = (one.answer.member_id for one in asked)
    follows = life.sync(follower, 1)
    life.hold = True
    leads = life.sync(leader, 1, {leader: b"L", follower: b"F", "stranger": b"S"})
    assert not follows.answered
    assert not leads.answered
    life.commit()
    assert (follows.answer.assignment, leads.answer.assignment) == (b"F", b"L")
    assert follows.answer.protocol_type == "consumer"
    assert follows.answer.protocol == "range"
    [record] = life.log
    assert isinstance(record, GroupWritten)
    assert [(member.member_id, member.assignment) for member in record.members] == [(leader, b"L"), (follower, b"F")]
    assert life.sync(follower, 1).answer == follows.answer


def test_who_is_left_out_of_an_assignment_gets_nothing(life: Life) -> None:
    asked = [life.join(), life.join()]
    life.advance(6000)
    leader, follower = (one.answer.member_id for one in asked)
    life.sync(leader, 1, {leader: b"L"})
    assert life.sync(follower, 1).answer.assignment == b""


def test_an_assignment_that_cannot_be_written_starts_over(life: Life) -> None:
    asked = [life.join(), life.join()]
    life.advance(6000)
    leader, follower = (one.answer.member_id for one in asked)
    follows = life.sync(follower, 1)
    life.failure = ErrorCode.KAFKA_STORAGE_ERROR
    assert life.sync(leader, 1, {leader: b"L"}).error == ErrorCode.NOT_COORDINATOR
    assert follows.error == ErrorCode.NOT_COORDINATOR
    assert life.state() is State.PREPARING


def test_a_rebalance_withdraws_an_assignment_that_is_being_written(life: Life) -> None:
    asked = [life.join(), life.join()]
    life.advance(6000)
    leader, follower = (one.answer.member_id for one in asked)
    life.hold = True
    leads = life.sync(leader, 1, {follower: b"F"})
    life.join()
    assert leads.error == ErrorCode.REBALANCE_IN_PROGRESS
    life.commit()
    assert life.state() is State.PREPARING
    assert life.sync(follower, 1).error == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_asks_twice_assigns_once(life: Life) -> None:
    asked = life.join()
    life.advance(3000)
    leader = asked.answer.member_id
    life.hold = True
    first = life.sync(leader, 1, {leader: b"1"})
    second = life.sync(leader, 1, {leader: b"2"})
    life.commit()
    assert first.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.answer.assignment == b"1"
    assert len(life.log) == 1


def test_a_leader_that_never_syncs_is_put_out(life: Life) -> None:
    asked = [life.join(), life.join()]
    life.advance(6000)
    leader, follower = (one.answer.member_id for one in asked)
    follows = life.sync(follower, 1)
    for _ in range(12):
        life.advance(5000)
        life.heartbeat(leader, 1)
    assert follows.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert life.join(follower).answer.leader == follower
    assert life.heartbeat(leader, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_follower_that_never_syncs_is_put_out_of_the_stable_group(life: Life) -> None:
    asked = [life.join(), life.join()]
    life.advance(6000)
    leader, follower = (one.answer.member_id for one in asked)
    life.sync(leader, 1, {})
    for _ in range(12):
        assert life.heartbeat(leader, 1) == OK
        assert life.heartbeat(follower, 1) == OK
        life.advance(5000)
    assert life.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert life.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_generations_fence(life: Life) -> None:
    [member] = life.stable()
    for generation in (0, 2, -1):
        assert life.heartbeat(member, generation) == ErrorCode.ILLEGAL_GENERATION
        assert life.sync(member, generation).error == ErrorCode.ILLEGAL_GENERATION


def test_a_sync_that_names_other_protocols_is_refused(life: Life) -> None:
    [member] = life.stable()
    assert life.sync(member, 1, protocol_type="consumer", protocol="range").error == OK
    wrong = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert life.sync(member, 1, protocol_type="connect", protocol="range").error == wrong
    assert life.sync(member, 1, protocol_type="consumer", protocol="sticky").error == wrong


# Sessions, leaving


def test_heartbeats_keep_a_member_and_silence_ends_it(life: Life) -> None:
    [member] = life.stable()
    for _ in range(10):
        life.advance(9999)
        assert life.heartbeat(member, 1) == OK
    life.advance(10_000)
    assert life.heartbeat(member, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert life.state() is State.EMPTY


def test_heartbeats_arm_no_timers(life: Life) -> None:
    members = life.stable(5)
    armed = []
    life.timers.on_sooner = armed.append
    for _ in range(100):
        life.advance(10)
        for member in members:
            life.heartbeat(member, 1)
    assert len(life.timers) == 1
    assert not armed


def test_a_silent_follower_starts_a_rebalance(life: Life) -> None:
    leader, follower = life.stable(2)
    life.advance(5000)
    life.heartbeat(leader, 1)
    life.advance(5000)
    assert life.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(life.join(leader).answer.members) == 1
    assert life.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_waits_for_a_rebalance_is_not_silent(life: Life) -> None:
    leader, follower = life.stable(2)
    asked = life.join(leader)
    for _ in range(5):
        life.advance(9000)
        life.heartbeat(follower, 1)
    life.join(follower)
    assert asked.error == OK


def test_a_new_member_cannot_wait_for_ever(life: Life) -> None:
    life.stable(rebalance_timeout_ms=1_000_000, session_timeout_ms=1_000_000)
    asked = life.join(rebalance_timeout_ms=1_000_000)
    life.advance(299_999)
    assert not asked.answered
    life.advance(1)
    assert (asked.error, asked.answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_members_leave_together(life: Life) -> None:
    members = life.stable(3)
    assert life.leave(members[0], "stranger", members[1]) == [OK, ErrorCode.UNKNOWN_MEMBER_ID, OK]
    assert life.join(members[2]).answer.leader == members[2]


def test_the_last_to_leave_leaves_an_empty_group_that_is_written(life: Life) -> None:
    [member] = life.stable()
    life.leave(member)
    assert life.state() is State.EMPTY
    stamp = life.clock.now_ms()
    assert life.log[-1] == GroupWritten(G, "consumer", 2, None, None, stamp, ())
    assert life.timers.next_deadline_ms() is None


def test_leaving_answers_what_waits(life: Life) -> None:
    leader, follower = life.stable(2)
    asked = life.join(leader)
    life.leave(leader)
    assert asked.error == ErrorCode.UNKNOWN_MEMBER_ID
    assert life.join(follower).error == OK
    syncs = life.join()
    life.join(follower)
    syncs = life.sync(syncs.answer.member_id, 3)
    life.leave(*(member.member_id for member in life.machine.groups[G].describe().members))
    assert syncs.error == ErrorCode.REBALANCE_IN_PROGRESS or syncs.error == ErrorCode.UNKNOWN_MEMBER_ID


# Static members


def test_a_static_member_comes_back_to_its_place_without_a_rebalance(life: Life) -> None:
    leader, follower = life.join(instance_id="a"), life.join(instance_id="b")
    life.advance(6000)
    a, b = leader.answer.member_id, follower.answer.member_id
    assert a.startswith("a-")
    life.sync(a, 1, {a: b"A", b: b"B"}, instance_id="a")
    life.sync(b, 1, instance_id="b")
    back = life.join(instance_id="b")
    assert (back.error, back.answer.generation, back.answer.leader) == (OK, 1, a)
    new = back.answer.member_id
    assert new != b
    assert life.sync(new, 1, instance_id="b").answer.assignment == b"B"
    assert life.heartbeat(b, 1, instance_id="b") == ErrorCode.FENCED_INSTANCE_ID
    assert life.heartbeat(b, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert life.join(b, "b").error == ErrorCode.FENCED_INSTANCE_ID
    assert life.sync(b, 1, instance_id="b").error == ErrorCode.FENCED_INSTANCE_ID
    assert life.state() is State.STABLE
    life.restart()
    assert life.heartbeat(new, 1, instance_id="b") == OK


def test_a_static_leader_comes_back_and_need_not_assign(life: Life) -> None:
    asked = life.join(instance_id="a")
    life.advance(3000)
    old = asked.answer.member_id
    life.sync(old, 1, {old: b"A"})
    back = life.join(instance_id="a", may_skip=True).answer
    assert back.skip_assignment
    assert back.leader == back.member_id
    assert len(back.members) == 1
    before = life.join(instance_id="a").answer
    assert not before.skip_assignment
    assert (before.leader, before.members) == (back.member_id, ())


def test_what_waits_under_the_old_id_is_fenced(life: Life) -> None:
    first = life.join(instance_id="a")
    second = life.join(instance_id="a")
    assert first.error == ErrorCode.FENCED_INSTANCE_ID
    life.advance(3000)
    member = second.answer.member_id
    life.join(instance_id="b")
    life.join(member, "a")
    life.advance(1)
    waits = life.sync(life.machine.groups[G].describe().members[1].member_id, 2, instance_id="b")
    life.join(instance_id="b")
    assert waits.error == ErrorCode.FENCED_INSTANCE_ID
    assert life.state() is State.PREPARING


def test_a_static_member_with_other_protocols_starts_a_rebalance(life: Life) -> None:
    both = (("range", b""), ("sticky", b""))
    asked = life.join(instance_id="a", protocols=both)
    life.advance(3000)
    member = asked.answer.member_id
    life.sync(member, 1, {})
    life.join(instance_id="a", protocols=both[::-1])
    assert life.state() is State.COMPLETING
    assert life.generation() == 2


def test_a_replacement_that_cannot_be_written_is_told_so_and_comes_again(life: Life) -> None:
    asked = life.join(instance_id="a")
    life.advance(3000)
    life.sync(asked.answer.member_id, 1, {asked.answer.member_id: b"A"})
    life.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    refused = life.join(instance_id="a")
    assert (refused.error, refused.answer.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    life.failure = None
    back = life.join(instance_id="a").answer
    assert life.sync(back.member_id, 1).answer.assignment == b"A"


def test_a_static_member_that_is_absent_keeps_its_place_until_its_session_ends(life: Life) -> None:
    asked = [life.join(instance_id=name, session_timeout_ms=100_000) for name in "ab"]
    life.advance(6000)
    a, b = (one.answer.member_id for one in asked)
    life.sync(a, 1, {a: b"A", b: b"B"})
    life.sync(b, 1)
    again = life.join(a, "a", session_timeout_ms=100_000)
    life.advance(60_000)
    assert len(again.answer.members) == 2


def test_static_members_without_patience_are_waited_for_in_peace(life: Life) -> None:
    """Nobody joins again: the rebalance starts over until their sessions have ended, and not all the time."""
    asked = [life.join(instance_id=name, rebalance_timeout_ms=0) for name in "ab"]
    life.advance(3000)
    a, b = (one.answer.member_id for one in asked)
    life.sync(a, 1, {a: b"A", b: b"B"})
    life.sync(b, 1)
    rung = 0
    ring = life.machine._ring

    def count(group: Group) -> None:
        nonlocal rung
        rung += 1
        ring(group)

    life.machine._ring = count  # type: ignore[method-assign]
    life.machine.leave(G, [Leaving("", "a")])
    life.advance(20_000)
    assert life.state() is State.EMPTY
    assert rung < 20


def test_a_static_member_is_put_out_by_its_name(life: Life) -> None:
    asked = life.join(instance_id="a")
    life.advance(3000)
    leave = life.machine.leave
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert leave(G, [Leaving("", "b"), Leaving(""), Leaving("x", "b")]) == [unknown] * 3
    assert leave(G, [Leaving("other", "a")]) == [ErrorCode.FENCED_INSTANCE_ID]
    assert leave(G, [Leaving("", "a", "it is old")]) == [OK]
    assert life.heartbeat(asked.answer.member_id, 1) == unknown


def test_a_static_member_with_an_id_that_was_given_out_is_refused(life: Life) -> None:
    pending = life.join(needs_id=True).answer.member_id
    assert life.join(pending, "a").error == ErrorCode.UNKNOWN_SERVER_ERROR


# Starts, ends


def test_a_stable_group_goes_on_after_a_restart(life: Life) -> None:
    members = life.stable(2)
    before = life.machine.groups[G].describe()
    life.restart()
    assert life.machine.groups[G].describe() == before
    life.advance(9999)
    assert [life.heartbeat(member, 1) for member in members] == [OK, OK]
    assert life.join(members[1]).answer.leader == members[0]


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


def test_ten_thousand_groups_come_and_go_without_a_trace(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "kafkad.group")
    for number in range(10_000):
        group = f"group-{number}"
        member = life.join(group=group, needs_id=number % 2 == 0).answers
        if number % 2 == 0:
            life.leave(member[0].member_id, group=group)
    life.advance(3000)
    assert len(life.machine.groups) == 5000
    for group in list(life.machine.groups):
        [member_described] = life.machine.groups[group].describe().members
        life.leave(member_described.member_id, group=group)
        life.delete(group)
    assert not life.machine.names()
    assert life.timers.next_deadline_ms() is None
    life.restart()
    assert not life.machine.names()


def test_offsets_alone_are_an_empty_group(life: Life) -> None:
    life.write([OffsetCommitted(G, "t", 0, 1, -1, "", 0)], lambda error: None)
    assert life.state() is State.EMPTY
    assert life.machine.names() == {G}
    assert life.machine.states() == {State.EMPTY: 1}
    assert life.delete().answer is None
    assert life.log[-1] == OffsetForgotten(G, "t", 0)
    assert not life.machine.names()


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


# What a group consumes


SUBSCRIPTION = b"\x00\x03" + b"\x00\x00\x00\x02" + b"\x00\x01a" + b"\x00\x01b" + b"\xff\xff\xff\xff" + b"newer"


def test_a_group_of_consumers_knows_its_topics(life: Life) -> None:
    [member] = life.stable(protocols=(("range", SUBSCRIPTION),))
    for _ in range(2):
        group = life.machine.groups[G]
        assert [group.subscribes_to(topic) for topic in "abc"] == [True, True, False]
        life.restart()
    life.leave(member)
    assert not life.machine.groups[G].subscribes_to("a")


@pytest.mark.parametrize("subscription", [b"", b"\x00", b"\xff\xff" + SUBSCRIPTION[2:], SUBSCRIPTION[:8]])
def test_a_subscription_that_cannot_be_read_may_be_to_anything(life: Life, subscription: bytes) -> None:
    life.stable(protocols=(("range", subscription),))
    assert life.machine.groups[G].subscribes_to("z")


def test_of_other_kinds_of_groups_nothing_is_known(life: Life) -> None:
    life.stable(protocol_type="connect", protocols=(("range", SUBSCRIPTION),))
    assert life.machine.groups[G].subscribes_to("z")


def test_the_table_of_transitions_is_kafkas() -> None:
    assert {
        State.EMPTY: {State.PREPARING},
        State.PREPARING: {State.STABLE, State.COMPLETING, State.EMPTY},
        State.COMPLETING: {State.PREPARING},
        State.STABLE: {State.COMPLETING},
        State.DEAD: set(State) - {State.DEAD},
    } == PREVIOUS
