"""Transactions on three real brokers: how far groups can read, and what is open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

from kctl.errors import Exit
from tests.kctl.conftest import Kctl, Three, until

pytestmark = [pytest.mark.slow, pytest.mark.java]


def items(kctl: Kctl, *words: str) -> list[dict[str, Any]]:
    ran = kctl(*words, "-o", "json")
    assert ran.code in (Exit.DONE, Exit.FINDINGS), ran.err
    found: list[dict[str, Any]] = json.loads(ran.out)["items"]
    return found


def create(kctl: Kctl, name: str, *words: str) -> None:
    assert kctl("-y", "topics", "create", name, *words).code == Exit.DONE


def writer(three: Three, name: str, **settings: object) -> Producer:
    producer = Producer({"bootstrap.servers": three.bootstrap, "transactional.id": name, **settings})
    producer.init_transactions()
    return producer


def begin(producer: Producer, topic: str, partition: int, count: int = 1) -> None:
    """A transaction that is open, with so many records."""
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(topic, b"value", partition=partition)
    producer.flush()


def commit(three: Three, group: str, *offsets: tuple[str, int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": three.bootstrap, "group.id": group})
    consumer.commit(offsets=[Position(*each) for each in offsets], asynchronous=False)
    consumer.close()


@contextmanager
def open_transaction(three: Three, name: str, topic: str, partition: int, **settings: object) -> Iterator[Producer]:
    """It ends with the block, if nobody has ended it before."""
    producer = writer(three, name, **settings)
    begin(producer, topic, partition)
    try:
        yield producer
    finally:
        writer(three, name)


def test_lag_is_what_a_reader_of_committed_records_can_reach(on_three: Kctl, three: Three) -> None:
    create(on_three, "reach", "-p", "2", "-r", "1")
    producer = writer(three, "reach-done")
    begin(producer, "reach", 0, 5)
    producer.commit_transaction()
    with open_transaction(three, "reach-open", "reach", 1):
        begin(producer, "reach", 1, 2)
        producer.commit_transaction()
        commit(three, "reach-committed", ("reach", 0, 5), ("reach", 1, 0))
        commit(three, "reach-behind", ("reach", 0, 4))
        commit(three, "reach-all", ("reach", 0, 6), ("reach", 1, 2))

        def lags(group: str) -> list[tuple[object, ...]]:
            (described,) = items(on_three, "groups", "describe", group)
            fields = ("committed", "end", "stable", "lag", "note")
            assert described["lag"] == sum(row["lag"] for row in described["offsets"])
            return [tuple(row[field] for field in fields) for row in described["offsets"]]

        held_up = "open transaction from 0"
        until(lambda: lags("reach-committed")[0][1] == 6, "the marker is written")
        until(lambda: lags("reach-committed")[1][1] == 4, "and the other one")
        assert lags("reach-committed") == [(5, 6, 6, 0, None), (0, 4, 0, 0, held_up)], "a marker is nothing to read"
        assert lags("reach-behind") == [(4, 6, 6, 2, None)]
        assert lags("reach-all") == [(6, 6, None, 0, None), (2, 4, 0, 2, None)], "who reads what is not committed"
        rows = items(on_three, "groups", "lag", "reach-committed", "reach-all", "--by", "partition")
        assert [row["lag"] for row in rows] == [0, 0, 0, 2]
    everything = (0, 5, 5, 5, None)
    until(lambda: lags("reach-committed")[1] == everything, "with its end, all can be read")
