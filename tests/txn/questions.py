"""Wrong, late and odd requests of transactional producers; what was asked of Kafka for golden/txn/answers.jsonl.

A question gets a connection and the version to ask in, and returns what is compared: codes by name, and what can be
seen of the state that the request leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kafkad.wire.records import Record, build_batch
from tests.txn.raw import COMPACTED, A, Raw, name

Answering = Callable[[Raw, int], Any]


class Question(NamedTuple):
    text: str
    api: str
    versions: tuple[int, ...]
    ask: Answering


QUESTIONS: list[Question] = []


def case(text: str, api: str, versions: tuple[int, ...]) -> Callable[[Answering], Answering]:
    def keep(ask: Answering) -> Answering:
        QUESTIONS.append(Question(text, api, versions, ask))
        return ask

    return keep


def codes(by_partition: dict[str, int]) -> dict[str, str]:
    return {partition: name(code) for partition, code in by_partition.items()}


def one(by_partition: dict[str, int]) -> str:
    [code] = by_partition.values()
    return name(code)


def initialized(answer: Any) -> str:
    pid = "new" if answer.producer_id >= 0 and not answer.error_code else answer.producer_id
    return f"{name(answer.error_code)} pid={pid} ep={answer.producer_epoch}"


def ended(answer: Any, version: int) -> str:
    pid = "same" if answer.producer_id >= 0 else -1
    return name(answer.error_code) + (f" pid={pid} ep={answer.producer_epoch}" if version >= 5 else "")


def produced(answer: tuple[int, int]) -> str:
    return name(answer[0])


def marked(answer: list[tuple[int, dict[str, int]]]) -> list[dict[str, str]]:
    return [codes(by_partition) for _, by_partition in answer]


# -- InitProducerId
@case("empty transactional id", "InitProducerId", (4,))
def init_producer_id_empty_transactional_id(raw: Raw, version: int) -> Any:
    return initialized(raw.init("", version=version))


@case("timeout 0", "InitProducerId", (4,))
def init_producer_id_timeout_0(raw: Raw, version: int) -> Any:
    return initialized(raw.init(raw.new_id(), timeout=0, version=version))


@case("timeout -1", "InitProducerId", (4,))
def init_producer_id_timeout_1(raw: Raw, version: int) -> Any:
    return initialized(raw.init(raw.new_id(), timeout=-1, version=version))


@case("timeout above transaction.max.timeout.ms", "InitProducerId", (4,))
def init_producer_id_timeout_above_transaction_max_timeout_ms(raw: Raw, version: int) -> Any:
    return initialized(raw.init(raw.new_id(), timeout=900001, version=version))


@case("timeout 2^31-1", "InitProducerId", (4,))
def init_producer_id_timeout_2_31_1(raw: Raw, version: int) -> Any:
    return initialized(raw.init(raw.new_id(), timeout=2**31 - 1, version=version))


@case("producer id without epoch", "InitProducerId", (4,))
def init_producer_id_producer_id_without_epoch(raw: Raw, version: int) -> Any:
    return initialized(raw.init(raw.new_id(), pid=5, epoch=-1, version=version))


@case("epoch without producer id", "InitProducerId", (4,))
def init_producer_id_epoch_without_producer_id(raw: Raw, version: int) -> Any:
    return initialized(raw.init(raw.new_id(), pid=-1, epoch=3, version=version))


@case("null id, with producer id and epoch", "InitProducerId", (4,))
def init_producer_id_null_id_with_producer_id_and_epoch(raw: Raw, version: int) -> Any:
    return initialized(raw.init(None, pid=1, epoch=3, version=version))


@case("null id, timeout above the maximum", "InitProducerId", (4,))
def init_producer_id_null_id_timeout_above_the_maximum(raw: Raw, version: int) -> Any:
    return initialized(raw.init(None, timeout=2**31 - 1, version=version))


@case("unknown id, with some producer id and epoch 7", "InitProducerId", (4,))
def init_producer_id_unknown_id_with_some_producer_id_and_epoch(raw: Raw, version: int) -> Any:
    return initialized(raw.init(raw.new_id(), pid=1, epoch=7, version=version))


@case("known id, another's producer id", "InitProducerId", (3, 4))
def init_producer_id_known_id_anothers_producer_id(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    return initialized(raw.init(txn, pid=pid + 1, epoch=epoch, version=version))


@case("own producer id, epoch two behind", "InitProducerId", (3, 4))
def init_producer_id_own_producer_id_epoch_two_behind(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    raw.new(txn)
    raw.new(txn)
    return initialized(raw.init(txn, pid=pid, epoch=epoch, version=version))


@case("own producer id, current epoch (bump)", "InitProducerId", (4,))
def init_producer_id_own_producer_id_current_epoch_bump(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    return initialized(raw.init(txn, pid=pid, epoch=epoch, version=version))


@case("the same bump once more (lost answer)", "InitProducerId", (4,))
def init_producer_id_the_same_bump_once_more_lost_answer(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    raw.init(txn, pid=pid, epoch=epoch, version=version)
    return initialized(raw.init(txn, pid=pid, epoch=epoch, version=version))


@case("bump with previous epoch after another instance's init", "InitProducerId", (4,))
def init_producer_id_bump_with_previous_epoch_after_another_inst(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    raw.new(txn)
    return initialized(raw.init(txn, pid=pid, epoch=epoch, version=version))


@case("own producer id, epoch ahead", "InitProducerId", (4,))
def init_producer_id_own_producer_id_epoch_ahead(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    return initialized(raw.init(txn, pid=pid, epoch=epoch + 5, version=version))


@case("while a transaction is open: first, second answer", "InitProducerId", (1, 4))
def init_producer_id_while_a_transaction_is_open_first_second_an(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    raw.produce_one(txn, pid, epoch, 0, tp)
    first = raw.init(txn, version=version, wait=False)
    second = raw.init(txn, version=version)
    return initialized(first) + " | " + initialized(second)


@case("own id and epoch while own transaction is open: first, then until answered", "InitProducerId", (4,))
def init_producer_id_own_id_and_epoch_while_own_transaction_is_o(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    raw.produce_one(txn, pid, epoch, 0, tp)
    first = raw.init(txn, pid=pid, epoch=epoch, version=version, wait=False)
    second = raw.init(txn, pid=pid, epoch=epoch, version=version)
    return initialized(first) + " | " + initialized(second)


@case("v6 plain, enable_2pc, keep_prepared", "InitProducerId", (6,))
def init_producer_id_v6_plain_enable_2pc_keep_prepared(raw: Raw, version: int) -> Any:
    res = []
    for more in ({}, {"enable_2pc": True}, {"keep_prepared_txn": True}):
        r = raw.ask(
            "InitProducerId",
            version,
            {
                "transactional_id": raw.new_id(),
                "transaction_timeout_ms": 60000,
                "producer_id": -1,
                "producer_epoch": -1,
                **more,
            },
        )
        res.append(initialized(r))
    return " | ".join(res)


# -- AddPartitionsToTxn
@case("empty transactional id", "AddPartitionsToTxn", (3,))
def add_partitions_to_txn_empty_transactional_id(raw: Raw, version: int) -> Any:
    return one(raw.add("", 1, 0, [(A, 0)], version))


@case("unknown transactional id", "AddPartitionsToTxn", (3,))
def add_partitions_to_txn_unknown_transactional_id(raw: Raw, version: int) -> Any:
    return one(raw.add(raw.new_id(), 1, 0, [(A, 0)], version))


@case("another's producer id", "AddPartitionsToTxn", (3,))
def add_partitions_to_txn_anothers_producer_id(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    return one(raw.add(txn, pid + 1, epoch, [(A, 0)], version))


@case("epoch behind", "AddPartitionsToTxn", (0, 1, 2, 3))
def add_partitions_to_txn_epoch_behind(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    raw.new(txn)
    return one(raw.add(txn, pid, epoch, [(A, 0)], version))


@case("epoch ahead", "AddPartitionsToTxn", (0, 3))
def add_partitions_to_txn_epoch_ahead(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    return one(raw.add(txn, pid, epoch + 1, [(A, 0)], version))


@case("a known and an unknown topic", "AddPartitionsToTxn", (3,))
def add_partitions_to_txn_a_known_and_an_unknown_topic(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    return codes(raw.add(txn, pid, epoch, [(A, 0), ("nowhere", 0)], version)), raw.describe(txn).transaction_state


@case("partition that is not there", "AddPartitionsToTxn", (3,))
def add_partitions_to_txn_partition_that_is_not_there(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    return codes(raw.add(txn, pid, epoch, [(A, 99)], version))


@case("no partition at all: codes, state", "AddPartitionsToTxn", (3,))
def add_partitions_to_txn_no_partition_at_all_codes_state(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    return codes(raw.add(txn, pid, epoch, [], version)), raw.describe(txn).transaction_state


@case("partitions of internal topics", "AddPartitionsToTxn", (3,))
def add_partitions_to_txn_partitions_of_internal_topics(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    raw.coordinator(["g0"], 0)
    r = codes(raw.add(txn, pid, epoch, [("__consumer_offsets", 0), ("__transaction_state", 0)], version))
    raw.end(txn, pid, epoch, False)
    return r


@case("the same partition again", "AddPartitionsToTxn", (3,))
def add_partitions_to_txn_the_same_partition_again(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    raw.add(txn, pid, epoch, [(A, 0)], version)
    r = one(raw.add(txn, pid, epoch, [(A, 0)], version))
    raw.end(txn, pid, epoch, False)
    return r


@case("right after EndTxn was answered, asked at once (100 tries: codes counted)", "AddPartitionsToTxn", (3,))
def add_partitions_to_txn_right_after_endtxn_was_answered_asked(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    seen = {}
    for _i in range(100):
        raw.add(txn, pid, epoch, [(A, 0)], version)
        raw.end(txn, pid, epoch, True)
        c = one(raw.add(txn, pid, epoch, [(A, 1)], version, wait=False))
        seen[c] = seen.get(c, 0) + 1
        raw.add(txn, pid, epoch, [(A, 0)], version)
        raw.end(txn, pid, epoch, False)
        raw.settled(txn)
    return seen


@case("verify_only: in, not in, unknown topic", "AddPartitionsToTxn", (4, 5))
def add_partitions_to_txn_verify_only_in_not_in_unknown_topic(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    raw.add(txn, pid, epoch, [(A, 0)])
    r = raw.add_batched([(txn, pid, epoch, True, [(A, 0), (A, 1)])], version)
    s = raw.add_batched([(txn, pid, epoch, True, [(A, 0), ("nowhere", 0)])], version)
    raw.end(txn, pid, epoch, False)
    return [name(r[0]), [codes(tp) for tp in r[1].values()], [codes(tp) for tp in s[1].values()]]


@case("verify_only: unknown id, another's pid, epoch behind, epoch ahead, empty id", "AddPartitionsToTxn", (4, 5))
def add_partitions_to_txn_verify_only_unknown_id_anothers_pid_ep(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    pid, epoch = raw.new(txn)
    unknown = raw.new_id()
    r = [
        raw.add_batched([(tp, second, z, True, [(A, 0)])], version)[1]
        for tp, second, z in (
            (unknown, 1, 0),
            (txn, pid + 1, epoch),
            (txn, pid, epoch - 1),
            (txn, pid, epoch + 1),
            ("", pid, epoch),
        )
    ]
    return [one(next(iter(tp.values()))) for tp in r]


@case("verify_only in state Empty and CompleteCommit", "AddPartitionsToTxn", (4,))
def add_partitions_to_txn_verify_only_in_state_empty_and_complet(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    a = raw.add_batched([(txn, pid, epoch, True, [(A, 0)])], version)[1]
    raw.add(txn, pid, epoch, [(A, 0)])
    raw.end(txn, pid, epoch, True)
    raw.settled(txn)
    b = raw.add_batched([(txn, pid, epoch, True, [(A, 0)])], version)[1]
    return [one(next(iter(tp.values()))) for tp in (a, b)]


@case("batched add (not verify) by a client: two ids, one unknown", "AddPartitionsToTxn", (4, 5))
def add_partitions_to_txn_batched_add_not_verify_by_a_client_two(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    unknown = raw.new_id()
    r = raw.add_batched([(txn, pid, epoch, False, [(A, 0)]), (unknown, 1, 0, False, [(A, 0)])], version)
    s = raw.describe(txn).transaction_state
    raw.end(txn, pid, epoch, False)
    return [codes(tp) for tp in r[1].values()], s


# -- Produce
PV = (9, 10, 11, 12)


@case("transactional batch, no transactional id in the request", "Produce", (9, 12))
def produce_transactional_batch_no_transactional_id_in_the_reque(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    r = produced(raw.produce_one(None, pid, epoch, 0, tp, version))
    raw.end(txn, pid, epoch, False)
    return r


@case("partition not added", "Produce", PV)
def produce_partition_not_added(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    r = produced(raw.produce_one(txn, pid, epoch, 0, tp, version))
    s = raw.describe(txn).transaction_state
    return r, s


@case("partition not added, another one is", "Produce", PV)
def produce_partition_not_added_another_one_is(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp, second = raw.topic(), raw.topic()
    raw.add(txn, pid, epoch, [tp])
    r = produced(raw.produce_one(txn, pid, epoch, 0, second, version))
    s = raw.describe(txn).transaction_state
    raw.end(txn, pid, epoch, False)
    return r, s


@case("partition not added, transactional id unknown", "Produce", PV)
def produce_partition_not_added_transactional_id_unknown(raw: Raw, version: int) -> Any:
    tp = raw.topic()
    pid, epoch = raw.new(None)
    return produced(raw.produce_one(raw.new_id(), pid, epoch, 0, tp, version))


@case("another id's producer id in the batch", "Produce", PV)
def produce_another_ids_producer_id_in_the_batch(raw: Raw, version: int) -> Any:
    txn, unknown = raw.new_id(), raw.new_id()
    pid, epoch = raw.new(txn)
    other, next_epoch = raw.new(unknown)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    r = produced(raw.produce_one(txn, other, next_epoch, 0, tp, version))
    raw.end(txn, pid, epoch, False)
    return r


@case("epoch behind, partition new to the producer", "Produce", PV)
def produce_epoch_behind_partition_new_to_the_producer(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    r = produced(raw.produce_one(txn, pid, epoch - 1, 0, tp, version))
    raw.end(txn, pid, epoch, False)
    return r


@case("epoch behind, partition knows the new epoch", "Produce", PV)
def produce_epoch_behind_partition_knows_the_new_epoch(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    raw.produce_one(txn, pid, epoch, 0, tp)
    r = produced(raw.produce_one(txn, pid, epoch - 1, 0, tp, version))
    raw.end(txn, pid, epoch, False)
    return r


@case("epoch ahead", "Produce", PV)
def produce_epoch_ahead(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    r = produced(raw.produce_one(txn, pid, epoch + 1, 0, tp, version))
    raw.end(txn, pid, epoch, False)
    return r


@case("epoch ahead, transaction open there", "Produce", PV)
def produce_epoch_ahead_transaction_open_there(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    raw.produce_one(txn, pid, epoch, 0, tp)
    r = produced(raw.produce_one(txn, pid, epoch + 1, 0, tp, version))
    raw.end(txn, pid, epoch, False)
    return r


@case("plain batch of a producer with an open transaction there", "Produce", PV)
def produce_plain_batch_of_a_producer_with_an_open_transaction_t(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    raw.produce_one(txn, pid, epoch, 0, tp)
    r = produced(raw.produce_one(txn, pid, epoch, 1, tp, version, txn=False))
    raw.end(txn, pid, epoch, False)
    return r


@case("plain idempotent batch with a transactional producer's id, none open", "Produce", PV)
def produce_plain_idempotent_batch_with_a_transactional_producer(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    return produced(raw.produce_one(txn, pid, epoch, 0, tp, version, txn=False))


@case("plain batch without producer, transactional id in the request", "Produce", (9, 12))
def produce_plain_batch_without_producer_transactional_id_in_the(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    _pid, _epoch = raw.new(txn)
    tp = raw.topic()
    return produced(raw.produce_one(txn, -1, -1, -1, tp, version, txn=False))


@case("transactional flag without producer id", "Produce", (9, 12))
def produce_transactional_flag_without_producer_id(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    _pid, _epoch = raw.new(txn)
    tp = raw.topic()
    return produced(raw.produce_one(txn, -1, -1, -1, tp, version, txn=True))


@case("first sequence 5 in a transaction", "Produce", PV)
def produce_first_sequence_5_in_a_transaction(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    r = produced(raw.produce_one(txn, pid, epoch, 5, tp, version))
    raw.end(txn, pid, epoch, False)
    return r


@case("a gap in the sequence", "Produce", (9, 12))
def produce_a_gap_in_the_sequence(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    raw.produce_one(txn, pid, epoch, 0, tp, version)
    r = produced(raw.produce_one(txn, pid, epoch, 5, tp, version))
    raw.end(txn, pid, epoch, False)
    return r


@case("the same batch again: offsets", "Produce", (9, 12))
def produce_the_same_batch_again_offsets(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    a = raw.produce_one(txn, pid, epoch, 0, tp, version)
    b = raw.produce_one(txn, pid, epoch, 0, tp, version)
    raw.end(txn, pid, epoch, False)
    return [name(a[0]), a[1], name(b[0]), b[1]]


@case("control batch by a client", "Produce", (9, 12))
def produce_control_batch_by_a_client(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    r = produced(raw.produce_one(txn, pid, epoch, 0, tp, version, control=True))
    raw.end(txn, pid, epoch, False)
    return r


@case("two producer ids in one request", "Produce", (9, 12))
def produce_two_producer_ids_in_one_request(raw: Raw, version: int) -> Any:
    txn, unknown = raw.new_id(), raw.new_id()
    pid, epoch = raw.new(txn)
    other, next_epoch = raw.new(unknown)
    tp, second = raw.topic(), raw.topic()
    raw.add(txn, pid, epoch, [tp, second])
    r = raw.produce(txn, {tp: raw.batch(pid, epoch, 0), second: raw.batch(other, next_epoch, 0)}, version)
    raw.end(txn, pid, epoch, False)
    return sorted(produced(i) for i in r.values())


@case("acks 1, and acks 0 followed by a fetch", "Produce", (9,))
def produce_acks_1_and_acks_0_followed_by_a_fetch(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    r = raw.produce(txn, {tp: raw.batch(pid, epoch, 0)}, version, acks=1)
    raw.end(txn, pid, epoch, False)
    return [produced(i) for i in r.values()]


@case("after the commit was answered and done, partition not added again", "Produce", PV)
def produce_after_the_commit_was_answered_and_done_partition_not(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    raw.produce_one(txn, pid, epoch, 0, tp)
    raw.end(txn, pid, epoch, True)
    raw.settled(txn)
    return produced(raw.produce_one(txn, pid, epoch, 1, tp, version)), raw.describe(txn).transaction_state


@case("late batch after a time-out abort (epoch of before)", "Produce", PV)
def produce_late_batch_after_a_time_out_abort_epoch_of_before(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    raw.produce_one(txn, pid, epoch, 0, tp)
    raw.init(txn)
    return produced(raw.produce_one(txn, pid, epoch, 1, tp, version))


@case("compacted topic, record without key", "Produce", (9,))
def produce_compacted_topic_record_without_key(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = (COMPACTED, 0)
    raw.add(txn, pid, epoch, [tp])
    b = bytes(
        build_batch(
            [Record(0, 1700000000000, None, b"v", ())],
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
    )
    r = raw.produce(txn, {tp: b}, version)
    raw.end(txn, pid, epoch, False)
    return [name(i[0]) for i in r.values()]


@case("one good, one not added partition in one request", "Produce", PV)
def produce_one_good_one_not_added_partition_in_one_request(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp, second = raw.topic(), raw.topic()
    raw.add(txn, pid, epoch, [tp])
    r = raw.produce(txn, {tp: raw.batch(pid, epoch, 0), second: raw.batch(pid, epoch, 0)}, version)
    raw.end(txn, pid, epoch, False)
    return [
        produced(r[f"{tp[0]}-0"]) if f"{tp[0]}-0" in r else "?",
        produced(r[f"{second[0]}-0"]) if f"{second[0]}-0" in r else "?",
    ]


@case("partition that is not there", "Produce", (9, 12))
def produce_partition_that_is_not_there(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    r = raw.produce(txn, {(tp[0], 9): raw.batch(pid, epoch, 0)}, version)
    s = raw.describe(txn).transaction_state
    raw.end(txn, pid, epoch, False)
    return [produced(i) for i in r.values()], s


@case("to __consumer_offsets by a client", "Produce", (9, 12))
def produce_to_consumer_offsets_by_a_client(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    return [
        produced(i) for i in raw.produce(txn, {("__consumer_offsets", 0): raw.batch(pid, epoch, 0)}, version).values()
    ], raw.describe(txn).transaction_state


# -- EndTxn
EV = (1, 3, 4, 5)


@case("nothing begun: commit", "EndTxn", EV)
def end_txn_nothing_begun_commit(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    return ended(raw.end(txn, pid, epoch, True, version), version)


@case("nothing begun: abort", "EndTxn", EV)
def end_txn_nothing_begun_abort(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    return ended(raw.end(txn, pid, epoch, False, version), version), raw.settled(txn).transaction_state


@case("commit", "EndTxn", EV)
def end_txn_commit(raw: Raw, version: int) -> Any:
    txn, pid, epoch, _tp = raw.started()
    return f"ep was {epoch}: " + ended(raw.end(txn, pid, epoch, True, version), version)


@case("commit, done, commit again with the same epoch", "EndTxn", EV)
def end_txn_commit_done_commit_again_with_the_same_epoch(raw: Raw, version: int) -> Any:
    txn, pid, epoch, _tp = raw.started()
    raw.end(txn, pid, epoch, True, version)
    raw.settled(txn)
    return ended(raw.end(txn, pid, epoch, True, version), version)


@case("commit, done, abort with the same epoch", "EndTxn", EV)
def end_txn_commit_done_abort_with_the_same_epoch(raw: Raw, version: int) -> Any:
    txn, pid, epoch, _tp = raw.started()
    raw.end(txn, pid, epoch, True, version)
    raw.settled(txn)
    return ended(raw.end(txn, pid, epoch, False, version), version), raw.settled(txn).transaction_state


@case("commit, done, commit with the answered epoch", "EndTxn", (5,))
def end_txn_commit_done_commit_with_the_answered_epoch(raw: Raw, version: int) -> Any:
    txn, pid, epoch, _tp = raw.started()
    r = raw.end(txn, pid, epoch, True, version)
    raw.settled(txn)
    return ended(raw.end(txn, pid, r.producer_epoch, True, version), version)


@case("commit, done, abort with the answered epoch", "EndTxn", (5,))
def end_txn_commit_done_abort_with_the_answered_epoch(raw: Raw, version: int) -> Any:
    txn, pid, epoch, _tp = raw.started()
    r = raw.end(txn, pid, epoch, True, version)
    raw.settled(txn)
    return ended(raw.end(txn, pid, r.producer_epoch, False, version), version), raw.settled(txn).transaction_state


@case("abort, done, commit with the same epoch", "EndTxn", EV)
def end_txn_abort_done_commit_with_the_same_epoch(raw: Raw, version: int) -> Any:
    txn, pid, epoch, _tp = raw.started()
    raw.end(txn, pid, epoch, False, version)
    raw.settled(txn)
    return ended(raw.end(txn, pid, epoch, True, version), version)


@case("abort, done, abort with the same epoch", "EndTxn", EV)
def end_txn_abort_done_abort_with_the_same_epoch(raw: Raw, version: int) -> Any:
    txn, pid, epoch, _tp = raw.started()
    raw.end(txn, pid, epoch, False, version)
    raw.settled(txn)
    return ended(raw.end(txn, pid, epoch, False, version), version)


@case("unknown transactional id", "EndTxn", EV)
def end_txn_unknown_transactional_id(raw: Raw, version: int) -> Any:
    return ended(raw.end(raw.new_id(), 1, 0, True, version), version)


@case("empty transactional id", "EndTxn", EV)
def end_txn_empty_transactional_id(raw: Raw, version: int) -> Any:
    return ended(raw.end("", 1, 0, True, version), version)


@case("another's producer id", "EndTxn", EV)
def end_txn_anothers_producer_id(raw: Raw, version: int) -> Any:
    txn, pid, epoch, _tp = raw.started()
    r = ended(raw.end(txn, pid + 1, epoch, True, version), version)
    raw.end(txn, pid, epoch, False)
    return r


@case("epoch behind", "EndTxn", EV)
def end_txn_epoch_behind(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    r = ended(raw.end(txn, pid, epoch - 1, True, version), version)
    raw.end(txn, pid, epoch, False)
    return r


@case("epoch ahead", "EndTxn", EV)
def end_txn_epoch_ahead(raw: Raw, version: int) -> Any:
    txn, pid, epoch, _tp = raw.started()
    r = ended(raw.end(txn, pid, epoch + 1, True, version), version)
    raw.end(txn, pid, epoch, False)
    return r


@case(
    "v3 then v5 on one id: AddPartitions v3 + Produce v9, EndTxn v5, "
    "then AddPartitions v3 with the new epoch, EndTxn v3",
    "EndTxn",
    (5,),
)
def end_txn_v3_then_v5_on_one_id_addpartitions_v3_produce_v9_end(raw: Raw, version: int) -> Any:
    txn, pid, epoch, tp = raw.started()
    r = raw.end(txn, pid, epoch, True, version)
    raw.settled(txn)
    next_epoch = r.producer_epoch
    return (
        ended(r, version),
        one(raw.add(txn, pid, next_epoch, [tp])),
        produced(raw.produce_one(txn, pid, next_epoch, 0, tp)),
        name(raw.end(txn, pid, next_epoch, True, 3).error_code),
        raw.settled(txn).producer_epoch,
    )


# -- offsets
GV = (3, 4, 5)


@case(
    "AddOffsetsToTxn: empty id, unknown id, another's pid, epoch behind (v1: 0/1, v3), empty group",
    "AddOffsetsToTxn",
    (1, 3, 4),
)
def add_offsets_to_txn_addoffsetstotxn_empty_id_unknown_id_anoth(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    pid, epoch = raw.new(txn)
    group = raw.group()
    r = [
        raw.add_offsets("", pid, epoch, group, version),
        raw.add_offsets(raw.new_id(), 1, 0, group, version),
        raw.add_offsets(txn, pid + 1, epoch, group, version),
        raw.add_offsets(txn, pid, epoch - 1, group, version),
        raw.add_offsets(txn, pid, epoch, "", version),
    ]
    raw.end(txn, pid, epoch, False)
    return [name(c) for c in r]


@case("TxnOffsetCommit without AddOffsetsToTxn, no transaction open", "TxnOffsetCommit", (2, 3, 4, 5))
def txn_offset_commit_txnoffsetcommit_without_addoffsetstotxn_no(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    group = raw.group()
    return one(raw.commit_offsets(txn, pid, epoch, group, {(A, 0): 5}, version)), raw.describe(txn).transaction_state


@case("TxnOffsetCommit without AddOffsetsToTxn, transaction open elsewhere", "TxnOffsetCommit", (3, 4, 5))
def txn_offset_commit_txnoffsetcommit_without_addoffsetstotxn_tr(raw: Raw, version: int) -> Any:
    txn, pid, epoch, _tp = raw.started()
    group = raw.group()
    r = one(raw.commit_offsets(txn, pid, epoch, group, {(A, 0): 5}, version))
    d = raw.describe(txn)
    raw.end(txn, pid, epoch, False)
    return r, d.transaction_state, [f"{z.topic}" for z in d.topics if z.topic.startswith("__")]


@case("TxnOffsetCommit: good, generation -1", "TxnOffsetCommit", (0, 2, 3, 4))
def txn_offset_commit_txnoffsetcommit_good_generation_1(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    group = raw.group()
    a = raw.add_offsets(txn, pid, epoch, group)
    r = one(raw.commit_offsets(txn, pid, epoch, group, {(A, 0): 5}, version))
    raw.end(txn, pid, epoch, False)
    return name(a), r


@case("TxnOffsetCommit: generation 7 of a group that is not there; member id of nobody", "TxnOffsetCommit", (3, 4, 5))
def txn_offset_commit_txnoffsetcommit_generation_7_of_a_group_th(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    group = raw.group()
    raw.add_offsets(txn, pid, epoch, group)
    r = one(raw.commit_offsets(txn, pid, epoch, group, {(A, 0): 5}, version, gen=7, member="m"))
    s = one(raw.commit_offsets(txn, pid, epoch, group, {(A, 0): 5}, version, gen=-1, member="m"))
    unknown = one(raw.commit_offsets(txn, pid, epoch, group, {(A, 0): 5}, version, gen=7))
    w = one(raw.commit_offsets(txn, pid, epoch, group, {(A, 0): 5}, version, gen=-1, instance="i"))
    raw.end(txn, pid, epoch, False)
    return r, s, unknown, w


@case("TxnOffsetCommit: unknown topic, unknown partition", "TxnOffsetCommit", (3,))
def txn_offset_commit_txnoffsetcommit_unknown_topic_unknown_part(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    group = raw.group()
    raw.add_offsets(txn, pid, epoch, group)
    r = codes(raw.commit_offsets(txn, pid, epoch, group, {("nowhere", 0): 5, (A, 99): 5, (A, 0): 5}, version))
    raw.end(txn, pid, epoch, False)
    return r


@case("TxnOffsetCommit: metadata of 5000 bytes", "TxnOffsetCommit", (3,))
def txn_offset_commit_txnoffsetcommit_metadata_of_5000_bytes(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    group = raw.group()
    raw.add_offsets(txn, pid, epoch, group)
    r = one(raw.commit_offsets(txn, pid, epoch, group, {(A, 0): 5}, version, metadata="x" * 5000))
    raw.end(txn, pid, epoch, False)
    return r


@case("TxnOffsetCommit: empty group id", "TxnOffsetCommit", (3,))
def txn_offset_commit_txnoffsetcommit_empty_group_id(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    raw.add_offsets(txn, pid, epoch, "")
    r = one(raw.commit_offsets(txn, pid, epoch, "", {(A, 0): 5}, version))
    raw.end(txn, pid, epoch, False)
    return r


@case(
    "TxnOffsetCommit: another's pid, epoch behind, epoch ahead, unknown id, empty id (offsets added properly)",
    "TxnOffsetCommit",
    (3, 4, 5),
)
def txn_offset_commit_txnoffsetcommit_anothers_pid_epoch_behind(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    pid, epoch = raw.new(txn)
    group = raw.group()
    raw.add_offsets(txn, pid, epoch, group)
    r = [
        one(raw.commit_offsets(txn, pid + 1, epoch, group, {(A, 0): 5}, version)),
        one(raw.commit_offsets(txn, pid, epoch - 1, group, {(A, 0): 5}, version)),
        one(raw.commit_offsets(txn, pid, epoch + 1, group, {(A, 0): 5}, version)),
        one(raw.commit_offsets(raw.new_id(), pid, epoch, group, {(A, 0): 5}, version)),
        one(raw.commit_offsets("", pid, epoch, group, {(A, 0): 5}, version)),
    ]
    raw.end(txn, pid, epoch, False)
    return r


@case("TxnOffsetCommit: epoch behind after a good one at the newer epoch", "TxnOffsetCommit", (3, 4, 5))
def txn_offset_commit_txnoffsetcommit_epoch_behind_after_a_good(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    pid, epoch = raw.new(txn)
    group = raw.group()
    raw.add_offsets(txn, pid, epoch, group)
    raw.commit_offsets(txn, pid, epoch, group, {(A, 0): 5})
    r = one(raw.commit_offsets(txn, pid, epoch - 1, group, {(A, 0): 6}, version))
    raw.end(txn, pid, epoch, False)
    return r


@case("OffsetFetch of a pending offset: require_stable false, true; after commit", "OffsetFetch", (7,))
def offset_fetch_offsetfetch_of_a_pending_offset_require_stable(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    group = raw.group()
    raw.add_offsets(txn, pid, epoch, group)
    raw.commit_offsets(txn, pid, epoch, group, {(A, 0): 5})

    def read(stable: Any) -> Any:
        r = raw.ask(
            "OffsetFetch",
            version,
            {"group_id": group, "topics": [{"name": A, "partition_indexes": [0]}], "require_stable": stable},
        )
        other = r.topics[0].partitions[0]
        return name(other.error_code), other.committed_offset

    a, b = read(False), read(True)
    raw.end(txn, pid, epoch, True)
    raw.settled(txn)
    return a, b, read(True)


@case(
    "plain OffsetCommit while the same partition is pending in a transaction, then the transaction commits",
    "OffsetFetch",
    (7,),
)
def offset_fetch_plain_offsetcommit_while_the_same_partition_is(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    group = raw.group()
    raw.add_offsets(txn, pid, epoch, group)
    raw.commit_offsets(txn, pid, epoch, group, {(A, 0): 5})
    c = raw.ask(
        "OffsetCommit",
        7,
        {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [
                {
                    "name": A,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": 9,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        }
                    ],
                }
            ],
        },
    )
    raw.end(txn, pid, epoch, True)
    raw.settled(txn)
    r = raw.ask(
        "OffsetFetch",
        version,
        {"group_id": group, "topics": [{"name": A, "partition_indexes": [0]}], "require_stable": True},
    )
    other = r.topics[0].partitions[0]
    return name(c.topics[0].partitions[0].error_code), name(other.error_code), other.committed_offset


@case("DeleteGroups and OffsetDelete while an offset is pending", "OffsetFetch", (7,))
def offset_fetch_deletegroups_and_offsetdelete_while_an_offset_i(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    group = raw.group()
    raw.add_offsets(txn, pid, epoch, group)
    raw.commit_offsets(txn, pid, epoch, group, {(A, 0): 5})
    a = raw.ask("DeleteGroups", 2, {"groups_names": [group]}).results[0].error_code
    b = raw.ask("OffsetDelete", 0, {"group_id": group, "topics": [{"name": A, "partitions": [{"partition_index": 0}]}]})
    raw.end(txn, pid, epoch, True)
    raw.settled(txn)
    r = (
        raw.ask(
            "OffsetFetch",
            version,
            {"group_id": group, "topics": [{"name": A, "partition_indexes": [0]}], "require_stable": True},
        )
        .topics[0]
        .partitions[0]
    )
    return (
        name(a),
        name(b.error_code),
        [name(other.error_code) for z in b.topics for other in z.partitions],
        name(r.error_code),
        r.committed_offset,
    )


# -- markers
MV = (0, 1, 2)


@case("unknown topic, unknown partition", "WriteTxnMarkers", MV)
def write_txn_markers_unknown_topic_unknown_partition(raw: Raw, version: int) -> Any:
    pid, epoch = raw.new(raw.new_id())
    return marked(raw.markers([(pid, epoch, False, [("nowhere", 0), (A, 99)], 0)], version))


@case("producer that never wrote there", "WriteTxnMarkers", MV)
def write_txn_markers_producer_that_never_wrote_there(raw: Raw, version: int) -> Any:
    pid, epoch = raw.new(raw.new_id())
    tp = raw.topic()
    r = marked(raw.markers([(pid, epoch, False, [tp], 0)], version))
    return r, raw.offsets(tp, 0)[1]


@case("epoch behind", "WriteTxnMarkers", MV)
def write_txn_markers_epoch_behind(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.add(txn, pid, epoch, [tp])
    raw.produce_one(txn, pid, epoch, 0, tp)
    r = marked(raw.markers([(pid, epoch - 1, False, [tp], 0)], version))
    raw.end(txn, pid, epoch, False)
    return r


@case(
    "epoch ahead, transaction open: answer; last stable offset; then a batch with the old epoch", "WriteTxnMarkers", MV
)
def write_txn_markers_epoch_ahead_transaction_open_answer_last_s(raw: Raw, version: int) -> Any:
    txn, pid, epoch, tp = raw.started()
    r = marked(raw.markers([(pid, epoch + 1, False, [tp], 0)], version))
    stable = raw.offsets(tp, 1)[1]
    b = produced(raw.produce_one(txn, pid, epoch, 1, tp))
    raw.end(txn, pid, epoch, False)
    return r, stable, b


@case("coordinator epoch behind (5, then 4)", "WriteTxnMarkers", MV)
def write_txn_markers_coordinator_epoch_behind_5_then_4(raw: Raw, version: int) -> Any:
    _txn, pid, epoch, tp = raw.started()
    a = marked(raw.markers([(pid, epoch, False, [tp], 5)], version))
    b = marked(raw.markers([(pid, epoch, False, [tp], 4)], version))
    return a, b


@case(
    "abort marker under an open transaction, then its batch and its commit (hanging tool): "
    "marker, batch, EndTxn, end state, readable",
    "WriteTxnMarkers",
    (1,),
)
def write_txn_markers_abort_marker_under_an_open_transaction_the(raw: Raw, version: int) -> Any:
    txn, pid, epoch, tp = raw.started()
    a = marked(raw.markers([(pid, epoch, False, [tp], 0)], version))
    b = produced(raw.produce_one(txn, pid, epoch, 1, tp))
    c = name(raw.end(txn, pid, epoch, True).error_code)
    d = raw.settled(txn).transaction_state
    next_epoch = raw.fetch(tp, 0)
    return (
        a,
        b,
        c,
        d,
        [(second.producer_id == pid, second.first_offset) for second in next_epoch.aborted_transactions or []],
        raw.offsets(tp, 1)[1],
        raw.offsets(tp, 0)[1],
    )


@case("commit and abort for one producer in one request", "WriteTxnMarkers", (1,))
def write_txn_markers_commit_and_abort_for_one_producer_in_one_r(raw: Raw, version: int) -> Any:
    txn, pid, epoch, tp = raw.started()
    r = marked(raw.markers([(pid, epoch, True, [tp], 0), (pid, epoch, False, [tp], 0)], version))
    raw.end(txn, pid, epoch, True)
    return r, raw.offsets(tp, 0)[1]


@case("no marker at all", "WriteTxnMarkers", (1,))
def write_txn_markers_no_marker_at_all(raw: Raw, version: int) -> Any:
    return marked(raw.markers([], version))


@case(
    "transaction_version 2: same epoch as the open batch; the bumped one; the bumped one again; one behind",
    "WriteTxnMarkers",
    (2,),
)
def write_txn_markers_transaction_version_2_same_epoch_as_the_op(raw: Raw, version: int) -> Any:
    txn, pid, epoch, tp = raw.started()
    r = [
        marked(raw.markers([(pid, next_epoch, True, [tp], 0, 2)], version))
        for next_epoch in (epoch, epoch + 1, epoch + 1, epoch)
    ]
    raw.end(txn, pid, epoch, False)
    return r


@case("to __consumer_offsets-0 for a producer without offsets", "WriteTxnMarkers", (1,))
def write_txn_markers_to_consumer_offsets_0_for_a_producer_witho(raw: Raw, version: int) -> Any:
    pid, epoch = raw.new(raw.new_id())
    return marked(raw.markers([(pid, epoch, False, [("__consumer_offsets", 0)], 0)], version))


@case("negative producer id, negative epoch", "WriteTxnMarkers", (1,))
def write_txn_markers_negative_producer_id_negative_epoch(raw: Raw, version: int) -> Any:
    pid, _epoch = raw.new(raw.new_id())
    tp = raw.topic()
    res = []
    for other in ((-1, 0), (pid, -1)):
        try:
            res.append(marked(raw.markers([(other[0], other[1], False, [tp], 0)], version)))
        except Exception as error:
            res.append("connection: " + type(error).__name__)
            raw.connect()
    return res


# -- looking
@case("unknown id, empty id", "DescribeTransactions", (0,))
def describe_transactions_unknown_id_empty_id(raw: Raw, version: int) -> Any:
    r = raw.ask("DescribeTransactions", 0, {"transactional_ids": [raw.new_id(), ""]})
    return [
        (
            name(tp.error_code),
            tp.transaction_state,
            tp.producer_id,
            tp.producer_epoch,
            tp.transaction_timeout_ms,
            tp.transaction_start_time_ms,
        )
        for tp in r.transaction_states
    ]


@case("one after init: fields", "DescribeTransactions", (0,))
def describe_transactions_one_after_init_fields(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    raw.new(txn)
    tp = raw.describe(txn)
    return (
        name(tp.error_code),
        tp.transaction_state,
        tp.producer_epoch,
        tp.transaction_timeout_ms,
        tp.transaction_start_time_ms,
    )


@case("one after commit: start time kept?", "DescribeTransactions", (0,))
def describe_transactions_one_after_commit_start_time_kept(raw: Raw, version: int) -> Any:
    txn, pid, epoch, _tp = raw.started()
    raw.end(txn, pid, epoch, True)
    d = raw.settled(txn)
    return d.transaction_state, d.transaction_start_time_ms > 0, len(d.topics)


@case("unknown state name, Dead, none matching, negative pid", "ListTransactions", (0, 1, 2))
def list_transactions_unknown_state_name_dead_none_matching_nega(raw: Raw, version: int) -> Any:
    def other(**k: Any) -> Any:
        r = raw.ask(
            "ListTransactions",
            version,
            {
                "state_filters": [],
                "producer_id_filters": [],
                "duration_filter": -1,
                "transactional_id_pattern": None,
                **k,
            },
        )
        return name(r.error_code), r.unknown_state_filters, len(r.transaction_states)

    return (
        other(state_filters=["Nonsense"]),
        other(state_filters=["Dead"]),
        other(state_filters=["ongoing"]),
        other(producer_id_filters=[-7]),
    )


@case("duration 0 and 10^12: does it list ids with nothing open?", "ListTransactions", (1, 2))
def list_transactions_duration_0_and_10_12_does_it_list_ids_with(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    raw.new(txn)

    def other(d: Any) -> Any:
        r = raw.ask(
            "ListTransactions",
            version,
            {"state_filters": [], "producer_id_filters": [], "duration_filter": d, "transactional_id_pattern": None},
        )
        return name(r.error_code), any(s.transactional_id == txn for s in r.transaction_states)

    return other(0), other(10**12), other(10**13)


@case("pattern: no match, exact, broken regex, empty", "ListTransactions", (2,))
def list_transactions_pattern_no_match_exact_broken_regex_empty(raw: Raw, version: int) -> Any:
    raw.new(raw.new_id())
    txn = raw.new_id()
    raw.new(txn)

    def other(d: Any) -> Any:
        r = raw.ask(
            "ListTransactions",
            version,
            {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": d},
        )
        return (
            name(r.error_code),
            sum(s.transactional_id == txn for s in r.transaction_states),
            len(r.transaction_states) > 1,
        )

    return other("zzz"), other(txn), other(txn[:-1]), other("["), other("")


@case("unknown topic, unknown partition, invalid name", "DescribeProducers", (0,))
def describe_producers_unknown_topic_unknown_partition_invalid_n(raw: Raw, version: int) -> Any:
    return [
        (name(tp.error_code), tp.error_message)
        for tp in (raw.producers(("nowhere", 0)), raw.producers((A, 99)), raw.producers(("a/b", 0)))
    ]


@case("open transaction, after commit v3, idempotent only", "DescribeProducers", (0,))
def describe_producers_open_transaction_after_commit_v3_idempote(raw: Raw, version: int) -> Any:
    txn, pid, epoch, tp = raw.started()

    def read() -> Any:
        return [
            (z.producer_epoch, z.last_sequence, z.coordinator_epoch, z.current_txn_start_offset)
            for z in raw.producers(tp).active_producers
        ]

    a = read()
    raw.end(txn, pid, epoch, True)
    raw.settled(txn)
    b = read()
    other, other_epoch = raw.new(None)
    raw.produce_one(None, other, other_epoch, 0, tp, txn=False)
    return a, b, read()


@case("key type 1: empty key; key type 3; batch with an empty key", "FindCoordinator", (1, 3, 4, 5))
def find_coordinator_key_type_1_empty_key_key_type_3_batch_with(raw: Raw, version: int) -> Any:
    if version < 4:
        r = raw.ask("FindCoordinator", version, {"key": "", "key_type": 1})
        s = raw.ask("FindCoordinator", version, {"key": "x", "key_type": 3})
        return [(name(tp.error_code), tp.error_message) for tp in (r, s)]
    r = raw.ask("FindCoordinator", version, {"key_type": 1, "coordinator_keys": ["", "x"]})
    s = raw.ask("FindCoordinator", version, {"key_type": 3, "coordinator_keys": ["x"]})
    return [(name(tp.error_code), tp.error_message) for tp in r.coordinators + s.coordinators]


# -- reading
@case(
    "open transaction at 0: latest uncommitted, latest committed, committed by timestamp 0, fetch committed",
    "ListOffsets",
    (6,),
)
def list_offsets_open_transaction_at_0_latest_uncommitted_latest(raw: Raw, version: int) -> Any:
    txn, pid, epoch, tp = raw.started()
    other, other_epoch = raw.new(None)
    raw.produce_one(None, other, other_epoch, 0, tp, txn=False)
    next_epoch = raw.fetch(tp, 0)
    r = (
        raw.offsets(tp, 0),
        raw.offsets(tp, 1),
        tuple(raw.offsets(tp, 1, 0))[:2],
        raw.offsets(tp, 0, 0)[:2],
        raw.offsets(tp, 1, -3, 7)[:2],
        (
            next_epoch.high_watermark,
            next_epoch.last_stable_offset,
            len(next_epoch.records or b""),
            next_epoch.aborted_transactions,
        ),
    )
    raw.end(txn, pid, epoch, False)
    return r


@case("fetch committed between last stable offset and high watermark; above", "Fetch", (11,))
def fetch_fetch_committed_between_last_stable_offset_and_high_wa(raw: Raw, version: int) -> Any:
    txn, pid, epoch, tp = raw.started()
    other, other_epoch = raw.new(None)
    for s in range(3):
        raw.produce_one(None, other, other_epoch, s, tp, txn=False)
    res = []
    for o in (0, 2, 4, 5, 99):
        next_epoch = raw.fetch(tp, o)
        res.append(
            (
                o,
                name(next_epoch.error_code),
                next_epoch.high_watermark,
                next_epoch.last_stable_offset,
                bool(next_epoch.records),
            )
        )
    raw.end(txn, pid, epoch, False)
    return res


@case("isolation level 7", "Fetch", (11,))
def fetch_isolation_level_7(raw: Raw, version: int) -> Any:
    txn, pid, epoch, tp = raw.started()
    next_epoch = raw.fetch(tp, 0, isolation=7)
    raw.end(txn, pid, epoch, False)
    return (
        name(next_epoch.error_code),
        bool(next_epoch.records),
        next_epoch.last_stable_offset,
        next_epoch.aborted_transactions,
    )


@case("aborted list: read_uncommitted, committed from 0, from after the abort", "Fetch", (4, 11))
def fetch_aborted_list_read_uncommitted_committed_from_0_from_af(raw: Raw, version: int) -> Any:
    txn, pid, epoch, tp = raw.started()
    raw.produce_one(txn, pid, epoch, 1, tp)
    raw.end(txn, pid, epoch, False)
    raw.settled(txn)
    raw.add(txn, pid, epoch, [tp])
    raw.produce_one(txn, pid, epoch, 2, tp)
    raw.end(txn, pid, epoch, True)
    raw.settled(txn)
    return [
        (
            o,
            i,
            [second.first_offset for second in next_epoch.aborted_transactions]
            if next_epoch.aborted_transactions is not None
            else None,
        )
        for o, i in ((0, 0), (0, 1), (1, 1), (2, 1), (3, 1))
        for next_epoch in [raw.fetch(tp, o, i, version)]
    ]


# -- late requests: what the network kept back (Jepsen, 2024)
@case(
    "a commit that comes late, when the next transaction has begun: "
    "answer, state, readable records of the unfinished one",
    "EndTxn",
    (3, 5),
)
def end_txn_a_commit_that_comes_late_when_the_next_transaction_h(raw: Raw, version: int) -> Any:
    txn, pid, epoch, tp = raw.started()
    r = raw.end(txn, pid, epoch, False, version)
    raw.settled(txn)
    next_epoch = r.producer_epoch if version >= 5 else epoch
    if version < 5:
        raw.add(txn, pid, next_epoch, [tp])
    raw.produce_one(txn, pid, next_epoch, 0 if version >= 5 else 1, tp, 12 if version >= 5 else 9)
    a = ended(raw.end(txn, pid, epoch, True, version), version)
    s = raw.settled(txn).transaction_state
    stable = raw.offsets(tp, 1)[1]
    raw.end(txn, pid, next_epoch, False, version)
    return a, s, stable, raw.offsets(tp, 0)[1]


@case(
    "a batch of an aborted transaction that comes late, when the next one has added the partition", "Produce", (9, 12)
)
def produce_a_batch_of_an_aborted_transaction_that_comes_late_wh(raw: Raw, version: int) -> Any:
    txn, pid, epoch, tp = raw.started()
    ev = 5 if version >= 12 else 3
    r = raw.end(txn, pid, epoch, False, ev)
    raw.settled(txn)
    next_epoch = r.producer_epoch if ev == 5 else epoch
    if version < 12:
        raw.add(txn, pid, next_epoch, [tp])
    a = produced(raw.produce_one(txn, pid, epoch, 1, tp, version))
    raw.end(txn, pid, next_epoch, True, ev)
    return a, raw.settled(txn).transaction_state


@case("an AddPartitionsToTxn that comes late, after the commit: answer, state", "AddPartitionsToTxn", (3,))
def add_partitions_to_txn_an_addpartitionstotxn_that_comes_late(raw: Raw, version: int) -> Any:
    txn, pid, epoch, tp = raw.started()
    raw.end(txn, pid, epoch, True)
    raw.settled(txn)
    a = one(raw.add(txn, pid, epoch, [tp], version))
    s = raw.describe(txn).transaction_state
    raw.end(txn, pid, epoch, False)
    return a, s


@case(
    "TxnOffsetCommit of an aborted transaction that comes late, when the next one has added the offsets",
    "TxnOffsetCommit",
    (3, 5),
)
def txn_offset_commit_txnoffsetcommit_of_an_aborted_transaction(raw: Raw, version: int) -> Any:
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    group = raw.group()
    ev = 5 if version >= 5 else 3
    if version < 5:
        raw.add_offsets(txn, pid, epoch, group)
    raw.commit_offsets(txn, pid, epoch, group, {(A, 0): 5}, version)
    r = raw.end(txn, pid, epoch, False, ev)
    raw.settled(txn)
    next_epoch = r.producer_epoch if ev == 5 else epoch
    if version < 5:
        raw.add_offsets(txn, pid, next_epoch, group)
    a = one(raw.commit_offsets(txn, pid, epoch, group, {(A, 0): 6}, version))
    raw.end(txn, pid, next_epoch, True, ev)
    return a


@case(
    "EndTxn v5 for a transaction begun with AddPartitionsToTxn v3, Produce v9 (client upgraded in between)",
    "EndTxn",
    (5,),
)
def end_txn_endtxn_v5_for_a_transaction_begun_with_addpartitions(raw: Raw, version: int) -> Any:
    txn, pid, epoch, tp = raw.started()
    r = raw.end(txn, pid, epoch, True, version)
    raw.settled(txn)
    return ended(r, version), [
        (z.producer_epoch, z.current_txn_start_offset) for z in raw.producers(tp).active_producers
    ]


@case("EndTxn v3 for a transaction begun with Produce v12", "EndTxn", (3,))
def end_txn_endtxn_v3_for_a_transaction_begun_with_produce_v12(raw: Raw, version: int) -> Any:
    if raw.served[0][1] < 12:
        return "-"
    txn = raw.new_id()
    pid, epoch = raw.new(txn)
    tp = raw.topic()
    raw.produce_one(txn, pid, epoch, 0, tp, 12)
    a = ended(raw.end(txn, pid, epoch, True, version), version)
    d = raw.settled(txn)
    return a, d.transaction_state, d.producer_epoch
