"""The rules of the ISR and of the high watermark, table by table."""

from __future__ import annotations

from math import inf

import pytest

from kafkad.replica.isr import Follower, LagLimits, begun, fetched, high_watermark, is_caught_up, lagging, may_join

LAG = LagLimits(10_000)
AT_10 = Follower(10, 0, caught_up_ms=1_000, fetched_ms=1_000, leader_end=10)


@pytest.mark.parametrize(
    ("offset", "leader_end", "now_ms", "caught_up_ms"),
    [
        (10, 10, 2_000, 2_000),  # at the end
        (12, 10, 2_000, 2_000),  # beyond it: the leader has been cut
        (10, 15, 2_000, 1_000),  # at what was the end at its last fetch: caught up as of then
        (12, 15, 2_000, 1_000),
        (9, 15, 2_000, 1_000),  # behind even that: as before
    ],
)
def test_a_fetch_says_when_the_follower_had_everything(
    offset: int, leader_end: int, now_ms: float, caught_up_ms: float
) -> None:
    assert fetched(AT_10, offset, 3, leader_end, now_ms) == Follower(offset, 3, caught_up_ms, now_ms, leader_end)


def test_a_follower_of_a_busy_partition_stays_caught_up_though_never_at_the_end() -> None:
    follower = AT_10
    for turn in range(1, 100):
        follower = fetched(follower, 10 * turn, 0, 10 * turn + 10, 1_000.0 + 500 * turn)
    assert follower.caught_up_ms == 1_000 + 500 * 98
    stuck = follower
    for turn in range(100, 130):
        stuck = fetched(stuck, 990, 0, 10 * turn + 10, 1_000.0 + 500 * turn)
    assert not is_caught_up(stuck, 1_310, 1_000 + 500 * 130, LAG)


@pytest.mark.parametrize(
    ("end_offset", "now_ms", "caught_up"),
    [
        (10, 1_000_000, True),  # an idle partition never lags
        (9, 11_000, True),
        (9, 11_001, False),
        (-1, 11_001, False),
    ],
)
def test_caught_up_is_at_the_end_or_lately_there(end_offset: int, now_ms: float, caught_up: bool) -> None:
    assert is_caught_up(AT_10._replace(end_offset=end_offset), 10, now_ms, LAG) is caught_up


def test_laggards_are_those_in_sync_that_are_not_caught_up() -> None:
    late = AT_10._replace(end_offset=5)
    followers = {2: AT_10, 3: late, 4: late}
    assert lagging((1, 2, 3), followers, 10, 50_000, LAG) == {3}
    assert lagging((1, 2, 3), followers, 10, 5_000, LAG) == frozenset()


@pytest.mark.parametrize(
    ("end_offset", "watermark", "epoch_start", "joins"),
    [
        (10, 10, 10, True),
        (9, 10, 5, False),
        (9, 9, 10, False),  # by the high watermark of the last leader, but without what this epoch began with
        (-1, 0, 0, False),
    ],
)
def test_who_joins_has_what_was_committed(end_offset: int, watermark: int, epoch_start: int, joins: bool) -> None:
    assert may_join(Follower(end_offset, fetched_ms=0.0), watermark, epoch_start, LAG) is joins


def test_who_has_not_fetched_since_the_leader_epoch_began_does_not_join() -> None:
    """It may have died, or its disk: that is why the epoch began."""
    known = begun(Follower(10, fetched_ms=5.0), False, 10, 20.0)
    assert known.end_offset == 10
    assert not may_join(known, 10, 10, LAG)
    assert may_join(fetched(known, 10, 0, 10, 30.0), 10, 10, LAG)


@pytest.mark.parametrize(
    ("now_at", "maximal", "joining", "ends", "watermark"),
    [
        (0, (1,), (), {}, 10),
        (0, (1,), (), {2: 4}, 10),  # out of sync: nobody waits for it
        (0, (1, 2), (), {2: 4}, 4),
        (0, (1, 2, 3), (), {2: 4, 3: 7}, 4),
        (0, (1,), (3,), {2: 4, 3: 7}, 7),
        (6, (1, 2), (), {2: 4}, 6),  # never back
        (0, (1, 2), (), {2: -1}, 0),  # unknown until its first fetch
        (0, (1, 2), (), {2: 12}, 10),  # never beyond the leader's own end
    ],
)
def test_the_high_watermark_is_where_all_are_that_may_lead_next(
    now_at: int, maximal: tuple[int, ...], joining: tuple[int, ...], ends: dict[int, int], watermark: int
) -> None:
    followers = {broker: Follower(end) for broker, end in ends.items()}
    assert high_watermark(now_at, 10, maximal, followers, joining) == watermark


def test_a_new_epoch_begins_with_unknown_ends_unless_the_leader_is_the_same() -> None:
    assert begun(None, True, 10, 5_000) == Follower(-1, -1, 5_000, -inf, -1)
    assert begun(None, False, 10, 5_000) == Follower()
    assert begun(AT_10, True, 12, 5_000) == Follower(10, 0, 5_000, 5_000, 12)
    assert begun(AT_10, False, 12, 5_000).caught_up_ms == -inf


def test_with_a_limit_of_messages_whoever_is_further_behind_leaves_and_joins_when_it_no_longer_is() -> None:
    lag = LagLimits(10_000, 4)
    near, far = AT_10._replace(end_offset=6), AT_10._replace(end_offset=5)
    assert lagging((1, 2, 3), {2: near, 3: far}, 10, 1_000, lag) == {3}, "though it is within the time"
    assert lagging((1, 2), {2: near}, 10, 50_000, lag) == {2}, "the time counts as well"
    assert lagging((1, 2), {2: begun(None, True, 10, 1_000)}, 10, 1_000, lag) == frozenset(), "not known yet"
    assert may_join(near, 5, 5, lag)
    assert not may_join(far, 5, 5, lag)
