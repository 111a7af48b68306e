"""Figures worked out from commits, ends and samples, without a broker."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition, home_partition
from kctl.errors import failure
from kctl.groups.committed import Commit
from kctl.groups.describe import note_of
from kctl.groups.group import Group, Member, labels
from kctl.groups.history import RECORDS, steps
from kctl.groups.partition_lag import BEYOND, DELETED, NO_COMMIT, Range, partition_lags, total
from kctl.groups.partitions_text import partitions_text
from kctl.groups.rates import (
    GROWING,
    IDLE,
    SHRINKING,
    STALLED,
    STEADY,
    UNEVEN,
    Pace,
    Point,
    Sample,
    kept,
    partition_pace,
    slowest,
    together,
    urgency,
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
    assert total(lags) == (33, 33, 2, 2, 1, 0)


def test_a_deleted_topic_is_a_row_and_no_lag() -> None:
    gone = failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic")
    (lag,) = partition_lags(Group("g", "Empty"), {B0: Commit(5)}, {B0: gone})
    assert (lag.lag, lag.note) == (None, DELETED)
    assert total([lag]).lag == 0


def test_lag_of_an_unknown_end_is_unknown() -> None:
    down = failure(ErrorCode.LEADER_NOT_AVAILABLE, "partition")
    (lag,) = partition_lags(Group("g", "Empty"), {B0: Commit(5)}, {B0: down})
    assert (lag.note, total([lag]).lag) == ("no leader", None)


def test_a_sum_without_an_unknown_end_is_no_lag() -> None:
    down = failure(ErrorCode.LEADER_NOT_AVAILABLE, "partition")
    lags = partition_lags(Group("g", "Empty"), {A0: Commit(5), B0: Commit(5)}, {A0: Range(0, 9), B0: down})
    assert (total(lags).lag, total(lags).at_least, total(lags).unknown) == (None, 4, 1)


def test_a_commit_beyond_the_end_is_noted() -> None:
    (lag,) = partition_lags(Group("g", "Empty"), {A0: Commit(500)}, {A0: Range(0, 30)})
    assert (lag.lag, lag.note) == (0, BEYOND)
    (lag,) = partition_lags(Group("g", "Empty"), {A0: Commit(30)}, {A0: Range(0, 30)})
    assert lag.note == ""


@given(st.integers(0, 100), st.integers(0, 100))
def test_lag_is_never_negative(committed: int, end: int) -> None:
    (lag,) = partition_lags(Group("g", "Empty"), {A0: Commit(committed)}, {A0: Range(0, end)})
    assert lag.lag == max(end - committed, 0)


def test_lag_ends_at_the_first_open_transaction() -> None:
    (lag,) = partition_lags(Group("g", "Empty"), {A0: Commit(5)}, {A0: Range(0, 10, stable=7)})
    assert (lag.lag, lag.next, lag.reach, lag.end) == (2, 5, 7, 10)
    (lag,) = partition_lags(Group("g", "Empty"), {A0: Commit(7)}, {A0: Range(0, 10, stable=7)})
    assert (lag.lag, lag.next) == (0, 7)


def test_lag_of_a_reader_of_uncommitted_records_ends_at_the_end() -> None:
    """It is known by its commit, which nobody else could have come to."""
    (lag,) = partition_lags(Group("g", "Empty"), {A0: Commit(8)}, {A0: Range(0, 10, stable=7)})
    assert (lag.lag, lag.next, lag.reach) == (2, 8, 10)


def test_lag_without_a_commit_ends_there_too() -> None:
    group = Group("g", "Stable", members=(Member("m", None, "c", "h", ("a",), (A0,)),))
    (lag,) = partition_lags(group, {}, {A0: Range(3, 10, stable=7)})
    assert (lag.lag, lag.next, lag.note) == (4, 3, NO_COMMIT)


def samples(*points: tuple[int, int], seconds: float = 2) -> list[Sample]:
    return [Sample(at * seconds, {KEY: Point(*point)}) for at, point in enumerate(points)]


@pytest.mark.parametrize(
    ("points", "pace"),
    [
        ([(0, 10)], Pace(10)),
        ([(0, 1000), (400, 1010), (800, 1020)], Pace(220, 200, 5, STEADY)),
        ([(0, 9000), (40, 9010), (80, 9020)], Pace(8940, 20, 5, SHRINKING, 8940 / 15)),
        ([(0, 900), (10, 940), (20, 980)], Pace(960, 5, 20, GROWING)),
        ([(0, 900), (40, 940), (80, 980)], Pace(900, 20, 20, STEADY)),
        ([(0, 100), (10, 140)], Pace(130, None, 20)),
        ([(5, 5), (5, 5)], Pace(0, 0, 0, IDLE, 0)),
        ([(5, 9), (5, 9), (5, 9)], Pace(4, None, 0)),
        ([(5, 9)] * 7, Pace(4, 0, 0, STALLED)),
        ([(4, 8), (5, 10), *((5, 12),) * 6], Pace(7, 0, 4 / 14, STALLED)),
        ([(90, 90), (0, 90), (40, 90), (80, 90)], Pace(10, 20, 0, STEADY)),
    ],
)
def test_pace_of_a_partition(points: list[tuple[int, int]], pace: Pace) -> None:
    assert partition_pace(samples(*points), KEY) == pytest.approx(pace)


@pytest.mark.parametrize("every", [0.5, 1, 2, 3, 7])
def test_rates_do_not_depend_on_when_commits_are_seen(every: float) -> None:
    """298 records a second in commits every 5 seconds, looked at every so often; 200 are written."""
    taken: list[Sample] = []
    told = set()
    for tick in range(int(80 / every)):
        now = tick * every
        taken = kept([*taken, Sample(now, {KEY: Point(int(now // 5) * 5 * 298, 1_000_000 + int(now * 200))})])
        pace = partition_pace(taken, KEY)
        assert pace is not None
        if now > 30 and pace.consumed is not None:
            assert pace.consumed == pytest.approx(298, rel=every / 20)
            told.add(pace.trend)
            assert pace.eta is not None
    assert told == {SHRINKING}
    assert taken[-1].at - taken[0].at <= 60


def test_what_came_later_or_went_away() -> None:
    taken = [
        Sample(0, {}),
        Sample(2, {KEY: Point(0, 80)}),
        Sample(4, {KEY: Point(4, 80)}),
        Sample(6, {KEY: Point(8, 80)}),
    ]
    assert partition_pace(taken, KEY) == Pace(72, 2, 0, SHRINKING, 36)
    assert partition_pace([*taken, Sample(8, {})], KEY) is None


def test_the_slowest_partition_decides_and_not_the_sum() -> None:
    paces = [Pace(10, 10, 0, SHRINKING, 1), Pace(100, 2, 0, SHRINKING, 50)]
    assert together(paces) == Pace(110, 12, 0, SHRINKING, 50)
    assert together([*paces, Pace(3, 9, 9, STEADY)]) == Pace(113, 21, 9, SHRINKING, 50), "it keeps up"
    assert together([*paces, Pace(5, 0, 0, STALLED)]) == Pace(115, 12, 0, UNEVEN), "never, though the sum shrinks"
    assert together([*paces, Pace(5, 0, 90, GROWING)]) == Pace(115, 12, 90, GROWING)
    assert together([Pace(5, 0, 3, STALLED), Pace(0, 9, 9, STEADY, 0)]) == Pace(5, 9, 12, STALLED)
    assert together([*paces, Pace(5, None, 3)]) == Pace(115, None, 3)
    assert slowest({KEY: paces[0], ("g", "a", 1): paces[1]}) == ("g", "a", 1)
    assert slowest({KEY: Pace(0), ("g", "a", 1): Pace(3, 9, 9, STEADY)}) is None


def test_the_worst_come_first() -> None:
    stalled, growing = Pace(5, 0, 0, STALLED), Pace(90, 1, 2, GROWING)
    long, short, idle = Pace(9, 2, 1, SHRINKING, 60), Pace(999, 2, 1, SHRINKING, 6), Pace(0, 0, 0, IDLE, 0)
    paces = [idle, short, stalled, long, growing]
    assert sorted(paces, key=urgency, reverse=True) == [growing, stalled, long, short, idle]


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


def test_records_that_are_gone_are_named_beside_the_lag() -> None:
    (lag,) = partition_lags(Group("g", "Empty"), {A0: Commit(5)}, {A0: Range(0, 3010, stable=2000)})
    assert note_of(lag, 1500) == "1,495 are gone, open transaction from 2,000"
    assert note_of(lag._replace(stable=None), 5) == ""
