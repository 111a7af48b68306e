"""What a broker asks a leader for, and how long a partition rests whose leader or whose own disk is in the way."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace
from typing import cast

import pytest

from kafkad.errors import ErrorCode, StorageError
from kafkad.log.log import Log
from kafkad.log.move import Moves
from kafkad.log.truncation import Ahead, truncate_to
from kafkad.replica.fetchers import Followed
from kafkad.replica.following import Following
from kafkad.replica.partition import Partition
from kafkad.turns import Pieces
from kafkad.wire.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from tests.full_disk import FullDisk
from tests.replica.followers import (
    BACKOFF_MS,
    LEADER,
    Follower,
    RefusingLeader,
    SlowLeader,
    begun_alone,
    fetched,
    many,
    two_leaders,
)


def test_a_full_disk_that_cannot_note_a_cut_holds_up_only_what_was_cut(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is appended before the checkpoint says that it was cut."""
    for partition in follower.partitions:
        assert partition.following is not None
        partition.following.truncate_to(2)
    disk = FullDisk(os.path.dirname(follower.partitions[0].log.directory), monkeypatch)
    follower.follow()
    follower.work(after_ms=10)
    assert follower.asked == [(1, 2)]
    assert [*follower.replicas.logs.cut] == [follower.partitions[0].log]
    follower.work(after_ms=989)
    assert (follower.asked, disk.refused) == ([(1, 2)], 1)
    follower.work(after_ms=1_000)
    assert (follower.asked, disk.refused) == ([(1, 2)], 2)
    disk.is_full = False
    for _ in range(2):  # until it has rested, and until the next try
        follower.work(after_ms=1_000)
    assert follower.asked == [(1, 2), (0, 2)]
    assert not follower.replicas.logs.cut


