"""What is worked out from commits, ends and samples, without a broker."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition, home_partition
from kctl.errors import failure
from kctl.groups.committed import Commit
from kctl.groups.group import Group, Member, labels
from kctl.groups.history import RECORDS, steps
from kctl.groups.partition_lag import DELETED, NO_COMMIT, Range, partition_lags, total
from kctl.groups.partitions_text import partitions_text
from kctl.groups.rates import (
    GROWING,
    IDLE,
    SHRINKING,
    STALLED,
    STEADY_TREND,
    Pace,
    Point,
    Sample,
    partition_pace,
    slowest,
    together,
)
from kctl.groups.subscriptions import assigned_partitions, subscribed_topics

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
KEY = ("g", "a", 0)


def test_uncommitted_partitions_count_with_all_their_records() -> None:
    group = Group("g", "Stable", members=(Member("m", None, "c", "h", ("a",), (A0, A1)),))
    lags = partition_lags(group, {A0: Commit(7)}, {A0: Range(0, 10), A1: Range(100, 130)})
    assert [(lag.where, lag.committed, lag.lag, lag.note) for lag in lags] == [
        (A0, 7, 3, ""),
        (A1, None, 30, NO_COMMIT),
    ]
    assert total(lags) == (33, 2, 2, 1, 0)


def test_a_deleted_topic_is_a_row_and_no_lag() -> None:
    gone = failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic")
    (lag,) = partition_lags(Group("g", "Empty"), {B0: Commit(5)}, {B0: gone})
    assert (lag.lag, lag.note) == (None, DELETED)
    assert total([lag]).lag == 0


def test_lag_of_an_unknown_end_is_unknown() -> None:
    down = failure(ErrorCode.LEADER_NOT_AVAILABLE, "partition")
    (lag,) = partition_lags(Group("g", "Empty"), {B0: Commit(5)}, {B0: down})
    assert (lag.note, total([lag]).lag) == ("no leader", None)


@given(st.integers(0, 100), st.integers(0, 100))
def test_lag_is_never_negative(committed: int, end: int) -> None:
    (lag,) = partition_lags(Group("g", "Empty"), {A0: Commit(committed)}, {A0: Range(0, end)})
    assert lag.lag == max(end - committed, 0)


def samples(*points: tuple[int, int], seconds: float = 2) -> list[Sample]:
    return [Sample(at * seconds, {KEY: Point(*point)}) for at, point in enumerate(points)]


@pytest.mark.parametrize(
    ("points", "pace"),
    [
        ([(0, 10)], Pace(10)),
        ([(0, 100), (40, 110), (80, 120)], Pace(40, 20, 5, SHRINKING, 40 / 15)),
        ([(0, 100), (10, 140)], Pace(130, 5, 20, GROWING)),
        ([(0, 100), (40, 140)], Pace(100, 20, 20, STEADY_TREND)),
        ([(5, 5), (5, 5)], Pace(0, 0, 0, IDLE, 0)),
        ([(5, 9), (5, 9)], Pace(4, 0, 0, STEADY_TREND)),
        ([(5, 9), (5, 9), (5, 9)], Pace(4, 0, 0, STALLED)),
        ([(4, 8), (5, 10), (5, 12), (5, 14)], Pace(9, 1 / 6, 1, STALLED)),
    ],
)
def test_pace_of_a_partition(points: list[tuple[int, int]], pace: Pace) -> None:
    assert partition_pace(samples(*points), KEY) == pytest.approx(pace)


def test_rates_are_over_the_last_five_samples() -> None:
    fast_before = samples((0, 9000), (1000, 9000), *((1000 + 10 * i, 9000) for i in range(5)))
    pace = partition_pace(fast_before, KEY)
    assert pace is not None
    assert pace.consumed == 5


def test_what_came_later_or_went_away() -> None:
    taken = [Sample(0, {}), Sample(2, {KEY: Point(0, 8)}), Sample(4, {KEY: Point(4, 8)})]
    assert partition_pace(taken, KEY) == Pace(4, 2, 0, SHRINKING, 2)
    assert partition_pace([*taken, Sample(6, {})], KEY) is None


def test_the_slowest_partition_decides_and_not_the_sum() -> None:
    paces = [Pace(10, 10, 0, SHRINKING, 1), Pace(100, 2, 0, SHRINKING, 50)]
    assert together(paces) == Pace(110, 12, 0, SHRINKING, 50)
    assert together([*paces, Pace(5, 0, 0, STALLED)]) == Pace(115, 12, 0, SHRINKING)
    assert together([Pace(5, 0, 3, STALLED), Pace(0, 9, 9, STEADY_TREND, 0)]) == Pace(5, 9, 12, STALLED)
    assert slowest({KEY: paces[0], ("g", "a", 1): paces[1]}) == ("g", "a", 1)
    assert slowest({KEY: Pace(0)}) is None


def test_members_are_told_apart() -> None:
    members = [
        Member("consumer-1-aaaaaaaabbbb", None, "consumer-1", "h"),
        Member("rdkafka-cccccccc-1", None, "rdkafka", "h"),
        Member("rdkafka-dddddddd-1", None, "rdkafka", "h"),
        Member("x", "static-1", "rdkafka", "h"),
        Member("0123456789", None, "", "h"),
    ]
    found = list(labels(members).values())
    assert found == ["consumer-1", "rdkafka-cccccccc", "rdkafka-dddddddd", "static-1", "01234567"]


def test_partitions_as_text() -> None:
    wheres = [TopicPartition("b", 7), *(TopicPartition("a", n) for n in (5, 0, 1, 2))]
    assert partitions_text(wheres) == "a:0-2,5 b:7"
    assert partitions_text(()) == ""


# Captured: a Java member of 3.9 (v1), and one of librdkafka 2.x, with ten bytes nobody asked for behind its topics.
JAVA = bytes.fromhex("000100000001000161ffffffff00000000")
LIBRDKAFKA = bytes.fromhex("000000000001000161000000000102030405060708090a")
NEWER = bytes.fromhex("000900000001000161ffffffff0000000000000005ffff4444")


@pytest.mark.parametrize("data", [JAVA, LIBRDKAFKA, NEWER])
def test_subscriptions_of_all_clients(data: bytes) -> None:
    assert subscribed_topics(data) == ("a",)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0", b"\0\1\xff\xff", b"nonsense"])
def test_bytes_that_make_no_sense(data: bytes) -> None:
    assert subscribed_topics(data) == ()
    assert assigned_partitions(data) == ()


def test_assignments() -> None:
    data = bytes.fromhex("000000000001000161000000020000000000000001ffffffff99")
    assert assigned_partitions(data) == (A0, A1)


@pytest.mark.parametrize(("group", "home"), [("billing", 9), ("jgroup", 43), ("", 0), ("grüße-😀", 27)])
def test_the_partition_of_a_group(group: str, home: int) -> None:
    """As a real broker chose them; the last as Java's Math.abs("grüße-😀".hashCode()) % 50."""
    assert home_partition(group, 50) == home


@given(st.integers(0, 200_000), st.integers(0, 200_000))
def test_history_is_read_backwards_without_a_gap(first: int, size: int) -> None:
    last = first + size
    found = list(steps(first, last))
    for (begin, end), (_, earlier) in pairwise(found):
        assert begin == earlier < end
    if size:
        assert found[0][1] == last
        assert found[-1][0] == max(first, last - RECORDS)
    else:
        assert found == []
