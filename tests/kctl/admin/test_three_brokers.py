"""ACLs, SCRAM users, quotas and transactions on three real brokers, beside Kafka's own tools."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from typing import Any

import pytest
from confluent_kafka import Producer

from kafkad.names import TopicPartition
from kafkad.wire.messages.init_producer_id import InitProducerIdRequest
from kafkad.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkad.wire.records import Record, build_batch
from kctl.errors import Exit
from kctl.reach.access import Access, addresses
from kctl.reach.session import Session
from kctl.settings import Settings
from tests.kctl.conftest import Kctl, Three, until
from tests.oracle.kafka import tool

pytestmark = [pytest.mark.slow, pytest.mark.java]

ALL_BUT_THE_AGE = "topic,partition,producer_id,producer_epoch,start_offset,why,fix"


def kafka(three: Three, name: str, *arguments: str) -> str:
    command = tool("3.9", name, "--bootstrap-server", three.bootstrap, *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def items(kctl: Kctl, *arguments: str) -> list[dict[str, Any]]:
    ran = kctl(*arguments, "-o", "json")
    assert ran.code in (Exit.DONE, Exit.FINDINGS), ran.err
    found: list[dict[str, Any]] = json.loads(ran.out)["items"]
    return found


def create(kctl: Kctl, name: str) -> None:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 3}
    assert kctl("-y", "raw", "CreateTopics", json.dumps({"topics": [topic]})).code == Exit.DONE
    until(lambda: kctl("topics", "list", name).code == Exit.DONE, "all brokers know the topic")


def test_acls_are_those_of_kafkas_tool(on_three: Kctl, three: Three) -> None:
    bundle = ["--producer", "--consumer", "--topic", "acl-t", "--group", "acl-g", "--transactional-id", "acl-x"]
    ran = on_three("-y", "acls", "add", "--allow", "User:ann", *bundle)
    assert ran.code == Exit.DONE and "verified: 7 ACLs in force" in ran.err
    kafka(three, "acls", "--add", "--allow-principal", "User:ben", *bundle)
    until(lambda: len(items(on_three, "acls", "list", "--principal", "ben")) == 7, "Kafka's ACLs are everywhere")

    def of(name: str) -> list[dict[str, Any]]:
        return [item | {"principal": ""} for item in items(on_three, "acls", "list", "--principal", name)]

    assert of("ann") == of("ben"), "Kafka's bundles and ours are the same"
    listed = kafka(three, "acls", "--list", "--principal", "User:ann")
    assert listed.count("principal=User:ann") == 7
    for name in ("ann", "ben"):
        assert on_three("-y", "acls", "remove", "--allow", name).code == Exit.DONE
    assert on_three("acls", "remove", "--allow", "ann").code == Exit.NOT_FOUND


def test_adding_twice_adds_nothing(on_three: Kctl) -> None:
    word = ["acls", "add", "--deny", "cat", "--operation", "read", "--topic", "acl-", "--prefixed"]
    assert on_three("-y", *word).code == Exit.DONE
    again = on_three("-y", *word)
    assert again.code == Exit.DONE and "1 of them are there already" in again.err
    checked = on_three("acls", "check", "cat", "Read", "acl-something")
    assert checked.code == Exit.FINDINGS
    assert "deny User:cat Read on topic/acl-*" in checked.out
    assert on_three("-y", "acls", "remove", "--deny", "cat").code == Exit.DONE


def test_what_only_adds_is_not_asked_and_its_undo_removes_it_alone(on_three: Kctl) -> None:
    word = ["acls", "add", "--allow", "dan", "--topic", "acl-u"]
    dry = on_three("--dry-run", *word, "--operation", "Read", "-o", "json")
    assert dry.code == Exit.DONE
    assert json.loads(dry.out)["dry_run"] is True
    assert items(on_three, "acls", "list", "--principal", "dan") == []
    assert on_three(*word, "--operation", "Read", "--host", "10.0.0.1").code == Exit.DONE
    ran = on_three(*word, "--producer", "--transactional-id", "acl-x", "--idempotent")
    assert (ran.code, len(items(on_three, "acls", "list", "--principal", "dan"))) == (Exit.DONE, 7)
    undo = ran.err.partition("undo: kctl ")[2].splitlines()[0]
    assert on_three(*word, "--operation", "Read", "--host", "10.0.0.1").code == Exit.DONE
    assert on_three(*shlex.split(undo)).code == Exit.REFUSED, "what is lost is asked for"
    assert on_three("-y", *shlex.split(undo)).code == Exit.DONE
    (left,) = items(on_three, "acls", "list", "--principal", "dan")
    assert (left["operation"], left["host"]) == ("Read", "10.0.0.1")
    assert on_three("-y", "acls", "remove", "--allow", "dan").code == Exit.DONE


def test_scram_users(on_three: Kctl, three: Three, monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.StringIO("sesame\n"))
    ran = on_three("users", "set-scram", "eve", "--iterations", "4096")
    assert (ran.code, f"undo: kctl -b {three.bootstrap} users delete eve" in ran.err) == (Exit.DONE, True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("mustard\n"))
    assert on_three("users", "set-scram", "eve").code == Exit.REFUSED, "the old password would be lost"
    monkeypatch.setattr(sys, "stdin", io.StringIO("sesame\n"))
    ran = on_three("-y", "users", "set-scram", "eve", "--iterations", "4096")
    assert (ran.code, "undo" in ran.err) == (Exit.DONE, False)
    (found,) = items(on_three, "users", "list", "eve")
    assert found == {"user": "eve", "mechanism": "SCRAM-SHA-512", "iterations": 4096}
    described = kafka(three, "configs", "--describe", "--entity-type", "users", "--entity-name", "eve")
    assert "SCRAM-SHA-512=iterations=4096" in described
    assert on_three("users", "list", "nobody").code == Exit.NOT_FOUND
    assert on_three("-y", "users", "delete", "nobody", "eve").code == Exit.NOT_FOUND, "the other one is deleted"
    assert on_three("users", "list", "eve").code == Exit.NOT_FOUND


def test_quotas(on_three: Kctl, three: Three) -> None:
    who = ["user=fay", "client=app"]
    ran = on_three("-y", "quotas", "set", *who, "producer_byte_rate=10MB", "request_percentage=50%")
    assert ran.code == Exit.DONE
    described = kafka(
        three,
        "configs",
        "--describe",
        "--entity-type",
        "users",
        "--entity-name",
        "fay",
        "--entity-type",
        "clients",
        "--entity-name",
        "app",
    )
    assert "producer_byte_rate=1.0E7" in described and "request_percentage=50.0" in described
    found = {item["quota"]: item["value"] for item in items(on_three, "quotas", "describe", *who)}
    assert found == {"producer_byte_rate": 10_000_000, "request_percentage": 50}
    assert on_three("quotas", "describe", "user=fay").code == Exit.NOT_FOUND
    assert on_three("-y", "quotas", "unset", *who).code == Exit.DONE
    assert items(on_three, "quotas", "list", "user=fay") == []


def test_a_transaction_that_is_looked_after(on_three: Kctl, three: Three) -> None:
    create(on_three, "txn-open")
    producer = Producer({"bootstrap.servers": three.bootstrap, "transactional.id": "txn-open-1"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("txn-open", b"value")
    producer.flush()
    (listed,) = [i for i in items(on_three, "txns", "list") if i["transactional_id"] == "txn-open-1"]
    assert (listed["state"], listed["partitions"]) == ("Ongoing", 1)
    (described,) = items(on_three, "txns", "describe", "txn-open-1")
    assert described["partitions"] == ["txn-open-0"]
    shown = kafka(three, "transactions", "describe", "--transactional-id", "txn-open-1")
    assert str(described["producer_id"]) in shown and "txn-open-0" in shown
    (writer,) = items(on_three, "txns", "producers", "txn-open", "--open")
    assert writer["start_offset"] == 0
    time.sleep(0.01)
    assert on_three("txns", "hanging", "txn-open", "--max-timeout", "1ms") == (Exit.DONE, *_headers(on_three))
    refused = on_three("-y", "txns", "abort", "txn-open:0", "--start-offset", "0")
    assert refused.code == Exit.REFUSED and "still manages" in refused.err
    assert on_three("-y", "txns", "abort", "txn-open:0", "--start-offset", "5").code == Exit.NOT_FOUND
    producer.abort_transaction()
    until(lambda: items(on_three, "txns", "producers", "txn-open", "--open") == [], "the marker is written")


def _headers(kctl: Kctl) -> tuple[str, str]:
    ran = kctl("txns", "hanging", "txn-open", "--max-timeout", "1h")
    return ran.out, ran.err


def test_a_hanging_transaction_is_found_and_ended(on_three: Kctl, three: Three) -> None:
    create(on_three, "txn-hangs")
    where = TopicPartition("txn-hangs", 0)
    session = Session(Settings(), Access(bootstrap=addresses(three.bootstrap)))
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000)
    until(lambda: session.call(request).error_code == 0, "the broker gives producer ids")
    identity = session.call(request)
    batch = build_batch(
        [Record(0, int(time.time() * 1000), b"k", b"v")],
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    data = TopicProduceData(name="txn-hangs", partition_data=[PartitionProduceData(index=0, records=bytes(batch))])
    produce = ProduceRequest(transactional_id="of-nobody", acks=-1, timeout_ms=10000, topic_data=[data])
    leader = session.leaders([where])[where]
    assert isinstance(leader, int)
    (answer,) = session.call(produce, leader).responses
    assert answer.partition_responses[0].error_code == 0
    session.close()
    time.sleep(0.01)
    assert on_three("txns", "hanging", "txn-hangs").code == Exit.DONE, "it is young yet"
    ran = on_three("txns", "hanging", "txn-hangs", "--max-timeout", "1ms")
    assert ran.code == Exit.FINDINGS
    assert "no coordinator knows this producer" in ran.out
    assert f"kctl -b {three.bootstrap} txns abort txn-hangs:0 --start-offset 0" in ran.out
    found = on_three("txns", "hanging", "txn-hangs", "--max-timeout", "1ms", "--columns", ALL_BUT_THE_AGE).out
    assert "txn-hangs" in found
    for broker in (1, 2, 3):  # each has a replica, and knows of it
        words = ("txn-hangs", "--max-timeout", "1ms", "--broker", str(broker), "--columns", ALL_BUT_THE_AGE)
        until(lambda words=words: on_three("txns", "hanging", *words).out == found, f"broker {broker} has it too")
    everywhere = kafka(three, "transactions", "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
    assert re.search(r"^txn-hangs\s+0\s", everywhere, re.MULTILINE)
    ended = on_three("-y", "txns", "abort", "txn-hangs:0", "--start-offset", "0")
    assert ended.code == Exit.DONE and "verified: the transaction is over" in ended.err
    assert on_three("txns", "hanging", "txn-hangs", "--max-timeout", "1ms").code == Exit.DONE
