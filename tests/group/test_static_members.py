"""Members with an instance id (KIP-345)."""

from __future__ import annotations

from kafkad.errors import ErrorCode
from kafkad.group.events import Leaving, State
from kafkad.group.group import Group
from tests.group.life import G, Life

OK = ErrorCode.NONE


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


def test_who_comes_back_before_it_asked_for_its_part_is_not_waited_for_under_its_old_id(life: Life) -> None:
    leader, follower = life.join(instance_id="a"), life.join(instance_id="b")
    life.advance(6000)
    a, b = leader.answer.member_id, follower.answer.member_id
    life.sync(a, 1, {a: b"A", b: b"B"}, instance_id="a")
    new = life.join(instance_id="b").answer.member_id
    assert life.sync(new, 1, instance_id="b").answer.assignment == b"B"
    for _ in range(20):  # for longer than they have to ask for their parts
        life.advance(5000)
        assert life.heartbeat(a, 1) == life.heartbeat(new, 1) == OK


def test_who_is_put_out_while_its_replacement_is_written_is_told_so(life: Life) -> None:
    """It has not asked for its part in time, neither before it came back nor since."""
    leader, follower = life.join(instance_id="a"), life.join(instance_id="b")
    life.advance(6000)
    a, b = leader.answer.member_id, follower.answer.member_id
    life.sync(a, 1, {a: b"A", b: b"B"}, instance_id="a")
    for _ in range(11):
        life.advance(5000)
        assert life.heartbeat(a, 1) == life.heartbeat(b, 1) == OK
    life.hold = True
    back = life.join(instance_id="b")
    life.advance(5000)
    assert life.state() is State.PREPARING
    life.commit()
    assert back.error == ErrorCode.UNKNOWN_MEMBER_ID


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


def test_who_comes_back_has_the_session_that_was_until_it_is_heard_of_again(life: Life) -> None:
    asked = life.join(instance_id="a")
    life.advance(3000)
    life.sync(asked.answer.member_id, 1)
    back = life.join(instance_id="a", session_timeout_ms=6000).answer.member_id
    life.advance(9_999)
    assert life.sync(back, 1).error == OK
    life.advance(5_999)
    assert life.state() is State.STABLE
    life.advance(1)
    assert life.state() is State.EMPTY


def test_a_replacement_that_cannot_be_written_is_told_so_and_comes_again(life: Life) -> None:
    """Until then the one that was to be replaced has its place, as the log has it."""
    asked = life.join(instance_id="a")
    life.advance(3000)
    was = asked.answer.member_id
    life.sync(was, 1, {was: b"A"})
    life.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    refused = life.join(instance_id="a", session_timeout_ms=60_000).answer
    assert refused == asked.answer._replace(error=ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id="", members=())
    assert life.heartbeat(was, 1, instance_id="a") == OK
    life.failure = None
    back = life.join(instance_id="a").answer
    assert life.heartbeat(was, 1, instance_id="a") == ErrorCode.FENCED_INSTANCE_ID
    assert life.sync(back.member_id, 1).answer.assignment == b"A"


def test_who_comes_back_with_a_shorter_session_goes_when_that_ends(life: Life) -> None:
    life.stable(instance_id="a", session_timeout_ms=60_000)
    new = life.join(instance_id="a", session_timeout_ms=10_000).answer.member_id
    assert life.heartbeat(new, 1, instance_id="a") == OK
    life.advance(9_900)
    assert life.state() is State.STABLE
    life.advance(200)
    assert life.state() is State.EMPTY


def test_who_was_not_replaced_after_all_keeps_its_own_session(life: Life) -> None:
    asked = life.join(instance_id="a")
    life.advance(3000)
    life.sync(asked.answer.member_id, 1)
    life.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    life.join(instance_id="a", session_timeout_ms=60_000)
    life.advance(9_999)
    assert life.state() is State.STABLE
    life.advance(1)
    assert life.state() is State.EMPTY


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
    life.machine.leave(G, Leaving("", "a"))
    life.advance(20_000)
    assert life.state() is State.EMPTY
    assert rung < 20


def test_a_static_member_is_put_out_by_its_name(life: Life) -> None:
    asked = life.join(instance_id="a")
    life.advance(3000)
    leave = life.machine.leave
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [leave(G, one) for one in (Leaving("", "b"), Leaving(""), Leaving("x", "b"))] == [unknown] * 3
    assert leave(G, Leaving("other", "a")) == ErrorCode.FENCED_INSTANCE_ID
    assert leave(G, Leaving("", "a", "it is old")) == OK
    assert life.heartbeat(asked.answer.member_id, 1) == unknown


def test_a_static_member_with_an_id_that_was_given_out_is_refused(life: Life) -> None:
    pending = life.join(needs_id=True).answer.member_id
    assert life.join(pending, "a").error == ErrorCode.UNKNOWN_SERVER_ERROR
