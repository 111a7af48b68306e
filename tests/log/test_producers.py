"""Producer states: Kafka's own logs replayed against its own snapshots, the rules one by one, and a simple model."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkad.errors import ErrorCode, KafkaError
from kafkad.log import snapshots
from kafkad.log.files import Files
from kafkad.log.producers import DuplicateBatch, Origin, ProducerStates, read_marker
from kafkad.log.snapshots import Snapshots
from kafkad.log.txnindex import AbortedTransaction
from kafkad.log.txnindex import decode as decode_txn_index
from kafkad.turns import at_once
from kafkad.wire.control import ControlRecord
from kafkad.wire.records import BatchHeader, iter_batches
from tests.fakes import FakeClock
from tests.log.conftest import pieces_of
from tests.log.sequences import MAX_SEQUENCE, MIDDLE, SCENARIOS

GOLDEN = Path(__file__).parent.parent / "golden" / "logs" / "main"
HOUR = 3_600_000
RESTARTED = ("idempotent-0", "epochs-0")
"""There Kafka had forgotten producers whose records' timestamps were years old."""


def states(tmp_path: Path) -> ProducerStates:
    """Of an empty log, which knows that no producer was ever there."""
    empty = ProducerStates(Snapshots(str(tmp_path), Files()))
    empty.reload(0, 0, 0)
    return empty


def batch(
    sequence: int,
    *,
    producer: int = 7,
    epoch: int = 0,
    count: int = 1,
    transactional: bool = False,
    control: bool = False,
    timestamp: int = 1000,
) -> BatchHeader:
    attributes = (0x10 if transactional else 0) | (0x20 if control else 0)
    return BatchHeader(0, 100, 0, 2, 0, attributes, count - 1, timestamp, timestamp, producer, epoch, sequence, count)


def end(epoch: int = 0, producer: int = 7, timestamp: int = 1000) -> BatchHeader:
    return batch(-1, producer=producer, epoch=epoch, transactional=True, control=True, timestamp=timestamp)


def append(to: ProducerStates, header: BatchHeader, offset: int, marker: ControlRecord | None = None) -> object:
    to.check(header, marker)
    return to.update(header, offset, marker)


def refusal(of: ProducerStates, header: BatchHeader, marker: ControlRecord | None = None) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        of.check(header, marker)
    return refused.value.code


COMMIT, ABORT = ControlRecord(True, 0), ControlRecord(False, 0)


@pytest.mark.parametrize("partition", ["tx-0", "idempotent-0", "epochs-0", "__consumer_offsets-0", "codec-none-0"])
def test_replaying_kafkas_log_gives_kafkas_snapshots_and_transaction_indexes(tmp_path: Path, partition: str) -> None:
    replayed = states(tmp_path)
    replayed.expiration_ms = 2**62
    directory = GOLDEN / partition
    end_offset = 0
    for log in sorted(directory.glob("*.log")):
        compare_snapshot(replayed, directory, int(log.stem))
        aborted = []
        view = memoryview(log.read_bytes())
        for at, header in iter_batches(view):
            end_offset = header.last_offset + 1
            if header.producer_id >= 0:
                marker = read_marker(view, at, header) if header.is_control else None
                ended = replayed.update(header, header.base_offset, marker)
                aborted += [ended] if ended else []
        index = log.with_suffix(".txnindex")
        assert aborted == (decode_txn_index(index.read_bytes()) if index.exists() else [])
    assert compare_snapshot(replayed, directory, end_offset)


def compare_snapshot(replayed: ProducerStates, directory: Path, offset: int) -> bool:
    kafkas = directory / snapshots.file_name(offset)
    if not kafkas.exists():
        return False
    at_once(replayed.snapshots.write(offset, b""))  # so that the next one is taken
    replayed.take_snapshot(offset + 1)
    ours = (Path(replayed.snapshots.directory) / snapshots.file_name(offset + 1)).read_bytes()
    known = list(snapshots.decode(ours))
    theirs = list(snapshots.decode(kafkas.read_bytes()))
    assert [entry for entry in theirs if entry in known] == theirs
    assert len(theirs) == len(known) or directory.name in RESTARTED
    return True


@pytest.mark.parametrize("name", [*SCENARIOS, *MIDDLE])
def test_answers_are_kafkas(tmp_path: Path, name: str) -> None:
    log = states(tmp_path)
    if name in MIDDLE:
        log.forget_past()
    offset = 0
    for sent in SCENARIOS.get(name) or MIDDLE[name]:
        header = batch(sent.sequence, producer=sent.producer, epoch=sent.epoch, count=sent.count)
        answer: ErrorCode | int = offset
        try:
            append(log, header, offset)
            offset += sent.count
        except DuplicateBatch as duplicate:
            answer = duplicate.base_offset
        except KafkaError as refused:
            answer = refused.code
        assert (answer, type(answer)) == (sent.answer, type(sent.answer)), sent


