"""Decisions about a transactional id, by the tables of Kafka's states and answers."""

from __future__ import annotations

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad.txn.transaction import (
    COMPLETE,
    NEEDS_ID,
    NO_PARTITIONS,
    OK,
    PREPARED,
    AddPartitions,
    Answer,
    Asked,
    Cause,
    Decision,
    End,
    EndAndBump,
    InitProducer,
    Moment,
    State,
    TimeOut,
    Transaction,
    Write,
    completed,
    is_forgettable,
    verify,
)

NOW = 1_700_000_000_000
MOMENT = Moment(NOW, level=2)
OLD_CLUSTER = Moment(NOW, level=0)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
STATES = list(State)
AT_REST = [State.EMPTY, *sorted(COMPLETE)]

EMPTY, ONGOING = State.EMPTY, State.ONGOING
FENCED, UNKNOWN = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING
CONCURRENT, WRONG_STATE = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE
NONE = ErrorCode.NONE


def known(state: State, epoch: int = 3, **changed: object) -> Transaction:
    partitions = frozenset({T0}) if state is ONGOING or state in PREPARED else NO_PARTITIONS
    started = -1 if state is EMPTY else NOW - 10
    made = Transaction("a", 7, epoch, 60_000, state, partitions, NOW - 5, started, previous_producer_id=7)
    return made._replace(**changed)


def code(decision: Decision) -> ErrorCode:
    assert isinstance(decision, Answer)
    return decision.error


def written(decision: Decision) -> Write:
    assert isinstance(decision, Write)
    return decision


# InitProducerId


def init(before: Transaction | None, producer_id: int = -1, epoch: int = -1, moment: Moment = MOMENT) -> Decision:
    return InitProducer("a", 9000, producer_id, epoch).decide(before, moment)


def test_a_new_id_gets_a_new_producer_id_whatever_was_given() -> None:
    for given in ((-1, -1), (1, 7)):
        assert init(None, *given) is NEEDS_ID
        record, answer, cause = written(init(None, *given, moment=MOMENT._replace(new_id=70)))
        assert answer == Answer(NONE, 70, 0)
        assert record == Transaction("a", 70, 0, 9000, EMPTY, NO_PARTITIONS, NOW, previous_producer_id=70)
        assert cause is None


@pytest.mark.parametrize("state", AT_REST)
def test_the_next_producer_of_an_id_gets_the_next_epoch(state: State) -> None:
    record, answer, _ = written(init(known(state, partitions=NO_PARTITIONS)))
    assert answer == Answer(NONE, 7, 4)
    assert (record.state, record.epoch, record.timeout_ms, record.started_ms) == (EMPTY, 4, 9000, -1)
    assert record.last_epoch == -1
    assert code(init(record, 7, 3)) is FENCED, "the one before"


@pytest.mark.parametrize("state", AT_REST)
def test_a_producer_that_names_its_epoch_may_repeat_the_request(state: State) -> None:
    record, answer, _ = written(init(known(state), 7, 3))
    assert answer == Answer(NONE, 7, 4)
    again, answer, _ = written(init(record, 7, 3))
    assert answer == Answer(NONE, 7, 4)
    assert again.epoch == 4
    for wrong in ((7, 2), (7, 9), (8, 3), (6, 3)):
        assert code(init(record, *wrong)) is FENCED


@pytest.mark.parametrize("state", sorted(PREPARED))
def test_markers_on_their_way_are_waited_for(state: State) -> None:
    assert code(init(known(state))) is CONCURRENT
    assert code(init(known(state), 8, 3)) is FENCED


def test_an_open_transaction_is_fenced_and_then_the_same_is_asked_again() -> None:
    record, answer, cause = written(init(known(ONGOING)))
    assert answer.error is CONCURRENT
    assert cause is Cause.FENCED
    assert (record.state, record.epoch, record.partitions) == (State.PREPARE_ABORT, 4, {T0})
    done = completed(record, NOW)
    assert (done.state, done.epoch) == (State.COMPLETE_ABORT, 4)
    assert written(init(done)).answer == Answer(NONE, 7, 5)
    assert written(init(done, 7, 3)).answer == Answer(NONE, 7, 4), "its own producer goes on"


