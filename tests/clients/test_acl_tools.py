"""Kafka's `acls` tool prints the same with kafkad as with real Kafka 3.9, and leaves the same ACLs."""

# ruff: noqa: E501 - one command a line
from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker import KafkadProcess
from tests.clients.one_jvm import Tools
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
    Step("add for the cluster", "acls", "--add --cluster --allow-principal User:carol --operation Alter --operation Create"),
    Step(
        "add for a transactional producer at two addresses",
        "acls",
        "--add --allow-principal User:dave --allow-host 10.0.0.1 --allow-host ::1 --producer --topic a --topic b "
        "--transactional-id tx --resource-pattern-type prefixed",
    ),
    Step("add for tokens", "acls", "--add --delegation-token * --allow-principal User:erin --operation Describe"),
    Step("add for users", "acls", "--add --user-principal User:erin --allow-principal User:frank --operation CreateTokens"),
    Step("add what a topic does not have", "acls", "--add --allow-principal User:a --topic t --operation CreateTokens"),
    Step("add for nobody", "acls", "--add --topic t --operation Read"),
    Step("add about nothing", "acls", "--add --allow-principal User:a --operation Read"),
    Step("add for who is no principal", "acls", "--add --allow-principal alice --topic t --operation Read"),
    Step("add an unknown operation", "acls", "--add --allow-principal User:a --topic t --operation Fly"),
    Step("list of two principals", "acls", "--list --principal User:carol --principal User:erin"),
    Step("list of tokens and users", "acls", "--list --delegation-token * --user-principal User:erin"),
    Step("list of the cluster", "acls", "--list --cluster"),
    Step("list prefixed ones", "acls", "--list --topic a --resource-pattern-type prefixed"),
    Step("list any pattern", "acls", "--list --topic * --resource-pattern-type any"),
    Step("remove at one address", "acls", "--remove --force --allow-principal User:dave --allow-host ::1 --operation All --topic a --resource-pattern-type prefixed"),
    Step("remove all that match", "acls", "--remove --force --topic a --resource-pattern-type match"),
    Step("remove all of the cluster", "acls", "--remove --force --cluster"),
    Step("list all", "acls", "--list"),
]  # fmt: skip


@pytest.mark.parametrize("release", VERSIONS)
def test_the_tool_prints_the_same(release: str, tmp_path: Path) -> None:
    for needed in ("3.9", release):
        if reason := missing(needed):
            pytest.skip(reason)
    with Tools(release) as tools:
        with Kafka("3.9", settings=SETTINGS, heap="512m") as kafka:
            at_kafka = [tools.run(step, kafka.bootstrap, tmp_path) for step in SESSION]
        with KafkadProcess(tmp_path / "kafkad", SETTINGS) as kafkad:
            at_kafkad = [tools.run(step, kafkad.bootstrap, tmp_path) for step in SESSION]
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
