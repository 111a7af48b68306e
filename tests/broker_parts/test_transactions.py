"""Transactions over partitions of several brokers: markers find their leaders, and the coordinator's work goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TRANSACTIONS_TOPIC, TopicPartition, home_partition
from kafkad.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkad.wire.messages.describe_transactions import DescribeTransactionsRequest
from kafkad.wire.messages.end_txn import EndTxnRequest
from kafkad.wire.messages.find_coordinator import FindCoordinatorRequest
from kafkad.wire.messages.init_producer_id import InitProducerIdRequest
from kafkad.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkad.wire.records import Record, build_batch
from tests.broker_parts.several import MEMORY, NETWORK, Brokers, FrameConnection

ID = "a"
HOME = TopicPartition(TRANSACTIONS_TOPIC, home_partition(ID, 2))
T = [TopicPartition("t", index) for index in range(3)]

Producer = tuple[int, int]


@pytest.fixture(params=[MEMORY, NETWORK])
def three(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Brokers]:
    """Each leads one partition of `t`, which has no other replica."""
    yield from brokers_of(tmp_path, request.param)


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Brokers]:
    yield from brokers_of(tmp_path, MEMORY)


def brokers_of(directory: Path, links: str) -> Iterator[Brokers]:
    brokers = Brokers(directory, links, "transaction.state.log.num.partitions=2")
    brokers.start(1, 2, 3)
    brokers.meet()
    brokers.create("t", (1,), (2,), (3,))
    yield brokers
    brokers.stop()


def coordinator(brokers: Brokers) -> int:
    """The id of who coordinates ID, once it has loaded."""

    def found() -> int:
        asked = next(iter(brokers.running.values()))
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[ID])
        answer = brokers.ended(asked.ask(request, 4)).coordinators[0]
        return -1 if answer.error_code else int(answer.node_id)

    def has_loaded() -> bool:
        broker = found()
        return broker in brokers.running and describe(brokers, broker).error_code in (
            ErrorCode.NONE,
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        )

    brokers.until(has_loaded, advance_ms=10)
    return found()


def describe(brokers: Brokers, broker: int) -> Any:
    request = DescribeTransactionsRequest(transactional_ids=[ID])
    return brokers.ended(brokers[broker].ask(request, 0)).transaction_states[0]


def init(brokers: Brokers, broker: int) -> Producer:
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=900_000)
    answer = brokers.ended(brokers[broker].ask(request, 5))
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def produce(brokers: Brokers, tp: TopicPartition, producer: Producer, version: int, at: int | None = None) -> ErrorCode:
    """At the leader of a partition of `t`, or at another broker."""
    batch = build_batch(
        [Record(0, 1_700_000_000_000, None, b"v")],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=0,
        transactional=True,
    )
    data = PartitionProduceData(index=tp.partition, records=bytes(batch))
    request = ProduceRequest(
        transactional_id=ID,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=tp.topic, partition_data=[data])],
    )
    leader = brokers[at or tp.partition + 1]

    async def ask() -> Any:
        return await leader.ask_by_frame(request, version, FrameConnection(leader.parts.dispatcher))

    [answer] = brokers.ended(ask(), advance_ms=1).responses[0].partition_responses
    return ErrorCode(answer.error_code)


def add(brokers: Brokers, broker: int, producer: Producer, *partitions: TopicPartition) -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[tp.partition for tp in partitions])],
    )
    [topic] = brokers.ended(brokers[broker].ask(request, 3)).results_by_topic_v3_and_below
    assert not any(one.partition_error_code for one in topic.results_by_partition)


def end(brokers: Brokers, broker: int, producer: Producer, *, commit: bool, version: int) -> Producer:
    request = EndTxnRequest(transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], committed=commit)
    answer = brokers.ended(brokers[broker].ask(request, version))
    assert answer.error_code == 0
    return (answer.producer_id, answer.producer_epoch) if version >= 5 else producer


def stable(brokers: Brokers, tp: TopicPartition) -> tuple[int, int]:
    """Last stable offset and log end."""
    partition = brokers[tp.partition + 1].partition(tp)
    return partition.last_stable_offset, partition.log.end_offset


def test_clients_old_and_new_write_to_partitions_of_all_brokers(three: Brokers) -> None:
    home = coordinator(three)
    producer = init(three, home)
    for tp in T:
        assert produce(three, tp, producer, 12) is ErrorCode.NONE
        assert stable(three, tp) == (0, 1)
    bumped = end(three, home, producer, commit=False, version=5)
    assert bumped == (producer[0], producer[1] + 1)
    three.until(lambda: all(stable(three, tp) == (2, 2) for tp in T), advance_ms=1)
    assert produce(three, T[0], producer, 12) is ErrorCode.INVALID_PRODUCER_EPOCH, "late"
    assert produce(three, T[1], bumped, 11) is ErrorCode.TRANSACTION_ABORTABLE, "not added"
    add(three, home, bumped, *T)
    for tp in T:
        assert produce(three, tp, bumped, 11) is ErrorCode.NONE
    end(three, home, bumped, commit=True, version=4)
    three.until(lambda: all(stable(three, tp) == (4, 4) for tp in T), advance_ms=1)
    three.until(lambda: describe(three, home).transaction_state == "CompleteCommit", advance_ms=1)


def test_a_partition_that_cannot_be_reached_gets_its_marker_when_it_can(in_memory: Brokers) -> None:
    home = coordinator(in_memory)
    away = next(tp for tp in T if tp.partition + 1 != home)
    producer = init(in_memory, home)
    for tp in T:
        assert produce(in_memory, tp, producer, 12) is ErrorCode.NONE
    in_memory.cut_ways.add((home, away.partition + 1))
    bumped = end(in_memory, home, producer, commit=True, version=5)
    in_memory.until(lambda: all(stable(in_memory, tp) == (2, 2) for tp in T if tp != away), advance_ms=1)
    found = describe(in_memory, home)
    assert found.transaction_state == "PrepareCommit"
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [away.partition])]
    assert stable(in_memory, away) == (0, 1)
    in_memory.cut_ways.clear()
    in_memory.until(lambda: describe(in_memory, home).transaction_state == "CompleteCommit", advance_ms=10)
    assert stable(in_memory, away) == (2, 2)
    assert init(in_memory, home) == (bumped[0], bumped[1] + 1)


def test_another_coordinator_ends_what_was_prepared(in_memory: Brokers) -> None:
    home = coordinator(in_memory)
    others = [tp for tp in T if tp.partition + 1 != home]
    producer = init(in_memory, home)
    for tp in others:
        assert produce(in_memory, tp, producer, 12) is ErrorCode.NONE
    in_memory.cut_ways.add((home, others[0].partition + 1))
    bumped = end(in_memory, home, producer, commit=False, version=5)
    assert describe(in_memory, home).transaction_state == "PrepareAbort"
    in_memory.cut_ways.clear()
    in_memory.leave(home)
    second = coordinator(in_memory)
    assert second != home
    in_memory.until(lambda: describe(in_memory, second).transaction_state == "CompleteAbort", advance_ms=10)
    for tp in others:
        assert stable(in_memory, tp)[0] == stable(in_memory, tp)[1]
    assert end(in_memory, second, producer, commit=False, version=5) == bumped, "asked again: not a second end"
    in_memory.start(home)


def test_a_leader_that_has_been_replaced_fences_nobody_whose_transaction_has_ended_elsewhere(
    in_memory: Brokers,
) -> None:
    """It and the controller do not reach each other; it and the coordinator of the transaction do."""
    home = coordinator(in_memory)
    controller = next(b for b, running in in_memory.running.items() if running.parts.controller.active)
    old = next(b for b in in_memory.running if b not in (home, controller))
    others = [b for b in in_memory.running if b != old]
    in_memory.create("u", (old, *others))
    tp = TopicPartition("u", 0)
    producer = init(in_memory, home)
    assert produce(in_memory, tp, producer, 12, at=old) is ErrorCode.NONE
    in_memory.cut.add(frozenset({old, controller}))
    in_memory.until(lambda: any(in_memory[b].partition(tp).is_leader for b in others), advance_ms=50)
    bumped = end(in_memory, home, producer, commit=True, version=5)
    in_memory.until(lambda: describe(in_memory, home).transaction_state == "CompleteCommit", advance_ms=10)
    assert in_memory[old].partition(tp).is_leader, "as far as it knows"
    assert produce(in_memory, tp, bumped, 12, at=old) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    [new] = [b for b in others if in_memory[b].partition(tp).is_leader]
    assert produce(in_memory, tp, bumped, 12, at=new) is ErrorCode.NONE
