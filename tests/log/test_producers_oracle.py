"""The scenarios of `sequences`, sent to a real Kafka: does it still answer so?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafkad.errors import ErrorCode
from kafkad.wire.apis import response_class
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkad.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkad.wire.records import Record, build_batch
from kafkad.wire.schema import decode
from tests.broker import RawClient
from tests.log.sequences import MIDDLE, SCENARIOS, Sent
from tests.oracle.kafka import Kafka, missing

pytestmark = [
    pytest.mark.long,
    pytest.mark.java,
    pytest.mark.skipif(missing("3.9") is not None, reason=str(missing("3.9"))),
]

ALL = SCENARIOS | MIDDLE
NUMBERS = {name: number for number, name in enumerate(ALL)}
TOPIC = "sequences"
START_SECONDS = 30


@pytest.fixture(scope="module")
def client() -> Iterator[RawClient]:
    with Kafka("3.9", heap="512m") as kafka, RawClient(kafka.ports[0]) as connection:
        topic = CreatableTopic(name=TOPIC, num_partitions=len(ALL), replication_factor=1)
        end = time.monotonic() + START_SECONDS
        while not ready(connection, topic):
            assert time.monotonic() < end
        yield connection


def ready(client: RawClient, topic: CreatableTopic) -> bool:
    """An empty batch is refused as such only by a leader."""
    code = ask(client, 19, 4, CreateTopicsRequest(topics=[topic])).topics[0].error_code
    if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        return False
    return all(produce(client, partition, b"").error_code == ErrorCode.INVALID_RECORD for partition in range(len(ALL)))


def ask(client: RawClient, key: int, version: int, request: Any) -> Any:
    client.send(encode_request(RequestHeader(key, version, 1, "oracle"), request))
    answer = client.receive_frame()
    _, at = read_response_header(key, version, answer)
    return decode(response_class(key), version, answer[at:])


def produce(client: RawClient, partition: int, records: bytes) -> Any:
    data = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=partition, records=records)])]
    response = ask(client, 0, 8, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=data))
    return response.responses[0].partition_responses[0]


@pytest.mark.parametrize("name", ALL)
def test_kafka_answers_so(client: RawClient, name: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    for sent in ALL[name]:
        answer = produce(client, NUMBERS[name], batch(sent, now_ms))
        assert (answer.base_offset if answer.error_code == ErrorCode.NONE else answer.error_code) == sent.answer, sent


def batch(sent: Sent, now_ms: int) -> bytes:
    records = [Record(n, now_ms, None, b"value") for n in range(sent.count)]
    return bytes(
        build_batch(
            records,
            base_offset=0,
            producer_id=1000 + sent.producer,
            producer_epoch=sent.epoch,
            base_sequence=sent.sequence,
        )
    )
