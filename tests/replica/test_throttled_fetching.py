"""Throttled replicas: those that have to catch up wait until what they owe is paid, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkad.config import LONG_MAX
from kafkad.errors import ErrorCode
from kafkad.wire.messages.fetch import FetchResponse
from tests.replica.followers import LEADER, Follower, SlowLeader, begun_alone, fetched, many, two_leaders


@pytest.fixture
def owing(follower: Follower) -> SlowLeader:
    """A leader of which the first of two throttled replicas has fetched ten seconds' worth. Both have to catch up."""
    usual, _ = two_leaders(follower)
    first = follower.partitions[0]
    records = many(5, 100)
    follower.throttle("*", rate=len(records) / 10)
    follower.follow()
    assert usual.asked == [[(0, 5), (1, 5)]]
    usual.answer(fetched(first, records))
    follower.work()
    assert first.log.end_offset == 105
    return usual


def test_no_throttled_replica_that_has_to_catch_up_is_fetched_before_what_is_owed_is_paid(
    follower: Follower, owing: SlowLeader
) -> None:
    for _ in range(9):
        follower.work(after_ms=1_000)
    follower.work(after_ms=999)
    assert owing.asked == [[(0, 5), (1, 5)]]
    follower.work(after_ms=1)
    assert owing.asked[1:] == [[(0, 105), (1, 5)]]


@pytest.mark.parametrize(
    "change",
    [
        lambda follower: follower.throttle("*", rate=LONG_MAX),
        lambda follower: follower.throttle("*", rate=1_000_000),
        lambda follower: follower.throttle(rate=1),
        lambda follower: follower.throttle("0:2", rate=1),
    ],
    ids=["no rate", "a higher one", "no throttled replicas", "others"],
)
def test_another_throttle_holds_within_a_second(
    follower: Follower, owing: SlowLeader, change: Callable[[Follower], None]
) -> None:
    follower.work(after_ms=500)
    change(follower)
    follower.work(after_ms=500)
    assert owing.asked[1:] == [[(0, 105), (1, 5)]]


def test_what_waits_until_what_is_owed_is_paid_is_left_alone_once_fetching_has_stopped(
    follower: Follower, owing: SlowLeader
) -> None:
    follower.stop_fetching()
    follower.work(after_ms=1_000)
    assert not len(follower.timers)


def test_what_begins_anew_in_another_epoch_waits_as_well_until_what_is_owed_is_paid(
    follower: Follower, owing: SlowLeader
) -> None:
    follower.follow_anew(1)
    follower.work(after_ms=3_000)
    assert owing.asked == [[(0, 5), (1, 5)]]


def test_a_throttled_replica_that_is_in_sync_waits_for_nothing_and_counts_for_nothing(
    follower: Follower, owing: SlowLeader
) -> None:
    second = follower.partitions[1]
    follower.follow_anew(1, isr=(LEADER, 1))
    for offset in range(5, 8):
        assert owing.asked[-1] == [(1, offset)]
        owing.answer(fetched(second, many(offset, 1), high_watermark=offset))
        follower.work()
    for _ in range(10):
        assert owing.asked[1:] == [[(1, 5)], [(1, 6)], [(1, 7)], [(1, 8)]]
        follower.work(after_ms=1_000)
    owing.answer(FetchResponse(session_id=7))
    follower.work()
    assert owing.asked[5:] == [[(0, 105)]]


def test_what_has_caught_up_before_it_was_throttled_waits_for_nothing_and_counts_for_nothing(
    follower: Follower,
) -> None:
    leader, _ = two_leaders(follower)
    first, second = follower.partitions
    follower.follow(first)
    for offset in (5, 6):
        leader.answer(fetched(first, many(offset, 1), high_watermark=offset + 1))
        follower.work()
        follower.throttle("*", rate=0)
    follower.follow(second)
    leader.answer(fetched(first, b"", error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    follower.work()
    assert leader.asked[-1] == [(1, 5)], "nothing is owed yet"
    leader.answer(fetched(second, many(5, 1)))
    follower.work(after_ms=100)
    assert leader.asked[-1] == [(0, 7)]


def test_what_follows_in_sync_in_a_later_epoch_does_not_wait_as_it_would_have_in_the_one_before(
    follower: Follower,
) -> None:
    leader, newcomers = two_leaders(follower, is_open=False)
    first, _ = follower.partitions
    follower.throttle("*", rate=0)
    follower.follow()
    follower.follow_anew(1, isr=(LEADER, 1))
    leader.answer(fetched(first, many(5, 1)))
    follower.work()
    assert (leader.asked, newcomers.asked) == ([[(0, 5), (1, 5)], [(1, 5)]], [])


def test_what_was_handed_over_and_comes_again_in_sync_does_not_wait_as_it_would_have_before(
    follower: Follower,
) -> None:
    leader, newcomers = two_leaders(follower)
    first, second = follower.partitions
    follower.throttle("1:1", rate=0)
    follower.follow(first)
    follower.follow(second)
    leader.answer_with_nothing()
    follower.work()
    newcomers.answer_with_nothing()
    leader.answer(fetched(second, many(5, 1)))
    follower.work()
    follower.follow_anew(1, isr=(LEADER, 1))
    assert newcomers.asked == [[(1, 5)], [(1, 6)]]


def test_what_is_owed_since_an_answer_about_one_partition_alone_is_paid_as_well(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = follower.partitions[0]
    records = many(10, 100)
    follower.throttle("*", rate=1_000)
    follower.work(after_ms=1_000)
    leader = begun_alone(follower, monkeypatch, records)
    leader.answer(fetched(first, records))
    follower.work(after_ms=1_000)
    assert leader.asked == [[(0, 5)], [(0, 10)]]
    for _ in range(len(records) // 1_000):
        follower.work(after_ms=1_000)
    assert leader.asked[2:] == [[(0, 110)]]
