"""Lists that stand in one node of the metadata store, and are written and read whole at each change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.asker import Asker
from tests.oracle.kafka import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ACLS = 10_000
"""About as many as a node of 1 MB holds."""
AT_ONCE = 2_500
CHANGES = 10
RENEWERS = 15_000
AUTHORIZED = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def acl(number: int) -> dict[str, Any]:
    host = f"10.0.{number // 250}.{number % 250}"
    where = {"resource_type": 2, "resource_name": "orders", "resource_pattern_type": 3}
    return where | {"principal": f"User:user{number}", "host": host, "operation": 3, "permission_type": 3}


def test_acls_of_one_resource(suffer: Callable[..., None]) -> None:
    """One is added and removed again and again: all of them are written each time."""

    def create(asker: Asker, acls: list[dict[str, Any]]) -> None:
        answer = asker.ask("CreateAcls", 3, {"creations": acls})
        assert not any(result.error_code for result in answer.results), answer.results[0]

    def prepare(port: int) -> None:
        asker = Asker(port)
        for start in range(0, ACLS, AT_ONCE):
            create(asker, [acl(number) for number in range(start, start + AT_ONCE)])
        asker.client.close()

    def attack(port: int) -> None:
        asker = Asker(port)
        one = acl(ACLS)
        sought = {f"{name}_filter": one[name] for name in ("resource_name", "principal", "host")} | {
            "resource_type_filter": one["resource_type"],
            "pattern_type_filter": one["resource_pattern_type"],
            "operation": one["operation"],
            "permission_type": one["permission_type"],
        }
        for _ in range(CHANGES):
            create(asker, [one])
            answer = asker.ask("DeleteAcls", 3, {"filters": [sought]})
            assert len(answer.filter_results[0].matching_acls) == 1, answer
        asker.client.close()

    suffer(f"one of {ACLS} ACLs of a resource changed {2 * CHANGES} times", attack, prepare, settings=AUTHORIZED)


def test_renewers_of_a_token(suffer: Callable[..., None]) -> None:
    """Whoever is logged in may ask for one."""
    port = free_port()
    renewers = [{"principal_type": "User", "principal_name": f"user{number}"} for number in range(RENEWERS)]

    def attack(plain: int) -> None:
        asker = Asker(port)
        asker.ask("SaslHandshake", 1, {"mechanism": "PLAIN"})
        asker.ask("SaslAuthenticate", 0, {"auth_bytes": b"\0alice\0pw"})
        for _ in range(3):
            answer = asker.ask("CreateDelegationToken", 1, {"renewers": renewers, "max_lifetime_ms": -1})
            assert answer.error_code == 42, answer
        asker.client.close()

    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="pw";'
        ),
        "delegation.token.secret.key": "secret",
    }
    suffer(f"tokens with {RENEWERS} renewers", attack, settings=settings, listeners={"SASL": port})
