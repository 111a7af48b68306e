"""Producers that go on through a broker's crashes and remember what was acknowledged."""

from __future__ import annotations

import random
import threading
import time
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from kafkad.errors import ErrorCode
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kafkad.wire.records import Record, build_batch
from kafkad.wire.schema import read
from tests.broker import RawClient

PRODUCE, VERSION = 0, 9
SECONDS = 60
VALUE_BYTES = 300
BEGIN_MS = 1_700_000_000_000
PAUSE_S = 0.005
"""After each write. A broker under full load outruns a reader in this process, and everything acknowledged is kept."""

Acknowledged = dict[tuple[int, int], bytes]
"""(Partition, offset) → value."""


class Writer(threading.Thread):
    """Runs until stopped; `acknowledged` may be read then. A context manager."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.acknowledged: Acknowledged = {}
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self.join(SECONDS)
        assert not self.is_alive(), f"{self.name} does not stop"


class RawWriter(Writer):
    """Sends batches of a random size with acks=all over a connection that it opens again whenever it breaks."""

    def __init__(self, port: int, topic: str, partitions: int, seed: int) -> None:
        super().__init__(f"raw writer {seed}")
        self._port, self._topic, self._partitions = port, topic, partitions
        self._random = random.Random(seed)
        self._sent = 0

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                with RawClient(self._port, timeout=5) as client:
                    while not self._stopping.is_set():
                        self._write(client)
                        self._stopping.wait(PAUSE_S)
            except OSError:
                self._stopping.wait(0.02)

    def _write(self, client: RawClient) -> None:
        partition = self._random.randrange(self._partitions)
        values = [self._value() for _ in range(self._random.randint(1, 10))]
        batch = build_batch([Record(i, BEGIN_MS + i, self.key_of(value), value) for i, value in enumerate(values)])
        data = [PartitionProduceData(index=partition, records=bytes(batch))]
        topics = [TopicProduceData(name=self._topic, partition_data=data)]
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics)
        client.send(encode_request(RequestHeader(PRODUCE, VERSION, 1, self.name), request))
        frame = client.receive_frame()
        _, at = read_response_header(PRODUCE, VERSION, frame)
        response, _ = read(ProduceResponse, VERSION, frame, at)
        (answer,) = response.responses[0].partition_responses
        if answer.error_code == ErrorCode.NONE:
            for i, value in enumerate(values):
                self.acknowledged[partition, answer.base_offset + i] = value

    @staticmethod
    def key_of(value: bytes) -> bytes | None:
        return None

    def _value(self) -> bytes:
        self._sent += 1
        return f"{self.name} {self._sent} ".encode().ljust(self._random.randint(30, VALUE_BYTES), b".")


class IdempotentWriter(Writer):
    """confluent-kafka's idempotent producer, left to retry by itself."""

    def __init__(self, port: int, topic: str, partition: int) -> None:
        super().__init__("idempotent writer")
        self._topic, self._partition = topic, partition
        self.sent = 0
        self._producer = Producer(
            {"bootstrap.servers": f"127.0.0.1:{port}", "enable.idempotence": True, "linger.ms": 2,
             "delivery.timeout.ms": 300_000, "reconnect.backoff.max.ms": 100, "log_level": 0,
             "batch.size": 100_000}  # what waits for a broker that is killed all the time must fit into a segment
        )  # fmt: skip

    def run(self) -> None:
        while not self._stopping.is_set():
            value = b"idempotent %d" % self.sent
            self._producer.produce(self._topic, value, partition=self._partition, on_delivery=self._delivered)
            self.sent += 1
            self._producer.poll(PAUSE_S)
        assert self._producer.flush(SECONDS) == 0

    def await_answer(self) -> None:
        known, deadline = len(self.acknowledged), time.monotonic() + SECONDS
        while len(self.acknowledged) == known:
            assert time.monotonic() < deadline, "nothing was acknowledged"
            time.sleep(0.02)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.acknowledged[self._partition, message.offset()] = message.value()


class Reader:
    """Follows the partitions to their ends, verifies every batch's CRC, and remembers what it saw in `seen`."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.seen: Acknowledged = {}
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "check.crcs": True,
             "enable.partition.eof": True, "auto.offset.reset": "error", "reconnect.backoff.max.ms": 100,
             "fetch.wait.max.ms": 20, "log_level": 0}
        )  # fmt: skip
        self._next = {partition: 0 for partition in range(partitions)}
        self._topic = topic

    def catch_up(self) -> None:
        """Reads what is new; each partition's offsets have to follow each other without a hole."""
        self._consumer.assign([TopicPartition(self._topic, p, offset) for p, offset in self._next.items()])
        at_end: set[int] = set()
        while len(at_end) < len(self._next):
            polled = self._consumer.poll(SECONDS)
            assert polled is not None, "the end of the partitions was not reached"
            if polled.error():
                if polled.error().code() == KafkaError._PARTITION_EOF:
                    at_end.add(polled.partition())
                    continue
                assert polled.error().retriable() or polled.error().code() in TRANSPORT, polled.error()
                continue
            partition, offset = polled.partition(), polled.offset()
            assert offset == self._next[partition], f"offset {offset} after {self._next[partition] - 1}"
            self._next[partition] = offset + 1
            self.seen[partition, offset] = polled.value()

    def close(self) -> None:
        self._consumer.close()


TRANSPORT = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE}
"""Errors of a client that was connected while the broker was killed."""
