"""Logging in to a real Kafka, in every way it lets clients in."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest

from kctl.errors import Exit
from tests.kctl.certificates import Authority, authority
from tests.kctl.conftest import Kctl, Ran, until
from tests.kctl.secured import PASSWORD, ports

pytestmark = [pytest.mark.slow, pytest.mark.java]

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


__all__ = ["authority", "ports"]


class Client:
    """Command lines with `settings` of a Kafka client, against one of the listeners."""

    def __init__(self, kctl: Kctl, ports: dict[str, int], ca: Path) -> None:
        self._kctl = kctl
        self._ports = ports
        self._ca = ca

    def __call__(self, listener: str, protocol: str, **settings: object) -> Ran:
        names = {"security.protocol": protocol, "ssl.ca.location": self._ca}
        names |= {name.replace("_", "."): value for name, value in settings.items()}
        flags = [word for name, value in names.items() for word in ("-X", f"{name}={value}")]
        return self._kctl("-b", f"localhost:{self._ports[listener]}", *flags, "topics", "list", "--timeout", "30s")


@pytest.fixture
def client(kctl: Kctl, ports: dict[str, int], authority: Authority) -> Client:
    return Client(kctl, ports, authority.certificate)


def test_tls(client: Client) -> None:
    assert client("SSL", "SSL").code == Exit.DONE


def test_certificate_of_the_client(client: Client, authority: Authority) -> None:
    alice = authority.issue("alice", password="sesame")
    mine = {"ssl_certificate_location": alice.certificate, "ssl_key_location": alice.key, "ssl_key_password": "sesame"}
    assert client("MUTUAL", "SSL", **mine).code == Exit.DONE
    ran = client("MUTUAL", "SSL")
    assert ran.code == Exit.UNREACHABLE
    assert "alert" not in ran.err
    assert "the broker refused: bad certificate" in ran.err
    assert "it may want a certificate of the client" in ran.err


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize(
    ("mechanism", "name", "password"),
    [("PLAIN", "alice", PASSWORD), ("SCRAM-SHA-256", "bob", "sesame"), ("SCRAM-SHA-512", "carol", "sesame")],
)
def test_sasl(client: Client, listener: str, mechanism: str, name: str, password: str) -> None:
    login = {"sasl_mechanism": mechanism, "sasl_username": name}
    assert client(listener, listener, **login, sasl_password=password).code == Exit.DONE
    ran = client(listener, listener, **login, sasl_password="other")
    assert ran.code == Exit.UNAUTHORIZED
    assert ran.err.startswith(f"error: user {name} could not log in with {mechanism}: Authentication failed")
    assert "(SASL_AUTHENTICATION_FAILED)" in ran.err


def test_token(client: Client, ports: dict[str, int], kctl: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    def part(fields: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=").decode()

    now = int(time.time())
    monkeypatch.setenv("KCTL_TOKEN", f"{part({'alg': 'none'})}.{part({'sub': 'zoe', 'iat': now, 'exp': now + 600})}.")
    assert client("SASL_PLAINTEXT", "SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER").code == Exit.DONE
    monkeypatch.setenv("KCTL_TOKEN", f"{part({'alg': 'none'})}.{part({'sub': 'zoe', 'iat': 1, 'exp': 2})}.")
    ran = client("SASL_PLAINTEXT", "SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER")
    assert ran.code == Exit.UNAUTHORIZED
    assert "the bearer of the token could not log in with OAUTHBEARER" in ran.err


def test_delegation_token(client: Client, kctl: Kctl, ports: dict[str, int]) -> None:
    carol = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-512"]
    carol += ["sasl.username=carol", "sasl.password=sesame"]
    flags = [word for setting in carol for word in ("-X", setting)]
    ran = kctl("-b", f"localhost:{ports['SASL_PLAINTEXT']}", *flags, "raw", "CreateDelegationToken", "-y")
    token = json.loads(ran.out)
    name, password = token["token_id"], token["hmac"]["base64"]
    line = f'{SCRAM_MODULE} required username="{name}" password="{password}" tokenauth="true";'
    login = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": line}
    assert client("SASL_SSL", "SASL_SSL", **login).code == Exit.DONE
    ran = client("SASL_SSL", "SASL_SSL", **login | {"sasl_jaas_config": line.replace(' tokenauth="true"', "")})
    assert ran.code == Exit.UNAUTHORIZED


def test_records_through_tls(kctl: Kctl, ports: dict[str, int], authority: Authority, tmp_path: Path) -> None:
    """Answers of many TLS records, and several in one."""
    flags = ["-b", f"localhost:{ports['SSL']}", "-X", "security.protocol=SSL"]
    flags += ["-X", f"ssl.ca.location={authority.certificate}", "--timeout", "30s"]
    file = tmp_path / "lines"
    file.write_text("".join(f"{line} {'x' * 1000}\n" for line in range(5000)))
    topic = {"name": "through-tls", "num_partitions": 1, "replication_factor": 1}
    assert kctl(*flags, "raw", "CreateTopics", "-y", json.dumps({"topics": [topic], "timeout_ms": 9000})).code == 0
    until(lambda: kctl(*flags, "produce", "through-tls", "--file", file).code == Exit.DONE, "Kafka has producer ids")
    assert kctl(*flags, "consume", "through-tls").out == file.read_text()


def test_mechanism_that_is_not_enabled(kctl: Kctl, ports: dict[str, int], authority: Authority) -> None:
    """The one listener of these without SCRAM-SHA-256 says what it has."""
    flags = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=SCRAM-SHA-256"]
    login = ["-X", "sasl.username=bob", "-X", "sasl.password=sesame"]
    ran = kctl("-b", f"localhost:{ports['PLAIN_ONLY']}", *flags, *login, "topics", "list")
    assert ran.code == Exit.UNAUTHORIZED
    assert ran.err.startswith(
        "error: the broker does not support SCRAM-SHA-256; it supports PLAIN (UNSUPPORTED_SASL_MECHAN"
    )


@pytest.mark.parametrize(
    ("listener", "protocol", "code", "texts"),
    [
        ("PLAINTEXT", "SSL", 4, ["TLS handshake failed: the broker closed the connection", "a plaintext port?"]),
        ("SASL_PLAINTEXT", "SASL_SSL", 4, ["TLS handshake failed: the broker closed the connection"]),
        ("SSL", "PLAINTEXT", 4, ["does not speak the Kafka protocol", "a TLS port?"]),
        ("SASL_SSL", "SASL_PLAINTEXT", 4, ["does not speak the Kafka protocol", "a TLS port?"]),
        (
            "SASL_PLAINTEXT",
            "PLAINTEXT",
            4,
            ["closed the connection instead of answering", "a port that wants a login?"],
        ),
        ("SASL_SSL", "SSL", 4, ["closed the connection instead of answering", "a port that wants a login?"]),
        ("PLAINTEXT", "SASL_PLAINTEXT", 5, ["the broker takes no SASL on this port", "security.protocol is PLAINTEXT"]),
        ("SSL", "SASL_SSL", 5, ["the broker takes no SASL on this port", "security.protocol is SSL"]),
    ],
)
def test_port_of_another_kind(client: Client, listener: str, protocol: str, code: int, texts: list[str]) -> None:
    login = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": PASSWORD}
    ran = client(listener, protocol, **(login if protocol.startswith("SASL") else {}))
    assert ran.code == code
    assert all(text in ran.err for text in texts), ran.err


def test_from_import_to_test(kctl: Kctl, ports: dict[str, int], authority: Authority, tmp_path: Path) -> None:
    """As somebody comes over from Kafka's own tools: the same file, PKCS12 stores, and a JAAS line."""
    store = authority.pkcs12("bob", "store word", authority.issue("bob"))
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"bootstrap.servers=localhost:{ports['SASL_SSL']}\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={SCRAM_MODULE} required username="bob" password="sesame";\n'
        f"ssl.truststore.location={authority.pkcs12_of_ca('trust word')}\nssl.truststore.password=trust word\n"
        f"ssl.keystore.location={store}\nssl.keystore.password=store word\nrequest.timeout.ms=5000\n"
    )
    assert kctl("contexts", "import", properties, "--name", "prod").code == Exit.DONE
    ran = kctl("contexts", "test", "prod", "-o", "json", "--timeout", "30s")
    assert ran.code == Exit.DONE
    steps = {item["step"]: item for item in json.loads(ran.out)["items"]}
    assert list(steps) == ["DNS", "TCP", "TLS", "SASL", "ApiVersions", "Metadata"]
    assert {item["result"] for item in steps.values()} == {"ok"}
    assert "certificate valid until 2045-01-01 00:00:00 UTC (" in steps["TLS"]["found"]
    assert steps["SASL"]["found"] == "SCRAM-SHA-256 as bob"
    assert f"1 at localhost:{ports['SASL_SSL']}" in steps["Metadata"]["found"]
    assert kctl("topics", "list").code == Exit.DONE, "the first context is the current one"
    shown = kctl("contexts", "show", "-o", "json").out + kctl("--debug", "-v", "topics", "list").err
    assert not any(word in shown for word in ("sesame", "store word", "trust word"))
