"""Delegation tokens, on a real broker whose users log in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kctl.errors import Exit
from tests.kctl.conftest import Kctl, until
from tests.oracle.kafka import Kafka, free_port, missing

pytestmark = [pytest.mark.slow, pytest.mark.java]

_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_gil="sesame" user_jim="sesame" user_root="sesame";'
)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    if why := missing("3.9"):
        pytest.skip(why)
    plain, sasl = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": _LOGIN,
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "delegation.token.secret.key": "a key",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS;User:root",
    }
    with Kafka("3.9", port=plain, settings=settings, heap="384m"):
        yield sasl


@pytest.fixture
def on_kafka(kctl: Kctl, port: int, monkeypatch: pytest.MonkeyPatch) -> Kctl:
    """As the user in KCTL_USERNAME."""
    for name, value in {"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "MECHANISM": "PLAIN", "PASSWORD": "sesame"}.items():
        monkeypatch.setenv(f"KCTL_{name}", value)
    return lambda *words: kctl("-b", f"127.0.0.1:{port}", *words)


@pytest.fixture
def as_gil(on_kafka: Kctl, monkeypatch: pytest.MonkeyPatch) -> Kctl:
    monkeypatch.setenv("KCTL_USERNAME", "gil")
    return on_kafka


def items(ran: Any) -> list[dict[str, Any]]:
    assert ran.code == Exit.DONE, ran.err
    found: list[dict[str, Any]] = json.loads(ran.out)["items"]
    return found


def test_the_life_of_a_token(as_gil: Kctl, kctl: Kctl, port: int) -> None:
    ran = as_gil("-y", "tokens", "create", "--renewer", "User:hal", "--max-lifetime", "2d", "-o", "json")
    (made,) = items(ran)
    assert ran.err.endswith(f"undo: kctl -b 127.0.0.1:{port} tokens expire {made['token_id']}\n")
    assert (made["owner"], made["renewers"]) == ("User:gil", ["User:hal"])
    assert made["max_ms"] - made["issued_ms"] == 2 * 86_400_000
    assert [token["token_id"] for token in items(as_gil("tokens", "list", "-o", "json"))] == [made["token_id"]]
    assert made["hmac"] not in as_gil("tokens", "list").out, "the secret is not in the table"
    (renewed,) = items(as_gil("-y", "tokens", "renew", made["token_id"], "--for", "1h", "-o", "json"))
    assert renewed["expires_ms"] != made["expires_ms"]
    assert as_gil("tokens", "renew", "nosuch").code == Exit.NOT_FOUND
    ended = as_gil("-y", "tokens", "expire", made["hmac"])
    assert ended.code == Exit.DONE and "verified: it is gone" in ended.err
    until(lambda: items(as_gil("tokens", "list", "-o", "json")) == [], "no token is left")


def test_a_token_for_another_is_shown_to_who_asked_for_it(
    on_kafka: Kctl, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KCTL_USERNAME", "root")
    right = ("--allow", "jim", "--operation", "CreateTokens", "--user-principal", "User:hal")
    assert on_kafka("acls", "add", *right).code == Exit.DONE
    monkeypatch.setenv("KCTL_USERNAME", "jim")
    monkeypatch.setattr("kctl.tokens.create.described", lambda _: pytest.fail("a broker may hide it from jim"))
    ran = on_kafka("tokens", "create", "--owner", "User:hal", "--renewer", "ida", "-o", "json")
    (made,) = items(ran)
    assert f"undo, as its owner or a renewer: kctl -b 127.0.0.1:{port} tokens expire {made['token_id']}" in ran.err
    assert (made["owner"], made["requester"], made["renewers"]) == ("User:hal", "User:jim", ["User:ida"])
    assert made["hmac"]
    until(lambda: items(on_kafka("tokens", "list", "-o", "json")) == [made], "it is listed")
