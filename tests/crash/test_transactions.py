"""SIGKILL of the broker while records are moved in transactions: each is moved once, with the offset that says so."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker import KafkadProcess
from tests.clients.asker import Asker
from tests.txn.raw import Raw

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
}
SECONDS = 60
RECORDS, KILLS = 400, 6

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Mover(threading.Thread):
    """Reads `from`, writes what it read to both partitions of `to`, and commits its offset with that. It begins anew
    with a new producer where something went wrong."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._servers = bootstrap
        self.moved = 0
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.is_set() and self.moved < RECORDS:
            with contextlib.suppress(KafkaException):
                self._move()

    def _move(self) -> None:
        servers = {
            "bootstrap.servers": self._servers,
            "reconnect.backoff.max.ms": 200,
            "metadata.recovery.strategy": "none",  # librdkafka may still wait for a coordinator that it gave up
            "log_level": 0,
        }
        producer = Producer(servers | {"transactional.id": "mover", "linger.ms": 0})
        consumer = Consumer(servers | {"group.id": "movers", "enable.auto.commit": False, "fetch.wait.max.ms": 20})
        try:
            producer.init_transactions(SECONDS)
            [place] = consumer.committed([TopicPartition("from", 0)], SECONDS)
            self.moved = max(place.offset, 0)
            consumer.assign([TopicPartition("from", 0, self.moved)])
            while self.moved < RECORDS and not self.stopped.is_set():
                self._move_some(producer, consumer)
        finally:
            consumer.close()

    def _move_some(self, producer: Producer, consumer: Consumer) -> None:
        messages = [one for one in consumer.consume(5, timeout=1) if one.error() is None]
        if not messages:
            return
        producer.begin_transaction()
        try:
            for message in messages:
                for index in range(2):
                    producer.produce("to", message.value(), partition=index)
            position = TopicPartition("from", 0, (messages[-1].offset() or 0) + 1)
            producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), SECONDS)
            commit(producer)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                producer.abort_transaction(SECONDS)
            raise
        self.moved = position.offset


def commit(producer: Producer) -> None:
    while True:
        try:
            return producer.commit_transaction(SECONDS)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def committed(bootstrap: str) -> list[Counter[bytes]]:
    """What a reader of committed records finds in each partition of `to`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found: list[Counter[bytes]] = [Counter(), Counter()]
    consumer.assign([TopicPartition("to", index, 0) for index in range(2)])
    ends = 0
    while ends < 2:
        message = consumer.poll(SECONDS)
        assert message is not None
        if message.error() is None:
            found[message.partition() or 0][message.value() or b""] += 1
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            ends += 1
    consumer.close()
    return found


def test_every_record_is_moved_once(tmp_path: Path) -> None:
    with KafkadProcess(tmp_path, SETTINGS) as kafkad:
        admin = AdminClient({"bootstrap.servers": kafkad.bootstrap})
        for made in admin.create_topics([NewTopic("from", 1, 1), NewTopic("to", 2, 1)]).values():
            made.result(SECONDS)
        producer = Producer({"bootstrap.servers": kafkad.bootstrap})
        for number in range(RECORDS):
            producer.produce("from", b"%d" % number, partition=0)
        assert producer.flush(SECONDS) == 0
        mover = Mover(kafkad.bootstrap)
        mover.start()
        try:
            for number in range(1, KILLS + 1):
                end = time.monotonic() + SECONDS
                while mover.moved < number * RECORDS // (KILLS + 1) and time.monotonic() < end:
                    time.sleep(0.001)
                assert mover.is_alive()
                kafkad.kill()
                kafkad.start()
            mover.join(SECONDS)
        finally:
            mover.stopped.set()
        assert mover.moved == RECORDS
        once = Counter(b"%d" % number for number in range(RECORDS))
        assert committed(kafkad.bootstrap) == [once, once]
        asker = Asker(kafkad.port)
        with contextlib.closing(asker.client):
            states = asker.ask("ListTransactions", 0, {"state_filters": []}).transaction_states
        assert {one.transaction_state for one in states} == {"CompleteCommit"}


def test_a_hundred_open_transactions_go_on_after_a_kill(tmp_path: Path) -> None:
    """Half of them are committed by their producers, the others time out."""
    with KafkadProcess(tmp_path, SETTINGS) as kafkad:
        raw = Raw(kafkad.port)
        raw.create("t", 1)
        raw.coordinator(["any"], 1)
        names = [f"open-{number}" for number in range(100)]
        producers = {name: raw.new(name, timeout=60_000 if number % 2 else 4_000) for number, name in enumerate(names)}
        for name, producer in producers.items():
            assert raw.add(name, *producer, [("t", 0)]) == {"t-0": 0}
            assert raw.produce_one(name, *producer, 0, ("t", 0))[0] == 0
        raw.close()
        kafkad.kill()
        kafkad.start()
        raw = Raw(kafkad.port)
        raw.coordinator(names, 1)
        for name in names[1::2]:
            assert raw.end(name, *producers[name]).error_code == 0
        end = time.monotonic() + SECONDS
        while raw.offsets(("t", 0))[1] < 200 and time.monotonic() < end:
            time.sleep(0.05)
        assert raw.offsets(("t", 0))[1] == raw.offsets(("t", 0), isolation=0)[1] == 200
        states = {name: raw.settled(name).transaction_state for name in names}
        raw.close()
    assert {states[name] for name in names[1::2]} == {"CompleteCommit"}
    assert {states[name] for name in names[::2]} == {"CompleteAbort"}