def test_an_epoch_behind_does_not_end_what_the_living_producer_has_open() -> None:
    assert code(init(known(ONGOING, last_epoch=2), 7, 2)) is FENCED
    assert code(init(known(ONGOING), 7, 4)) is FENCED
    assert written(init(known(ONGOING), 7, 3)).record.state is State.PREPARE_ABORT


@pytest.mark.parametrize("state", AT_REST)
@pytest.mark.parametrize("epoch", [32766, 32767])
def test_a_producer_id_with_all_its_epochs_behind_it_is_replaced(state: State, epoch: int) -> None:
    for given in ((-1, -1), (7, epoch)):
        assert init(known(state, epoch), *given) is NEEDS_ID
        record, answer, _ = written(init(known(state, epoch), *given, moment=MOMENT._replace(new_id=70)))
        assert answer == Answer(NONE, 70, 0)
        assert (record.producer_id, record.previous_producer_id) == (70, 7)
    assert written(init(record, 7, epoch)).answer == Answer(NONE, 70, 0), "asked again: nothing is given twice"
    assert code(init(record, 7, 32765)) is FENCED
    assert written(init(known(state, 32765))).answer == Answer(NONE, 7, 32766)


# AddPartitionsToTxn


def add(before: Transaction | None, *partitions: TopicPartition, producer: tuple[int, int] = (7, 3)) -> Decision:
    return AddPartitions(*producer, partitions, version=2).decide(before, MOMENT)


@pytest.mark.parametrize("state", AT_REST)
@pytest.mark.parametrize("partitions", [(T0, T1), ()])
def test_the_first_partitions_begin_a_transaction(state: State, partitions: tuple[TopicPartition, ...]) -> None:
    record, answer, _ = written(add(known(state), *partitions))
    assert answer == OK
    assert (record.state, record.epoch, record.partitions) == (ONGOING, 3, set(partitions))
    assert (record.started_ms, record.updated_ms, record.version) == (NOW, NOW, 2)


def test_more_partitions_do_not_prolong_it() -> None:
    record, _, _ = written(add(known(ONGOING), T1))
    assert record.partitions == {T0, T1}
    assert (record.started_ms, record.updated_ms) == (NOW - 10, NOW)
    assert add(known(ONGOING), T0) == OK, "known already: nothing to record"
    assert add(known(ONGOING)) == OK


@pytest.mark.parametrize("state", STATES)
def test_only_the_very_producer_and_epoch_will_do(state: State) -> None:
    asked: list[type[End] | type[EndAndBump]] = [End, EndAndBump]
    for producer, refusal in (((8, 3), UNKNOWN), ((7, 4), FENCED), ((7, 1), FENCED)):
        assert code(add(known(state), T0, producer=producer)) is refusal
        assert verify(known(state), *producer, [T0]) is refusal
        for end in asked:
            assert code(end(*producer, True).decide(known(state), MOMENT)) is refusal
    assert code(add(None, T0)) is UNKNOWN
    assert verify(None, 7, 3, [T0]) is UNKNOWN
    for end in asked:
        assert code(end(7, 3, True).decide(None, MOMENT)) is UNKNOWN


@pytest.mark.parametrize("state", sorted(PREPARED))
def test_nothing_is_added_while_markers_are_on_their_way(state: State) -> None:
    assert code(add(known(state), T0)) is CONCURRENT
    assert verify(known(state), 7, 3, [T0]) is CONCURRENT


def test_what_is_verified_is_told_of_each_partition() -> None:
    missing = ErrorCode.TRANSACTION_ABORTABLE
    assert verify(known(ONGOING), 7, 3, [T1, T0]) == {T1: missing, T0: NONE}
    for state in AT_REST:
        assert verify(known(state), 7, 3, [T0]) == {T0: missing}


# EndTxn

ENDINGS = [
    (EMPTY, True, WRONG_STATE),
    (EMPTY, False, WRONG_STATE),
    (State.PREPARE_COMMIT, True, CONCURRENT),
    (State.PREPARE_COMMIT, False, CONCURRENT),
    (State.PREPARE_ABORT, True, CONCURRENT),
    (State.PREPARE_ABORT, False, CONCURRENT),
    (State.COMPLETE_COMMIT, True, NONE),
    (State.COMPLETE_COMMIT, False, WRONG_STATE),
    (State.COMPLETE_ABORT, True, WRONG_STATE),
    (State.COMPLETE_ABORT, False, NONE),
]


