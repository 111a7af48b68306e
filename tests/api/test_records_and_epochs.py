"""DeleteRecords, OffsetForLeaderEpoch, DescribeProducers, InitProducerId."""

from __future__ import annotations

from typing import Any

import pytest

from kafkad.errors import ErrorCode
from kafkad.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafkad.wire.messages.describe_producers import DescribeProducersRequest, PartitionResponse, TopicRequest
from kafkad.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkad.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkad.wire.records import Record
from tests.one_broker import OneBroker

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def filled(broker: OneBroker) -> OneBroker:
    """Offsets 0 to 4 in two batches."""
    broker.create("t")
    broker.append("t", 0, *(Record(index, 100, None, b"x") for index in range(3)))
    broker.append("t", 0, *(Record(index, 200, None, b"x") for index in range(2)))
    return broker


def cut(broker: OneBroker, version: int, offset: int, topic: str = "t", partition: int = 0) -> tuple[int, int]:
    asked = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=asked)], timeout_ms=5_000)
    [answer] = broker.ask(request, version).topics[0].partitions
    return answer.error_code, answer.low_watermark


@pytest.mark.parametrize("version", range(3))
def test_records_before_an_offset_are_forgotten(filled: OneBroker, version: int) -> None:
    assert cut(filled, version, 2) == (0, 2)
    assert cut(filled, version, 1) == (0, 2)
    assert cut(filled, version, -1) == (0, 5)


def test_of_a_partition_that_is_named_twice_the_last_offset_counts(filled: OneBroker) -> None:
    def asked(*offsets: int) -> DeleteRecordsTopic:
        partitions = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in offsets]
        return DeleteRecordsTopic(name="t", partitions=partitions)

    request = DeleteRecordsRequest(topics=[asked(5, 4), asked(9, 2)], timeout_ms=5_000)
    [topic] = filled.ask(request, 2).topics
    assert [(one.error_code, one.low_watermark) for one in topic.partitions] == [(0, 2)]


@pytest.mark.parametrize("offset", [6, -2])
def test_what_is_not_there_cannot_be_cut(filled: OneBroker, offset: int) -> None:
    assert cut(filled, 2, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_partitions_that_cannot_be_cut(filled: OneBroker) -> None:
    assert cut(filled, 2, 0, topic="missing") == (UNKNOWN, -1)
    assert cut(filled, 2, 0, partition=9) == (UNKNOWN, -1)
    assert cut(filled, 2, 0, topic="__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


def test_compacted_topics_are_not_cut(broker: OneBroker) -> None:
    broker.create("c", configs={"cleanup.policy": "compact"})
    assert cut(broker, 2, 0, topic="c") == (ErrorCode.POLICY_VIOLATION, -1)


def end_of(
    broker: OneBroker, version: int, epoch: int, *, current: int = -1, topic: str = "t", partition: int = 0
) -> tuple[int, int, int]:
    asked = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])
    [answer] = broker.ask(request, version).topics[0].partitions
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("version", range(5))
def test_the_end_of_an_epoch(filled: OneBroker, version: int) -> None:
    assert end_of(filled, version, 0) == (0, 0 if version >= 1 else -1, 5)
    assert end_of(filled, version, 5) == (0, -1, -1)
    assert end_of(filled, version, -1) == (0, -1, -1)
    assert end_of(filled, version, -2) == (0, -2 if version >= 1 else -1, 0), "it is before all epochs"


def test_who_asks_for_an_end_is_fenced(filled: OneBroker) -> None:
    assert end_of(filled, 4, 0, current=0)[0] == 0
    assert end_of(filled, 4, 0, current=-2) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert end_of(filled, 4, 0, current=5) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert end_of(filled, 4, 0, topic="missing") == (UNKNOWN, -1, -1)
    assert end_of(filled, 4, 0, partition=9) == (UNKNOWN, -1, -1)


def producers(broker: OneBroker, topic: str, partition: int = 0) -> PartitionResponse:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
    [answer] = broker.ask(request, 0).topics[0].partitions
    assert isinstance(answer, PartitionResponse)
    return answer


def test_producers_are_described(filled: OneBroker) -> None:
    assert producers(filled, "t").active_producers == []
    filled.append("t", 0, *(Record(index, 300, None, b"x") for index in range(2)), producer_id=7)
    filled.append("t", 0, Record(0, 400, None, b"x"), producer_id=8, transactional=True)
    plain, transactional = producers(filled, "t").active_producers
    assert (plain.producer_id, plain.producer_epoch, plain.last_sequence, plain.last_timestamp) == (7, 0, 1, 300)
    assert (plain.coordinator_epoch, plain.current_txn_start_offset) == (-1, -1)
    assert (transactional.producer_id, transactional.current_txn_start_offset) == (8, 7)


def test_many_producers_of_a_partition_are_described_in_pieces(filled: OneBroker) -> None:
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    few = filled.pieces(request, 0)
    for producer_id in range(250):
        filled.append("t", 0, Record(0, 300, None, b"x"), producer_id=producer_id)
    assert filled.pieces(request, 0) > few + 1
    assert len(producers(filled, "t").active_producers) == 250


def test_the_producers_of_a_partition_that_is_named_twice_are_described_once(filled: OneBroker) -> None:
    named = (("t", [0, 9, 0]), ("missing", [0]), ("t", [9]))
    topics = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in named]
    answer = filled.ask(DescribeProducersRequest(topics=topics), 0)
    assert [(topic.name, [one.partition_index for one in topic.partitions]) for topic in answer.topics] == [
        ("t", [0, 9]),
        ("missing", [0]),
    ]


def test_a_follower_describes_the_producers_that_it_knows(filled: OneBroker) -> None:
    filled.append("t", 0, Record(0, 300, None, b"x"), producer_id=7)
    filled.lead("t", 0, 2)
    assert [each.producer_id for each in producers(filled, "t").active_producers] == [7]


def test_producers_of_what_is_not_there(filled: OneBroker) -> None:
    assert producers(filled, "t", 9).error_code == UNKNOWN
    assert producers(filled, "missing").error_code == UNKNOWN
    assert producers(filled, "b ad").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def init(broker: OneBroker, version: int = 5, **fields: Any) -> InitProducerIdResponse:
    request = InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 60_000, **fields})
    answer = broker.ask(request, version)
    assert isinstance(answer, InitProducerIdResponse)
    return answer


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(broker: OneBroker, version: int) -> None:
    answers = [init(broker, version) for _ in range(3)]
    assert [(answer.error_code, answer.producer_id, answer.producer_epoch) for answer in answers] == [
        (0, 0, 0),
        (0, 1, 0),
        (0, 2, 0),
    ]


def test_ids_go_on_in_the_next_block(broker: OneBroker) -> None:
    ids = [init(broker).producer_id for _ in range(1001)]
    assert ids == list(range(1001))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_who_gets_no_id(broker: OneBroker, fields: dict[str, Any], code: ErrorCode) -> None:
    answer = init(broker, **fields)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)
    assert not code.retriable
