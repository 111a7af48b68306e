"""Fetch sessions (KIP-227) on a clock and dice of the test's own."""

from __future__ import annotations

import sys
from math import inf
from random import Random

import pytest

from kafkad.api.fetch_session import CachedPartition, FetchSessions, Session
from kafkad.errors import ErrorCode, KafkaError
from kafkad.turns import Pieces, at_once
from kafkad.wire.fetch import FetchFrame, PartitionRequest, TopicRequest


def frame(
    session_id: int,
    epoch: int,
    wanted: dict[str, list[int]] | None = None,
    forgotten: dict[str, list[int]] | None = None,
    offset: int = 0,
    leader_epoch: int = -1,
) -> FetchFrame:
    topics = [
        TopicRequest(name, [PartitionRequest(index, leader_epoch, offset, -1, -1, 1000) for index in indexes])
        for name, indexes in (wanted or {}).items()
    ]
    return FetchFrame(-1, 500, 1, 1 << 20, False, session_id, epoch, topics, list((forgotten or {}).items()))


def sessions(slots: int = 2) -> FetchSessions:
    return FetchSessions(slots, eviction_ms=120_000, random=Random(1), do=at_once)


def partitions_of(session: Session) -> list[tuple[str | bytes, int]]:
    return list(session.partitions)


def test_a_fetch_without_a_session_leaves_none_behind() -> None:
    kept = sessions()
    session = at_once(kept.open(frame(0, -1, {"t": [0, 1]}), False, 0))
    assert (session.id, partitions_of(session), len(kept)) == (0, [("t", 0), ("t", 1)], 0)


def test_a_session_that_is_closed_leaves_nothing_to_the_collection_of_garbage() -> None:
    session = at_once(sessions().open(frame(0, -1, {"t": [0, 1]}), False, 0))
    [first, _] = list(session.partitions.values())
    assert sys.getrefcount(first) > 2
    at_once(session.close())
    assert sys.getrefcount(first) == 2, "this name's, and the call's"


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_small_fetch_does_not_wait_for_the_end_of_a_large_session(epoch: int) -> None:
    put_off: list[Pieces[None]] = []
    kept = FetchSessions(2, eviction_ms=120_000, random=Random(1), do=put_off.append)
    session = at_once(kept.open(frame(0, 0, {"t": list(range(200))}), False, 0))
    at_once(kept.open(frame(session.id, epoch, {}), False, 0))
    assert (len(kept), kept.partition_count(), len(session.partitions)) == (0, 0, 200)
    [end] = put_off
    assert next(end) is None
    at_once(end)
    assert session.partitions == {}


def test_a_session_remembers_what_was_named_once() -> None:
    kept = sessions()
    first = at_once(kept.open(frame(0, 0, {"t": [0, 1], "u": [0]}), False, 0))
    assert first.id > 0
    again = at_once(kept.open(frame(first.id, 1, {"t": [1], "v": [7]}, {"u": [0]}, offset=5), False, 1))
    assert again is first
    assert partitions_of(again) == [("t", 0), ("t", 1), ("v", 7)]
    assert [f.wanted.offset for f in again.partitions.values()] == [0, 5, 5]
    assert again.incremental


@pytest.mark.parametrize("epoch", [0, -1])
def test_only_a_session_that_goes_on_forgets(epoch: int) -> None:
    session = at_once(sessions().open(frame(0, epoch, {"t": [0, 1]}, {"t": [0]}), False, 0))
    assert partitions_of(session) == [("t", 0), ("t", 1)]


