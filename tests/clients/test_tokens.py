"""Real clients that log in by tokens: OAUTHBEARER with keys from an issuer over HTTPS, and delegation tokens."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from kafkad.wire.frames import RequestHeader, encode_request
from kafkad.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkad.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker import API_VERSIONS_V0, KafkadProcess, RawClient
from tests.clients.asker import Asker, batch, produce
from tests.oracle.kafka import free_port
from tests.security.issuers import Issuer
from tests.security.tokens import jwk, rsa_key, signed

pytestmark = [pytest.mark.slow]

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    made = Issuer(tmp_path_factory.mktemp("issuer"))
    yield made
    made.close()


def broker_at(directory: Path, port: int, issuer: Issuer) -> KafkadProcess:
    """Clients log in at that port."""
    own = "listener.name.sasl"
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        f"{own}.sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{own}.plain.sasl.jaas.config": f'{PLAIN} required user_carol="pw";',
        f"{own}.oauthbearer.sasl.jaas.config": f'{OAUTH} required ssl.truststore.location="{issuer.ca}";',
        f"{own}.oauthbearer.sasl.server.callback.handler.class": HANDLER,
        f"{own}.sasl.oauthbearer.jwks.endpoint.url": issuer.url,
        f"{own}.sasl.oauthbearer.expected.audience": "kafka",
        "delegation.token.secret.key": "lab-master-key",
    }
    broker = KafkadProcess(directory, settings)
    broker.settings["listeners"] += f",SASL://127.0.0.1:{port}"
    return broker


@pytest.fixture(scope="module")
def port(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Of the listener at which clients log in."""
    port = free_port()
    with broker_at(tmp_path_factory.mktemp("kafkad"), port, issuer):
        yield port


def sasl_handshake(mechanism: str) -> bytes:
    return encode_request(RequestHeader(17, 1, 7, "c"), SaslHandshakeRequest(mechanism=mechanism))[4:]


def sasl_message(message: bytes) -> bytes:
    return encode_request(RequestHeader(36, 0, 8, "c"), SaslAuthenticateRequest(auth_bytes=message))[4:]


def token(key: int = 1, kid: str = "k1", **claims: Any) -> str:
    now = int(time.time())
    return signed(rsa_key(key), kid=kid, **{"aud": "kafka", "iat": now, "exp": now + 600, **claims})


def topics_of_librdkafka(port: int, shown: str) -> dict[str, Any]:
    client = AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (shown, time.time() + 600),
        }
    )
    topics: dict[str, Any] = client.list_topics(timeout=30).topics
    return topics


def test_librdkafka(port: int) -> None:
    assert isinstance(topics_of_librdkafka(port, token()), dict)


def test_who_comes_before_the_keys_of_the_issuer_are_known_waits_for_them(issuer: Issuer, tmp_path: Path) -> None:
    port = free_port()
    issuer.answers.clear()
    try:
        with broker_at(tmp_path, port, issuer) as broker, RawClient(port, timeout=20) as client:
            client.send_frame(sasl_handshake("OAUTHBEARER"))
            client.send_frame(sasl_message(f"n,,\x01auth=Bearer {token()}\x01\x01".encode()))
            with RawClient(broker.port) as other:
                other.exchange(API_VERSIONS_V0)
            time.sleep(0.2)
            assert "ready in" not in broker.log
            issuer.answers.set()
            assert client.receive_frame()[4:6] == b"\0\0"
            assert client.receive_frame()[4:] == bytes(8), broker.log  # no error, nor status
    finally:
        issuer.answers.set()


