"""Produce of transactional producers, with a coordinator that does what the test says.

The answers are Kafka's: 4.3.1's, recorded from raw requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial

import pytest

from kafkad.errors import ErrorCode
from kafkad.log.producers import ProducerStates
from kafkad.log.validate import Demands, RebuildResult, rebuild
from kafkad.names import TopicPartition
from kafkad.replica.markers import Marker
from kafkad.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kafkad.wire.records import Record, build_batch
from tests.api.frames import Frames
from tests.one_broker import OneBroker

TXN, PID, EPOCH = "txn", 7, 3
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
VERIFYING = (3, 9, 10, 11)
ADDING = (12, 13)
NOT_ADDED = {11: ErrorCode.TRANSACTION_ABORTABLE}
"""Others are told INVALID_TXN_STATE."""
PASSING = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS)
"""Any client sends the batch again."""


@pytest.fixture
def frames(broker: OneBroker) -> Iterator[Frames]:
    frames = Frames(broker)
    broker.create("t", 2)
    frames.transactions.begin(TXN, PID, EPOCH)
    yield frames
    frames.close()


def batch(
    sequence: int = 0, *, pid: int = PID, epoch: int = EPOCH, transactional: bool = True, control: bool = False
) -> bytes:
    record = Record(0, 1_700_000_000_000, b"k", b"v")
    options = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": sequence}
    return bytes(build_batch([record], **options, transactional=transactional, control=control))


def request(
    frames: Frames, version: int, batches: dict[int, bytes], txn: str | None = TXN, acks: int = -1
) -> ProduceRequest:
    data = TopicProduceData(partition_data=[PartitionProduceData(index=i, records=b) for i, b in batches.items()])
    if version >= 13:
        data.topic_id = frames.broker.replicas.metadata.topics["t"].id
    else:
        data.name = "t"
    return ProduceRequest(transactional_id=txn, acks=acks, timeout_ms=5_000, topic_data=[data])


def answers(frames: Frames, version: int, batches: dict[int, bytes], txn: str | None = TXN) -> list[tuple[int, int]]:
    """Error and base offset of each partition."""
    [topic] = frames.ask(request(frames, version, batches, txn), version).responses
    return [(one.error_code, one.base_offset) for one in topic.partition_responses]


def produce(
    frames: Frames, version: int, records: bytes, *, txn: str | None = TXN, partition: int = 0
) -> tuple[int, int]:
    [answer] = answers(frames, version, {partition: records}, txn)
    return answer


def end(frames: Frames, *, epoch: int = EPOCH, commit: bool = True, version: int = 0) -> None:
    marker = Marker(PID, epoch, commit, 0, version, [T0])
    frames.broker.coordinators.markers.append([marker], lambda codes: None)


def end_offset(frames: Frames, index: int = 0) -> int:
    return frames.broker.replicas.leader("t", index).log.end_offset


# -- the ordinary case


@pytest.mark.parametrize("version", VERIFYING)
def test_one_question_for_all_partitions_and_none_while_the_transaction_is_open(frames: Frames, version: int) -> None:
    frames.transactions.begin(TXN, PID, EPOCH, T0, T1)
    assert answers(frames, version, {0: batch(), 1: batch()}) == [(0, 0), (0, 0)]
    for number in range(1, 4):
        assert answers(frames, version, {0: batch(number), 1: batch(number)}) == [(0, number), (0, number)]
    assert frames.transactions.asked == [(TXN, [T0, T1], True)]
    assert frames.broker.replicas.leader("t", 0).last_stable_offset == 0


@pytest.mark.parametrize("version", ADDING)
def test_new_clients_have_their_partitions_added(frames: Frames, version: int) -> None:
    assert answers(frames, version, {0: batch(), 1: batch()}) == [(0, 0), (0, 0)]
    assert frames.transactions.asked == [(TXN, [T0, T1], False)]
    assert frames.transactions.open[TXN] == {T0, T1}


@pytest.mark.parametrize("version", VERIFYING + ADDING)
def test_the_same_request_again_goes_the_quick_way_while_the_transaction_is_open(frames: Frames, version: int) -> None:
    frames.transactions.begin(TXN, PID, EPOCH, T0)
    for number in range(5):
        assert produce(frames, version, batch(number)) == (0, number)
    assert len(frames.transactions.asked) == 1
    assert frames.connection.peer.prepared
    end(frames)
    frames.transactions.begin(TXN, PID, EPOCH)
    if version < 12:
        assert produce(frames, version, batch(5))[0] == NOT_ADDED.get(version, ErrorCode.INVALID_TXN_STATE)
        assert end_offset(frames) == 6
    else:
        assert produce(frames, version, batch(5)) == (0, 6)
    assert len(frames.transactions.asked) == 2


@pytest.mark.parametrize("version", VERIFYING + ADDING)
def test_the_next_transaction_begins_the_quick_way_where_its_coordinator_answers_at_once(
    frames: Frames, version: int
) -> None:
    transactions = frames.transactions
    transactions.begin(TXN, PID, EPOCH, T0)
    transactions.answers_at_once = True
    assert [produce(frames, version, batch(number)) for number in (0, 1)] == [(0, 0), (0, 1)]
    end(frames)
    transactions.begin(TXN, PID, EPOCH, *([] if version in ADDING else [T0]))
    assert produce(frames, version, batch(2)) == (0, 3)
    assert transactions.let_in == [([T0], version in ADDING)] * 2
    assert not transactions.asked
    assert T0 in transactions.open[TXN]
    assert frames.broker.replicas.leader("t", 0).last_stable_offset == 3


@pytest.mark.parametrize("at_once", [False, True])
def test_the_coordinator_hears_who_adds_partitions(frames: Frames, at_once: bool) -> None:
    """Also from requests that repeat."""
    transactions, connection = frames.transactions, frames.connection
    transactions.answers_at_once = at_once
    for number in range(3):
        transactions.begin(TXN, PID, EPOCH)
        assert produce(frames, 12, batch(number))[0] == 0
        assert transactions.clients == {f"User:ANONYMOUS from {connection.address}, client test"}
        transactions.clients.clear()
        end(frames)


@pytest.mark.parametrize("version", [9, 12])
def test_several_partitions_are_let_in_together_where_their_coordinator_answers_at_once(
    frames: Frames, version: int
) -> None:
    """Nothing remembers that: what comes behind the end of the transaction is asked for again."""
    transactions = frames.transactions
    adds = version in ADDING
    transactions.begin(TXN, PID, EPOCH, *([] if adds else [T0, T1]))
    transactions.answers_at_once = True
    assert answers(frames, version, {0: batch(), 1: batch()}) == [(0, 0), (0, 0)]
    assert transactions.let_in == [([T0, T1], adds)]
    end(frames)
    transactions.begin(TXN, PID, EPOCH)
    transactions.refuses = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    found = answers(frames, version, {0: batch(1), 1: batch(1)})
    assert found == [(ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1), (0, 1)]  # in the other it is still open
    assert end_offset(frames) == 2


@pytest.mark.parametrize("version", [9, 12])
def test_of_several_partitions_those_are_let_in_that_belong_to_the_transaction(frames: Frames, version: int) -> None:
    transactions = frames.transactions
    transactions.begin(TXN, PID, EPOCH, T0)
    transactions.answers_at_once = True
    produce(frames, version, batch(epoch=EPOCH + 1, transactional=False), txn=None, partition=1)
    found = answers(frames, version, {0: batch(), 1: batch()})
    assert found == [(0, 0), (ErrorCode.INVALID_PRODUCER_EPOCH, -1)]
    assert transactions.asked == [(TXN, [T0], version not in ADDING)]


@pytest.mark.parametrize("ends", [False, True])
def test_what_was_let_in_and_is_rebuilt_elsewhere_is_appended_unless_its_transaction_has_ended(
    frames: Frames, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    frames.broker.create("zipped", 1, configs={"compression.type": "zstd"})
    there = TopicPartition("zipped", 0)
    frames.transactions.begin(TXN, PID, EPOCH, there)
    frames.transactions.answers_at_once = True
    rebuilt: Future[RebuildResult] = Future()
    work: list[tuple[bytearray, Demands]] = []

    def submit(call: partial[RebuildResult], records: int, request: object) -> Future[RebuildResult]:
        data, wanted = call.args
        work.append((data, wanted))
        return rebuilt

    monkeypatch.setattr(frames.batch_workers, "submit", submit)
    asked = request(frames, 9, {0: batch()})
    asked.topic_data[0].name = there.topic
    frames.begin(asked, 9)
    frames.broker.run_until(lambda: bool(work))
    if ends:
        marker = Marker(PID, EPOCH, True, 0, 0, [there])
        frames.broker.coordinators.markers.append([marker], lambda codes: None)
    rebuilt.set_result(rebuild(*work[0]))
    frames.broker.run_until(lambda: bool(frames.connection.replies))
    assert answered(frames) == ((ErrorCode.INVALID_TXN_STATE, -1) if ends else (0, 0))
    assert frames.broker.replicas.leader(*there).log.end_offset == 1  # the marker, or the batch


@pytest.mark.parametrize("version", [9, 12])
def test_what_begins_too_late_is_refused_on_the_quick_way_as_well(frames: Frames, version: int) -> None:
    transactions = frames.transactions
    transactions.begin(TXN, PID, EPOCH, T0)
    transactions.answers_at_once = True
    assert produce(frames, version, batch()) == (0, 0)
    end(frames, epoch=EPOCH + 1, version=2)
    transactions.begin(TXN, PID, EPOCH + 1, T0)
    assert produce(frames, version, batch(1))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert produce(frames, version, batch(1, epoch=EPOCH + 1))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(frames, version, batch(epoch=EPOCH + 2))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert end_offset(frames) == 2
    assert produce(frames, version, batch(epoch=EPOCH + 1)) == (0, 2)


@pytest.mark.parametrize("version", [9, 12])
def test_a_batch_that_is_sent_again_is_answered_as_the_first_time(frames: Frames, version: int) -> None:
    frames.transactions.begin(TXN, PID, EPOCH, T0)
    assert [produce(frames, version, batch()) for _ in range(3)] == [(0, 0)] * 3


@pytest.mark.parametrize("version", [9, 12])
def test_a_repeated_request_without_its_id_is_refused_in_an_open_transaction(frames: Frames, version: int) -> None:
    frames.transactions.begin(TXN, PID, EPOCH, T0)
    plain = batch(-1, pid=-1, epoch=-1, transactional=False)
    assert produce(frames, version, plain, txn=None) == (0, 0)
    assert produce(frames, version, batch()) == (0, 1)
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert produce(frames, version, batch(1), txn=None)[0] == refused
    assert end_offset(frames) == 2


# -- refusals


@pytest.mark.parametrize("version", VERIFYING)
def test_a_partition_that_was_not_added(frames: Frames, version: int) -> None:
    frames.transactions.begin(TXN, PID, EPOCH, T0)
    refused = NOT_ADDED.get(version, ErrorCode.INVALID_TXN_STATE)
    assert answers(frames, version, {0: batch(), 1: batch()}) == [(0, 0), (refused, -1)]
    assert end_offset(frames, 1) == 0


@pytest.mark.parametrize("version", VERIFYING + ADDING)
def test_what_the_coordinator_says_of_the_producer(frames: Frames, version: int) -> None:
    frames.transactions.begin(TXN, PID, EPOCH, T0)
    mapping, epoch = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_EPOCH
    assert produce(frames, version, batch(), txn="unknown")[0] == mapping
    assert produce(frames, version, batch(pid=PID + 1))[0] == mapping
    assert produce(frames, version, batch(epoch=EPOCH - 1))[0] == epoch
    assert produce(frames, version, batch(epoch=EPOCH + 1))[0] == epoch
    assert end_offset(frames) == 0


@pytest.mark.parametrize("version", VERIFYING + ADDING)
def test_epochs_behind_and_ahead_of_the_open_transaction(frames: Frames, version: int) -> None:
    frames.transactions.begin(TXN, PID, EPOCH, T0)
    produce(frames, version, batch())
    for epoch in (EPOCH - 1, EPOCH + 1):
        assert produce(frames, version, batch(epoch=epoch))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert end_offset(frames) == 1


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("version", VERIFYING + ADDING)
def test_an_epoch_that_its_coordinator_confirms_while_the_one_before_is_open_here_is_sent_to_another_leader(
    frames: Frames, version: int, at_once: bool
) -> None:
    """All markers are written by then: that of this partition by a leader of which this one does not know yet."""
    frames.transactions.answers_at_once = at_once
    frames.transactions.begin(TXN, PID, EPOCH, T0)
    produce(frames, version, batch())
    frames.transactions.begin(TXN, PID, EPOCH + 1, T0)
    for sequence in range(3):
        assert produce(frames, version, batch(sequence, epoch=EPOCH + 1))[0] in PASSING
    assert end_offset(frames) == 1
    end(frames, epoch=EPOCH + 1, version=2)
    frames.transactions.begin(TXN, PID, EPOCH + 1, T0)
    assert produce(frames, version, batch(epoch=EPOCH + 1)) == (0, 2)


@pytest.mark.parametrize("version", [9, 12])
def test_an_epoch_that_the_partition_knows_to_be_old_is_not_asked_for(frames: Frames, version: int) -> None:
    produce(frames, version, batch(epoch=EPOCH + 1, transactional=False), txn=None)
    assert produce(frames, version, batch())[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert not frames.transactions.asked


@pytest.mark.parametrize("version", VERIFYING + ADDING)
def test_a_plain_batch_of_a_producer_with_an_open_transaction(frames: Frames, version: int) -> None:
    frames.transactions.begin(TXN, PID, EPOCH, T0)
    produce(frames, version, batch())
    plain = batch(1, transactional=False)
    assert produce(frames, version, plain)[0] == ErrorCode.INVALID_TXN_STATE
    assert produce(frames, version, plain, txn=None)[0] == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [9, 12])
def test_plain_batches_of_a_request_with_an_id(frames: Frames, version: int) -> None:
    without_producer = batch(-1, pid=-1, epoch=-1, transactional=False)
    assert produce(frames, version, without_producer) == (0, 0)
    assert produce(frames, version, batch(transactional=False)) == (0, 1)
    assert not frames.transactions.asked


def test_a_batch_that_names_no_producer_is_plain_whatever_its_flag_says(frames: Frames) -> None:
    assert produce(frames, 9, batch(-1, pid=-1, epoch=-1)) == (0, 0)
    assert frames.broker.replicas.leader("t", 0).last_stable_offset == 1
    assert not frames.transactions.asked


@pytest.mark.parametrize("before", [False, True])
def test_without_an_id_the_flag_alone_has_a_batch_refused(frames: Frames, before: bool) -> None:
    """Also where a plain batch was appended by the same bytes before it."""
    if before:
        assert produce(frames, 9, batch(-1, pid=-1, epoch=-1, transactional=False), txn=None) == (0, 0)
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert produce(frames, 9, batch(-1, pid=-1, epoch=-1), txn=None)[0] == refused
    assert end_offset(frames) == int(before)


@pytest.mark.parametrize("version", [9, 12])
def test_two_producers_in_one_request(frames: Frames, version: int) -> None:
    frames.transactions.begin(TXN, PID, EPOCH, T0, T1)
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert answers(frames, version, {0: batch(), 1: batch(pid=8)}) == [(mapping, -1), (mapping, -1)]
    assert not frames.transactions.asked


@pytest.mark.parametrize("version", [9, 12])
def test_sequences_that_do_not_follow(frames: Frames, version: int) -> None:
    frames.transactions.begin(TXN, PID, EPOCH, T0)
    gap = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(frames, version, batch(5))[0] == gap
    assert produce(frames, version, batch()) == (0, 0)
    assert produce(frames, version, batch(5))[0] == gap


def test_the_transaction_of_a_new_client_begins_with_0_where_it_is_not_known(frames: Frames) -> None:
    """Not so one of an old client, which counts on over transactions: the partition may have forgotten it."""
    frames.broker.replicas.leader("t", 0).log.producers.forget_past()
    frames.transactions.begin(TXN, PID, EPOCH, T0)
    assert produce(frames, 12, batch(5))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not frames.transactions.asked
    assert produce(frames, 9, batch(5)) == (0, 0)


@pytest.mark.parametrize("version", [9, 12])
def test_control_batches_of_clients(frames: Frames, version: int) -> None:
    frames.transactions.begin(TXN, PID, EPOCH, T0)
    assert produce(frames, version, batch(control=True))[0] == ErrorCode.INVALID_RECORD
    assert produce(frames, version, batch()) == (0, 0)
    assert produce(frames, version, batch(1, control=True))[0] == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("version", [9, 12])
def test_partitions_that_cannot_be_written_to_are_not_added(frames: Frames, version: int) -> None:
    assert produce(frames, version, batch(), partition=9)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not frames.transactions.asked


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_a_coordinator_that_cannot_say_it_now(frames: Frames, code: ErrorCode, version: int, told: ErrorCode) -> None:
    """The client sends it again; what comes behind it has to wait for it, wherever the partition began to count."""
    frames.broker.replicas.leader("t", 0).log.producers.forget_past()
    frames.transactions.begin(TXN, PID, EPOCH, T0)
    frames.transactions.refuses = code
    assert produce(frames, version, batch())[0] == told
    frames.transactions.refuses = ErrorCode.NONE
    behind = told if told == ErrorCode.NOT_ENOUGH_REPLICAS else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(frames, version, batch(1))[0] == behind
    assert [produce(frames, version, batch(number)) for number in range(2)] == [(0, 0), (0, 1)]


# -- answers that come later


def test_a_request_waits_for_its_coordinator(frames: Frames) -> None:
    frames.transactions.begin(TXN, PID, EPOCH, T0)
    frames.transactions.holding = True
    frames.begin(request(frames, 9, {0: batch()}), 9)
    assert end_offset(frames) == 0
    assert not frames.produce.idle
    frames.transactions.let_go()
    frames.broker.run_until(lambda: bool(frames.connection.replies))
    assert end_offset(frames) == 1
    assert answered(frames) == (0, 0)
    frames.broker.run_until(lambda: frames.produce.idle)


@pytest.mark.parametrize(("version", "told"), [(9, ErrorCode.INVALID_TXN_STATE), (12, ErrorCode.NONE)])
def test_a_transaction_that_ends_while_its_coordinator_is_asked(frames: Frames, version: int, told: ErrorCode) -> None:
    """The end may be that of the transaction that was asked for. Not so if each has an epoch of its own: then it is the
    end of the one before, which says with which epoch the next goes on."""
    frames.transactions.begin(TXN, PID, EPOCH, T0)
    frames.transactions.holding = True
    frames.begin(request(frames, version, {0: batch()}), version)
    end(frames, version=0 if version < 12 else 2)
    frames.transactions.let_go()
    frames.broker.run_until(lambda: bool(frames.connection.replies))
    assert answered(frames, version)[0] == told
    assert end_offset(frames) == (1 if told else 2)


@pytest.mark.parametrize("version", [9, 12])
def test_a_partition_that_was_led_elsewhere_while_its_coordinator_was_asked(frames: Frames, version: int) -> None:
    """The other leader may have written the end of the transaction that was asked for: the client sends it again."""
    frames.transactions.begin(TXN, PID, EPOCH, T0)
    frames.transactions.holding = True
    frames.begin(request(frames, version, {0: batch()}), version)
    frames.broker.lead("t", 0, 2)
    frames.broker.lead("t", 0, 1)
    frames.transactions.let_go()
    frames.broker.run_until(lambda: bool(frames.connection.replies))
    assert answered(frames, version)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert end_offset(frames) == 0
    assert not frames.broker.replicas.leader("t", 0).log.producers.is_open(PID, EPOCH)


def test_a_log_that_is_moved_while_its_coordinator_is_asked(frames: Frames) -> None:
    """The client sends it again."""
    frames.transactions.begin(TXN, PID, EPOCH, T0)
    frames.transactions.holding = True
    frames.begin(request(frames, 9, {0: batch()}), 9)
    log = frames.broker.replicas.leader("t", 0).log
    log.producers = ProducerStates(log.producers.snapshots)
    frames.transactions.let_go()
    frames.broker.run_until(lambda: bool(frames.connection.replies))
    assert answered(frames)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def answered(frames: Frames, version: int = 9) -> tuple[int, int]:
    reply = frames.connection.replies.pop(0)
    assert reply is not None
    [topic] = frames.decode(reply, 0, version).responses
    [answer] = topic.partition_responses
    assert isinstance(answer, PartitionProduceResponse)
    return answer.error_code, answer.base_offset


# -- without verification


def test_without_verification_nobody_is_asked_but_for_new_clients(frames: Frames) -> None:
    frames.produce.verifies = False
    assert produce(frames, 9, batch()) == (0, 0)
    assert not frames.transactions.asked
    assert produce(frames, 12, batch(), partition=1) == (0, 0)
    assert frames.transactions.asked == [(TXN, [T1], False)]


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("version", [9, 12])
def test_without_an_id_one_batch_of_a_transaction_has_the_whole_request_refused(
    frames: Frames, version: int, many: bool
) -> None:
    plain = batch(pid=-1, epoch=-1, sequence=-1, transactional=False)
    more = dict.fromkeys(range(2, 600), plain) if many else {}
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    found = answers(frames, version, {0: plain, 1: batch(), **more}, txn=None)
    assert found == [(refused, -1)] * (2 + len(more))
    assert (end_offset(frames), end_offset(frames, 1)) == (0, 0)


@pytest.mark.parametrize("version", [9, 12])
def test_many_partitions_in_one_request(frames: Frames, version: int) -> None:
    """It is worked on in pieces: those that are there are written to."""
    frames.transactions.begin(TXN, PID, EPOCH, T0, T1)
    found = answers(frames, version, dict.fromkeys(range(600), batch()))
    assert found[:2] == [(0, 0), (0, 0)]
    assert {error for error, _ in found[2:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert answers(frames, version, {0: batch(1)}) == [(0, 1)]
