"""Heartbeats, silence, and members that leave."""

from __future__ import annotations

from kafkad.errors import ErrorCode
from kafkad.group.events import State
from kafkad.group.records import GroupWritten
from tests.group.life import G, Life

OK = ErrorCode.NONE


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


def test_a_member_that_joins_again_may_say_how_long_its_session_is(life: Life) -> None:
    [member] = life.stable()
    assert life.join(member, session_timeout_ms=20_000).answer.generation == 2
    assert life.sync(member, 2, {}).error == ErrorCode.NONE
    life.advance(19_999)
    assert life.state() is State.STABLE
    life.advance(1)
    assert life.state() is State.EMPTY


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


def test_sessions_that_end_together_end_in_turns(life: Life) -> None:
    """A network that is cut takes thousands of members at once, and others have their turn in between."""
    life.stable(200)
    life.clock.advance(10_001)
    now_ms = life.clock.monotonic_ms()
    life.timers.expire(now_ms)
    [group] = life.machine.groups.values()
    assert 100 <= group.size < 200
    life.advance(10)
    assert life.state() is State.EMPTY
    assert not group.size


def test_ids_that_nobody_used_end_at_their_own_times(life: Life) -> None:
    """However many there are, and in whatever order."""
    late, soon, used = (
        life.join(needs_id=True, session_timeout_ms=ms).answer.member_id for ms in (9_000, 7_000, 8_000)
    )
    life.join(used)
    life.advance(7_000)
    assert life.join(soon).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert not life.join(late).answered


def test_ids_that_were_given_up_take_no_memory(life: Life) -> None:
    life.join(needs_id=True, session_timeout_ms=1_800_000)
    for _ in range(1_000):
        life.leave(life.join(needs_id=True, session_timeout_ms=1_800_000).answer.member_id)
    [group] = life.machine.groups.values()
    assert len(group._pending._by_deadline) < 100
