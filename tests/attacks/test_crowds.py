"""A thousand clients that log in at the same moment, each by what costs the broker most in its mechanism."""

from __future__ import annotations

import contextlib
import hashlib
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from kafkad.security.scram import ScramClient
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkad.wire.messages.sasl_handshake import SaslHandshakeRequest
from kafkad.wire.schema import decode
from tests.broker import RawClient
from tests.clients.asker import Asker
from tests.kerberos import SERVICE, Kdc
from tests.kerberos import missing as missing_kerberos
from tests.oracle.kafka import free_port
from tests.security.tokens import jwk, key_set, signed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

CLIENTS = 1000
TOKENS = 300
MODULES = "org.apache.kafka.common.security"
AT = "listener.name.sasl"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "kafkad.max.unauthenticated.connections.per.ip": str(CLIENTS),
    "kafkad.connection.setup.timeout.ms": "60000",
}


@contextlib.contextmanager
def crowd(port: int, mechanism: str, size: int = CLIENTS) -> Iterator[list[RawClient]]:
    """Clients that have chosen the mechanism, and said nothing else."""
    chosen = encode_request(RequestHeader(17, 1, 1, "c"), SaslHandshakeRequest(mechanism=mechanism))[4:]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(port, timeout=60)) for _ in range(size)]
        for client in clients:
            assert client.exchange(chosen)[4:6] == b"\0\0"
        time.sleep(1)  # the honest client begins beside a broker that has nothing else to do
        yield clients


def at_once(clients: Sequence[RawClient], messages: Iterable[bytes]) -> list[bytes]:
    """One message of each, in the same moment; the answers of the mechanism."""
    frames = [encode_request(RequestHeader(36, 0, 2, "c"), SaslAuthenticateRequest(auth_bytes=m)) for m in messages]
    for client, frame in zip(clients, frames, strict=True):
        client.send(frame)
    answers = []
    for client in clients:
        frame = client.receive_frame()
        answer = decode(SaslAuthenticateResponse, 0, frame[read_response_header(36, 0, frame)[1] :])
        assert not answer.error_code, answer
        answers.append(bytes(answer.auth_bytes))
    return answers


def exchange(clients: Sequence[RawClient], exchanges: Sequence[ScramClient]) -> None:
    answers = at_once(clients, [each.first for each in exchanges])
    finals = at_once(clients, [each.last(answer) for each, answer in zip(exchanges, answers, strict=True)])
    for each, final in zip(exchanges, finals, strict=True):
        each.verify(final)


def test_scram(suffer: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """By one user: its salted password is worked out once by these clients, and never by the broker."""
    port = free_port()
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", cache(hashlib.pbkdf2_hmac))

    def prepare(plain: int) -> None:
        asker = Asker(plain)
        salted = hashlib.pbkdf2_hmac("sha512", b"pw", b"salt", 4096)
        user = {"name": "alice", "mechanism": 2, "iterations": 4096, "salt": b"salt", "salted_password": salted}
        answer = asker.ask("AlterUserScramCredentials", 0, {"deletions": [], "upsertions": [user]})
        assert not answer.results[0].error_code, answer
        asker.client.close()

    def attack(plain: int) -> None:
        with crowd(port, "SCRAM-SHA-512") as clients:
            exchange(clients, [ScramClient("SCRAM-SHA-512", "alice", "pw", f"n{n}") for n in range(CLIENTS)])

    settings = SETTINGS | {"sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    suffer(f"{CLIENTS} logins at once by SCRAM", attack, prepare, settings=settings, listeners={"SASL": port})


def test_delegation_tokens(suffer: Callable[..., None]) -> None:
    """Each with one that nobody has shown before: its credential has to be made."""
    port = free_port()
    shown: list[tuple[str, str]] = []

    def prepare(plain: int) -> None:
        asker = Asker(port)
        asker.ask("SaslHandshake", 1, {"mechanism": "PLAIN"})
        asker.ask("SaslAuthenticate", 0, {"auth_bytes": b"\0alice\0pw"})
        for _ in range(TOKENS):
            token = asker.ask("CreateDelegationToken", 1, {"renewers": [], "max_lifetime_ms": -1})
            shown.append((token.token_id, b64encode(token.hmac).decode()))
        asker.client.close()

    def attack(plain: int) -> None:
        with crowd(port, "SCRAM-SHA-512", TOKENS) as clients:
            firsts = [f"n,,n={token_id},r=n,tokenauth=true".encode() for token_id, _ in shown]
            assert all(answer.startswith(b"r=n") for answer in at_once(clients, firsts))

    settings = SETTINGS | {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        f"{AT}.plain.sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required user_alice="pw";',
        "delegation.token.secret.key": "secret",
    }
    suffer(f"{TOKENS} logins at once by new tokens", attack, prepare, settings=settings, listeners={"SASL": port})


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP521R1()])
def test_oauthbearer(suffer: Callable[..., None], tmp_path: Path, curve: ec.EllipticCurve) -> None:
    """Each with a token of its own, and none that says which of four keys has signed it."""
    port, now_s = free_port(), int(time.time())
    algorithm = f"ES{min(curve.key_size, 512)}"
    keys = [ec.generate_private_key(curve) for _ in range(4)]
    (tmp_path / "keys.json").write_bytes(key_set(*[jwk(key, f"k{n}") for n, key in enumerate(keys)]))
    tokens = [signed(keys[-1], algorithm, kid=None, sub=f"user{n}", iat=now_s, exp=now_s + 600) for n in range(CLIENTS)]

    def attack(plain: int) -> None:
        with crowd(port, "OAUTHBEARER") as clients:
            refusals = at_once(clients, [f"n,,\x01auth=Bearer {token}\x01\x01".encode() for token in tokens])
            assert not any(refusals)

    settings = SETTINGS | {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{AT}.sasl.oauthbearer.jwks.endpoint.url": f"file://{tmp_path}/keys.json",
        f"{AT}.oauthbearer.sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
        f"{AT}.oauthbearer.sasl.server.callback.handler.class": (
            f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
    }
    suffer(f"{CLIENTS} logins at once by OAUTHBEARER, {algorithm}", attack, settings=settings, listeners={"SASL": port})


@pytest.mark.long
def test_gssapi(suffer: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := missing_kerberos():
        pytest.skip(reason)
    import gssapi

    port = free_port()
    with Kdc(tmp_path) as kdc:
        keytab, alice = kdc.keytab(SERVICE), kdc.keytab("alice")
        monkeypatch.setenv("KRB5_CONFIG", str(kdc.config))
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{kdc.ticket('alice', alice)}")
        service = gssapi.Name(SERVICE, gssapi.NameType.kerberos_principal)
        tickets = []
        for _ in range(CLIENTS):
            begun = gssapi.SecurityContext(name=service, usage="initiate", mech=gssapi.MechType.kerberos)
            ticket = begun.step()
            assert ticket is not None
            tickets.append(ticket)

        def attack(plain: int) -> None:
            with crowd(port, "GSSAPI") as clients:
                assert all(at_once(clients, tickets))

        module = "com.sun.security.auth.module.Krb5LoginModule"
        settings = SETTINGS | {
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            f"{AT}.gssapi.sasl.jaas.config": (
                f'{module} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{SERVICE}";'
            ),
        }
        suffer(f"{CLIENTS} logins at once by GSSAPI", attack, settings=settings, listeners={"SASL": port})
