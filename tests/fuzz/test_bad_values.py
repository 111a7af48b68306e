"""Values that clients get wrong most, end to end: each has its error code, and the connection stays."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kafkad.errors import ErrorCode
from kafkad.wire.compression import compress
from kafkad.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafkad.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkad.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafkad.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkad.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkad.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkad.wire.records import MAGIC_AT, Record, build_batch
from tests.fuzz.running import RunningBroker, framed, request, sentinel
from tests.fuzz.wild import sealed
from tests.log.produced import changed

TOPIC = "codec-none"
RECORDS = [Record(n, 1_700_000_000_000, b"key", b"value") for n in range(3)]
BATCH = build_batch(RECORDS)


def answers(broker: RunningBroker, *asked: tuple[Any, int]) -> list[Any]:
    stream = [framed(request(message, version, number)) for number, (message, version) in enumerate(asked)]
    talk = broker.converse(*stream, sentinel())
    assert talk.survived
    return [answer.message for answer in talk.answers[:-1]]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (".", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("../up", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nul\0", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a" * 249, ErrorCode.NONE),
        (TOPIC, ErrorCode.TOPIC_ALREADY_EXISTS),
    ],
)
@pytest.mark.parametrize("version", [1, 4, 5, 7])
def test_names_of_topics(broker: RunningBroker, name: str, code: ErrorCode, version: int) -> None:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    [response] = answers(broker, (CreateTopicsRequest(topics=[topic], validate_only=True), version))
    assert response.topics[0].error_code == code


@pytest.mark.parametrize("count", [0, -2, 10_002, 2**31 - 1, -(2**31)])
def test_counts_of_partitions(broker: RunningBroker, count: int) -> None:
    create = CreateTopicsRequest(
        topics=[CreatableTopic(name="countless", num_partitions=count, replication_factor=1)], timeout_ms=5000
    )
    grow = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=TOPIC, count=count, assignments=None)])
    grow.timeout_ms = 5000
    created, grown = answers(broker, (create, 5), (grow, 2))
    assert created.topics[0].error_code != 0
    assert grown.results[0].error_code != 0


@pytest.mark.parametrize("index", [-1, 1, 2**31 - 1, -(2**31)])
def test_indexes_of_partitions(broker: RunningBroker, index: int) -> None:
    assignment = CreatableReplicaAssignment(partition_index=index, broker_ids=[1])
    create = CreatableTopic(name="odd-index", num_partitions=-1, replication_factor=-1, assignments=[assignment])
    created, produced, fetched = answers(
        broker,
        (CreateTopicsRequest(topics=[create], timeout_ms=5000), 5),
        (produce(BATCH, index), 8),
        (fetch(0, index), 11),
    )
    assert created.topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert produced.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetched.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("offset", [-1, -2, -(2**63), 10**6, 2**63 - 1])
def test_offsets(broker: RunningBroker, offset: int) -> None:
    delete = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="large", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])]
    )
    earliest = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=offset)])
    fetched, deleted, listed = answers(
        broker, (fetch(offset), 11), (delete, 1), (ListOffsetsRequest(replica_id=-1, topics=[earliest]), 5)
    )
    assert fetched.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    refused = deleted.topics[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert refused == (offset != -1)  # the high watermark
    assert listed.topics[0].partitions[0].error_code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION)


def test_sequences_out_of_order(broker: RunningBroker) -> None:
    batches = [
        build_batch(RECORDS, producer_id=4711, producer_epoch=epoch, base_sequence=sequence)
        for epoch, sequence in ((0, 0), (0, 4), (0, 3), (0, 3), (1, 5), (0, 6), (1, 0), (0, 9))
    ]
    found = answers(broker, *((produce(batch), 8) for batch in batches))
    assert [response.responses[0].partition_responses[0].error_code for response in found] == [
        ErrorCode.NONE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.NONE,
        ErrorCode.NONE,  # the same again
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ]


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (BATCH[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (BATCH[:MAGIC_AT] + b"\x03" + BATCH[MAGIC_AT + 1 :], ErrorCode.CORRUPT_MESSAGE),
        (BATCH[:MAGIC_AT] + b"\x01" + BATCH[MAGIC_AT + 1 :], ErrorCode.INVALID_RECORD),
        (BATCH[:8] + struct.pack(">i", 2**31 - 1) + BATCH[12:], ErrorCode.INVALID_RECORD),
        (BATCH[:8] + struct.pack(">i", -1) + BATCH[12:], ErrorCode.CORRUPT_MESSAGE),
        (changed(BATCH, record_count=2**31 - 1), ErrorCode.INVALID_RECORD),
        (changed(BATCH, record_count=-1), ErrorCode.INVALID_RECORD),
        (changed(BATCH, attributes=0x20), ErrorCode.INVALID_RECORD),
        (changed(BATCH, attributes=7), ErrorCode.UNKNOWN_SERVER_ERROR),
        (BATCH + BATCH, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
    ],
)
@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_batches(broker: RunningBroker, batch: bytes, code: ErrorCode, version: int) -> None:
    [response] = answers(broker, (produce(batch), version))
    assert response.responses[0].partition_responses[0].error_code == code


@pytest.mark.parametrize(
    ("setting", "value"), [("cleanup.policy", "compact"), ("compression.type", "gzip"), ("compression.type", "zstd")]
)
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_bodies_where_the_broker_looks_into_them(broker: RunningBroker, setting: str, value: str, codec: int) -> None:
    name = f"looks-into-{value}"
    config = CreatableTopicConfig(name=setting, value=value)
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=[config])
    answers(broker, (CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5))
    body = bytes(BATCH[61:])
    for wrong in (b"\xff" * 40, b"\xff\xff\xff\xff\x0f", b"\0", b"", body[:-1], body + b"\0", body + body):
        for stored in {wrong, compress(codec, wrong)}:
            batch = sealed(bytes(changed(BATCH, attributes=codec)[:61]) + stored)
            [response] = answers(broker, (produce(batch, topic=name), 8))
            code = response.responses[0].partition_responses[0].error_code
            assert code in (ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR)


def produce(batch: bytes | bytearray, index: int = 0, topic: str = TOPIC) -> ProduceRequest:
    data = PartitionProduceData(index=index, records=bytes(batch))
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def fetch(offset: int, index: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=[FetchTopic(topic=TOPIC, partitions=[partition])]
    )
