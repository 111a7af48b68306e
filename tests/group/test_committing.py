"""Committing, fetching and deleting offsets: who may, what is written, and what a refused write means."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kafkad.errors import ErrorCode, KafkaError
from kafkad.group import committing, offsets
from kafkad.group.committing import Committer, Fetched, PreparedCommit
from kafkad.group.committing import OffsetToCommit as Offset
from kafkad.group.events import State
from kafkad.group.offsets import Committed
from kafkad.group.records import GroupForgotten, OffsetCommitted, OffsetForgotten
from kafkad.turns import at_once
from tests.fakes import turns
from tests.group.committing import Offsets

NONE = ErrorCode.NONE
A = ("a", 0)


@pytest.fixture
def world() -> Iterator[Offsets]:
    world = Offsets()
    yield world
    world.close()


def test_what_is_committed_is_fetched(world: Offsets) -> None:
    assert world.commit_offsets(Offset("a", 0, 5, 2, "why"), Offset("b", 3, 7)) == [NONE, NONE]
    assert world.fetch(A, ("b", 3), ("b", 4)) == [
        Fetched(A, 5, 2, "why"),
        Fetched(("b", 3), 7, -1, ""),
        Fetched(("b", 4), -1, -1, ""),
    ]
    assert world.fetch_all() == [Fetched(A, 5, 2, "why"), Fetched(("b", 3), 7, -1, "")]
    assert world.fetch(A, A, group="other") == [Fetched(A)]
    assert world.fetch_all("other") == []
    assert world.committer.probe.committed == 2


def test_a_commit_is_one_batch_with_the_sequence_that_kafka_gives_it(world: Offsets) -> None:
    world.commit_offsets(Offset("a", 0, 5), Offset("b", 3, 7))
    now = world.clock.now_ms()
    assert world.log == [OffsetCommitted("g", "a", 0, 5, -1, "", now), OffsetCommitted("g", "b", 3, 7, -1, "", now)]
    assert world.coordination.the_shard.sequences == [0]


def test_the_group_is_asked_when_many_offsets_are_prepared_to_be_committed(world: Offsets) -> None:
    asked = [Offset("a", number, 5, -1, "m" * (number % 102)) for number in range(250)]
    pieces = world.committer.prepare(Committer("g"), asked)
    next(pieces)
    world.clock.advance(1000)
    prepared = at_once(pieces)
    assert isinstance(prepared, PreparedCommit)
    world.coordination.absence = ErrorCode.NOT_COORDINATOR
    assert world.committer.commit_prepared(Committer("g"), prepared) == [ErrorCode.NOT_COORDINATOR] * 250
    world.coordination.absence = None
    member = Committer("g", generation=3)
    assert world.committer.commit_prepared(member, prepared) == [ErrorCode.ILLEGAL_GENERATION] * 250
    assert not world.log
    codes = world.committer.commit_prepared(Committer("g"), prepared)
    assert isinstance(codes, list)
    assert [number for number, code in enumerate(codes) if code] == [101, 203]
    assert world.coordination.the_shard.sequences == [0]
    assert len({record.commit_timestamp for record in world.log}) == 1


def test_many_offsets_that_are_refused_are_not_encoded(world: Offsets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "body_of", lambda *_: pytest.fail("they are encoded"))
    asked = [Offset("a", number, 5, -1, "m" * (number % 102)) for number in range(250)]
    fenced = Committer("g", generation=3)
    assert at_once(world.committer.prepare(fenced, asked)) == [ErrorCode.ILLEGAL_GENERATION] * 250
    world.coordination.absence = ErrorCode.NOT_COORDINATOR
    assert at_once(world.committer.prepare(Committer("g"), asked)) == [ErrorCode.NOT_COORDINATOR] * 250
    world.coordination.absence = None
    world.most_bytes = 10_000
    too_much, too_long = ErrorCode.INVALID_COMMIT_OFFSET_SIZE, ErrorCode.OFFSET_METADATA_TOO_LARGE
    codes = at_once(world.committer.prepare(Committer("g"), asked))
    assert codes == [too_long if number % 102 == 101 else too_much for number in range(250)]
    assert "g" not in world.machine.groups


def test_a_time_of_the_commit_and_one_to_expire_at(world: Offsets) -> None:
    now = world.clock.now_ms()
    world.commit_offsets(Offset("a", 0, 5, timestamp=17))
    world.commit_offsets(Offset("b", 0, 5), retention_ms=1000)
    world.commit_offsets(Offset("c", 0, 5), retention_ms=0)
    assert [(r.commit_timestamp, r.expire_timestamp) for r in world.log if isinstance(r, OffsetCommitted)] == [
        (17, -1),
        (now, now + 1000),
        (now, now),
    ]


def test_offsets_are_not_judged(world: Offsets) -> None:
    """Kafka keeps whatever number it is told."""
    assert world.commit_offsets(Offset("a", 0, -5, -7)) == [NONE]
    assert world.fetch(A) == [Fetched(A, -5, -7, "")]


@pytest.mark.parametrize(
    ("metadata", "fits"),
    [(None, True), ("m" * 100, True), ("m" * 101, False), ("é" * 100, True), ("🌍" * 50, True), ("🌍" * 51, False)],
)
def test_metadata_are_measured_as_java_does(world: Offsets, metadata: str | None, fits: bool) -> None:
    [code] = world.commit_offsets(Offset("a", 0, 5, -1, metadata))
    assert code == (NONE if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE)
    assert bool(world.log) == fits


def test_only_what_is_too_large_is_refused(world: Offsets) -> None:
    codes = world.commit_offsets(Offset("a", 0, 5, -1, "m" * 10_000_000), Offset("b", 0, 6))
    assert codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE, NONE]
    assert [record.topic for record in world.log if isinstance(record, OffsetCommitted)] == ["b"]
    assert world.committer.probe.committed == 1


def test_who_is_no_member_commits_to_groups_without_members(world: Offsets) -> None:
    assert world.commit_offsets(Offset("a", 0, 5), generation=3, member_id="m") == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit_offsets(Offset("a", 0, 5), member_id="m") == [NONE]
    assert world.commit_offsets(Offset("a", 0, 6), generation=3, member_id="m") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit_offsets(Offset("a", 0, 6), instance_id="i") == [NONE]


def test_members_commit_to_theirs(world: Offsets) -> None:
    [member] = world.stable()
    generation = world.generation()
    assert world.commit_offsets(Offset("a", 0, 5), member_id=member, generation=generation) == [NONE]
    assert world.commit_offsets(Offset("a", 0, 5)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit_offsets(Offset("a", 0, 5), member_id="x", generation=generation) == [
        ErrorCode.UNKNOWN_MEMBER_ID
    ]
    assert world.commit_offsets(Offset("a", 0, 5), member_id=member, generation=generation - 1) == [
        ErrorCode.ILLEGAL_GENERATION
    ]
    world.leave(member)
    assert world.commit_offsets(Offset("a", 0, 6)) == [NONE]


def test_the_fate_of_a_group_goes_before_the_size_of_metadata(world: Offsets) -> None:
    world.stable()
    assert world.commit_offsets(Offset("a", 0, 5, -1, "m" * 101)) == [ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize(
    "absence",
    [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE],
)
def test_groups_that_are_not_here(world: Offsets, absence: ErrorCode) -> None:
    world.coordination.absence = absence
    assert world.commit_offsets(Offset("a", 0, 5), Offset("b", 0, 5)) == [absence, absence]
    assert world.delete_offsets(A) == absence


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_what_a_refused_write_means(world: Offsets, failure: ErrorCode, answer: ErrorCode) -> None:
    world.commit_offsets(Offset("a", 0, 5))
    world.failure = failure
    assert world.commit_offsets(Offset("a", 0, 6), Offset("b", 0, 6, -1, "m" * 101)) == [
        answer,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]
    assert world.delete_offsets(A) == answer
    assert world.fetch(A) == [Fetched(A, 5, -1, "")]
    assert (world.committer.probe.committed, world.committer.probe.deleted) == (1, 0)


def test_a_commit_waits_for_its_write(world: Offsets) -> None:
    world.commit_offsets(Offset("a", 0, 5))
    world.hold = True
    first, second = world.begin(Offset("a", 0, 6), Offset("b", 0, 1)), world.begin(Offset("a", 0, 7))
    assert isinstance(first, asyncio.Future) and isinstance(second, asyncio.Future)
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert world.fetch(A, ("c", 0)) == [Fetched(A, 5, -1, ""), Fetched(("c", 0))]
    assert world.fetch(A, ("c", 0), require_stable=True) == [Fetched(A, error=unstable), Fetched(("c", 0))]
    assert world.fetch_all(require_stable=True) == [Fetched(A, error=unstable)]
    assert not first.done()
    world.commit()
    assert (first.result(), second.result()) == ([NONE, NONE], [NONE])
    assert world.fetch(A, require_stable=True) == [Fetched(A, 7, -1, "")]
    assert not world.committer.waiting
    assert not len(world.timers)


def test_a_commit_that_ends_does_not_go_through_all_that_wait(world: Offsets) -> None:
    world.hold = True
    for partition in (0, 1, 1):
        world.begin(Offset("a", partition, 7), Offset("b", 0, 7))
    waiting = world.committer.waiting["g"]
    assert waiting == {("a", 0): 1, ("a", 1): 2, ("b", 0): 3}
    for left in ({("a", 1): 2, ("b", 0): 2}, {("a", 1): 1, ("b", 0): 1}):
        world.commit_first()
        assert world.committer.waiting["g"] is waiting
        assert dict(waiting) == left
    world.commit_first()
    assert not world.committer.waiting


def test_a_commit_does_not_wait_for_ever(world: Offsets) -> None:
    world.hold = True
    answer = world.begin(Offset("a", 0, 6), Offset("b", 0, 6, -1, "m" * 101))
    assert isinstance(answer, asyncio.Future)
    world.advance(4999)
    assert not answer.done()
    world.advance(1)
    assert answer.result() == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.committer.waiting
    world.commit()
    assert world.fetch(A) == [Fetched(A, 6, -1, "")]
    assert not world.committer.waiting


def test_a_commit_whose_coordinator_goes(world: Offsets) -> None:
    world.hold = True
    answer = world.begin(Offset("a", 0, 6))
    assert isinstance(answer, asyncio.Future)
    world.refuse(ErrorCode.NOT_COORDINATOR)
    assert answer.result() == [ErrorCode.NOT_COORDINATOR]
    assert not world.committer.waiting


def test_an_open_transaction_is_seen_by_who_asks_for_it(world: Offsets) -> None:
    world.commit_offsets(Offset("a", 0, 5))
    pending = OffsetCommitted("g", "a", 0, 9, -1, "", world.clock.now_ms())
    world.machine.apply(pending, 77)
    assert world.fetch(A) == [Fetched(A, 5, -1, "")]
    assert world.fetch(A, require_stable=True) == [Fetched(A, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)]
    world.machine.end_transaction(77, True)
    assert world.fetch(A, require_stable=True) == [Fetched(A, 9, -1, "")]


def test_what_is_told_to_prometheus(world: Offsets) -> None:
    world.commit_offsets(Offset("a", 0, 5), Offset("b", 0, 5), Offset("c", 0, 5), retention_ms=0)
    world.delete_offsets(A)
    world.expire()
    found = {family.name: [value for _, value in family.samples] for family in world.committer.collect()}
    assert found == {
        "kafka_server_group_coordinator_metrics_offset_commit_total": [3],
        "kafka_server_group_coordinator_metrics_offset_expiration_total": [2],
        "kafka_server_group_coordinator_metrics_offset_deletion_total": [1],
    }


def test_deleting_the_last_offset_ends_a_group_without_members(world: Offsets) -> None:
    [member] = world.stable()
    world.leave(member)
    world.commit_offsets(Offset("a", 0, 5), Offset("b", 0, 5))
    assert world.delete_offsets(A, ("c", 9)) == [NONE, NONE]
    assert world.state() is State.EMPTY
    assert world.delete_offsets(("b", 0)) == [NONE]
    assert world.log[-3:] == [OffsetForgotten("g", "a", 0), OffsetForgotten("g", "b", 0), GroupForgotten("g")]
    assert world.machine.group("g") is None
    assert world.delete_offsets(("b", 0)) == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.committer.probe.deleted == 2


def test_deleting_nothing_leaves_the_group(world: Offsets) -> None:
    [member] = world.stable()
    world.leave(member)
    assert world.delete_offsets() == []
    assert world.state() is State.EMPTY


def test_a_group_that_was_never_written_needs_no_tombstone(world: Offsets) -> None:
    world.commit_offsets(Offset("a", 0, 5))
    assert world.delete_offsets(A) == [NONE]
    assert world.log[-1] == OffsetForgotten("g", "a", 0)
    assert world.machine.group("g") is None


SUBSCRIBED_TO_A = (("range", b"\0\0\0\0\0\1\0\1a\xff\xff\xff\xff"),)


def test_all_offsets_of_a_group_are_looked_at_one_after_the_other_as_they_were_at_first(
    world: Offsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = []

    def unpack(value: bytes) -> Committed:
        looked_at.append(value)
        return unpacked(value)

    unpacked = offsets._unpack
    monkeypatch.setattr(offsets, "_unpack", unpack)
    world.commit_offsets(*(Offset("a", partition, 5) for partition in range(100)))
    fetching = world.committer.fetch("g", None, False)
    next(fetching)
    assert len(looked_at) == 1
    world.commit_offsets(Offset("a", 99, 6), Offset("b", 0, 6))
    assert at_once(fetching) == [Fetched(("a", partition), 5) for partition in range(100)]


def test_members_keep_the_offsets_of_what_they_read(world: Offsets) -> None:
    [member] = world.stable(protocols=SUBSCRIBED_TO_A)
    for topic in "ab":
        world.commit_offsets(Offset(topic, 0, 5), member_id=member, generation=world.generation())
    assert world.delete_offsets(A, ("b", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE]
    assert world.fetch_all() == [Fetched(A, 5, -1, "")]
    world.leave(member)
    assert world.delete_offsets(A) == [NONE]


def test_members_that_come_while_subscriptions_are_read_count(world: Offsets) -> None:
    [member] = world.stable(protocols=SUBSCRIBED_TO_A, session_timeout_ms=1_000_000)
    world.commit_offsets(Offset("b", 0, 5), member_id=member, generation=world.generation())
    reading = world.committer.prepare_to_delete("g")
    next(reading)
    world.join(protocols=(("range", b"\0\0\0\0\0\1\0\1b\xff\xff\xff\xff"),))
    world.join(member, protocols=SUBSCRIBED_TO_A)
    assert world.generation() == 2
    at_once(reading)
    assert world.run(world.committer.delete("g", [("b", 0)])) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_nobody_knows_what_members_read_that_are_no_consumers(world: Offsets) -> None:
    [member] = world.stable(protocol_type="connect")
    world.commit_offsets(Offset("a", 0, 5), member_id=member, generation=world.generation())
    assert world.delete_offsets(A) == ErrorCode.NON_EMPTY_GROUP


def test_a_group_must_have_a_name_to_delete_from(world: Offsets) -> None:
    assert world.commit_offsets(Offset("a", 0, 5), group="") == [NONE]
    assert world.fetch(A, group="") == [Fetched(A, 5, -1, "")]
    assert world.delete_offsets(A, group="") == ErrorCode.INVALID_GROUP_ID


def test_a_deletion_waits_for_its_write(world: Offsets) -> None:
    world.commit_offsets(Offset("a", 0, 5))
    world.hold = True

    async def delete() -> object:
        task = asyncio.ensure_future(world.committer.delete("g", [A]))
        await turns(3)
        assert not task.done()
        world.commit()
        return await task

    assert world.run(delete()) == [NONE]
    assert world.everything() == set()


def test_a_deletion_does_not_wait_for_ever(world: Offsets) -> None:
    world.commit_offsets(Offset("a", 0, 5))
    world.hold = True

    async def delete() -> object:
        task = asyncio.ensure_future(world.committer.delete("g", [A]))
        for ms in (4999, 1):
            await asyncio.sleep(0)
            assert not task.done()
            world.advance(ms)
        return await task

    with pytest.raises(KafkaError) as late:
        world.run(delete())
    assert late.value.code == ErrorCode.REQUEST_TIMED_OUT
    world.commit()
    assert world.everything() == set()
