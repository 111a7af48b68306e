"""SyncGroup: the assignment of a generation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkad.errors import ErrorCode
from kafkad.group import machine
from kafkad.group.events import State
from kafkad.group.records import GroupWritten
from tests.group.life import Life

OK = ErrorCode.NONE


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


@pytest.mark.parametrize("failure", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR])
def test_an_assignment_that_cannot_be_written_starts_over_after_a_pause(life: Life, failure: ErrorCode) -> None:
    asked = [life.join(), life.join()]
    life.advance(6000)
    leader, follower = (one.answer.member_id for one in asked)
    follows = life.sync(follower, 1)
    life.failure = failure
    leads = life.sync(leader, 1, {leader: b"L"})
    life.advance(299)
    assert not leads.answered and not follows.answered
    life.advance(1)
    assert (leads.error, follows.error) == (failure, failure)
    assert life.state() is State.PREPARING


def test_who_never_rests_begins_over_a_few_times_a_second_and_is_told_of_at_times(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    """While in-sync replicas are missing."""
    caplog.set_level("INFO", machine.__name__)
    [member] = life.stable()
    life.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    caplog.clear()
    for rounds in range(1, 31):
        generation = life.join(member).answer.generation
        sync = life.sync(member, generation, {member: b"all"})
        while not sync.answered:
            life.advance(10)
        assert sync.error == life.failure
        assert life.clock.monotonic_ms() >= 3000 + rounds * 300
    assert len(caplog.messages) == 4, "a round as always, then the refusal, and that it begins over"
    life.advance(1_000)
    life.sync(member, life.join(member).answer.generation, {member: b"all"})
    life.advance(300)
    [again] = caplog.messages[4:]
    assert "(29 more generations of groups of this partition were refused since the last line)" in again
    life.failure = None
    caplog.clear()
    generation = life.join(member).answer.generation
    assert life.sync(member, generation, {member: b"all"}).error == OK
    assert caplog.messages == ["group g: generation 33 is stable"]
    life.join(member, protocols=(("range", b"changed"),))
    assert len(caplog.messages) == 3, "rounds are told of again"


def test_who_waits_after_a_refusal_is_told_at_once_of_another_coordinator(life: Life) -> None:
    asked = life.join()
    life.advance(3000)
    life.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    sync = life.sync(asked.answer.member_id, 1)
    life.machine.unloaded()
    assert sync.error == ErrorCode.NOT_COORDINATOR
    assert len(life.timers) == 0


def test_who_waits_after_a_refusal_is_told_at_once_that_somebody_joins(life: Life) -> None:
    asked = life.join()
    life.advance(3000)
    life.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    sync = life.sync(asked.answer.member_id, 1)
    life.failure = None
    new = life.join()
    assert sync.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    life.join(asked.answer.member_id)
    assert (life.generation(), life.state()) == (2, State.COMPLETING)
    life.advance(300)
    assert life.sync(asked.answer.member_id, 2).answered
    assert life.sync(new.answer.member_id, 2).error == OK


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


@pytest.mark.parametrize("end", [Life.commit, lambda life: life.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)])
def test_the_write_of_a_generation_that_is_over_says_nothing_of_the_next(
    life: Life, end: Callable[[Life], None]
) -> None:
    asked = [life.join(), life.join()]
    life.advance(6000)
    leader, follower = (one.answer.member_id for one in asked)
    life.hold = True
    life.sync(leader, 1, {follower: b"of generation 1"})
    for member in (follower, leader):
        life.join(member, protocols=(("range", b"changed"),))
    waits = life.sync(follower, 2)
    end(life)
    assert (life.generation(), life.state()) == (2, State.COMPLETING)
    assert not waits.answered


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
