"""Members that join a classic group, on a clock that a test moves."""

from __future__ import annotations

import logging

import pytest

from kafkad.errors import ErrorCode
from kafkad.group.events import JoinedMember, State
from kafkad.group.machine import MOST_PROTOCOLS
from tests.group.life import RANGE, Life

OK = ErrorCode.NONE


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


def test_an_id_that_is_not_used_is_forgotten(life: Life) -> None:
    """The group stays, empty, until expiry looks through all groups."""
    member = life.join(needs_id=True).answer.member_id
    life.advance(10_000)
    assert life.state() is State.EMPTY
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


def test_it_is_the_same_one_whoever_came_first(life: Life) -> None:
    both = ("range", b""), ("roundrobin", b"")
    for group, first, second in (("g1", both, both[::-1]), ("g2", both[::-1], both)):
        asked = [life.join(group=group, protocols=protocols) for protocols in (first, second)]
        life.advance(6000)
        assert {one.answer.protocol for one in asked} == {"roundrobin"}


@pytest.mark.parametrize("protocols", [(), (("other", b""),)])
def test_a_member_that_shares_no_protocol_is_refused(life: Life, protocols: tuple[tuple[str, bytes], ...]) -> None:
    life.stable()
    assert life.join(protocols=protocols).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_mixed_and_missing_types_of_protocol_are_refused(life: Life) -> None:
    assert life.join(protocol_type="").error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert life.state() is State.EMPTY
    life.stable(protocol_type="connect")
    assert life.join(protocol_type="consumer").error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("session_timeout_ms", [5999, 1_800_001, -1])
def test_session_timeouts_have_bounds(life: Life, session_timeout_ms: int) -> None:
    asked = life.join(session_timeout_ms=session_timeout_ms)
    assert asked.error == ErrorCode.INVALID_SESSION_TIMEOUT
    assert not life.machine.groups


@pytest.mark.parametrize("session_timeout_ms", [6000, 1_800_000])
def test_session_timeouts_may_be_their_bounds(life: Life, session_timeout_ms: int) -> None:
    asked = life.join(session_timeout_ms=session_timeout_ms)
    life.advance(3000)
    assert asked.error == OK


def test_a_member_that_no_record_of_its_group_could_hold_is_refused_alone(life: Life) -> None:
    """With Kafka all members of its group would get this error, when the leader has assigned."""
    life.most_bytes = 100
    members = life.stable(2)
    large = ("range", bytes(101))
    assert life.join(protocols=(large,)).error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert life.join(members[1], protocols=(large,)).error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert life.join(protocols=(large,), group="new").error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "new" not in life.machine.groups
    assert [life.heartbeat(member, 1) for member in members] == [OK, OK]
    assert not life.join(protocols=(("range", bytes(100)), ("roundrobin", bytes(101)))).answered


def test_a_member_that_names_very_many_protocols_is_refused(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    """With Kafka all of them are kept."""
    caplog.set_level(logging.INFO)
    [member] = life.stable()
    most = (*RANGE, *((f"other {number}", b"") for number in range(MOST_PROTOCOLS - 1)))
    for protocols in ((*most, ("one more", b"")), RANGE * (MOST_PROTOCOLS + 1)):
        assert life.join(protocols=protocols).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert life.join(protocols=protocols, group="new").error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert "new" not in life.machine.groups
    assert "a member from /127.0.0.1 is refused, for it names 33 protocols; 32 at most are allowed" in caplog.text
    assert life.heartbeat(member, 1) == OK
    assert not life.join(protocols=most).answered


def test_a_member_that_nobody_knows(life: Life) -> None:
    assert life.join("stranger").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert life.join("stranger", protocols=()).error == ErrorCode.UNKNOWN_MEMBER_ID
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
