"""Kafka's `acls` tool prints the same with kafkad as with real Kafka 3.9, and leaves the same ACLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker import KafkadProcess
from tests.clients.tools import Outcome, Step, run
from tests.oracle.kafka import VERSIONS, Kafka, missing

pytestmark = [pytest.mark.long, pytest.mark.java, pytest.mark.timeout(1200)]

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SESSION = [
    Step("list nothing", "acls", "--list"),
    Step("add for a producer", "acls", "--add --allow-principal User:alice --producer --topic orders --idempotent"),
    Step(
        "add for a consumer",
        "acls",
        "--add --allow-principal User:CN=bob,OU=x --consumer --topic ord --group g --resource-pattern-type prefixed",
    ),
    Step(
        "deny at an address",
        "acls",
        "--add --deny-principal User:eve --deny-host 10.0.0.9 --operation All --topic * --transactional-id x1",
    ),
    Step("list one", "acls", "--list --topic orders"),
    Step("list what matches", "acls", "--list --topic orders --resource-pattern-type match"),
    Step("list of a principal", "acls", "--list --principal User:alice"),
    Step("remove some", "acls", "--remove --force --allow-principal User:alice --producer --topic orders"),
    Step("remove what is not there", "acls", "--remove --force --topic nowhere"),
    Step("add with a bad name", "acls", "--add --allow-principal User:a --operation Read --group a/b"),
    Step("list all", "acls", "--list"),
]


@pytest.mark.parametrize("release", VERSIONS)
def test_the_tool_prints_the_same(release: str, tmp_path: Path) -> None:
    for needed in ("3.9", release):
        if reason := missing(needed):
            pytest.skip(reason)
    with Kafka("3.9", settings=SETTINGS, heap="512m") as kafka:
        at_kafka = [run(step, release, kafka.bootstrap, tmp_path) for step in SESSION]
    with KafkadProcess(tmp_path / "kafkad", SETTINGS) as kafkad:
        at_kafkad = [run(step, release, kafkad.bootstrap, tmp_path) for step in SESSION]
    for step, ours, kafkas in zip(SESSION, at_kafkad, at_kafka, strict=True):
        assert _unordered(ours) == _unordered(kafkas), step.name


def _unordered(outcome: Outcome) -> tuple[int, list[str], list[str]]:
    """Resources and ACLs come in the order of a hash map; only the first line of a list has no space in front."""
    out, errors = (sorted(map(str.strip, text.splitlines())) for text in (outcome.stdout, outcome.stderr))
    return outcome.status, out, errors


def test_without_an_authorizer_the_tool_says_the_same(tmp_path: Path) -> None:
    if reason := missing("3.9"):
        pytest.skip(reason)
    steps = [Step("list", "acls", "--list"), SESSION[1], Step("remove", "acls", "--remove --force --topic t")]
    with Kafka("3.9", heap="512m") as kafka:
        at_kafka = [run(step, "3.9", kafka.bootstrap, tmp_path) for step in steps]
    with KafkadProcess(tmp_path / "kafkad") as kafkad:
        at_kafkad = [run(step, "3.9", kafkad.bootstrap, tmp_path) for step in steps]
    assert list(map(_unordered, at_kafkad)) == list(map(_unordered, at_kafka))
