"""Expiry of offsets and groups (KIP-211). Retention in these tests is ten minutes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kafkad.errors import ErrorCode
from kafkad.group import machine, offsets
from kafkad.group.committing import Committer
from kafkad.group.committing import OffsetToCommit as Offset
from kafkad.group.events import State
from kafkad.group.offsets import Committed
from kafkad.group.records import GroupForgotten, GroupWritten, OffsetCommitted, OffsetForgotten
from tests.fakes import turns
from tests.group.committing import MINUTE, Offsets
from tests.group.test_committing import SUBSCRIBED_TO_A

NOTHING: set[tuple[str, str, int]] = set()
A, B = ("g", "a", 0), ("g", "b", 0)


@pytest.fixture
def world() -> Iterator[Offsets]:
    world = Offsets()
    yield world
    world.close()


def commit(world: Offsets, topic: str, member: str = "", **more: int) -> None:
    generation = world.generation() if member else -1
    [code] = world.commit_offsets(Offset(topic, 0, 5), member_id=member, generation=generation, **more)
    assert code == ErrorCode.NONE


def test_without_a_group_the_commit_counts(world: Offsets) -> None:
    commit(world, "a")
    world.advance(5 * MINUTE)
    commit(world, "b")
    world.advance(5 * MINUTE - 1)
    assert world.expire() == NOTHING
    world.advance(1)
    assert world.expire() == {A}
    world.advance(5 * MINUTE)
    assert world.expire() == {B}
    assert world.log[-2:] == [OffsetForgotten("g", "a", 0), OffsetForgotten("g", "b", 0)]
    assert not world.machine.names()
    assert world.committer.probe.expired == 2


def test_a_commit_again_begins_anew(world: Offsets) -> None:
    commit(world, "a")
    world.advance(9 * MINUTE)
    commit(world, "a")
    world.advance(9 * MINUTE)
    assert world.expire() == NOTHING


def test_an_empty_group_counts_from_when_it_became_empty(world: Offsets) -> None:
    [member] = world.stable(session_timeout_ms=1_000_000)
    commit(world, "a", member)
    world.advance(15 * MINUTE)
    assert world.expire() == NOTHING
    world.leave(member)
    world.advance(10 * MINUTE - 1)
    commit(world, "b")
    assert world.expire() == NOTHING
    world.advance(1)
    assert world.expire() == {A, B}
    assert world.log[-1] == GroupForgotten("g")
    assert not world.machine.names()


def test_an_old_group_without_a_time_goes_by_its_commits(world: Offsets) -> None:
    world.log.append(GroupWritten("g", "consumer", 3, None, None, -1, ()))
    world.restart()
    assert "g" in world.machine.groups
    commit(world, "a")
    world.advance(5 * MINUTE)
    commit(world, "b")
    world.advance(5 * MINUTE)
    assert world.expire() == {A}


def test_a_group_with_members_keeps_what_it_reads(world: Offsets) -> None:
    [member] = world.stable(protocols=SUBSCRIBED_TO_A, session_timeout_ms=1_000_000)
    commit(world, "a", member)
    commit(world, "b", member)
    world.advance(10 * MINUTE)
    assert world.expire() == {B}
    assert world.machine.group("g") is not None


@pytest.mark.parametrize("joined", [{"protocols": (("range", b"?"),)}, {"protocol_type": "connect"}])
def test_what_cannot_be_known_to_be_unused_stays(world: Offsets, joined: dict[str, object]) -> None:
    """Subscriptions that cannot be read, and protocols that are no consumers'."""
    [member] = world.stable(session_timeout_ms=1_000_000, **joined)
    commit(world, "a", member)
    world.advance(11 * MINUTE)
    assert world.expire() == NOTHING


def test_a_group_that_rebalances_keeps_all(world: Offsets) -> None:
    [member] = world.stable(protocols=SUBSCRIBED_TO_A, session_timeout_ms=1_000_000, rebalance_timeout_ms=1_000_000)
    commit(world, "b", member)
    world.advance(10 * MINUTE)
    world.join(protocols=SUBSCRIBED_TO_A)
    assert world.expire() == NOTHING


