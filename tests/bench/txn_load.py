"""Transactions as clients send them: raw frames over one connection, and librdkafka.

Raw is the broker alone: nothing is waited for but answers, and the time is that between the first byte out and the
last one in. librdkafka is what users feel: it waits by itself, for 20 or 100 ms, whenever it is told
CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from kafkad.errors import ErrorCode
from kafkad.wire.apis import response_class
from kafkad.wire.crc import crc32c
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkad.wire.messages.api_versions import ApiVersionsRequest
from kafkad.wire.messages.end_txn import EndTxnRequest
from kafkad.wire.messages.find_coordinator import FindCoordinatorRequest
from kafkad.wire.messages.init_producer_id import InitProducerIdRequest
from kafkad.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkad.wire.records import CRC_AT, CRC_FROM, Record, build_batch
from kafkad.wire.schema import read
from tests.broker import RawClient

VALUE = b"v" * 100
WARM_UP = 3
"""Transactions that are not counted."""
TIMEOUT_MS = 60_000
_FIND, _INIT, _API_VERSIONS = (10, 1), (22, 1), (18, 3)
_ADD, _PRODUCE, _END = (24, 1), (0, 7), (26, 1)
_PRODUCE_ADDING, _END_BUMPING = (0, 12), (26, 5)
"""The versions in which Produce adds its partitions, and EndTxn answers the next epoch."""
_RAISED = 2
"""The level of transaction.version at which brokers serve them."""
_PASSING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
_PRODUCER_AT = 43
_IDENTITY = struct.Struct(">qhi")
_CRC = struct.Struct(">I")


@dataclass(slots=True)
class Times:
    """How long transactions and their ends took, in seconds; `refused` counts CONCURRENT_TRANSACTIONS."""

    whole: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    wall: float = 0
    refused: int = 0

    def add(self, other: Times) -> None:
        self.whole += other.whole
        self.end += other.end
        self.wall = max(self.wall, other.wall)


def share(values: Sequence[float], part: float) -> float:
    """In ms: what this part of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)] * 1000


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(30)
    ends = {TopicPartition(name, partition): OffsetSpec.latest() for partition in range(partitions)}
    while not all(_is_led(future) for future in admin.list_offsets(ends).values()):
        time.sleep(0.05)


def _is_led(end: Future[Any]) -> bool:
    """Kafka names a leader before that broker knows that it is one."""
    try:
        end.result(30)
    except KafkaException:
        return False
    return True


# -- raw


class Raw:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.client = RawClient(port, timeout=60)

    def ask(self, api: tuple[int, int], message: Any) -> Any:
        self.client.send(frame(api, message))
        return answer(api, self.client.receive_frame())

    def exchange(self, request: bytes) -> bytes:
        self.client.send(request)
        return self.client.receive_frame()

    def level(self) -> int:
        """The level of transaction.version that the broker says is in force."""
        said = self.ask(_API_VERSIONS, ApiVersionsRequest(client_software_name="bench", client_software_version="1"))
        return max(
            (one.max_version_level for one in said.finalized_features if one.name == "transaction.version"), default=0
        )

    def begin_working(self, names: Sequence[str], timeout_ms: int = TIMEOUT_MS) -> list[tuple[int, int]]:
        """The producer id and epoch of each transactional id."""
        for name in names[:1]:
            self._until(_FIND, FindCoordinatorRequest(key=name, key_type=1))
        return [self._initialized(name, timeout_ms) for name in names]

    def _initialized(self, name: str, timeout_ms: int) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        said = self._until(_INIT, request)
        return said.producer_id, said.producer_epoch

    def _until(self, api: tuple[int, int], message: Any) -> Any:
        while (said := self.ask(api, message)).error_code:
            if said.error_code not in _PASSING:
                raise RuntimeError(f"{type(message).__name__}: {ErrorCode(said.error_code).name}")
            time.sleep(0.02)
        return said

    def close(self) -> None:
        self.client.close()


