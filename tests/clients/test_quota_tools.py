"""`kafka-configs` for users, clients and addresses does with kafkad what it does with real Kafka, one beside the other."""

# ruff: noqa: E501 - one command a line
from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker import KafkadProcess
from tests.clients.conftest import SETTINGS
from tests.clients.tools import Step, run
from tests.oracle.kafka import VERSIONS, Kafka, missing

pytestmark = [pytest.mark.long, pytest.mark.java, pytest.mark.timeout(3600)]

ALICE, EVERYBODY = "--entity-type users --entity-name alice", "--entity-type users --entity-default"
CLIENT, EVERY_CLIENT = "--entity-type clients --entity-name c/1", "--entity-type clients --entity-default"
ADDRESS = "--entity-type ips --entity-name 10.1.2.3"
STEPS = [
    Step("a user", "configs", f"--alter {ALICE} --add-config producer_byte_rate=1000000,request_percentage=12.5"),
    Step("a client of a user", "configs", f"--alter {ALICE} {CLIENT} --add-config consumer_byte_rate=2000"),
    Step("every client of a user", "configs", f"--alter {ALICE} {EVERY_CLIENT} --add-config controller_mutation_rate=0.5"),
    Step("every user", "configs", f"--alter {EVERYBODY} --add-config producer_byte_rate=5000"),
    Step("a client", "configs", f"--alter {CLIENT} --add-config producer_byte_rate=7000"),
    Step("an address", "configs", f"--alter {ADDRESS} --add-config connection_creation_rate=7"),
    Step("every address", "configs", "--alter --entity-type ips --entity-default --add-config connection_creation_rate=70"),
    Step("describe a user", "configs", f"--describe {ALICE}"),
    Step("describe a client of a user", "configs", f"--describe {ALICE} {CLIENT}"),
    Step("describe all users", "configs", "--describe --entity-type users"),
    Step("describe all clients of all users", "configs", "--describe --entity-type users --entity-type clients"),
    Step("describe all clients", "configs", "--describe --entity-type clients"),
    Step("describe all addresses", "configs", "--describe --entity-type ips"),
    Step("an unknown quota", "configs", f"--alter {ALICE} --add-config producer_bit_rate=5"),
    Step("a fraction of a byte", "configs", f"--alter {ALICE} --add-config producer_byte_rate=1.5"),
    Step("a quota of addresses for a user", "configs", f"--alter {ALICE} --add-config connection_creation_rate=5"),
    Step("a host that nobody knows", "configs", "--alter --entity-type ips --entity-name nowhere.invalid --add-config connection_creation_rate=5"),
    Step("remove one of two", "configs", f"--alter {ALICE} --delete-config request_percentage"),
    Step("remove what is not there", "configs", f"--alter {ALICE} --delete-config consumer_byte_rate"),
    Step("describe what is left", "configs", f"--describe {ALICE}"),
    Step("remove the last", "configs", f"--alter {ALICE} {CLIENT} --delete-config consumer_byte_rate"),
    Step("describe what is gone", "configs", f"--describe {ALICE} {CLIENT}"),
]  # fmt: skip


def in_order(text: str) -> list[str]:
    """Kafka's order of entities and of their quotas is that of its hash maps."""
    cut = [line.partition(" are ") for line in text.splitlines()]
    return sorted(f"{whose}{are}{', '.join(sorted(quotas.split(', ')))}" for whose, are, quotas in cut)


def printed(release: str, bootstrap: str, directory: Path) -> dict[str, tuple[int, list[str], list[str]]]:
    outcomes = {step.name: run(step, release, bootstrap, directory) for step in STEPS}
    return {name: (o.status, in_order(o.stdout), in_order(o.stderr)) for name, o in outcomes.items()}


@pytest.mark.parametrize("release", VERSIONS)
def test_the_tool_prints_the_same(release: str, tmp_path: Path) -> None:
    for needed in {"3.9", release}:
        if reason := missing(needed):
            pytest.skip(reason)
    with Kafka("3.9", settings=SETTINGS, heap="512m") as kafka:
        expected = printed(release, kafka.bootstrap, tmp_path)
    with KafkadProcess(tmp_path / "kafkad", SETTINGS) as kafkad:
        found = printed(release, kafkad.bootstrap, tmp_path)
    assert found == expected
    assert found["describe a user"][1] == [
        "Quota configs for user-principal 'alice' are producer_byte_rate=1000000.0, request_percentage=12.5"
    ]
