"""Bringing the markers of an ended transaction to its partitions, here and at other brokers."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad.net.client import LinkError
from kafkad.txn.transaction import AddPartitions, Answer, End, State
from kafkad.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.cycles import none_left
from tests.fakes import turns
from tests.txn.life import ELSEWHERE, HERE, Life, scenario

NONE = ErrorCode.NONE
OK = [Answer(NONE)]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@scenario
async def test_a_leader_that_cannot_now_is_asked_again() -> None:
    for code in (3, 6, 7, 19, 20, 56):
        life = Life()
        producer = await life.new()
        life.add(producer, 0, 1)
        life.codes[T1] = ErrorCode(code)
        life.end(producer, True)
        assert life.machine.lacking("a") == {T1}
        life.advance(100)
        assert [set(marker.partitions) for marker in life.markers] == [{T0, T1}, {T1}]
        life.codes.clear()
        life.advance(200)
        assert life.known().state is State.COMPLETE_COMMIT


@pytest.mark.parametrize("waits", [False, True])
def test_a_transaction_that_is_over_has_left_nothing_in_cycles(waits: bool) -> None:
    @scenario
    async def ended() -> None:
        life = Life()
        producer = await life.new()
        with none_left():
            life.add(producer, 0, 1)
            if waits:
                life.codes[T1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            life.end(producer, True)
            assert (life.known().state is State.PREPARE_COMMIT) == waits
            life.advance(2_000)  # it is told that it waits
            life.codes.clear()
            life.advance(2_000)
            assert life.known().state is State.COMPLETE_COMMIT

    ended()


@scenario
async def test_a_partition_that_cannot_have_a_marker_is_left_out() -> None:
    for code in (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.INVALID_PRODUCER_EPOCH):
        life = Life()
        producer = await life.new()
        life.add(producer, 0)
        life.codes[T0] = code
        assert life.end(producer, True) == OK
        assert life.known().state is State.COMPLETE_COMMIT


@scenario
async def test_where_another_coordinator_is_known_this_one_gives_up() -> None:
    life = Life()
    producer = await life.new()
    life.add(producer, 0, 1)
    life.codes[T0] = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    life.end(producer, True)
    life.advance(10_000)
    assert life.known().state is State.PREPARE_COMMIT
    assert len(life.markers) == 1


@scenario
async def test_a_deleted_partition_needs_no_marker() -> None:
    life = Life()
    producer = await life.new()
    life.add(producer, 0, 1)
    del life.metadata.topics["t"].partitions[1]
    assert life.end(producer, True) == OK
    assert [set(marker.partitions) for marker in life.markers] == [{T0}]
    life.add(producer, 0)
    del life.metadata.topics["t"]
    assert life.end(producer, True) == OK


@scenario
async def test_before_the_controller_has_told_of_partitions_none_is_taken_for_deleted() -> None:
    life = Life()
    producer = await life.new()
    life.add(producer, 0)
    life.hold_markers = True
    life.end(producer, True)
    again = Life()
    again.metadata.is_here.clear()
    again.metadata.topics.clear()
    life.disk.load(again)
    again.advance(500)
    assert again.known().state is State.PREPARE_COMMIT
    assert again.queues.without_leader == 1
    again.leaders("t", [HERE])
    again.metadata.is_here.set()
    again.advance(1000)
    assert again.known().state is State.COMPLETE_COMMIT
    assert again.queues.without_leader == 0


@scenario
async def test_a_partition_that_the_controller_has_not_told_of_is_waited_for() -> None:
    """It has told of other topics already, and tells of this one a moment later."""
    life = Life()
    producer = await life.new()
    life.add(producer, 0, 1)
    life.hold_markers = True
    life.end(producer, True)
    again = Life()
    again.leaders("t", [HERE])
    again.unheard_of.add(T1)
    life.disk.load(again)
    again.advance(500)
    assert again.known().state is State.PREPARE_COMMIT
    assert again.machine.lacking("a") == {T1}
    assert again.queues.without_leader == 1
    again.leaders("t", [HERE, HERE])
    again.advance(1000)
    assert again.known().state is State.COMPLETE_COMMIT
    assert [marker.partitions for marker in again.markers] == [[T0], [T1]]


class OtherBroker:
    """A link that keeps its requests until they are answered."""

    def __init__(self) -> None:
        self.asked: list[tuple[WriteTxnMarkersRequest, asyncio.Future[WriteTxnMarkersResponse]]] = []
        self.closed = False

    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        answer: asyncio.Future[WriteTxnMarkersResponse] = asyncio.get_running_loop().create_future()
        self.asked.append((request, answer))
        return await answer

    def close(self) -> None:
        self.closed = True
        for _, answer in self.asked:
            answer.set_exception(LinkError("is not asked any more"))

    async def answer(self, code: int | None) -> WriteTxnMarkersRequest:
        """The oldest request; None: the connection breaks."""
        await turns()
        request, answer = self.asked.pop(0)
        if code is None:
            answer.set_exception(LinkError("it is gone"))
        else:
            answer.set_result(_answer(request, code))
        await turns()
        return request


def _answer(request: WriteTxnMarkersRequest, code: int) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


@scenario
async def test_markers_for_another_broker_go_together() -> None:
    other = OtherBroker()
    life = Life(connect=lambda broker: other)
    life.leaders("t", [HERE, ELSEWHERE, ELSEWHERE])
    producers = {name: await life.new(name) for name in "abc"}
    for name, producer in producers.items():
        life.ask(AddPartitions(*producer, [T0, T1, TopicPartition("t", 2)], 0), name)
        life.ask(End(*producer, True), name)
    request = await other.answer(NONE)
    assert {marker.producer_id for marker in request.markers} == {producer for producer, _ in producers.values()}
    assert [sorted(topic.partition_indexes) for marker in request.markers for topic in marker.topics] == [[1, 2]] * 3
    assert not other.asked
    assert all(known.state is State.COMPLETE_COMMIT for known in life.machine.transactions.values())
    life.queues.close()
    assert other.closed


@scenario
async def test_one_request_at_a_time_is_on_its_way_to_a_broker() -> None:
    other = OtherBroker()
    life = Life(connect=lambda broker: other)
    life.leaders("t", [ELSEWHERE])
    for name in "ab":
        producer = await life.new(name)
        life.ask(AddPartitions(*producer, [T0], 0), name)
        life.ask(End(*producer, True), name)
        await turns()
    assert len(other.asked) == 1
    await other.answer(NONE)
    assert len(other.asked) == 1
    await other.answer(NONE)
    assert life.known("b").state is State.COMPLETE_COMMIT


@scenario
async def test_an_internal_error_at_the_end_of_a_transaction_keeps_no_other_from_its_end() -> None:
    other = OtherBroker()
    life = Life(connect=lambda broker: other)
    life.leaders("t", [ELSEWHERE])
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    for name in "abc":
        producer = await life.new(name)
        life.ask(AddPartitions(*producer, [T0], 0), name)
    for name in "ab":
        life.ask(End(*life.known(name)[1:3], True), name)
    life.machine._endings["a"].done = lambda ending: 1 / 0  # type: ignore[assignment, return-value]
    await turns()
    life.ask(End(*producer, True), "c")
    await other.answer(NONE)
    await other.answer(NONE)
    assert life.known("c").state is State.COMPLETE_COMMIT, "it waited behind them"
    life.advance(100)
    await other.answer(NONE)
    assert life.known("b").state is State.COMPLETE_COMMIT


@scenario
async def test_an_internal_error_in_asking_a_broker_leaves_its_markers_to_be_written() -> None:
    life, other = await committed_elsewhere()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    await turns()
    _, answer = other.asked.pop()
    answer.set_exception(RuntimeError("can't start new thread"))
    await turns()
    assert life.known().state is State.PREPARE_COMMIT
    life.advance(100)
    await other.answer(NONE)
    assert life.known().state is State.COMPLETE_COMMIT


async def committed_elsewhere() -> tuple[Life, OtherBroker]:
    """A transaction has been committed, and the broker that leads its partition is to write the marker."""
    other = OtherBroker()
    life = Life(connect=lambda broker: other)
    life.leaders("t", [ELSEWHERE])
    producer = await life.new()
    life.add(producer, 0)
    life.end(producer, True)
    return life, other


@scenario
async def test_a_broker_that_is_gone_is_waited_for_and_its_partitions_followed() -> None:
    life, other = await committed_elsewhere()
    await other.answer(None)
    assert life.known().state is State.PREPARE_COMMIT
    life.leaders("t", [HERE])
    life.advance(100)
    assert life.known().state is State.COMPLETE_COMMIT
    assert [marker.partitions for marker in life.markers] == [[T0]]


@scenario
async def test_a_code_that_is_not_known_here_means_that_the_leader_is_asked_again() -> None:
    life, other = await committed_elsewhere()
    await other.answer(999)
    assert life.known().state is State.PREPARE_COMMIT
    life.advance(100)
    await other.answer(NONE)
    assert life.known().state is State.COMPLETE_COMMIT


@scenario
async def test_nobody_waits_for_an_answer_of_a_broker_that_is_gone() -> None:
    life, other = await committed_elsewhere()
    await turns()
    gone(life)
    await turns()
    assert other.closed
    life.leaders("t", [HERE])
    life.advance(100)
    assert life.known().state is State.COMPLETE_COMMIT


@scenario
async def test_what_was_refused_for_long_is_tried_at_once_when_brokers_come_and_go() -> None:
    life, other = await committed_elsewhere()
    for _ in range(6):
        await other.answer(None)
        life.advance(1_000)
    await other.answer(None)
    gone(life)
    life.leaders("t", [HERE])
    life.advance(100)
    assert life.known().state is State.COMPLETE_COMMIT


def gone(life: Life) -> None:
    """What the controller tells first of a broker that has died."""
    del life.metadata.brokers[ELSEWHERE]
    for told in life.metadata.on_brokers_changed:
        told()


@scenario
async def test_markers_that_rest_are_tried_some_at_a_time_when_brokers_come_and_go() -> None:
    life = Life()
    names = [f"id-{number}" for number in range(100)]
    for name in names:
        producer = await life.new(name)
        life.ask(AddPartitions(*producer, [T0], 0), name)
        life.leaders("t", [-1])
        life.ask(End(*producer, True), name)
        life.leaders("t", [HERE])
    assert life.queues.without_leader == len(names)
    life.hold_later = True
    gone(life)
    assert 0 < len(life.markers) < len(names) / 2
    life.turn()
    written = len(life.markers)
    assert written < len(names)
    life.advance(1_000)
    assert len(life.markers) == len(names)
    life.hold_later = False
    life.turn()
    assert len(life.markers) == len(names)
    assert {life.known(name).state for name in names} == {State.COMPLETE_COMMIT}


@scenario
async def test_an_answer_to_an_attempt_that_was_given_up_changes_nothing() -> None:
    """Else it would end a later transaction of the same id (KAFKA-16352)."""
    life, other = await committed_elsewhere()
    await turns()
    life.machine.unloaded()
    life.disk.load(life)
    await turns()
    assert len(other.asked) == 1
    await other.answer(NONE)
    assert life.known().state is State.PREPARE_COMMIT
    await other.answer(NONE)
    assert life.known().state is State.COMPLETE_COMMIT


@scenario
async def test_what_an_end_waits_for_is_logged() -> None:
    life = Life()
    producer = await life.new()
    life.add(producer, 0)
    life.leaders("t", [-1])
    life.metadata.topics["t"].partitions[0].isr = [7]
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("kafkad.txn.markers")
    logger.addHandler(handler)
    try:
        life.end(producer, True)
        life.advance(999)
        assert not told
        life.advance(5000)
        [line] = told
        assert line == (
            "transactional id a is to be committed, but cannot be yet: it waits for t-0 (no leader: broker 7 is down)"
        )
    finally:
        logger.removeHandler(handler)
