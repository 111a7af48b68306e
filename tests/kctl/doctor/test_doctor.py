"""The command, on kafkad and on three real brokers of which one is down."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

import pytest

from kafkad.names import INTERNAL_TOPICS, TopicPartition
from kafkad.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from kctl.doctor.command import CHECKS
from kctl.errors import Exit, KctlError
from kctl.partitions import requests
from kctl.partitions.requests import Active
from kctl.reach.connection import Address
from kctl.reach.session import Session
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl, Three, until
from tests.kctl.flaky import Flaky

if TYPE_CHECKING:
    from kctl.reach.session import Topic


def test_brokers_that_advertise_a_wrong_address_are_a_finding(kctl: Kctl, pair: tuple[Flaky, Flaky]) -> None:
    """The rest is looked at as far as that goes."""
    first, _ = pair
    wrong = Address("no.such.host.invalid", 1)
    first.peers |= {1: wrong, 2: wrong}
    ran = kctl("-b", first.address, "doctor", "--only", "brokers-down,old-clients", "-o", "json")
    assert ran.code == Exit.FINDINGS
    down, *_ = [item for item in json.loads(ran.out)["items"] if item["id"] == "brokers-down"]
    assert down["summary"] == f"broker 1 is registered, and does not answer at {wrong}"
    assert down["fix"].startswith(f"kctl -b {first.address} contexts test says why; see advertised.listeners")
    unknown = {item["id"]: item["summary"] for item in json.loads(ran.out)["items"] if item["severity"] == "unknown"}
    assert f"broker 1 at {wrong}  no such host" in unknown["old-clients"]


def test_says_what_is_in_order_too(on_broker: Kctl) -> None:
    ran = on_broker("doctor", "--only", "controller,disks,offline,versions")
    assert ran.code in (Exit.DONE, Exit.FINDINGS)  # the machine's own disk may be nearly full
    assert "ok" in ran.out and "controller" in ran.out
    assert "1 broker," in ran.out


def test_looks_at_everything_that_kafkad_serves(on_broker: Kctl) -> None:
    """Whatever other tests have left there is for it to find; that it could look is what counts."""
    ran = on_broker("doctor", "-o", "json")
    assert ran.code in (Exit.DONE, Exit.FINDINGS)
    assert ran.err == ""
    known = {check.id for check in CHECKS}
    assert {item["id"] for item in json.loads(ran.out)["items"]} <= known


def test_lists_its_checks(on_broker: Kctl) -> None:
    ran = on_broker("doctor", "--checks", "-o", "name", "--only", "disks,racks")
    assert (ran.code, ran.out.split()) == (Exit.DONE, ["disks", "racks"])


def test_a_check_that_is_not_there(on_broker: Kctl) -> None:
    ran = on_broker("doctor", "--only", "disk")
    assert ran.code == Exit.USAGE
    assert 'did you mean "disks"' in ran.err


def test_what_a_move_still_adds_is_missed_where_moves_are_not_known_and_that_is_said(
    on_broker: Kctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = TopicPartition("doctor-moved", 0)
    assert on_broker("-y", "topics", "create", where.topic, "-p", 1, "-r", 1).code == Exit.DONE
    metadata = Session.metadata

    def with_a_second_replica(session: Session, topics: Iterable[str] | None = None) -> list[Topic]:
        found = metadata(session, topics)
        for topic in found:
            if topic.name == where.topic:
                topic.partitions[0].replica_nodes = [1, 2]
        return found

    def seen() -> tuple[str, bool, list[str]]:
        described = on_broker("topics", "describe", where.topic)
        (health,) = [line for line in described.out.splitlines() if "health" in line]
        found = on_broker("doctor", "--only", "under-replicated", "-o", "json")
        assert described.err == found.err
        items = [name for finding in json.loads(found.out)["items"] for name in finding["items"]]
        return health, str(where) in items, found.err.splitlines()

    def refuse(session: Session, partitions: object = None) -> NoReturn:
        raise KctlError("nobody answers")

    monkeypatch.setattr(Session, "metadata", with_a_second_replica)
    moves = {where: Active((1, 2), (2,), ())}
    monkeypatch.setattr(requests, "active_moves", lambda session, partitions=None: moves)
    health, is_missed, notes = seen()
    assert ("moving" in health, "under-replicated" in health, is_missed, notes) == (True, False, False, [])
    monkeypatch.setattr(requests, "active_moves", refuse)
    health, is_missed, notes = seen()
    assert ("moving" in health, "under-replicated" in health, is_missed) == (False, True, True)
    assert notes == ["moves under way are not known: nobody answers"]


def test_what_nobody_coordinates_is_missed_in_lists_of_groups_and_transactions(
    on_broker: Kctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = Session.metadata

    def without_leaders(session: Session, topics: Iterable[str] | None = None) -> list[Topic]:
        asked = INTERNAL_TOPICS.intersection(topics or ())
        others = metadata(session, topics and set(topics) - INTERNAL_TOPICS)
        partitions = [MetadataResponsePartition(partition_index=at, leader_id=at - 1) for at in range(2)]
        return [*others, *(cast("Topic", MetadataResponseTopic(name=name, partitions=partitions)) for name in asked)]

    monkeypatch.setattr(Session, "metadata", without_leaders)
    groups, transactions = (f"1 of 2 partitions of {name} have no leader" for name in sorted(INTERNAL_TOPICS))
    ran = on_broker("groups", "list")
    assert (ran.code, ran.err) == (
        Exit.DONE,
        f"the list of groups may be incomplete: {groups} (COORDINATOR_NOT_AVAILABLE)\n",
    )
    ran = on_broker("txns", "list")
    assert (ran.code, f"error: {transactions}" in ran.err) == (Exit.UNREACHABLE, True), ran.err
    ran = on_broker("doctor", "--only", "coordinators,long-transactions", "-o", "json")
    told = {item["id"]: item["summary"] for item in json.loads(ran.out)["items"] if item["severity"] == "unknown"}
    assert groups in told["coordinators"] and transactions in told["long-transactions"]


@pytest.mark.slow
@pytest.mark.java
def test_a_broker_that_is_down(on_three: Kctl, three: Three) -> None:
    assert on_three("-y", "topics", "create", "doctor-t", "-p", "3", "-r", "3").code == Exit.DONE
    three.brokers[2].kill()
    try:
        until(lambda: '"3"' not in _brokers(on_three), "the broker is missed", seconds=60)
        partitions = {"doctor-t-0", "doctor-t-1", "doctor-t-2"}
        until(lambda: partitions <= set(_found(on_three, "under-replicated")), "it left the sets in sync", seconds=60)
        assert _found(on_three, "brokers-down") == ["broker/3"]
        assert on_three("doctor").code == Exit.FINDINGS
    finally:
        three.restart(2)
    until(
        lambda: "under-replicated" not in on_three("doctor", "--only", "under-replicated", "-o", "json").out,
        "all are in sync",
        60,
    )


def _found(kctl: Kctl, check: str) -> list[str]:
    found = {item["id"]: item["items"] for item in json.loads(kctl("doctor", "-o", "json").out)["items"]}
    return list(found.get(check, ()))


def _brokers(kctl: Kctl) -> str:
    ran = kctl("raw", "Metadata", '{"topics": []}')
    return " ".join(f'"{node["node_id"]}"' for node in json.loads(ran.out)["brokers"])


def test_records_about_to_go_and_records_from_the_future(
    on_broker: Kctl, broker: KafkadProcess, tmp_path: Path
) -> None:
    topic, group = "doctor-times", "doctor-slow"
    now = int(time.time() * 1000)
    lines = tmp_path / "lines"
    lines.write_text(
        "".join(json.dumps({"value": "v", "timestamp_ms": now + ms}) + "\n" for ms in (-3_500_000, 7_200_000))
    )
    assert on_broker("-y", "topics", "create", topic, "-p", "1", "--config", "retention.ms=3600000").code == Exit.DONE
    assert on_broker("produce", topic, "--json", "--file", lines).code == Exit.DONE
    back = ("groups", "reset-offsets", group, "--topic", topic, "--to", "earliest", "-y", "--undo-dir", tmp_path)
    assert on_broker(*back).code == Exit.DONE
    items = json.loads(on_broker("doctor", "--only", "overtaken,clocks", "-o", "json").out)["items"]
    told = {item["id"]: item["summary"] for item in items if f"{topic}-0" in item["items"]}
    assert f"group {group} has 15m00s at most to read 1 record" in told["overtaken"]
    assert "records from the future" in told["clocks"]
    (fix,) = [item["fix"] for item in items if item["id"] == "overtaken" and f"{topic}-0" in item["items"]]
    here = f"kctl -b {broker.bootstrap} "
    assert fix == f"{here}groups lag {group}; more retention, or faster members"
    assert f"fix: {here}" in on_broker("doctor", "--only", "overtaken").out