@pytest.mark.parametrize(("state", "commit", "expected"), ENDINGS)
def test_endings_of_old_clients(state: State, commit: bool, expected: ErrorCode) -> None:
    assert code(End(7, 3, commit).decide(known(state), MOMENT)) is expected


@pytest.mark.parametrize("commit", [True, False])
def test_an_old_client_keeps_its_epoch(commit: bool) -> None:
    record, answer, cause = written(End(7, 3, commit).decide(known(ONGOING, version=2), MOMENT))
    assert answer == OK
    assert record.state is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
    assert (record.epoch, record.partitions, record.version) == (3, {T0}, 0)
    assert cause is (Cause.COMMITTED if commit else Cause.ABORTED)
    done = completed(record, NOW + 5)
    assert done.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert (done.epoch, done.partitions, done.started_ms, done.updated_ms) == (3, set(), NOW - 10, NOW + 5)


BEGUN = "a new abort"
BUMPING: list[tuple[State, bool, int, ErrorCode | str]] = [
    (EMPTY, False, 2, FENCED),
    (EMPTY, False, 3, BEGUN),
    (EMPTY, True, 2, FENCED),
    (EMPTY, True, 3, WRONG_STATE),
    (ONGOING, False, 2, FENCED),
    (ONGOING, True, 2, FENCED),
    *((state, commit, epoch, CONCURRENT) for state in PREPARED for commit in (True, False) for epoch in (2, 3)),
    (State.COMPLETE_ABORT, False, 2, NONE),
    (State.COMPLETE_ABORT, False, 3, BEGUN),
    (State.COMPLETE_ABORT, True, 2, WRONG_STATE),
    (State.COMPLETE_ABORT, True, 3, WRONG_STATE),
    (State.COMPLETE_COMMIT, False, 2, WRONG_STATE),
    (State.COMPLETE_COMMIT, False, 3, BEGUN),
    (State.COMPLETE_COMMIT, True, 2, NONE),
    (State.COMPLETE_COMMIT, True, 3, WRONG_STATE),
]


@pytest.mark.parametrize(("state", "commit", "epoch", "expected"), BUMPING)
def test_endings_of_new_clients(state: State, commit: bool, epoch: int, expected: ErrorCode | str) -> None:
    decision = EndAndBump(7, epoch, commit).decide(known(state, version=2), MOMENT)
    if expected is BEGUN:
        record, answer, _ = written(decision)
        assert answer == Answer(NONE, 7, 4)
        assert (record.state, record.epoch, record.partitions) == (State.PREPARE_ABORT, 4, set())
        assert record.started_ms == NOW
    elif expected is NONE:
        assert decision == Answer(NONE, 7, 3)
    else:
        assert code(decision) is expected


@pytest.mark.parametrize("commit", [True, False])
def test_a_new_client_goes_on_with_the_next_epoch(commit: bool) -> None:
    record, answer, _ = written(EndAndBump(7, 3, commit).decide(known(ONGOING), MOMENT))
    assert answer == Answer(NONE, 7, 4)
    assert (record.epoch, record.version, record.last_epoch) == (4, 2, 3)
    done = completed(record, NOW)
    assert (done.producer_id, done.epoch) == (7, 4)


def test_the_epoch_before_repeats_only_what_a_new_client_ended() -> None:
    """Else a producer that was fenced long ago would be told that its transaction is committed."""
    assert code(EndAndBump(7, 2, True).decide(known(State.COMPLETE_COMMIT), MOMENT)) is FENCED


def test_the_last_epoch_ends_with_a_new_producer_id() -> None:
    ask = EndAndBump(7, 32766, True)
    assert ask.decide(known(ONGOING, 32766), MOMENT) is NEEDS_ID
    record, answer, _ = written(ask.decide(known(ONGOING, 32766), MOMENT._replace(new_id=70)))
    assert answer == Answer(NONE, 70, 0)
    assert (record.producer_id, record.epoch, record.next_producer_id) == (7, 32767, 70), "its markers fence the old"
    assert code(ask.decide(record, MOMENT)) is CONCURRENT
    done = completed(record, NOW)
    assert (done.producer_id, done.epoch, done.previous_producer_id, done.next_producer_id) == (70, 0, 7, -1)
    assert ask.decide(done, MOMENT) == Answer(NONE, 70, 0), "asked again"
    assert code(EndAndBump(7, 32766, False).decide(done, MOMENT)) is WRONG_STATE
    assert code(EndAndBump(7, 32765, True).decide(done, MOMENT)) is UNKNOWN
    assert written(init(done, 7, 32766)).answer == Answer(NONE, 70, 0)