def test_sequences_go_on_from_each_other_and_wrap(tmp_path: Path) -> None:
    log = states(tmp_path)
    append(log, batch(0, count=10), 0)
    assert refusal(log, batch(9)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, batch(11)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, batch(10), 10)
    log.forget_past()
    append(log, batch(MAX_SEQUENCE - 1, producer=8, count=4), 11)
    append(log, batch(2, producer=8), 15)
    with pytest.raises(DuplicateBatch) as duplicate:
        log.check(batch(MAX_SEQUENCE - 1, producer=8, count=4))
    assert duplicate.value.base_offset == 11


def test_the_last_five_batches_are_known_again_and_older_ones_are_out_of_order(tmp_path: Path) -> None:
    log = states(tmp_path)
    for n in range(7):
        append(log, batch(n * 3, count=3, timestamp=1000 + n), n * 10)
    for n in range(2, 7):
        with pytest.raises(DuplicateBatch) as duplicate:
            log.check(batch(n * 3, count=3))
        assert (duplicate.value.base_offset, duplicate.value.timestamp) == (n * 10, 1000 + n)
    assert refusal(log, batch(3, count=3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, batch(6, count=2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one(tmp_path: Path) -> None:
    log = states(tmp_path)
    append(log, batch(0), 0)
    assert refusal(log, batch(1, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, batch(0, epoch=1), 1)
    assert refusal(log, batch(1, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, batch(0, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    append(log, batch(1, epoch=1), 2)


def test_an_unknown_producer_may_start_anywhere_only_where_it_may_have_been_forgotten(tmp_path: Path) -> None:
    log = states(tmp_path)
    assert refusal(log, batch(3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, batch(0), 0)
    log.advance_start(1)
    append(log, batch(3, producer=8), 1)

    expired = states(tmp_path)
    append(expired, batch(0, timestamp=0), 0)
    assert at_once(expired.expire(23 * HOUR)) == 0
    assert at_once(expired.expire(24 * HOUR)) == 1
    append(expired, batch(1), 1)

    followed_another = states(tmp_path)
    followed_another.forget_past()
    append(followed_another, batch(3), 0)

    from_a_snapshot = ProducerStates(Snapshots(str(tmp_path), Files()))
    at_once(from_a_snapshot.snapshots.write(5, b""))
    assert from_a_snapshot.reload(0, 9, 0) == 5
    append(from_a_snapshot, batch(3), 9)


def test_only_batches_of_the_coordinator_have_no_sequence_and_go_unchecked(tmp_path: Path) -> None:
    log = states(tmp_path)
    append(log, batch(-1, transactional=True), 0)
    append(log, batch(-1, transactional=True), 1)
    append(log, end(), 2, COMMIT)


def test_a_transaction_holds_back_the_stable_offset_until_its_end_is_replicated(tmp_path: Path) -> None:
    log = states(tmp_path)
    assert log.first_unstable_offset(0) is None
    append(log, batch(0), 0)
    append(log, batch(1, transactional=True), 1)
    append(log, batch(0, transactional=True, producer=8), 2)
    assert log.first_unstable_offset(3) == 1
    assert refusal(log, batch(2)) == ErrorCode.INVALID_TXN_STATE
    assert append(log, end(), 3, ABORT) == AbortedTransaction(7, 1, 3, 2)
    assert log.first_unstable_offset(3) == 1
    assert log.first_unstable_offset(4) == 2
    assert append(log, end(producer=8), 4, COMMIT) is None
    assert log.first_unstable_offset(4) == 2
    assert log.first_unstable_offset(5) is None
    append(log, batch(2), 5)


def test_readers_wait_for_the_first_offset_of_all_transactions_that_are_open_or_not_replicated(tmp_path: Path) -> None:
    """Whatever the order in which transactions begin and end."""
    rest = Random(7)
    log = states(tmp_path)
    open_since: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    sequences = Counter[int]()
    high_watermark = 0
    for offset in range(400):
        producer = rest.randrange(20)
        if producer in open_since and rest.random() < 0.5:
            append(log, end(producer=producer), offset, COMMIT)
            ended.append((open_since.pop(producer), offset))
        else:
            append(log, batch(sequences[producer], transactional=True, producer=producer), offset)
            sequences[producer] += 1
            open_since.setdefault(producer, offset)
        if rest.random() < 0.2:
            high_watermark = rest.randint(high_watermark, offset + 1)
            log.committed_until(high_watermark)
        held = [*open_since.values(), *(first for first, last in ended if last >= high_watermark)]
        assert log.first_unstable_offset(high_watermark) == min(held, default=None)


def test_a_look_at_the_stable_offset_does_not_go_through_all_ended_transactions(tmp_path: Path) -> None:
    log = states(tmp_path)
    for producer in range(1000):
        append(log, batch(0, transactional=True, producer=producer), producer)
    for producer in range(1000):
        append(log, end(producer=producer), 1000 + producer, COMMIT)
    looked_at = 0

    class Counted(list[tuple[int, int]]):
        def __iter__(self) -> Iterator[tuple[int, int]]:
            raise AssertionError("it goes through all of them")

        def __getitem__(self, at: Any) -> Any:
            nonlocal looked_at
            looked_at += 1
            return super().__getitem__(at)

    log._undecided = Counted(log._undecided)
    for committed in range(100):
        log.committed_until(1000 + committed)
        assert log.first_unstable_offset(1000 + committed) == committed
    assert looked_at < 100 * 20


def test_a_marker_may_raise_the_epoch_and_an_old_coordinator_is_fenced(tmp_path: Path) -> None:
    log = states(tmp_path)
    append(log, batch(0, transactional=True), 0)
    append(log, end(epoch=1), 1, ControlRecord(False, 5))
    assert refusal(log, batch(1, transactional=True)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, batch(1, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, end(epoch=1), ControlRecord(True, 4)) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert refusal(log, end(epoch=0), ControlRecord(True, 5)) == ErrorCode.INVALID_PRODUCER_EPOCH
    append(log, batch(0, epoch=1, transactional=True), 2)
    assert [(row.epoch, row.last_sequence, row.coordinator_epoch, row.txn_start) for row in log.describe()] == [
        (1, 0, 5, 2)
    ]


def test_an_empty_transaction_is_no_entry_and_a_marker_of_a_stranger_is_taken_in(tmp_path: Path) -> None:
    log = states(tmp_path)
    assert append(log, end(epoch=3), 0, ABORT) is None
    assert log.first_unstable_offset(0) is None
    assert refusal(log, batch(4, epoch=3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, batch(0, epoch=3), 1)


def test_an_open_transaction_never_expires(tmp_path: Path) -> None:
    log = states(tmp_path)
    append(log, batch(0, transactional=True, timestamp=0), 0)
    append(log, batch(0, producer=8, timestamp=0), 1)
    assert at_once(log.expire(48 * HOUR)) == 1
    log.take_snapshot(2)
    assert log.reload(0, 2, 96 * HOUR) == 2
    assert [row.producer_id for row in log.describe()] == [7]
    assert log.first_unstable_offset(2) == 0


def test_truncation_goes_back_to_the_snapshot_below(tmp_path: Path) -> None:
    log = states(tmp_path)
    append(log, batch(0), 0)
    log.take_snapshot(1)
    append(log, batch(1), 1)
    log.take_snapshot(2)
    append(log, batch(2, transactional=True), 2)
    assert log.reload(0, 1, 0) == 1
    assert list(log.snapshots.offsets) == [1]
    assert log.first_unstable_offset(1) is None
    append(log, batch(1), 1)
    log.reset(50)
    assert len(log) == 0
    assert list(log.snapshots.offsets) == []
    append(log, batch(9), 50)


def test_one_state_is_one_snapshot(tmp_path: Path) -> None:
    log = states(tmp_path)
    log.take_snapshot(0)
    log.take_snapshot(0)
    assert list(log.snapshots.offsets) == [0]
    log.reload(0, 0, 0)
    assert list(log.snapshots.offsets) == []


def of_many(tmp_path: Path, count: int) -> ProducerStates:
    """Each has sent one batch, at the offset of its id."""
    log = states(tmp_path)
    for producer in range(count):
        append(log, batch(0, producer=producer, timestamp=0), producer)
    return log


def test_a_snapshot_of_many_producers_is_taken_in_pieces_and_is_that_of_its_moment(tmp_path: Path) -> None:
    log = of_many(tmp_path, 3_500)
    then = {row.producer_id: row.last_sequence for row in log.describe()}
    taking = log.begin_snapshot(3_500)
    assert taking is not None
    next(taking)
    for offset, (producer, sequence) in enumerate([(5, 1), (3_400, 1), (3_400, 2), (9_999, 0)], start=3_500):
        append(log, batch(sequence, producer=producer, timestamp=HOUR), offset)
    assert at_once(log.expire(24 * HOUR)) == 3_498
    assert log.begin_snapshot(3_600) is None
    assert pieces_of(taking) == (2, None)
    path = tmp_path / snapshots.file_name(3_500)
    assert {entry.producer_id: entry.last_sequence for entry in snapshots.decode(path.read_bytes())} == then
    assert list(log.snapshots.offsets) == [3_500]


def test_a_large_snapshot_is_written_in_pieces(tmp_path: Path) -> None:
    taken = Snapshots(str(tmp_path), Files())
    writing = taken.write(10, bytes(1 << 20))
    next(writing)
    assert taken.newest < 0
    assert pieces_of(writing) == (3, None)
    assert os.listdir(tmp_path) == [snapshots.file_name(10)]


def test_a_snapshot_that_is_not_written_yet_is_given_up_with_what_was_cut_off(tmp_path: Path) -> None:
    log = of_many(tmp_path, 8_000)
    taking = log.begin_snapshot(8_000)
    assert taking is not None
    for _ in range(9):
        next(taking)
    assert os.listdir(tmp_path) == [f"{snapshots.file_name(8_000)}.tmp"]
    log.reset(50)
    assert pieces_of(taking) == (0, None)
    assert os.listdir(tmp_path) == []
    append(log, batch(0), 50)
    log.take_snapshot(51)
    assert list(log.snapshots.offsets) == [51]


def test_a_snapshot_that_is_not_written_yet_is_written_before_the_next_is(tmp_path: Path) -> None:
    log = of_many(tmp_path, 2_500)
    log.begin_snapshot(2_500)
    append(log, batch(1, producer=7), 2_500)
    log.take_snapshot(2_501)
    assert list(log.snapshots.offsets) == [2_500, 2_501]
    assert sorted(os.listdir(tmp_path)) == [snapshots.file_name(offset) for offset in (2_500, 2_501)]


def test_whoever_looks_at_many_producers_does_so_in_pieces(tmp_path: Path) -> None:
    log = of_many(tmp_path, 3_500)
    count, last = pieces_of(log.last_of_each())
    assert (count, len(last), last[3_499].offset) == (3, 3_500, 3_499)
    described = log.describe()
    assert next(described).producer_id == 0
    assert pieces_of(log.expire(24 * HOUR)) == (3, 3_500)
    assert list(described) == []


# --- the model: what a producer sent, kept in the most simple way

STEPS = st.lists(
    st.tuples(st.integers(1, 2), st.sampled_from((0, 0, 0, 1, -1, -5, -9)), st.integers(1, 4), st.integers(0, 9)),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_states_agree_with_a_simple_model(tmp_path_factory: pytest.TempPathFactory, steps: list) -> None:  # type: ignore[type-arg]
    log = ProducerStates(Snapshots(str(tmp_path_factory.getbasetemp()), Files()))
    log.forget_past()
    sent: dict[int, list[tuple[int, int, int, int]]] = {}  # id -> (epoch, sequence, count, offset)
    offset = 0
    for producer, jump, count, luck in steps:
        history = sent.setdefault(producer, [])
        epoch = (history[-1][0] if history else 0) + (1 if luck == 9 else 0)
        expected = history[-1][1] + history[-1][2] if history else 0
        sequence = 0 if luck == 9 else max(0, expected + jump)
        header = batch(sequence, producer=producer, epoch=epoch, count=count)
        same = [b for b in history[-5:] if b[:3] == (epoch, sequence, count)]
        if same:
            with pytest.raises(DuplicateBatch) as duplicate:
                log.check(header)
            assert duplicate.value.base_offset == same[-1][3]
        elif not history or sequence == (0 if epoch > history[-1][0] else expected):
            append(log, header, offset)
            history.append((epoch, sequence, count, offset))
            offset += count
        else:
            assert refusal(log, header) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert {row.producer_id: row.last_sequence for row in log.describe()} == {
        producer: history[-1][1] + history[-1][2] - 1 for producer, history in sent.items() if history
    }


# -- batches of coordinators


def test_a_coordinator_writes_each_of_its_batches_with_sequence_0(tmp_path: Path) -> None:
    of_group = states(tmp_path)
    for offset in range(3):
        header = batch(0, transactional=True, count=1 + offset)
        of_group.check(header, None, Origin.COORDINATOR)
        of_group.update(header, offset)
    assert refusal(of_group, batch(0, transactional=True, count=9)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    with pytest.raises(KafkaError) as refused:
        of_group.check(batch(0, transactional=True, epoch=-1), None, Origin.COORDINATOR)
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


# -- whose transaction is open


@pytest.mark.parametrize("origin", Origin)
def test_a_batch_with_an_epoch_ahead_does_not_belong_to_the_open_transaction(tmp_path: Path, origin: Origin) -> None:
    """Whose end another leader has written: the producer is not fenced, and sends it there."""
    opened = states(tmp_path)
    append(opened, batch(0, transactional=True), 0)
    for sequence in (0, 5):
        with pytest.raises(KafkaError) as refused:
            opened.check(batch(sequence, transactional=True, epoch=1), None, origin)
        assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (opened.is_open(7, 0), opened.is_open(7, 1), opened.is_open(8, 0)) == (True, False, False)
    append(opened, end(), 1, COMMIT)
    assert not opened.is_open(7, 0)
    append(opened, batch(0, transactional=True, epoch=1), 2)
    assert opened.is_open(7, 1)


def test_an_end_with_the_epoch_of_the_open_transaction_is_late_where_each_has_its_own(tmp_path: Path) -> None:
    opened = states(tmp_path)
    append(opened, batch(0, transactional=True), 0)
    opened.check_marker(7, 0, version=0)
    opened.check_marker(7, 1, version=2)
    with pytest.raises(KafkaError) as refused:
        opened.check_marker(7, 0, version=2)
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    append(opened, end(1), 1, COMMIT)
    opened.check_marker(7, 1, version=2)


def test_what_a_zombie_asks_does_not_void_the_question_of_the_living_producer(tmp_path: Path) -> None:
    known = states(tmp_path)
    first = known.verify(7, 0, 0, 1000)
    living = known.verify(7, 1, 4, 1000)
    assert not known.is_verified(7, first)
    zombie = known.verify(7, 0, 0, 1000)
    assert known.is_verified(7, living)
    assert living.lowest_sequence == 4
    assert not known.is_verified(7, zombie)
    known.forget_verification(7, zombie)
    assert known.verify(7, 1, 5, 1000) is living


def test_what_comes_behind_a_batch_that_is_sent_again_waits_for_it(tmp_path: Path) -> None:
    known = states(tmp_path)
    append(known, batch(0), 0)
    known.awaits(batch(2))
    known.awaits(batch(1))
    assert refusal(known, batch(2)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert refusal(known, batch(2, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(known, batch(1), 1)
    assert refusal(known, batch(3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_begins_with_the_batch_that_is_sent_again(tmp_path: Path) -> None:
    """Where anything would do, because what it sent before may be forgotten."""
    known = states(tmp_path)
    known.forget_past()
    known.awaits(batch(5))
    assert refusal(known, batch(6)) == ErrorCode.NOT_ENOUGH_REPLICAS
    append(known, batch(5), 0)
    append(known, batch(6), 1)


def test_a_batch_that_never_comes_again_holds_others_up_only_so_often(tmp_path: Path) -> None:
    known = states(tmp_path)
    known.awaits(batch(0))
    told = [refusal(known, batch(1)) for _ in range(101)]
    assert told == [ErrorCode.NOT_ENOUGH_REPLICAS] * 100 + [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_a_new_leader_waits_for_what_the_one_before_may_have_refused(tmp_path: Path) -> None:
    known = states(tmp_path)
    append(known, batch(0), 0)
    assert refusal(known, batch(2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    known.leads_from(1, FakeClock())
    assert refusal(known, batch(2)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert refusal(known, batch(1, epoch=1)) == ErrorCode.NOT_ENOUGH_REPLICAS, "its first one is missing"
    assert refusal(known, batch(1, producer=8)) == ErrorCode.NOT_ENOUGH_REPLICAS
    append(known, batch(1), 1)
    append(known, batch(2), 2)
    assert refusal(known, batch(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "it has written to this leader"


def test_a_new_leader_does_not_wait_for_what_is_lost_for_long(tmp_path: Path) -> None:
    known = states(tmp_path)
    append(known, batch(0), 0)
    clock = FakeClock()
    known.leads_from(1, clock)
    clock.advance(2_999)
    assert {refusal(known, batch(2, producer=each)) for each in range(2_000)} == {ErrorCode.NOT_ENOUGH_REPLICAS}
    clock.advance(1)
    assert {refusal(known, batch(2, producer=each)) for each in range(9)} == {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}


def test_many_producers_that_are_to_come_again_take_no_more_memory(tmp_path: Path) -> None:
    known = states(tmp_path)
    for producer in range(5_000):
        known.awaits(batch(0, producer=producer))
    assert refusal(known, batch(1, producer=3_999)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(known, batch(1, producer=4_000)) == ErrorCode.NOT_ENOUGH_REPLICAS
