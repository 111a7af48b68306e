"""Offsets of transactions: who may commit them. The answers are those of Kafka 4.3.1, recorded from raw requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkad.errors import ErrorCode
from kafkad.group.committing import Codes, Committer
from kafkad.group.committing import OffsetToCommit as Offset
from kafkad.group.events import State
from kafkad.shard import TransactionalProducer
from tests.group.committing import Offsets

NONE, ILLEGAL, UNKNOWN = ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
def world() -> Iterator[Offsets]:
    world = Offsets()
    yield world
    world.close()


def commit(world: Offsets, **who: Any) -> ErrorCode:
    async def begin() -> Codes:
        committer = Committer(**({"group": "g"} | who))
        codes = world.committer.commit_in_transaction(committer, TransactionalProducer(77, 0), [Offset("a", 0, 5)])
        assert isinstance(codes, list)
        return codes

    [code] = world.run(begin())
    return code


def test_to_a_group_that_is_not_there(world: Offsets) -> None:
    assert commit(world, generation=7, member_id="m") == ILLEGAL
    assert commit(world, member_id="m") == NONE
    assert commit(world, instance_id="i") == NONE


def test_to_a_group_that_only_has_offsets(world: Offsets) -> None:
    world.commit_offsets(Offset("a", 0, 3))
    assert commit(world, generation=7) == UNKNOWN
    assert commit(world) == NONE


def test_who_says_nothing_of_the_group_may_commit_in_any_of_its_states(world: Offsets) -> None:
    [member] = world.stable()
    assert commit(world) == NONE
    assert world.commit_offsets(Offset("a", 0, 5)) == [UNKNOWN], "outside a transaction only to an empty group"
    world.join()
    assert world.state() is State.PREPARING
    assert commit(world) == NONE
    world.leave(member)


def test_members_say_their_generation(world: Offsets) -> None:
    [member] = world.stable()
    generation = world.generation()
    assert commit(world, member_id=member, generation=generation) == NONE
    assert commit(world, member_id=member, generation=generation + 1) == ILLEGAL
    assert commit(world, member_id=member) == ILLEGAL
    assert commit(world, member_id="nobody", generation=generation) == UNKNOWN
    assert commit(world, generation=generation) == UNKNOWN


def test_the_instance_of_another_member(world: Offsets) -> None:
    asked = world.join(instance_id="i")
    world.advance(5_000)
    member = asked.answer.member_id
    assert commit(world, member_id=member, instance_id="i", generation=world.generation()) == NONE
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert commit(world, member_id="another", instance_id="i", generation=world.generation()) == fenced
    assert commit(world, member_id=member, instance_id="nobody's", generation=world.generation()) == UNKNOWN


def test_members_may_commit_while_they_are_told_what_to_read(world: Offsets) -> None:
    asked = world.join()
    member = asked.answer.member_id if asked.answered else ""
    asked = world.join(member) if member else asked
    world.advance(5_000)
    assert world.state() is State.COMPLETING
    member = asked.answer.member_id
    assert commit(world, member_id=member, generation=world.generation()) == NONE
    assert world.commit_offsets(Offset("a", 0, 5), member_id=member, generation=world.generation()) == [
        ErrorCode.REBALANCE_IN_PROGRESS
    ]
