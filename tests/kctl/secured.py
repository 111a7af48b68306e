"""A real Kafka with every kind of listener, each on a port of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.kctl.certificates import Authority
from tests.oracle.kafka import Kafka, free_port, missing, tool

PASSWORD = 'se"same, =\\é'
LISTENERS = ("PLAINTEXT", "SSL", "MUTUAL", "SASL_PLAINTEXT", "SASL_SSL", "PLAIN_ONLY")
_OTHER_PROTOCOLS = {"MUTUAL": "SSL", "PLAIN_ONLY": "SASL_PLAINTEXT"}
_MODULES = "org.apache.kafka.common.security"


def _settings(authority: Authority, ports: dict[str, int]) -> dict[str, str]:
    identity = authority.issue("broker")
    store = authority.directory / "broker.store.pem"
    store.write_text(identity.key.read_text() + identity.certificate.read_text())
    protocols = {name: _OTHER_PROTOCOLS.get(name, name) for name in LISTENERS}
    settings = {
        "listeners": ",".join(f"{name}://localhost:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.plain_only.sasl.enabled.mechanisms": "PLAIN",
        "delegation.token.secret.key": "only for tests",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    }
    escaped = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    logins = {
        "plain": f'{_MODULES}.plain.PlainLoginModule required user_alice="{escaped}";',
        "scram-sha-256": f"{_MODULES}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{_MODULES}.scram.ScramLoginModule required;",
        "oauthbearer": f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="b";',
    }
    for listener in ("sasl_plaintext", "sasl_ssl", "plain_only"):
        for mechanism, line in logins.items():
            settings[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = _escaped(line)
    return settings


def _escaped(value: str) -> str:
    """As a .properties file has it."""
    return "".join(f"\\u{ord(sign):04x}" if ord(sign) > 126 or sign == "\\" else sign for sign in value)


@pytest.fixture(scope="module")
def ports(authority: Authority) -> Iterator[dict[str, int]]:
    """Of a real Kafka's listeners."""
    if why := missing("3.9"):
        pytest.skip(why)
    with _secured_kafka(authority) as ports:
        yield ports


@contextmanager
def _secured_kafka(authority: Authority) -> Iterator[dict[str, int]]:
    ports = {name: free_port() for name in LISTENERS}
    with Kafka("3.9", port=ports["PLAINTEXT"], settings=_settings(authority, ports), heap="512m"):
        for mechanism, name in (("SCRAM-SHA-256", "bob"), ("SCRAM-SHA-512", "carol")):
            change = ["--alter", "--entity-type", "users", "--entity-name", name]
            what = f"{mechanism}=[iterations=4096,password=sesame]"
            subprocess.run(
                tool(
                    "3.9",
                    "configs",
                    "--bootstrap-server",
                    f"localhost:{ports['PLAINTEXT']}",
                    *change,
                    "--add-config",
                    what,
                ),
                check=True,
                capture_output=True,
            )
        yield ports