def test_who_was_told_of_the_next_producer_id_waits_for_the_markers() -> None:
    """EndTxn is answered early when markers take long."""
    ended = known(State.PREPARE_COMMIT, 32767, next_producer_id=70, version=2)
    asks: list[Asked] = [
        AddPartitions(70, 0, [T0], 2),
        End(70, 0, True),
        EndAndBump(70, 0, True),
        InitProducer("a", 9000, 70, 0),
    ]
    for ask in asks:
        assert code(ask.decide(ended, MOMENT)) is CONCURRENT
    assert verify(ended, 70, 0, [T0]) is CONCURRENT
    assert code(add(ended, T0, producer=(70, 1))) is UNKNOWN
    assert code(add(ended, T0, producer=(71, 0))) is UNKNOWN
    assert code(init(ended, 70, 1)) is FENCED
    assert code(add(known(State.PREPARE_COMMIT), T0, producer=(-1, 0))) is UNKNOWN
    assert written(add(completed(ended, NOW), T0, producer=(70, 0))).answer == OK


# Time


def test_a_transaction_times_out_when_its_time_is_over_and_not_before() -> None:
    began = known(ONGOING, started_ms=NOW - 60_000)
    assert TimeOut().decide(began, MOMENT) == OK
    record, answer, cause = written(TimeOut().decide(began, Moment(NOW + 1, level=2)))
    assert answer == OK
    assert cause is Cause.TIMED_OUT
    assert (record.state, record.epoch, record.last_epoch, record.version) == (State.PREPARE_ABORT, 4, 3, 2)
    for state in (*AT_REST, *PREPARED):
        assert TimeOut().decide(known(state, started_ms=1), MOMENT) == OK
    assert TimeOut().decide(None, MOMENT) == OK


def test_a_fence_at_the_last_epoch() -> None:
    began = known(ONGOING, 32766, started_ms=1)
    assert TimeOut().decide(began, MOMENT) is NEEDS_ID
    record = written(TimeOut().decide(began, MOMENT._replace(new_id=70))).record
    assert (record.epoch, record.next_producer_id) == (32767, 70)
    assert (completed(record, NOW).producer_id, completed(record, NOW).epoch) == (70, 0)


def test_whose_last_epoch_was_fenced_goes_on_with_a_new_producer_id() -> None:
    """The epoch that fences is given to nobody."""
    fenced = known(State.COMPLETE_ABORT, 32767, last_epoch=32766)
    assert init(fenced, 7, 32766) is NEEDS_ID
    record, answer, _ = written(init(fenced, 7, 32766, moment=MOMENT._replace(new_id=70)))
    assert answer == Answer(NONE, 70, 0)
    assert written(init(record, 7, 32766)).answer == Answer(NONE, 70, 0), "asked again: nothing is given twice"


def test_a_fence_at_the_last_epoch_beside_old_brokers() -> None:
    """Their records cannot say which id is next."""
    asks: list[Asked] = [TimeOut(), InitProducer("a", 9000)]
    for ask in asks:
        record = written(ask.decide(known(ONGOING, 32766, started_ms=1), OLD_CLUSTER)).record
        assert (record.epoch, record.next_producer_id, record.version) == (32767, -1, 0)
        done = completed(record, NOW)
        assert (done.producer_id, done.epoch) == (7, 32767)
        assert written(init(done, moment=OLD_CLUSTER._replace(new_id=70))).answer == Answer(NONE, 70, 0)


@pytest.mark.parametrize("state", STATES)
def test_only_an_id_at_rest_is_forgotten(state: State) -> None:
    at_rest = state in AT_REST
    assert is_forgettable(known(state, updated_ms=NOW - 1000), NOW, 1000) == at_rest
    assert not is_forgettable(known(state, updated_ms=NOW - 999), NOW, 1000)