def test_nothing_is_written_over_what_was_cut_off_before_the_disk_has_forgotten_it(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power failure may leave the older records between newer ones, with true checksums and epochs in order."""
    partition = follower.partitions[0]
    assert partition.following is not None
    partition.following.truncate_to(2)
    path = partition.log.segments[-1].path(".log")
    synced: list[int] = []

    def sync(fd: int) -> None:
        if os.path.sameopenfile(fd, reading.fileno()):
            assert os.fstat(fd).st_size == partition.log.segments[-1].size
            assert (0, 2) not in follower.asked
            synced.append(fd)

    with open(path, "rb") as reading:
        monkeypatch.setattr(follower.replicas.logs.files, "sync", sync)
        follower.follow()
        follower.work(after_ms=10)
    assert len(synced) == 1
    assert sorted(follower.asked) == [(0, 2), (1, 5)]


def test_a_leader_does_not_write_over_what_was_cut_off_either(follower: Follower) -> None:
    """It was cut a moment ago, and leads before it has fetched again."""
    log = follower.partitions[0].log
    assert follower.partitions[0].following is not None
    follower.partitions[0].following.truncate_to(2)
    assert log.cut_may_return
    follower.lead(0)
    follower.work()
    assert not log.cut_may_return
    assert not follower.replicas.logs.cut


def test_a_copy_that_cannot_note_a_cut_does_not_hold_up_its_replica(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving, other = follower.partitions
    moves = Moves(follower.replicas.logs)
    moves.start(moving.tp, os.path.dirname(other.log.directory))
    while not moves.step(moving.tp).caught_up:
        pass
    copy = moves.future(moving.tp)
    assert copy is not None
    copy.flush()
    follower.write_recovery_points()
    assert moving.following is not None
    moving.following.truncate_to(2)
    moves.step(moving.tp)
    FullDisk(os.path.dirname(other.log.directory), monkeypatch)
    follower.follow()
    follower.work(after_ms=10)
    assert sorted(follower.asked) == [(0, 2), (1, 5)]
    assert [*follower.replicas.logs.cut] == [copy]


def test_nothing_is_fetched_any_more_once_fetching_has_stopped(follower: Follower) -> None:
    """Logs are being closed then."""
    partition = follower.partitions[0]
    assert partition.following is not None
    partition.following.truncate_to(2)
    follower.follow(partition)
    follower.stop_fetching()
    asked = list(follower.asked)
    for ms in (10, 100, 1_000, 2_000):
        follower.work(after_ms=ms)
    follower.follow(*follower.partitions)
    assert follower.asked == asked


@pytest.mark.parametrize(("isr", "begun"), [((LEADER,), []), ((LEADER, 1), [(1, 5)])])
def test_who_is_about_to_stop_goes_on_but_begins_to_follow_only_where_it_is_in_sync(
    follower: Follower, isr: tuple[int, ...], begun: list[tuple[int, int]]
) -> None:
    """There its leader waits for it. Anywhere else it would, too, once it is fetched from."""
    follower.follow(follower.partitions[0])
    follower.leave()
    follower.lead(1)
    follower.follow_anew(1, isr=isr)
    assert follower.asked == [(0, 5), *begun]


def test_a_partition_whose_first_cut_fails_is_not_fetched_before_it_was_made(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log would go on from an end that its leader does not know."""
    cut = follower.partitions[0].log
    monkeypatch.setattr(
        Log, "whole_until", property(lambda log: min(2, log.end_offset) if log is cut else log.end_offset)
    )
    refusals = [errno.EMFILE, errno.EMFILE]

    def truncate(log: Log, offset: int, ahead: Ahead | None) -> None:
        if refusals:
            error = OSError(refusals.pop(), "too many")
            raise StorageError(os.path.dirname(log.directory), "truncating failed") from error
        truncate_to(log, offset, ahead)

    monkeypatch.setattr("kafkad.replica.following.truncate_to", truncate)
    follower.follow()
    assert follower.asked == [(1, 5)]
    follower.work(after_ms=10)
    assert (follower.asked, refusals) == ([(1, 5)], [])
    follower.work(after_ms=20)
    follower.work(after_ms=10)  # once the disk knows of it, with others of which that is true by then
    assert follower.asked == [(1, 5), (0, 2)]


def test_a_leader_that_takes_no_connection_is_tried_once_in_the_back_off(follower: Follower) -> None:
    """Or when there is more to ask for."""
    leader = RefusingLeader()
    follower.connect = lambda: leader
    follower.follow(follower.partitions[0])
    for tries in range(1, 5):
        assert leader.opened == tries
        follower.work(after_ms=BACKOFF_MS - 1)
        assert leader.opened == tries
        follower.work(after_ms=1)
    follower.follow(follower.partitions[1])
    assert leader.opened == 6


def test_an_error_of_ours_is_told_once_and_its_pauses_grow_until_an_answer_is_taken(
    follower: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    leader = SlowLeader()
    tried: list[float] = []
    begun_ms = follower.clock.monotonic_ms()
    follower.connect = lambda: leader

    async def fail(**how: object) -> None:
        tried.append((follower.clock.monotonic_ms() - begun_ms) / BACKOFF_MS)
        raise ZeroDivisionError("ours")

    leader.open, opens = fail, leader.open  # type: ignore[method-assign]
    leader.opened.set()
    follower.follow(follower.partitions[0])
    for _ in range(6):
        follower.work(after_ms=BACKOFF_MS)
    assert tried == [0, 1, 3]
    leader.open = opens  # type: ignore[method-assign]
    follower.work(after_ms=BACKOFF_MS)
    leader.open = fail  # type: ignore[method-assign]
    leader.answer_with_nothing()
    follower.work()
    follower.work(after_ms=BACKOFF_MS)
    assert tried == [0, 1, 3, 7, 8]
    said = "internal error while fetching from broker 2; trying again"
    assert [(record.message, bool(record.exc_info)) for record in caplog.records] == [(said, True)] * 2


def test_what_was_handed_over_while_a_connection_was_opened_is_not_asked_for_there(follower: Follower) -> None:
    """The leader would take the later of two fetches for the truth, and the follower for further behind than it is."""
    usual, newcomers = two_leaders(follower, is_open=False)
    first, second = follower.partitions
    follower.follow(first)
    follower.follow(second)
    usual.answer_with_nothing()
    follower.work()
    newcomers.opened.set()
    follower.work()
    assert (usual.asked, newcomers.asked) == ([[(0, 5)], [(1, 5)]], [])


def test_the_leader_is_told_again_of_what_was_handed_over_while_it_was_fetched(follower: Follower) -> None:
    usual, newcomers = two_leaders(follower)
    first, second = follower.partitions
    follower.follow(first)
    follower.follow(second)
    assert (usual.asked, newcomers.asked) == ([[(0, 5)]], [[(1, 5)]])
    usual.answer_with_nothing()
    follower.work()
    newcomers.answer_with_nothing()
    follower.work()
    usual.answer_with_nothing()
    follower.work()
    assert (usual.asked, newcomers.asked) == ([[(0, 5)], [(1, 5)], [(1, 5)]], [[(1, 5)]])


def test_it_rests_a_little_at_first_for_its_leader_may_hear_of_the_epoch_later() -> None:
    log, tp, role = SimpleNamespace(topic_id=b"i" * 16), SimpleNamespace(partition=0), SimpleNamespace(isr=())
    partition = SimpleNamespace(log=log, tp=tp, role=role, broker_id=1)
    followed = Followed(cast(Partition, partition), cast(Following, None))
    assert [followed.rest_ms(1_000) for _ in range(9)] == [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000]
    assert Followed(cast(Partition, partition), cast(Following, None)).rest_ms(5) == 5


def test_what_was_handed_over_while_the_leader_said_where_its_log_begins_is_left_to_who_took_it(
    follower: Follower,
) -> None:
    """Its place may be another by then, and it is not in this fetcher's session any more."""
    usual, newcomers = two_leaders(follower)
    first, second = follower.partitions
    follower.follow(first)
    follower.follow(second)
    newcomers.answer(
        FetchResponse(
            session_id=7,
            responses=[
                FetchableTopicResponse(
                    topic_id=second.log.topic_id,
                    partitions=[PartitionData(partition_index=1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)],
                )
            ],
        )
    )
    follower.work()
    usual.answer_with_nothing()
    follower.work()
    newcomers.answer_with_end(3)
    follower.work()
    assert second.log.end_offset == 5
    assert usual.asked == [[(0, 5)], [(1, 5)]]


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches were appended at once, each time."""
    appended: list[int] = []

    def append_copied(log: Log, view: memoryview, epoch: int | None = None) -> None:
        before = log.end_offset
        append(log, view, epoch)
        appended.append(log.end_offset - before)

    append = Log.append_copied
    monkeypatch.setattr(Log, "append_copied", append_copied)
    monkeypatch.setattr("kafkad.turns.TURN_S", 0)
    monkeypatch.setattr("kafkad.turns.LEAST_S", 0)
    return appended


def test_many_small_batches_are_appended_in_several_turns(follower: Follower, ends: list[int]) -> None:
    usual, _ = two_leaders(follower)
    first = follower.partitions[0]
    follower.follow(first)
    usual.answer(fetched(first, many(5, 2_500) + b"part of another"))
    follower.work()
    assert ends == [1_000, 1_000, 500]
    assert (first.log.end_offset, first.high_watermark) == (2_505, 2_505)
    assert usual.asked == [[(0, 5)], [(0, 2_505)]]


def test_an_internal_error_with_what_was_fetched_is_told_once(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def append_copied(log: Log, view: memoryview, epoch: int | None = None) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(Log, "append_copied", append_copied)
    usual, _ = two_leaders(follower)
    first = follower.partitions[0]
    follower.follow(first)
    for _ in range(3):
        usual.answer(fetched(first, many(5, 1)))
        follower.work()
        follower.work(after_ms=BACKOFF_MS)
    assert usual.asked == [[(0, 5)]] * 4
    [record] = [record for record in caplog.records if record.exc_info]
    assert record.getMessage() == (
        "t-0 has not taken what was fetched for it, for an internal error: ZeroDivisionError('ours'); trying again"
    )


def test_an_internal_error_with_what_was_fetched_alone_is_told_once(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def append_copied(log: Log, view: memoryview, epoch: int | None = None) -> None:
        raise ZeroDivisionError("ours")

    first = follower.partitions[0]
    records = many(10, 1)
    leader = begun_alone(follower, monkeypatch, records)
    monkeypatch.setattr(Log, "append_copied", append_copied)
    for _ in range(3):
        leader.answer(fetched(first, records))
        follower.work()
        follower.work(after_ms=BACKOFF_MS)
    assert leader.asked == [[(0, 5)], *[[(0, 10)]] * 4]
    [record] = [record for record in caplog.records if record.exc_info]
    assert record.getMessage() == (
        "t-0 has not taken what was fetched for it, for an internal error: ZeroDivisionError('ours'); trying again"
    )


def test_many_small_batches_of_a_partition_alone_are_not_taken_in_the_turn_in_which_they_arrive(
    follower: Follower, ends: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = follower.partitions[0]
    records = many(10, 2_500)
    leader = begun_alone(follower, monkeypatch, records)
    leader.answer(fetched(first, records))
    follower.work()
    assert ends == [5, 1_000, 1_000, 500]
    assert leader.asked == [[(0, 5)], [(0, 10)], [(0, 2_510)]]


def test_the_rest_of_many_small_batches_is_left_to_who_has_their_partition_by_then(
    follower: Follower, ends: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, _ = two_leaders(follower)
    first = follower.partitions[0]
    follower.follow(first)
    monkeypatch.setattr(Followed, "is_current", property(lambda followed: not ends))
    usual.answer(fetched(first, many(5, 2_500)))
    follower.work()
    assert ends == [1_000]


def test_what_is_not_followed_here_any_more_once_a_cut_has_been_read_for_is_not_cut(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, _ = two_leaders(follower)
    first = follower.partitions[0]
    has_read: list[int] = []

    def read_ahead(following: Following, offset: int) -> Pieces[None]:
        has_read.append(offset)
        yield

    monkeypatch.setattr(Following, "read_ahead", read_ahead)
    monkeypatch.setattr(Followed, "is_current", property(lambda followed: not has_read))
    follower.follow(first)
    response = fetched(first, b"")
    response.responses[0].partitions[0].diverging_epoch = EpochEndOffset(epoch=0, end_offset=3)
    usual.answer(response)
    follower.work()
    assert has_read == [3]
    assert first.log.end_offset == 5
