"""Consume, transform and produce in transactions, by librdkafka, while the broker is killed: each record once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker import KafkadProcess

RECORDS, A_TIME, OUTPUTS = 400, 10, 3
S = 30


class Mover:
    """Takes `in` to the partitions of `out`, a few records in each transaction. Every third it aborts."""

    def __init__(self, bootstrap: str) -> None:
        own = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._consumer = Consumer(
            {**own, "group.id": "mover", "enable.auto.commit": False, "isolation.level": "read_committed"}
        )
        self._producer = Producer({**own, "transactional.id": "mover", "transaction.timeout.ms": 20_000})
        self._producer.init_transactions(S)
        self._go_back()

    def _go_back(self) -> None:
        """To what is committed, as after a start."""
        [committed] = self._consumer.committed([TopicPartition("in", 0)], S)
        self._consumer.assign([TopicPartition("in", 0, max(committed.offset, 0))])

    def run(self, transactions: int) -> int:
        """Returns how many records it moved, fewer than there are only when that many transactions were not enough."""
        moved = 0
        for number in range(transactions):
            taken = self._consumer.consume(A_TIME, 5 if not number else 1)
            if not taken:
                break
            self.begin(taken)
            if number % 3 == 2:
                self._producer.abort_transaction(S)
                self._go_back()
            else:
                self._producer.commit_transaction(S)
                moved += len(taken)
        return moved

    def begin(self, taken: list[Any]) -> None:
        self._producer.begin_transaction()
        for message in taken:
            self._producer.produce("out", message.value(), partition=int(message.value()) % OUTPUTS)
        position = self._consumer.position(self._consumer.assignment())
        self._producer.send_offsets_to_transaction(position, self._consumer.consumer_group_metadata(), S)
        self._producer.flush(S)

    def leave_one_open(self) -> None:
        self.begin(self._consumer.consume(A_TIME, 5))

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize(
    "fsync", [pytest.param("false", marks=pytest.mark.slow), pytest.param("true", marks=pytest.mark.long)]
)
def test_each_record_is_moved_once_through_kills_and_aborts(tmp_path: Path, fsync: str) -> None:
    internal = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
    with KafkadProcess(tmp_path, {"kafkad.acks.fsync": fsync, **internal}) as kafkad:
        admin = AdminClient({"bootstrap.servers": kafkad.bootstrap, "log_level": 0})
        for created in admin.create_topics([NewTopic("in", 1), NewTopic("out", OUTPUTS)]).values():
            created.result()
        source = Producer({"bootstrap.servers": kafkad.bootstrap, "log_level": 0})
        for number in range(RECORDS):
            source.produce("in", str(number).encode())
        assert not source.flush(S)
        for _ in range(3):
            mover = Mover(kafkad.bootstrap)
            assert mover.run(8) > 0
            mover.leave_one_open()
            kafkad.kill()
            kafkad.start()
            mover.close()
        last = Mover(kafkad.bootstrap)
        while last.run(1_000):
            pass
        last.close()
        assert sorted(read(kafkad.bootstrap)) == list(range(RECORDS))


def read(bootstrap: str) -> list[int]:
    """What is committed in `out`, up to where all of it can be read."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed", "log_level": 0}
    )
    outputs = [TopicPartition("out", index, 0) for index in range(OUTPUTS)]
    consumer.assign(outputs)
    ends = {index: consumer.get_watermark_offsets(outputs[index], S)[1] for index in range(OUTPUTS)}
    found = []
    while True:
        found += [int(message.value()) for message in consumer.consume(1_000, 1) if not message.error()]
        if all(at.offset >= ends[at.partition] for at in consumer.position(outputs)):
            break
    consumer.close()
    return found