def frame(api: tuple[int, int], message: Any) -> bytes:
    return bytes(encode_request(RequestHeader(*api, 1, "bench"), message))


def answer(api: tuple[int, int], data: bytes) -> Any:
    _, at = read_response_header(*api, data)
    return read(response_class(api[0]), api[1], data, at)[0]


def adding(name: str, producer: tuple[int, int], topic: str, partitions: int) -> bytes:
    return frame(
        _ADD,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(range(partitions)))],
        ),
    )


def codes_of_adding(data: bytes) -> set[int]:
    results = answer(_ADD, data).results_by_topic_v3_and_below
    return {part.partition_error_code for topic in results for part in topic.results_by_partition}


class Batches:
    """Batches of `count` records, alike but for producer, epoch and sequence."""

    def __init__(self, count: int) -> None:
        now_ms = int(time.time() * 1000)
        records = [Record(at, now_ms, None, VALUE) for at in range(count)]
        self.count = count
        self._batch = build_batch(records, producer_id=0, producer_epoch=0, base_sequence=0, transactional=True)

    def make(self, producer: tuple[int, int], sequence: int) -> bytes:
        _IDENTITY.pack_into(self._batch, _PRODUCER_AT, *producer, sequence)
        _CRC.pack_into(self._batch, CRC_AT, crc32c(bytes(self._batch[CRC_FROM:])))
        return bytes(self._batch)


def producing(api: tuple[int, int], name: str, topic: str, batches: Sequence[bytes]) -> bytes:
    parts = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]
    data = [TopicProduceData(name=topic, partition_data=parts)]
    return frame(api, ProduceRequest(transactional_id=name, acks=-1, timeout_ms=30_000, topic_data=data))


def codes_of_producing(api: tuple[int, int], data: bytes) -> set[int]:
    return {part.error_code for topic in answer(api, data).responses for part in topic.partition_responses}