def test_the_disks_do_not_wait_for_issuers_that_do_not_answer(tmp_path: Path) -> None:
    """There are more of them than threads of either kind."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        broker = KafkadProcess(tmp_path, {"kafkad.acks.fsync": "true"})
        protocols = ["PLAINTEXT:PLAINTEXT"]
        for number in range(6):
            own = f"listener.name.sasl{number}"
            protocols.append(f"SASL{number}:SASL_PLAINTEXT")
            broker.settings["listeners"] += f",SASL{number}://127.0.0.1:{free_port()}"
            broker.settings |= {
                f"{own}.sasl.enabled.mechanisms": "OAUTHBEARER",
                f"{own}.oauthbearer.sasl.jaas.config": f"{OAUTH} required;",
                f"{own}.oauthbearer.sasl.server.callback.handler.class": HANDLER,
                f"{own}.sasl.oauthbearer.jwks.endpoint.url": f"https://127.0.0.1:{silent.getsockname()[1]}/{number}",
            }
        broker.settings["listener.security.protocol.map"] = ",".join(protocols)
        with broker:
            asker = Asker(broker.port)
            begin = time.monotonic()
            asker.create("t")
            answer = asker.ask("Produce", 7, produce("t", batch(1)))
            assert not answer.responses[0].partition_responses[0].error_code
            assert time.monotonic() - begin < 8, "an issuer has 10 s to answer"
            asker.client.close()


def test_the_end_does_not_wait_for_an_issuer_that_does_not_come_to_an_end(tmp_path: Path) -> None:
    """It sends its answer byte by byte, each of them in time."""
    with Issuer(tmp_path) as issuer:
        issuer.answers.clear()
        with broker_at(tmp_path, free_port(), issuer) as broker:
            end = time.monotonic() + 30
            while not issuer.asked and time.monotonic() < end:
                time.sleep(0.01)
            assert issuer.asked
            assert broker.stop() == 0


def kctl(port: int, *words: str, bearer: str = "", **settings: str) -> subprocess.CompletedProcess[str]:
    names = {"security.protocol": "SASL_PLAINTEXT", **settings}
    flags = [word for name, value in names.items() for word in ("-X", f"{name.replace('_', '.')}={value}")]
    env = {**os.environ, "KCTL_TOKEN": bearer}
    command = [sys.executable, "-m", "kctl", "-b", f"127.0.0.1:{port}", *flags, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)


CAROL = {"sasl_mechanism": "PLAIN", "sasl_username": "carol", "sasl_password": "pw"}


def test_a_new_key_of_the_issuer_is_looked_for_when_a_token_names_it(port: int, issuer: Issuer) -> None:
    """Each client that fails meanwhile counts as an attempt to guess, so it is one only; on a slow machine the keys may
    have come by then."""
    issuer.keys.append(jwk(rsa_key(2), "k2"))
    asked = issuer.asked
    kctl(port, "topics", "list", bearer=token(2, "k2"), sasl_mechanism="OAUTHBEARER")
    end = time.monotonic() + 30
    while issuer.asked == asked:
        assert time.monotonic() < end, "nobody looks for the key"
        time.sleep(0.05)
    time.sleep(0.5)
    assert isinstance(topics_of_librdkafka(port, token(2, "k2")), dict)


@pytest.mark.parametrize("claims", [{}, {"aud": "others"}, {"exp": 5}])
def test_kctl_is_told_that_its_token_is_refused(port: int, claims: dict[str, Any]) -> None:
    ran = kctl(port, "topics", "list", bearer=token(**claims), sasl_mechanism="OAUTHBEARER")
    assert (ran.returncode == 0) is not bool(claims), ran.stderr
    assert ("invalid_token" in ran.stderr) is bool(claims)


def test_kctl_with_delegation_tokens(port: int) -> None:
    """From its creation to its end, and what it may not do."""
    ran = kctl(port, "tokens", "create", "--renewer", "User:bob", "-o", "json", **CAROL)
    assert ran.returncode == 0, ran.stderr
    [made] = json.loads(ran.stdout)["items"]
    assert made["owner"] == "User:carol"

    def login(mechanism: str, tokenauth: bool = True) -> dict[str, str]:
        flag = ' tokenauth="true"' if tokenauth else ""
        line = f'{SCRAM} required username="{made["token_id"]}" password="{made["hmac"]}"{flag};'
        return {"sasl_mechanism": mechanism, "sasl_jaas_config": line}

    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert kctl(port, "topics", "list", **login(mechanism)).returncode == 0
    assert kctl(port, "topics", "list", **login("SCRAM-SHA-256", tokenauth=False)).returncode != 0
    refused = kctl(port, "tokens", "list", **login("SCRAM-SHA-256"))
    assert refused.returncode != 0
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused.stderr
    renewed = kctl(port, "tokens", "renew", made["token_id"], "--for", "1h", "-y", **CAROL)
    assert renewed.returncode == 0, renewed.stderr
    listed = kctl(port, "tokens", "list", "-o", "json", **CAROL)
    assert [each["token_id"] for each in json.loads(listed.stdout)["items"]] == [made["token_id"]]
    assert kctl(port, "tokens", "expire", made["token_id"], "-y", **CAROL).returncode == 0
    assert json.loads(kctl(port, "tokens", "list", "-o", "json", **CAROL).stdout)["items"] == []
    assert kctl(port, "topics", "list", **login("SCRAM-SHA-256")).returncode != 0
