"""Transactions on three real brokers: how far groups can read, and what is open."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Position

from kctl.doctor import transactions
from kctl.errors import Exit
from tests.kctl.conftest import Kctl, Three, until

pytestmark = [pytest.mark.slow, pytest.mark.java]

Approved = Callable[[str, str], None]


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


def described(kctl: Kctl, name: str) -> dict[str, Any]:
    (found,) = items(kctl, "txns", "describe", name)
    return found


def test_ends_what_a_producer_has_left_open(on_three: Kctl, three: Three, approved: Approved) -> None:
    create(on_three, "left", "-p", "2", "-r", "1")
    idle = writer(three, "left-idle")
    with open_transaction(three, "left-open", "left", 1) as producer:
        for _ in range(2):
            producer.produce("left", b"value", partition=0)
        producer.flush()
        before = described(on_three, "left-open")
        assert (before["state"], before["expires_ms"]) == ("Ongoing", None)
        assert 0 < before["left_ms"] <= before["timeout_ms"] - before["age_ms"] + 1
        row = {item["transactional_id"]: item for item in items(on_three, "txns", "list")}["left-idle"]
        assert (row["age_ms"], row["left_ms"], row["waits_for"]) == (None, None, [])
        assert 0 < described(on_three, "left-idle")["expires_ms"] <= 7 * 86_400_000
        older = items(on_three, "txns", "list", "--older", "1ms")
        assert [item["transactional_id"] for item in older if item["transactional_id"].startswith("left")] == [
            "left-open"
        ]
        command = ("txns", "end", "left-open", "left-idle", "--columns", "transactional_id,aborted_at_most,partitions")
        refused = on_three(*command)
        assert (refused.code, "no terminal to confirm on: Abort 1 transaction?" in refused.err) == (Exit.REFUSED, True)
        assert on_three(*command, "--dry-run").code == Exit.DONE
        assert described(on_three, "left-open")["state"] == "Ongoing", "nobody has said yes"
        ended = on_three("-y", *command)
        approved("txns-end", f"{ended.out}{ended.err}")
        assert ended.code == Exit.DONE
        assert described(on_three, "left-open")["age_ms"] is None
        with pytest.raises(KafkaException, match="fenced"):
            producer.commit_transaction()
    idle.begin_transaction()
    idle.produce("left", b"value")
    idle.commit_transaction()  # nobody has fenced it
    missing = on_three("-y", "txns", "end", "left-opne")
    assert missing.code == Exit.NOT_FOUND
    assert 'transactional id "left-opne" does not exist' in missing.err and 'did you mean "left-open"' in missing.err
    assert "left-opne" not in on_three("txns", "list").out, "asking for it has not made it"


def test_a_commit_that_waits_for_a_broker(
    on_three: Kctl, three: Three, approved: Approved, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(on_three, "stuck", "--replicas", "0=3;1=1")
    names = (f"stuck-{number}" for number in range(100))
    for name in names:
        producer = writer(three, name)
        if described(on_three, name)["coordinator"] != 3:
            break
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce("stuck", b"value", partition=partition)
    producer.flush()

    def look() -> None:
        producer.commit_transaction()
        waits = ["stuck-0 (no leader: broker 3 is down)"]
        until(lambda: described(on_three, name)["waits_for"] == waits, "only broker 3 has no marker")
        columns = ("--columns", "state,partitions,waits_for")
        shown = on_three("txns", "describe", name, *columns)
        approved("txns-describe-stuck", shown.out)
        (row,) = [item for item in items(on_three, "txns", "list") if item["transactional_id"] == name]
        assert (row["partitions"], row["waits_for"]) == (1, waits)
        assert 0 < described(on_three, name)["waiting_ms"] < 60_000
        refused = on_three("-y", "txns", "end", name)
        assert (refused.code, refused.out) == (Exit.REFUSED, "")
        assert "is decided (PrepareCommit) and waits for stuck-0 (no leader: broker 3 is down)" in refused.err
        monkeypatch.setattr(transactions, "STUCK_MS", 0)
        (finding,) = items(on_three, "doctor", "--only", "stuck-transactions,long-transactions")
        assert (finding["id"], finding["severity"], finding["items"]) == ("stuck-transactions", "error", [name])
        assert "it waits for stuck-0 (no leader: broker 3 is down)" in finding["summary"]

    three.restart(2, meanwhile=look)
    until(lambda: described(on_three, name)["state"] == "CompleteCommit", "broker 3 has written the marker", 60)
    assert items(on_three, "doctor", "--only", "stuck-transactions") == []