class RawWork:
    """Transactions one after another, of several ids in turn; in the two ways that clients have of sending them.

    The explicit way adds the partitions with a request of its own (TV1); in the implicit one Produce adds them, and
    each end gives the next epoch (TV2).
    """

    def __init__(self, port: int, topic: str, partitions: int, records: int, ids: int, *, implicit: bool) -> None:
        self._raw = Raw(port)
        self._topic, self._partitions, self._implicit = topic, partitions, implicit
        self._batches = Batches(records // partitions)
        self._names = [f"{topic}-{number}" for number in range(ids)]
        self._producers = self._raw.begin_working(self._names)
        self._sequences = [0] * ids

    def run(self, seconds: float) -> Times:
        times = Times()
        one = self._with_adding if self._implicit else self._with_three
        for number in range(WARM_UP * len(self._names)):
            one(number % len(self._names), Times())
        while times.wall < seconds:
            one(len(times.whole) % len(self._names), times)
        self._raw.close()
        return times

    def _with_three(self, at: int, times: Times) -> None:
        name, producer = self._names[at], self._producers[at]
        add = adding(name, producer, self._topic, self._partitions)
        produce = self._produce(_PRODUCE, at)
        end = frame(
            _END,
            EndTxnRequest(transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=True),
        )
        begin = time.perf_counter()
        self._repeat(add, codes_of_adding, times)
        self._repeat(produce, lambda data: codes_of_producing(_PRODUCE, data), times)
        middle = time.perf_counter()
        said = self._raw.exchange(end)
        _note(times, begin, middle)
        _check("EndTxn", {answer(_END, said).error_code})
        self._sequences[at] += self._batches.count

    def _with_adding(self, at: int, times: Times) -> None:
        name, producer = self._names[at], self._producers[at]
        produce = self._produce(_PRODUCE_ADDING, at)
        end = frame(
            _END_BUMPING,
            EndTxnRequest(transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=True),
        )
        begin = time.perf_counter()
        self._repeat(produce, lambda data: codes_of_producing(_PRODUCE_ADDING, data), times)
        middle = time.perf_counter()
        data = self._raw.exchange(end)
        _note(times, begin, middle)
        said = answer(_END_BUMPING, data)
        _check("EndTxn", {said.error_code})
        self._producers[at] = (said.producer_id, said.producer_epoch)

    def _produce(self, api: tuple[int, int], at: int) -> bytes:
        batch = self._batches.make(self._producers[at], self._sequences[at])
        return producing(api, self._names[at], self._topic, [batch] * self._partitions)

    def _repeat(self, request: bytes, codes: Callable[[bytes], set[int]], times: Times) -> None:
        while (found := codes(self._raw.exchange(request))) != {0}:
            if ErrorCode.CONCURRENT_TRANSACTIONS not in found:
                _check("a request of a transaction", found)
            times.refused += 1
            time.sleep(0.0002)


def _note(times: Times, begin: float, middle: float) -> None:
    end = time.perf_counter()
    times.whole.append(end - begin)
    times.end.append(end - middle)
    times.wall += end - begin


def _check(what: str, codes: set[int]) -> None:
    if codes != {0}:
        raise RuntimeError(f"{what}: {', '.join(ErrorCode(code).name for code in codes)}")


def serves_implicit(port: int) -> bool:
    raw = Raw(port)
    try:
        return raw.level() >= _RAISED
    finally:
        raw.close()


# -- librdkafka


def transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": TIMEOUT_MS,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    return producer


def committed(bootstrap: str, name: str, topic: str, partitions: int, records: int, seconds: float) -> Times:
    """Transactions of one producer, each flushed before it is committed."""
    producer = transactional(bootstrap, name)
    times = Times()
    for number in range(10**9):
        begin = time.perf_counter()
        producer.begin_transaction()
        for record in range(records):
            producer.produce(topic, VALUE, partition=record % partitions)
        producer.flush(30)
        middle = time.perf_counter()
        producer.commit_transaction(30)
        if number >= WARM_UP:
            _note(times, begin, middle)
            if times.wall > seconds:
                break
    return times


def several(bootstrap: str, topic: str, partitions: int, records: int, seconds: float, producers: int) -> Times:
    """The same of several producers, each in a thread."""
    total = Times()
    with ThreadPoolExecutor(producers) as threads:
        names = (f"{topic}-{number}" for number in range(producers))
        for times in threads.map(lambda name: committed(bootstrap, name, topic, partitions, records, seconds), names):
            total.add(times)
    return total


def copied(bootstrap: str, source: str, target: str, records: int, total: int) -> Times:
    """Consume, transform, produce: the offsets are part of each transaction."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": target,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.subscribe([source])
    producer = transactional(bootstrap, target)
    times, done, first = Times(), 0, 0.0
    while done < total:
        messages = [message for message in consumer.consume(records, 5) if not message.error()]
        if not messages:
            continue
        begin = time.perf_counter()
        first = first or begin
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, (message.value() or b"").upper(), partition=0)
        offset = TopicPartition(source, 0, (messages[-1].offset() or 0) + 1)
        middle = time.perf_counter()
        producer.send_offsets_to_transaction([offset], consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
        _note(times, begin, middle)
        done += len(messages)
    times.wall = time.perf_counter() - first
    consumer.close()
    return times


def fill(bootstrap: str, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "queue.buffering.max.messages": 1_000_000})
    for _ in range(records):
        producer.produce(topic, VALUE, partition=0)
    producer.flush(60)


def read_to_end(bootstrap: str, topic: str, isolation: str) -> tuple[int, float]:
    """Records of partition 0, and the seconds that they took. A reader whose queue is full would rest for a second, and
    a fast broker would be measured by how often it does."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 1,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    begin = time.perf_counter()
    try:
        return sum(1 for _ in _until_end(consumer)), time.perf_counter() - begin
    finally:
        consumer.close()


def _until_end(consumer: Consumer) -> Iterator[Any]:
    while True:
        for message in consumer.consume(1000, 0.05):
            if message.error():
                return
            yield message
