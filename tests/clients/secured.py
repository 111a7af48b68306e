"""A broker with every kind of listener, kafkad or real Kafka 3.9, and what a client is given to use one of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.broker import KafkadProcess
from tests.certificates import DAY, Authority
from tests.clients.conftest import SETTINGS
from tests.oracle.kafka import Kafka, free_port
from tests.security.tokens import jwk, key_set, rsa_key, signed

LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
}
"""Name → protocol. SSL has TLS 1.2 and the others 1.3; MUTUAL wants a certificate of the client; at EXPIRED that of the
broker has expired."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER, PASSWORD = "alice", "pä ss,=word"
LONGEST = 10_000_000
"""Bytes of a request."""
SECONDS = 60
ALLOWED_URLS = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="
"""Java reads keys and tokens from these only."""
_MODULES = "org.apache.kafka.common.security"
_CA, _ALICE, _KEYS, _TOKEN, _OLD_TOKEN = "ca.pem", "alice.pem", "keys.json", "token", "old-token"


class Way(NamedTuple):
    """How a client comes in: the listener, and the mechanism by which it logs in there."""

    listener: str
    mechanism: str = ""

    def __str__(self) -> str:
        listener = "SSL with a certificate of the client" if self.listener == "MUTUAL" else self.listener
        return ", ".join(filter(None, (listener, self.mechanism)))


WAYS = [
    *(Way(listener) for listener in ("PLAINTEXT", "SSL", "MUTUAL")),
    *(Way(listener, mechanism) for listener in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS),
]


@dataclass(frozen=True)
class Access:
    """What a client is given. `identity` is the file of its key and certificate, which it shows when it is asked."""

    bootstrap: str
    protocol: str
    trusted: Path
    identity: Path | None
    mechanism: str
    password: str
    token: Path
    """The file of a JSON web token."""

    @property
    def encrypted(self) -> bool:
        return self.protocol.endswith("SSL")


class Secured:
    """A running broker with files of keys, certificates and tokens beside it."""

    def __init__(self, ports: dict[str, int], directory: Path, authority: Authority) -> None:
        self._ports = ports
        self._directory = directory
        self._authority = authority

    @property
    def tokens(self) -> list[str]:
        """The URLs of files with tokens."""
        return [f"file://{self._directory / name}" for name in (_TOKEN, _OLD_TOKEN)]

    def access(self, way: Way) -> Access:
        return Access(
            f"localhost:{self._ports[way.listener]}",
            LISTENERS[way.listener],
            self._directory / _CA,
            self._directory / _ALICE if way.listener == "MUTUAL" else None,
            way.mechanism,
            PASSWORD,
            self._token(_TOKEN, 600),
        )

    def refused(self, why: str) -> Access:
        """With what a client is not let in, or does not go in."""
        secret, of_broker, of_client = (
            self.access(way) for way in (Way("SASL_SSL", "SCRAM-SHA-512"), Way("SSL"), Way("MUTUAL"))
        )
        stranger = Authority("Somebody Else")
        made = self._directory
        match why:
            case "a wrong password":
                return replace(secret, password="wrong")
            case "a token that has expired":
                return replace(self.access(Way("SASL_SSL", "OAUTHBEARER")), token=self._token(_OLD_TOKEN, -600))
            case "a broker's certificate that has expired":
                return self.access(Way("EXPIRED"))
            case "a broker's certificate of another authority":
                return replace(of_broker, trusted=stranger.write(made / "stranger.pem"))
            case "a certificate that has expired":
                old = self._authority.issue("alice", since=-9 * DAY, until=-DAY)
                return replace(of_client, identity=old.write(made / "old-alice.pem"))
            case "a certificate of another authority":
                return replace(of_client, identity=stranger.issue("alice").write(made / "strange-alice.pem"))
            case "no certificate":
                return replace(of_client, identity=None)
        raise AssertionError(why)

    def _token(self, name: str, seconds: int) -> Path:
        now, file = int(time.time()), self._directory / name
        times = {"iat": now - 1000, "exp": now + seconds}
        file.write_text(signed(rsa_key(), **{"sub": USER, "aud": "kafka", "scope": "kafka", **times}))
        return file


def _settings(ports: dict[str, int], directory: Path, authority: Authority) -> dict[str, str]:
    (directory / _KEYS).write_bytes(key_set(jwk(rsa_key(), "k1")))
    protocols = (f"{name}:{protocol}" for name, protocol in LISTENERS.items())
    expired = authority.issue(since=-9 * DAY, until=-DAY).write(directory / "expired.pem")
    authority.issue("alice", names=()).write(directory / _ALICE)
    settings = SETTINGS | {
        "listeners": ",".join(f"{name}://localhost:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(protocols),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue().write(directory / "broker.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.write(directory / _CA)),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.ssl.ssl.enabled.protocols": "TLSv1.2",
        "listener.name.expired.ssl.keystore.location": str(expired),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{directory / _KEYS}",
        "sasl.oauthbearer.expected.audience": "kafka",
        "message.max.bytes": str(LONGEST),
        "offsets.topic.num.partitions": "1",
    }
    lines = {
        "plain": f'{_MODULES}.plain.PlainLoginModule required "user_{USER}"="{PASSWORD}";',
        "scram-sha-256": f"{_MODULES}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{_MODULES}.scram.ScramLoginModule required;",
        "oauthbearer": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;",
    }
    for listener in ("listener.name.sasl_plaintext", "listener.name.sasl_ssl"):
        settings |= {f"{listener}.{mechanism}.sasl.jaas.config": line for mechanism, line in lines.items()}
        settings[f"{listener}.oauthbearer.sasl.server.callback.handler.class"] = (
            f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        )
    return settings


@contextmanager
def secured(kind: str, directory: Path) -> Iterator[Secured]:
    """`kind` is kafkad or kafka-3.9."""
    authority, ports = Authority(), {name: free_port() for name in LISTENERS}
    settings = _settings(ports, directory, authority)
    if kind == "kafkad":
        broker: KafkadProcess | Kafka = KafkadProcess(directory / "kafkad", settings)
        broker.port = ports["PLAINTEXT"]
    else:
        escaped = {name: in_properties(value) for name, value in settings.items()}
        keys = [f"{ALLOWED_URLS}file://{directory / _KEYS}"]
        broker = Kafka("3.9", port=ports["PLAINTEXT"], settings=escaped, heap="512m", options=keys)
    with broker:
        admin = AdminClient({"bootstrap.servers": f"localhost:{ports['PLAINTEXT']}"})
        upsertions = [
            UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for done in admin.alter_user_scram_credentials(upsertions).values():
            done.result(SECONDS)
        described = admin.describe_user_scram_credentials([USER])[USER].result(SECONDS)
        assert [info.iterations for info in described.scram_credential_infos] == [4096, 4096]
        yield Secured(ports, directory, authority)


def in_properties(text: str) -> str:
    """As Java has a value in a .properties file."""
    return "".join(f"\\u{ord(sign):04x}" if ord(sign) > 126 or sign == "\\" else sign for sign in text)
