"""The follower's side of a fetch session, beside the leader's own."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkad.api.fetch_session import FetchSessions
from kafkad.errors import ErrorCode, KafkaError
from kafkad.replica.fetching import FetchLimits, FetchSession, Key, Meaning, Place, meaning
from kafkad.turns import at_once
from kafkad.wire.fetch import read_fetch
from kafkad.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kafkad.wire.schema import encode

ME = 3
VERSION = 17
KEYS = [Key(bytes([topic]) * 16, partition) for topic in (1, 2) for partition in (0, 1, 2)]
LIMITS = FetchLimits(wait_max_ms=7, min_bytes=2, response_max_bytes=1000, partition_max_bytes=100)


def place(offset: int = 0, epoch: int = 0) -> Place:
    return Place(epoch, offset, -1, 0)


def named(request: FetchRequest) -> dict[Key, Place]:
    return {
        Key(topic.topic_id, p.partition): Place(
            p.current_leader_epoch, p.fetch_offset, p.last_fetched_epoch, p.log_start_offset
        )
        for topic in request.topics
        for p in topic.partitions
    }


def gone(request: FetchRequest) -> set[Key]:
    return {Key(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions}


def answer(session_id: int, *keys: Key, error: int = 0) -> FetchResponse:
    return FetchResponse(
        error_code=error,
        session_id=session_id,
        responses=[
            FetchableTopicResponse(topic_id=key.topic_id, partitions=[PartitionData(partition_index=key.partition)])
            for key in keys
        ],
    )


def taken(session: FetchSession, response: FetchResponse) -> list[Key]:
    return [key for key, _ in session.answered(response)]


def test_all_is_named_once_and_then_what_changed() -> None:
    session = FetchSession(ME)
    for key in KEYS[:3]:
        session.want(key, place())
    first = session.request(LIMITS)
    assert (first.replica_state.replica_id, first.session_id, first.session_epoch) == (ME, 0, 0)
    assert (first.max_wait_ms, first.min_bytes, first.max_bytes) == (7, 2, 1000)
    assert {p.partition_max_bytes for topic in first.topics for p in topic.partitions} == {100}
    assert named(first).keys() == set(KEYS[:3])
    assert taken(session, answer(50, *KEYS[:3])) == KEYS[:3]
    session.want(KEYS[1], place(5))
    session.want(KEYS[0], place())
    session.forget(KEYS[2])
    session.want(KEYS[3], place(9))
    session.want(KEYS[4], place())
    session.forget(KEYS[4])
    second = session.request(LIMITS)
    assert (second.session_id, second.session_epoch) == (50, 1)
    assert named(second) == {KEYS[1]: place(5), KEYS[3]: place(9)}
    assert gone(second) == {KEYS[2]}, "and not what the leader never heard of"
    assert taken(session, answer(50)) == []
    third = session.request(LIMITS)
    assert (third.session_epoch, named(third), gone(third)) == (2, {}, set())


def test_an_answer_to_what_was_asked_before_is_not_looked_at() -> None:
    session = FetchSession(ME)
    for key in KEYS:
        session.want(key, place())
    session.request(LIMITS)
    session.forget(KEYS[0])
    session.want(KEYS[1], place(epoch=1))
    session.forget(KEYS[2])
    session.want(KEYS[2], place())
    answers = session.answered(answer(50, *KEYS[:5], Key(b"x" * 16, 0)))
    assert next(answers)[0] == KEYS[3]
    session.forget(KEYS[4])
    assert list(answers) == []
    again = session.request(LIMITS)
    assert (again.session_id, again.session_epoch) == (50, 0), "what it told of the watermark would never come again"
    assert named(again).keys() == {KEYS[1], KEYS[2], KEYS[3], KEYS[5]}


def test_after_an_answer_that_says_where_logs_diverge_the_watermark_is_told_again() -> None:
    session = FetchSession(ME)
    session.want(KEYS[0], place(9))
    session.request(LIMITS)
    diverged = answer(50, KEYS[0])
    diverged.responses[0].partitions[0].diverging_epoch = EpochEndOffset(epoch=1, end_offset=5)
    assert taken(session, diverged) == [KEYS[0]]
    session.want(KEYS[0], place(5))
    assert session.request(LIMITS).session_epoch == 0


def test_an_answer_about_what_is_not_wanted_any_more_is_no_loss() -> None:
    session = FetchSession(ME)
    for key in KEYS:
        session.want(key, place())
    session.request(LIMITS)
    session.forget(KEYS[0])
    assert taken(session, answer(50, *KEYS)) == KEYS[1:]
    assert session.request(LIMITS).session_epoch == 1


def test_a_session_that_the_leader_does_not_have_begins_again() -> None:
    session = FetchSession(ME)
    session.want(KEYS[0], place())
    session.request(LIMITS)
    assert taken(session, answer(0, KEYS[0])) == [KEYS[0]], "the leader keeps no session"
    again = session.request(LIMITS)
    assert (again.session_id, again.session_epoch, len(named(again))) == (0, 0, 1)
    taken(session, answer(51))
    for error, ends in ((ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 51)):
        assert session.request(LIMITS).session_epoch == 1
        assert taken(session, answer(0, error=error)) == []
        whole = session.request(LIMITS)
        assert (whole.session_id, whole.session_epoch, named(whole).keys()) == (ends, 0, {KEYS[0]})
        taken(session, answer(51))
    session.request(LIMITS)
    session.lost()
    assert (session.request(LIMITS).session_epoch, len(session)) == (0, 1)


def test_what_got_records_is_asked_for_after_the_others() -> None:
    session = FetchSession(ME)
    for key in KEYS[:3]:
        session.want(key, place())
    session.request(LIMITS)
    taken(session, answer(0))
    session.want(KEYS[0], place(8))
    assert list(named(session.request(LIMITS))) == [KEYS[1], KEYS[2], KEYS[0]]


def test_what_answers_mean() -> None:
    def of(code: int) -> Meaning:
        return meaning(PartitionData(error_code=code))

    assert meaning(PartitionData()) is Meaning.RECORDS
    assert meaning(PartitionData(diverging_epoch=EpochEndOffset(epoch=0, end_offset=0))) is Meaning.DIVERGED
    assert of(ErrorCode.OFFSET_OUT_OF_RANGE) is Meaning.OUT_OF_RANGE
    assert of(ErrorCode.FENCED_LEADER_EPOCH) is Meaning.FENCED
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE, 999):
        assert of(code) is Meaning.LATER


STEP = st.one_of(
    st.tuples(st.sampled_from(["want", "forget"]), st.sampled_from(KEYS), st.integers(0, 5)),
    st.tuples(st.sampled_from(["fetch", "lose", "evict"]), st.just(KEYS[0]), st.just(0)),
)


@given(st.lists(STEP, max_size=40))
@settings(max_examples=60)
def test_the_leaders_session_has_what_is_wanted_after_every_fetch(steps: list[tuple[str, Key, int]]) -> None:
    """Whatever is lost between them, and whatever the leader has forgotten."""
    session, leader, wanted = FetchSession(ME), FetchSessions(2, 1000, Random(1), at_once), dict[Key, Place]()
    for what, key, offset in [*steps, ("fetch", KEYS[0], 0), ("fetch", KEYS[0], 0)]:
        if what == "want":
            session.want(key, place(offset))
            wanted[key] = place(offset)
        elif what == "forget":
            session.forget(key)
            wanted.pop(key, None)
        elif what == "evict":
            leader = FetchSessions(2, 1000, Random(offset), at_once)
        elif wanted:
            frame = read_fetch(memoryview(encode(session.request(LIMITS), VERSION)), 0, VERSION)
            try:
                kept = at_once(leader.open(frame, True, 0))
            except KafkaError as error:
                response = answer(0, error=error.code)
            else:
                response = answer(kept.id)
                has = {key: f.wanted for key, f in kept.partitions.items()}
                assert has.keys() == wanted.keys()
                assert {key: place(f.offset) for key, f in has.items()} == wanted
            if what == "lose":
                session.lost()
            else:
                taken(session, response)
    assert len(session) == len(wanted)