def test_a_time_to_expire_at_goes_before_the_retention(world: Offsets) -> None:
    commit(world, "a", retention_ms=20 * MINUTE)
    commit(world, "b", retention_ms=1 * MINUTE)
    world.advance(1 * MINUTE - 1)
    assert world.expire() == NOTHING
    world.advance(1)
    assert world.expire() == {B}
    world.advance(18 * MINUTE)
    assert world.expire() == NOTHING
    world.advance(1 * MINUTE)
    assert world.expire() == {A}


def test_an_empty_group_without_offsets_goes_at_once(world: Offsets) -> None:
    [member] = world.stable()
    world.expire()
    assert world.machine.group("g") is not None
    world.leave(member)
    world.expire()
    assert world.log[-1] == GroupForgotten("g")
    assert not world.machine.names()


def test_groups_of_which_nothing_came_are_there_until_they_are_looked_through(world: Offsets) -> None:
    """Somebody was refused, or never used the id that it was given, or committed nothing that fits."""
    world.join(group="refused", protocols=())
    pending = world.join(group="pending", needs_id=True).answer.member_id
    world.commit_offsets(Offset("a", 0, 5, metadata="m" * 101), group="nothing")
    assert [world.state(group) for group in ("refused", "pending", "nothing", "unheard of")] == [
        State.EMPTY,
        State.EMPTY,
        State.EMPTY,
        State.DEAD,
    ]
    assert world.commit_offsets(Offset("a", 0, 5), group="nothing", generation=1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    world.expire()
    assert not world.machine.names()
    assert not world.machine._begun, "names may be long"
    assert not world.log
    assert world.join(pending, group="pending").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_of_groups_of_which_nothing_came_only_some_are_kept(world: Offsets, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients may name ever new ones, and use no id that they get."""
    monkeypatch.setattr(machine, "_MOST_BEGUN", 10)
    [member] = world.stable()
    world.commit_offsets(Offset("a", 0, 5), group="commits")
    world.join(group="pending", needs_id=True, session_timeout_ms=60_000)
    for number in range(100):
        world.join(group=f"passing {number}", needs_id=True, session_timeout_ms=6_000)
        world.advance(1_000)
        world.heartbeat(member, 1)
    names = world.machine.names()
    assert {"g", "commits"} < names
    assert len(names) < 30
    assert "passing 99" in names, "the last ones may still be joined"
    monkeypatch.setattr(machine, "_MOST_PENDING", 20)
    for number in range(100):
        world.join(group=f"staying {number}", needs_id=True, session_timeout_ms=1_800_000)
    assert len(world.machine.names()) < 40


def test_a_pending_offset_keeps_its_group(world: Offsets) -> None:
    [member] = world.stable()
    world.leave(member)
    world.machine.apply(OffsetCommitted("g", "a", 0, 5, -1, "", 0), 77)
    assert world.expire() == NOTHING
    assert world.machine.group("g") is not None


def test_what_is_being_committed_does_not_expire(world: Offsets) -> None:
    commit(world, "a")
    world.advance(10 * MINUTE)
    world.hold = True
    assert isinstance(world.begin(Offset("a", 0, 6)), asyncio.Future)
    assert world.expire() == NOTHING
    world.hold = False
    world.commit()
    assert world.expire() == NOTHING
    assert not any(isinstance(record, OffsetForgotten) for record in world.log)


def test_a_group_that_is_just_committing_stays(world: Offsets) -> None:
    [member] = world.stable()
    world.leave(member)
    world.hold = True
    assert isinstance(world.begin(Offset("a", 0, 6)), asyncio.Future)
    world.expire()
    world.hold = False
    world.commit()
    world.expire()
    assert world.machine.group("g") is not None
    assert world.everything() == {A}


def test_what_cannot_be_written_is_tried_again(world: Offsets) -> None:
    commit(world, "a")
    world.advance(10 * MINUTE)
    world.failure = ErrorCode.NOT_COORDINATOR
    assert world.expire() == NOTHING
    assert world.committer.probe.expired == 0
    world.failure = None
    assert world.expire() == {A}


def test_a_removal_that_takes_too_long_does_not_keep_others_from_theirs(world: Offsets) -> None:
    for group in ("g", "h"):
        world.commit_offsets(Offset("a", 0, 5), group=group)

    async def scenario() -> None:
        world.hold = True
        forgetting = asyncio.ensure_future(world.forget({"a"}, world.clock.now_ms()))
        for held in (1, 2):
            while len(world._held) < held:  # others may have had their turn in between
                await asyncio.sleep(0)
            assert not forgetting.done()
            world.advance(5_000)
        await forgetting

    world.run(scenario())
    world.commit()
    assert world.everything() == NOTHING


def test_offsets_of_deleted_topics_go_whoever_has_them(world: Offsets) -> None:
    [member] = world.stable(protocols=SUBSCRIBED_TO_A)
    commit(world, "a", member)
    for group in ("h", "i"):
        world.commit_offsets(Offset("a", 0, 5), Offset("a", 1, 5), Offset("b", 0, 5), group=group)
    world.run(world.forget({"a", "z"}, world.clock.now_ms()))
    assert world.everything() == {("h", "b", 0), ("i", "b", 0)}
    assert world.committer.probe.expired == 0


def test_offsets_of_deleted_topics_go_also_with_a_time_that_is_still_to_come(world: Offsets) -> None:
    """The clock was set back before the topic was deleted, or the client's is ahead."""
    commit(world, "a")
    now_ms = world.clock.now_ms()
    world.commit_offsets(Offset("c", 0, 5, timestamp=now_ms + MINUTE))
    world.machine.apply(OffsetCommitted("g", "b", 0, 9, -1, "", now_ms), 77)
    world.clock.jump(-MINUTE)
    world.run(world.forget({"a", "b", "c"}, world.clock.now_ms()))
    assert world.everything() == NOTHING


def test_what_is_committed_to_a_topic_made_anew_stays_while_offsets_of_the_old_one_go(world: Offsets) -> None:
    groups = ("g", "h")
    for group in groups:
        world.commit_offsets(Offset("a", 0, 5), group=group)

    async def scenario() -> None:
        world.hold = True
        forgetting = asyncio.ensure_future(world.forget({"a"}, world.clock.now_ms()))
        await asyncio.sleep(0)
        world.advance(1)
        for group in groups:
            world.machine.apply(OffsetCommitted(group, "a", 0, 6, -1, "", world.clock.now_ms()))
        world.hold = False
        while not forgetting.done():
            world.commit()
            await asyncio.sleep(0)

    world.run(scenario())
    assert len(world.everything()) == 1  # that of the group which had not been looked at


def test_what_is_just_being_committed_to_a_topic_made_anew_stays(world: Offsets) -> None:
    """To forget an offset is to forget also what is about to take its place."""
    topics = ("a", "b", "c")
    for topic in topics:
        commit(world, topic)
    now_ms = world.clock.now_ms()
    world.machine.apply(OffsetCommitted("g", "b", 0, 9, -1, "", now_ms + 1), 77)
    world.machine.apply(OffsetCommitted("g", "c", 0, 9, -1, "", now_ms), 78)
    world.advance(1)

    async def scenario() -> None:
        world.hold = True
        forgetting = asyncio.ensure_future(world.forget(topics, now_ms))
        committing = world.committer.commit(Committer("g"), [Offset("a", 0, 6)])
        assert isinstance(committing, asyncio.Future)
        while not forgetting.done():
            await asyncio.sleep(0)
            world.commit()

    world.run(scenario())
    for producer_id in (77, 78):
        world.machine.end_transaction(producer_id, True)
    assert [one.offset for one in world.fetch_all()] == [6, 9], "that of c was sent before the topic was deleted"


def test_what_is_pending_is_looked_at_once_when_topics_are_deleted(
    world: Offsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = []

    def unpack(value: bytes) -> Committed:
        looked_at.append(value)
        return unpacked(value)

    unpacked = offsets._unpack
    monkeypatch.setattr(offsets, "_unpack", unpack)
    for partition in range(1234):
        world.machine.apply(OffsetCommitted("g", "a", partition, 5, -1, "", world.clock.now_ms()), 77)
    world.run(world.forget({"a"}, world.clock.now_ms() - 1))
    assert len(looked_at) == len(world.everything()) == 1234


def test_it_looks_every_minute(world: Offsets) -> None:
    commit(world, "a", retention_ms=0)
    commit(world, "b", retention_ms=61_000)

    async def pass_time(ms: int) -> set[tuple[str, str, int]]:
        world.advance(ms)
        await turns(5)
        return world.everything()

    async def scenario() -> None:
        world.expiry.start()
        assert await pass_time(59_999) == {A, B}
        assert await pass_time(1) == {B}
        assert await pass_time(60_000) == NOTHING
        await world.expiry.stop()
        assert not len(world.timers)

    world.run(scenario())


def test_a_group_of_very_many_offsets_goes_in_pieces(world: Offsets) -> None:
    [member] = world.stable()
    world.leave(member)
    for partition in range(1234):
        world.machine.apply(OffsetCommitted("g", "a", partition, 5, -1, "", 0))
    world.log.clear()
    world.advance(10 * MINUTE)
    assert len(world.expire()) == 1234
    assert len(world.log) == 1235
    assert world.log[-1] == GroupForgotten("g")


def test_very_many_groups_do_not_hold_up_others(world: Offsets) -> None:
    """Two thousand groups take longer than one turn of the event loop may."""
    for number in range(2000):
        world.machine.apply(OffsetCommitted(f"g{number}", "a", 0, 5, -1, "", 0))
    turns = 0

    async def scenario() -> None:
        nonlocal turns
        task = asyncio.ensure_future(world.expiry.forget_expired())
        while not task.done():
            turns += 1
            await asyncio.sleep(0)

    world.run(scenario())
    assert world.everything() == NOTHING
    assert turns > 3


def test_an_offset_does_not_expire_while_a_transaction_is_about_to_commit_another(world: Offsets) -> None:
    """To forget it would be to forget what the transaction has for it, too."""
    commit(world, "a")
    commit(world, "b")
    world.machine.apply(OffsetCommitted("g", "a", 0, 9, -1, "", 0), 77)
    world.advance(20 * MINUTE)
    assert world.expire() == {B}
    world.machine.end_transaction(77, True)
    assert [offset.offset for offset in world.fetch(("a", 0))] == [9]
    world.machine.apply(OffsetCommitted("g", "a", 0, 11, -1, "", 0), 77)
    world.machine.end_transaction(77, False)
    assert world.expire() == {A}


def test_a_partition_that_is_loaded_while_topics_are_deleted_keeps_no_offsets_of_theirs(world: Offsets) -> None:
    commit(world, "a")
    commit(world, "b")
    world.coordination.is_served = False

    async def delete() -> None:
        world.expiry.topic_gone("a")
        await world.forgotten()

    world.run(delete())
    assert world.everything() == {A, B}
    world.coordination.is_served = True
    world.advance(1)
    world.run(world.served())
    assert world.everything() == {B}


def test_a_partition_that_is_loaded_after_a_topic_was_made_anew_keeps_what_others_took_for_it(world: Offsets) -> None:
    """They were told of the deletion sooner than this broker, which may have been cut off for a while."""
    commit(world, "a")

    async def delete() -> None:
        world.coordination.is_served = False
        world.expiry.topic_gone("a")
        world.made_anew.add("a")
        await world.forgotten()
        world.coordination.is_served = True
        await world.served()

    world.run(delete())
    world.expiry.start()
    world.run(look(world))
    assert world.everything() == {A}


def test_offsets_of_deleted_topics_that_could_not_be_removed_go_when_it_looks_again(world: Offsets) -> None:
    commit(world, "a")
    commit(world, "b")

    async def delete() -> None:
        world.failure = ErrorCode.NOT_ENOUGH_REPLICAS
        world.expiry.topic_gone("a")
        await world.forgotten()

    world.run(delete())
    world.expiry.start()
    for _ in range(3):
        world.run(look(world))
        assert world.everything() == {A, B}
    world.failure = None
    world.run(look(world))
    assert world.everything() == {B}
    commit(world, "a")
    world.run(look(world))
    assert world.everything() == {A, B}, "it was made anew"


async def look(world: Offsets) -> None:
    world.advance(MINUTE)
    await world.forgotten()