def test_a_session_that_wants_nothing_any_more_ends() -> None:
    kept = sessions()
    session = at_once(kept.open(frame(0, 0, {"t": [0]}), False, 0))
    session_id = session.id
    assert at_once(kept.open(frame(session_id, 1, None, {"t": [0]}), False, 1)).id == 0
    assert len(kept) == 0
    with pytest.raises(KafkaError) as gone:
        at_once(kept.open(frame(session_id, 2, {"t": [0]}), False, 2))
    assert gone.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_incremental_answer_mentions_only_news() -> None:
    kept = sessions()
    session = at_once(kept.open(frame(0, 0, {"t": [0]}), False, 0))
    (one,) = session.partitions.values()
    assert one.is_news(0, 10, 0, 0)
    assert not one.is_news(0, 10, 0, 0)
    assert one.is_news(0, 10, 0, 512)
    assert one.is_news(0, 11, 0, 0)
    assert one.is_news(0, 11, 3, 0)
    assert one.is_news(6, -1, -1, 0)
    assert one.is_news(0, 11, 3, 0), "after an error everything is news"


@pytest.mark.parametrize(
    ("session_offset", "epoch", "by_id", "code"),
    [
        (1, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_what_does_not_continue_a_session_is_refused(
    session_offset: int, epoch: int, by_id: bool, code: ErrorCode
) -> None:
    kept = sessions()
    session = at_once(kept.open(frame(0, 0, {"t": [0]}), False, 0))
    with pytest.raises(KafkaError) as refused:
        at_once(kept.open(frame(session.id + session_offset, epoch), by_id, 0))
    assert refused.value.code == code


def test_closing_a_session_and_starting_anew() -> None:
    kept = sessions()
    session = at_once(kept.open(frame(0, 0, {"t": [0]}), False, 0))
    closed = at_once(kept.open(frame(session.id, -1, {"t": [0]}), False, 0))
    assert (closed.id, len(kept)) == (0, 0)
    session = at_once(kept.open(frame(0, 0, {"t": [0]}), False, 0))
    fresh = at_once(kept.open(frame(session.id, 0, {"t": [0]}), False, 0))
    assert fresh.id not in (0, session.id)
    assert len(kept) == 1


def test_epochs_wrap_past_the_largest_number() -> None:
    kept = sessions()
    session = at_once(kept.open(frame(0, 0, {"t": [0]}), False, 0))
    session.epoch = 2**31 - 1
    at_once(kept.open(frame(session.id, 2**31 - 1), False, 0))
    assert session.epoch == 1


def test_a_full_cache_gives_up_the_stale_or_the_smaller() -> None:
    kept = sessions(slots=1)
    small = at_once(kept.open(frame(0, 0, {"t": [0]}), False, 0))
    same = at_once(kept.open(frame(0, 0, {"u": [0]}), False, 1))
    assert (same.id, len(kept)) == (0, 1), "neither stale nor smaller"
    larger = at_once(kept.open(frame(0, 0, {"u": [0, 1]}), False, 2))
    assert larger.id > 0
    with pytest.raises(KafkaError):
        at_once(kept.open(frame(small.id, 1), False, 3))
    later = at_once(kept.open(frame(0, 0, {"t": [0]}), False, 200_000))
    assert later.id > 0
    assert kept.evictions == 2


def test_consumers_do_not_take_the_places_of_followers_but_followers_take_theirs() -> None:
    kept = sessions(slots=2)
    follower = at_once(kept.open(frame(0, 0, {"t": [0]})._replace(replica_id=2), False, 0))
    consumer = at_once(kept.open(frame(0, 0, {"t": [0, 1, 2]}), False, 1))
    larger = at_once(kept.open(frame(0, 0, {"t": [0, 1, 2, 3]}), False, 2))
    assert larger.id > 0
    assert kept.awaits(follower, 1)
    assert not kept.awaits(consumer, 1)
    second = at_once(kept.open(frame(0, 0, {"t": [0]})._replace(replica_id=3), False, 3))
    assert second.id > 0
    assert not kept.awaits(larger, 1)
    assert at_once(kept.open(frame(0, 0, {"t": list(range(50))}), False, 4)).id == 0
    assert kept.awaits(follower, 1)
    assert kept.awaits(second, 1)


def test_sessions_have_a_bound_on_partitions_and_the_largest_gives_way_to_a_smaller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafkad.api.fetch_session._MOST_PARTITIONS", 100)
    kept = sessions(slots=50)
    large = [at_once(kept.open(frame(0, 0, {"t": list(range(50))}), False, now)) for now in range(2)]
    third = at_once(kept.open(frame(0, 0, {"t": list(range(50))}), False, 2))
    assert (third.id, len(third.partitions), kept.partition_count()) == (0, 50, 100)
    small = at_once(kept.open(frame(0, 0, {"t": [0]}), False, 3))
    assert kept.awaits(small, 1)
    assert [kept.awaits(each, 1) for each in large] == [False, True]


def test_followers_have_sessions_before_consumers_do_but_not_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkad.api.fetch_session._MOST_PARTITIONS", 100)
    kept = sessions(slots=50)
    for now in range(20):
        at_once(kept.open(frame(0, 0, {"t": list(range(5))}), False, now))
    named = {"t": list(range(90))}
    follower = at_once(kept.open(frame(0, 0, named)._replace(replica_id=2), False, 20))
    assert kept.awaits(follower, 1)
    assert (len(kept), kept.partition_count()) == (3, 100)
    assert at_once(kept.open(frame(0, 0, named)._replace(replica_id=3), False, 21)).id == 0
    assert kept.awaits(follower, 1)


@pytest.mark.parametrize("replica_id", [-1, 3])
def test_stale_sessions_give_way_first_also_those_of_followers(
    monkeypatch: pytest.MonkeyPatch, replica_id: int
) -> None:
    monkeypatch.setattr("kafkad.api.fetch_session._MOST_PARTITIONS", 100)
    kept = sessions(slots=50)
    gone = [
        at_once(kept.open(frame(0, 0, {"t": list(range(30))})._replace(replica_id=2), False, now)) for now in range(2)
    ]
    large = at_once(kept.open(frame(0, 0, {"t": list(range(40))}), False, 119_000))
    new = at_once(kept.open(frame(0, 0, {"t": list(range(20))})._replace(replica_id=replica_id), False, 120_000))
    assert [kept.awaits(each, 1) for each in (*gone, large, new)] == [False, True, True, True]
    assert at_once(kept.open(frame(new.id, 1, {"u": list(range(30))}), False, 120_001)) is new
    assert [kept.awaits(each, 1) for each in (*gone, large)] == [False, False, True]
    assert (kept.partition_count(), kept.evictions) == (90, 2)


def test_a_session_that_goes_on_is_not_stale_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkad.api.fetch_session._MOST_PARTITIONS", 100)
    kept = FetchSessions(50, eviction_ms=0, random=Random(1), do=at_once)
    session = at_once(kept.open(frame(0, 0, {"t": list(range(90))}), False, 0))
    with pytest.raises(KafkaError):
        at_once(kept.open(frame(session.id, 1, {"u": list(range(60))}), False, 1))
    assert (len(kept), kept.partition_count(), kept.evictions) == (0, 0, 1)


def registered(epoch: int, asked: FetchFrame, replica_id: int = 2) -> FetchFrame:
    """The same from a follower in its registration of that epoch."""
    return asked._replace(replica_id=replica_id, replica_epoch=epoch)


def test_a_follower_that_has_registered_again_ends_its_earlier_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkad.api.fetch_session._MOST_PARTITIONS", 100)
    kept, anew = sessions(slots=50), frame(0, 0, {"t": list(range(40))})
    other = at_once(kept.open(registered(1, frame(0, 0, {"t": [0]}), replica_id=3), False, 0))
    for epoch in range(-1, 20):
        fetchers = [at_once(kept.open(registered(epoch, anew), False, 0)) for _ in range(2)]
        assert all(kept.awaits(each, 1) for each in fetchers)
        assert (len(kept), kept.partition_count()) == (3, 81)
    assert kept.awaits(other, 1)
    assert kept.evictions == 0


def test_a_session_that_goes_on_after_another_registration_is_of_that() -> None:
    kept = sessions(slots=50)
    session = at_once(kept.open(registered(5, frame(0, 0, {"t": [0]})), False, 0))
    at_once(kept.open(registered(9, frame(session.id, 1)), False, 1))
    for epoch in (8, 9):  # the first one comes late
        assert at_once(kept.open(registered(epoch, frame(0, 0, {"t": [1]})), False, 2)).id > 0
        assert kept.awaits(session, 2)


def test_consumers_have_no_registrations() -> None:
    kept = sessions(slots=50)
    first = at_once(kept.open(frame(0, 0, {"t": [0]}), False, 0))
    at_once(kept.open(registered(7, frame(0, 0, {"t": [0]}), replica_id=-1), False, 0))
    assert kept.awaits(first, 1)


def test_a_session_that_grows_beyond_the_bound_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkad.api.fetch_session._MOST_PARTITIONS", 100)
    kept = sessions(slots=50)
    session = at_once(kept.open(frame(0, 0, {"t": list(range(60))}), False, 0))
    session_id = session.id
    with pytest.raises(KafkaError) as full:
        at_once(kept.open(frame(session_id, 1, {"u": list(range(60))}), False, 1))
    assert full.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert kept.partition_count() == 0
    assert at_once(kept.open(frame(0, 0, {"t": list(range(100))}), False, 2)).id > 0


def test_partitions_count_once_and_for_as_long_as_their_session_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkad.api.fetch_session._MOST_PARTITIONS", 100)
    kept = sessions(slots=50)
    for now in range(10):
        session = at_once(kept.open(frame(0, 0, {"t": list(range(40))}), False, now))
        session_id = session.id
        again = at_once(kept.open(frame(session_id, 1, {"t": list(range(40))}, {"t": [0]}), False, now))
        assert len(again.partitions) == 39
        if now % 2:
            at_once(kept.open(frame(session_id, -1), False, now))
        else:
            at_once(kept.open(frame(session_id, 2, None, {"t": list(range(1, 40))}), False, now))
    assert len(kept) == 0
    assert at_once(kept.open(frame(0, 0, {"t": list(range(100))}), False, 10)).id > 0


def test_without_slots_there_are_no_sessions() -> None:
    assert at_once(sessions(slots=0).open(frame(0, 0, {"t": [0]}), False, 0)).id == 0


def test_partitions_that_got_data_go_to_the_end() -> None:
    kept = sessions()
    session = at_once(kept.open(frame(0, 0, {"t": [0, 1, 2]}), False, 0))
    session.rotate([session.partitions["t", 0]])
    assert [each.wanted.partition for each in session.moved] == [1, 2, 0]


def cached(session: Session, index: int = 0) -> CachedPartition:
    return session.partitions["t", index]


def test_a_follower_is_known_to_follow_when_it_had_the_answer_before() -> None:
    """However long its request has lain in a socket."""
    kept = sessions()
    session = at_once(kept.open(frame(0, 0, {"t": [0]}, leader_epoch=5), False, 1_000))
    assert cached(session).followed_ms(5) == -inf, "this may have been sent before another leader was elected"
    at_once(kept.open(frame(session.id, 1), False, 1_500))
    assert cached(session).followed_ms(5) == 1_000
    at_once(kept.open(frame(session.id, 2), False, 60_000))
    assert cached(session).followed_ms(5) == 1_500
    assert cached(session).followed_ms(4) == cached(session).followed_ms(6) == -inf


def test_of_a_partition_that_a_follower_wants_no_more_nothing_is_known() -> None:
    kept = sessions()
    session = at_once(kept.open(frame(0, 0, {"t": [0, 1]}, leader_epoch=5), False, 1_000))
    at_once(kept.open(frame(session.id, 1), False, 2_000))
    first, second = cached(session, 0), cached(session, 1)
    going = kept.open(frame(session.id, 2, forgotten={"t": [1]}), False, 3_000)
    next(going)
    assert second.followed_ms(5) <= 1_000
    at_once(going)
    assert (first.followed_ms(5), second.followed_ms(5)) == (2_000, -inf)
    at_once(kept.open(frame(session.id, 3, {"t": [1]}, leader_epoch=6), False, 4_000))
    again = cached(session, 1)
    assert (second.followed_ms(5), again.followed_ms(5), again.followed_ms(6)) == (-inf, -inf, 3_000)
