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
    Step("list all", "acls", "--list"),
]
KINDS = [
    Step("prefixed beside literal", "acls", "--add --allow-principal User:alice --operation Read --operation Describe --topic or --resource-pattern-type prefixed"),
    Step("literal", "acls", "--add --allow-principal User:alice --operation Read --topic or"),
    Step("producer with a transactional id", "acls", "--add --allow-principal User:alice --producer --topic orders --transactional-id tx-1"),
    Step("producer, idempotent, prefixed", "acls", "--add --allow-principal User:bob --producer --topic b- --transactional-id b- --idempotent --resource-pattern-type prefixed"),
    Step("consumer of two topics in two groups", "acls", "--add --allow-principal User:bob --consumer --topic t1 --topic t2 --group g1 --group g2"),
    Step("producer and consumer", "acls", "--add --allow-principal User:carol --producer --consumer --topic t3 --group g3"),
    Step("the cluster", "acls", "--add --allow-principal User:dave --cluster --operation Create --operation ClusterAction"),
    Step("cluster with what it has not", "acls", "--add --allow-principal User:dave --cluster --operation Read"),
    Step("group with what it has not", "acls", "--add --allow-principal User:dave --group g --operation Write"),
    Step("transactional id", "acls", "--add --allow-principal User:dave --transactional-id tx --operation Write --operation Describe"),
    Step("every transactional id", "acls", "--add --deny-principal User:eve --transactional-id * --operation All"),
    Step("delegation token", "acls", "--add --allow-principal User:dave --delegation-token abc --operation Describe"),
    Step("user", "acls", "--add --allow-principal User:alice --user-principal User:bob --operation CreateTokens --operation DescribeTokens"),
    Step("two principals at two hosts", "acls", "--add --allow-principal User:x --allow-principal User:y --allow-host 10.0.0.1 --allow-host 10.0.0.2 --operation Read --topic t9"),
    Step("allow and deny at once", "acls", "--add --allow-principal User:* --deny-principal User:eve --deny-host 10.0.0.3 --operation Read --topic t8"),
    Step("IPv6", "acls", "--add --allow-principal User:x --allow-host ::1 --operation Read --topic t7"),
    Step("another type of principal", "acls", "--add --allow-principal Group:x --operation Read --topic t6"),
    Step("the same again", "acls", "--add --allow-principal User:alice --operation Read --topic or"),
    Step("no operation", "acls", "--add --allow-principal User:alice --topic or"),
    Step("an unknown operation", "acls", "--add --allow-principal User:alice --operation Fly --topic or"),
    Step("producer and an operation", "acls", "--add --allow-principal User:alice --producer --operation Read --topic or"),
    Step("consumer without a group", "acls", "--add --allow-principal User:alice --consumer --topic or"),
    Step("producer of a group", "acls", "--add --allow-principal User:alice --producer --topic or --group g"),
    Step("idempotent alone", "acls", "--add --allow-principal User:alice --idempotent --operation Read --topic or"),
    Step("no principal", "acls", "--add --operation Read --topic or"),
    Step("a principal without a type", "acls", "--add --allow-principal alice --operation Read --topic or"),
    Step("a pattern to match", "acls", "--add --allow-principal User:alice --operation Read --topic or --resource-pattern-type match"),
    Step("no resource", "acls", "--add --allow-principal User:alice --operation Read"),
    Step("list a prefix", "acls", "--list --topic or --resource-pattern-type prefixed"),
    Step("list any", "acls", "--list --topic or --resource-pattern-type any"),
    Step("list what matches", "acls", "--list --topic orders --resource-pattern-type match"),
    Step("list all that match, of a group", "acls", "--list --group g1 --resource-pattern-type match"),
    Step("list the cluster", "acls", "--list --cluster"),
    Step("list transactional ids", "acls", "--list --transactional-id * --resource-pattern-type match"),
    Step("list users", "acls", "--list --user-principal User:bob"),
    Step("list tokens", "acls", "--list --delegation-token abc"),
    Step("list of two principals", "acls", "--list --principal User:bob --principal User:dave"),
    Step("list of a principal at a topic", "acls", "--list --principal User:x --topic t9"),
    Step("list of nobody", "acls", "--list --principal User:nobody"),
    Step("list and add", "acls", "--list --add --topic t"),
    Step("remove at a host", "acls", "--remove --force --allow-principal User:x --allow-host 10.0.0.1 --operation Read --topic t9"),
    Step("remove a prefix", "acls", "--remove --force --topic or --resource-pattern-type prefixed"),
    Step("remove what a consumer has", "acls", "--remove --force --allow-principal User:bob --consumer --topic t1 --group g1"),
    Step("remove a denial", "acls", "--remove --force --deny-principal User:eve --deny-host 10.0.0.3 --operation Read --topic t8"),
    Step("remove of the cluster", "acls", "--remove --force --cluster"),
    Step("remove any pattern", "acls", "--remove --force --topic b- --resource-pattern-type any"),
    Step("remove what matches", "acls", "--remove --force --transactional-id b-77 --resource-pattern-type match"),
    Step("list all", "acls", "--list"),
]  # fmt: skip
"""Every kind of resource and of pattern, the shorthands, and what the tool or the broker refuses."""


@pytest.mark.parametrize("release", VERSIONS)
def test_the_tool_prints_the_same(release: str, tmp_path: Path) -> None:
    for needed in ("3.9", release):
        if reason := missing(needed):
            pytest.skip(reason)
    steps = [*SESSION, *KINDS]
    with Tools(release) as tools:
        with Kafka("3.9", settings=SETTINGS, heap="512m") as kafka:
            at_kafka = [tools.run(step, kafka.bootstrap, tmp_path) for step in steps]
        with KafkadProcess(tmp_path / "kafkad", SETTINGS) as kafkad:
            at_kafkad = [tools.run(step, kafkad.bootstrap, tmp_path) for step in steps]
    for step, ours, kafkas in zip(steps, at_kafkad, at_kafka, strict=True):
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
