"""Transactions that change while somebody thinks about the question, on kafkad."""

from __future__ import annotations

import json
from collections.abc import Callable

from confluent_kafka import Producer

from kctl.errors import Exit
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl


def writer(broker: KafkadProcess, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions()
    return producer


def begin(producer: Producer, topic: str) -> None:
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=0)
    producer.flush()


def states(kctl: Kctl, *names: str) -> list[str]:
    items = json.loads(kctl("txns", "describe", *names, "-o", "json").out)["items"]
    return [item["state"] for item in items]


def test_only_transactions_that_were_shown_are_ended(
    on_broker: Kctl, broker: KafkadProcess, meanwhile: list[Callable[[], object]]
) -> None:
    assert on_broker("topics", "create", "ended", "-p", 1, "-y").code == Exit.DONE
    gone, first = writer(broker, "ended-gone"), writer(broker, "ended-alive")
    begin(gone, "ended")
    begin(first, "ended")
    restarted: list[Producer] = []

    def restart() -> None:
        restarted.append(writer(broker, "ended-alive"))
        begin(restarted[0], "ended")

    meanwhile.append(restart)
    ran = on_broker("txns", "end", "ended-gone", "ended-alive", "-y")
    assert ran.code == Exit.REFUSED
    assert 'the transaction of "ended-alive" has ended since it was shown; nothing was done' in ran.err
    restarted[0].commit_transaction()
    assert states(on_broker, "ended-gone", "ended-alive") == ["Ongoing", "CompleteCommit"]
    meanwhile.clear()
    assert on_broker("txns", "end", "ended-gone", "-y").code == Exit.DONE


def test_only_the_transaction_that_was_shown_is_aborted(
    on_broker: Kctl, broker: KafkadProcess, meanwhile: list[Callable[[], object]]
) -> None:
    assert on_broker("topics", "create", "aborted", "-p", 1, "-y").code == Exit.DONE
    producer = writer(broker, "aborted")
    begin(producer, "aborted")
    meanwhile += [producer.commit_transaction, lambda: begin(producer, "aborted")]
    ran = on_broker("txns", "abort", "aborted:0", "--start-offset", 0, "--force", "-y")
    assert ran.code == Exit.REFUSED
    assert "the transaction has ended since it was shown; nothing was done" in ran.err
    producer.commit_transaction()
    assert on_broker("consume", "aborted", "--committed").out == "value\nvalue\n"
