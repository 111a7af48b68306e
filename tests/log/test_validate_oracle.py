"""The table of produced batches, sent to a real Kafka: are its codes still those, and does it store what we would?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from kafkad.errors import ErrorCode
from kafkad.wire.apis import response_class
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkad.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkad.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kafkad.wire.records import BatchHeader, Record, crc_matches, iter_batches, iter_records
from kafkad.wire.schema import decode
from tests.broker import RawClient
from tests.log.produced import TOPICS, Case, cases, config_of, leader
from tests.oracle.kafka import Kafka, missing

pytestmark = [
    pytest.mark.long,
    pytest.mark.java,
    pytest.mark.skipif(missing("3.9") is not None, reason=str(missing("3.9"))),
]

NOW_MS = time.time_ns() // 1_000_000
CASES = cases(NOW_MS)
PRODUCE, FETCH, CREATE_TOPICS = 0, 1, 19
START_SECONDS = 30
BELIEVED = "the append time flag"
"""Kafka takes the flag away, and keeps what the producer claimed to be the append time as the max timestamp."""


class Stored(NamedTuple):
    header: BatchHeader
    records: list[Record]


@pytest.fixture(scope="module")
def client() -> Iterator[RawClient]:
    with kafka_with_topics() as connection:
        yield connection


@contextmanager
def kafka_with_topics() -> Iterator[RawClient]:
    """A connection to a new Kafka that has the topics of `produced`."""
    with Kafka("3.9", heap="512m") as kafka, RawClient(kafka.ports[0]) as connection:
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=setting, value=value) for setting, value in settings.items()],
            )
            for name, settings in TOPICS.items()
        ]
        end = time.monotonic() + START_SECONDS
        while not ready(connection, topics):
            assert time.monotonic() < end
        yield connection


def ready(client: RawClient, topics: list[CreatableTopic]) -> bool:
    """True if all topics are there, created if need be, and take batches: no batch at all is refused as such."""
    answers = ask(client, CREATE_TOPICS, 4, CreateTopicsRequest(topics=topics)).topics
    if any(answer.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) for answer in answers):
        return False
    return all(produce(client, name, b"", 8).error_code == ErrorCode.INVALID_RECORD for name in TOPICS)


def ask(client: RawClient, key: int, version: int, request: Any) -> Any:
    frame = encode_request(RequestHeader(key, version, 1, "oracle"), request)
    client.send(frame)
    answer = client.receive_frame()
    _, at = read_response_header(key, version, answer)
    return decode(response_class(key), version, answer[at:])


def produce(client: RawClient, topic: str, records: bytes | bytearray, version: int) -> PartitionProduceResponse:
    partition = PartitionProduceData(index=0, records=bytes(records))
    data = [TopicProduceData(name=topic, partition_data=[partition])]
    response = ask(client, PRODUCE, version, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=data))
    answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
    return answer


def fetch(client: RawClient, topic: str, offset: int) -> Stored:
    view, at, header = _first_batch(client, topic, offset)
    return Stored(header, list(iter_records(view, at, header)))


def fetch_header(client: RawClient, topic: str, offset: int) -> BatchHeader:
    return _first_batch(client, topic, offset)[2]


def _first_batch(client: RawClient, topic: str, offset: int) -> tuple[memoryview, int, BatchHeader]:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[partition])])
    records = ask(client, FETCH, 4, request).responses[0].partitions[0].records
    view = memoryview(records)
    at, header = next(iter_batches(view))
    assert crc_matches(view, at, header)
    return view, at, header


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_kafka_answers_so(client: RawClient, case: Case) -> None:
    answer = produce(client, case.topic, case.records, case.version)
    assert answer.error_code == case.code
    if case.refused:
        assert tuple(error.batch_index for error in answer.record_errors) == case.refused


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.code == ErrorCode.NONE and case.ours is None],
    ids=lambda case: case.name,
)
def test_kafka_stores_so(client: RawClient, case: Case) -> None:
    answer = produce(client, case.topic, case.records, case.version)
    stamped_ms = answer.log_append_time_ms if answer.log_append_time_ms >= 0 else NOW_MS
    theirs = fetch(client, case.topic, answer.base_offset)
    view, header = leader(case.records, config_of(case.topic), case.version, now_ms=NOW_MS, stamped_ms=stamped_ms)
    placed = theirs.header
    ours = header._replace(base_offset=answer.base_offset, leader_epoch=0, length=placed.length, crc=placed.crc)
    if case.name == BELIEVED:
        ours = ours._replace(max_timestamp=theirs.header.max_timestamp)
    assert ours == theirs.header
    moved = [record._replace(offset=record.offset + answer.base_offset) for record in iter_records(view, 0, header)]
    assert moved == theirs.records
