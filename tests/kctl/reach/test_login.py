"""TLS and SASL with servers that live in a thread; what a real Kafka does is in test_login_kafka."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest

from kafkad.errors import ErrorCode
from kafkad.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkad.wire.messages.sasl_handshake import SaslHandshakeResponse
from kctl.errors import Disconnected, Exit, KctlError
from kctl.reach.access import Access, Secret
from kctl.reach.login import authenticate, secure
from tests.kctl.certificates import Authority, Identity, authority

__all__ = ["authority"]


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server that takes connections one after another, until this ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(10)
                    try:
                        serve(connection)
                    except OSError:
                        continue

        thread = Thread(target=run, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(20)


def tls_server(identity: Identity, clients: Authority | None = None) -> Any:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    if clients:
        context.load_verify_locations(clients.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # in 1.3 the refusal comes after the handshake

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            secured.sendall(secured.recv(100))

    return server(serve)


def said_through(port: int, access: Access, host: str = "localhost", timeout: float = 10) -> bytes:
    """The bytes that come back through TLS."""
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        secure(plain, host, access, time.monotonic() + timeout) as secured,
    ):
        secured.sendall(b"hello")
        return secured.recv(100)


def refusal(port: int, access: Access, **others: Any) -> KctlError:
    with pytest.raises(KctlError) as error:
        said_through(port, access, **others)
    assert error.value.exit_code is Exit.UNREACHABLE
    start = f"{others.get('host', 'localhost')}:{port}  TLS handshake failed: "
    assert error.value.what.startswith(start)
    error.value.what = error.value.what.removeprefix(start)
    return error.value


@pytest.fixture
def access(authority: Authority) -> Access:
    return Access(security_protocol="SSL", ca=str(authority.certificate))


def test_certificate_of_a_known_ca(authority: Authority, access: Access) -> None:
    with tls_server(authority.issue("good")) as port:
        assert said_through(port, access) == b"hello"
        assert said_through(port, access, host="127.0.0.1") == b"hello"


def test_ca_as_text_on_one_line(authority: Authority, access: Access) -> None:
    text = " ".join(authority.certificate.read_text().split("\n"))
    with tls_server(authority.issue("good")) as port:
        assert said_through(port, access._replace(ca=text)) == b"hello"


def test_certificate_has_expired(authority: Authority, access: Access) -> None:
    with tls_server(authority.issue("old", end="20200201000000Z")) as port:
        assert refusal(port, access).what == "certificate has expired (2020-02-01)"


def test_certificate_is_not_valid_yet(authority: Authority, access: Access) -> None:
    with tls_server(authority.issue("young", begin="20440101000000Z")) as port:
        assert refusal(port, access).what == "certificate is not valid yet (2044-01-01)"


def test_certificate_for_another_name(authority: Authority, access: Access) -> None:
    with tls_server(authority.issue("other", "DNS:kafka-1,DNS:kafka-1.example.org")) as port:
        assert refusal(port, access).what == "certificate is for kafka-1, kafka-1.example.org, not for localhost"
        error = refusal(port, access, host="127.0.0.1")
        assert error.what == "certificate is for kafka-1, kafka-1.example.org, not for 127.0.0.1"
        assert said_through(port, access._replace(check_hostname=False)) == b"hello"


def test_certificate_of_an_unknown_ca(authority: Authority, access: Access) -> None:
    with tls_server(authority.issue("good")) as port:
        error = refusal(port, access._replace(ca=""))
        assert error.what.startswith("certificate is signed by an unknown CA (")
        assert error.hints[0].startswith("trusted are the CAs of this system; -X ssl.truststore.location=FILE")
        assert refusal(port, access._replace(ca="", check_hostname=False)), "that is about names only"


def test_plaintext_port_spoken_to_in_tls(access: Access) -> None:
    def close(connection: socket.socket) -> None:
        connection.recv(10)

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        connection.recv(10000)

    def wait(connection: socket.socket) -> None:
        while connection.recv(10000):
            pass

    plaintext = ("a plaintext port? then security.protocol is PLAINTEXT or SASL_PLAINTEXT",)
    for serve, what in [(close, "the broker closed the connection"), (answer, "the broker's answer is not TLS")]:
        with server(serve) as port:
            error = refusal(port, access)
            assert (error.what, error.hints) == (what, plaintext)
            assert isinstance(error, Disconnected) == (serve is close), "so does a broker that is being stopped"
    with server(wait) as port:
        error = refusal(port, access, timeout=0.05)
        assert error.what == "no answer in time" and isinstance(error, Disconnected)


def test_certificate_of_the_client(authority: Authority, access: Access) -> None:
    alice = authority.issue("alice", password="sesame")
    named = access._replace(certificate=str(alice.certificate), key=str(alice.key), key_password=Secret("sesame"))
    p12 = authority.pkcs12("alice", "p12 word", authority.issue("alice2"))
    packed = access._replace(certificate=str(p12), key_password=Secret("p12 word"))
    with tls_server(authority.issue("good"), clients=authority) as port:
        assert said_through(port, named) == b"hello"
        assert said_through(port, packed) == b"hello"
        error = refusal(port, access)
        assert error.what.startswith("the broker refused: ")
        assert "ssl.keystore.location" in error.hints[0]


def test_ca_in_pkcs12(authority: Authority, access: Access) -> None:
    trust = str(authority.pkcs12_of_ca("trusted"))
    with tls_server(authority.issue("good")) as port:
        assert said_through(port, access._replace(ca=trust, ca_password=Secret("trusted"))) == b"hello"
        with pytest.raises(KctlError, match="its password is wrong"):
            said_through(port, access._replace(ca=trust, ca_password=Secret("no")))


def test_stores_that_cannot_be_used(authority: Authority, access: Access, tmp_path: Any) -> None:
    jks = tmp_path / "client.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    empty = tmp_path / "empty.pem"
    empty.write_text("-----BEGIN NOTHING-----\n-----END NOTHING-----\n")
    alice, bob, carol = authority.issue("alice", password="sesame"), authority.issue("bob"), authority.issue("carol")
    both = tmp_path / "carol.pem"
    both.write_text(carol.certificate.read_text() + carol.key.read_text())
    for changes, complaint in [
        ({"ca": str(jks)}, "is a JKS store, which only Java reads"),
        ({"ca": __file__.replace("test_login", "test_scram")}, "is neither PEM nor PKCS12"),
        ({"ca": str(empty)}, "no CA certificate found in"),
        ({"certificate": str(alice.certificate), "key": str(bob.key)}, "the key is not the certificate's"),
        ({"certificate": str(both), "key": str(bob.key)}, "the key is not the certificate's"),
        ({"certificate": str(alice.certificate), "key": str(alice.key)}, "or the password of the key is wrong"),
        ({"certificate": str(alice.certificate)}, "no key and certificate in it"),
    ]:
        with pytest.raises(KctlError, match=complaint) as error, server(lambda _: None) as port:
            said_through(port, access._replace(**changes))
        if "jks" in changes.get("ca", ""):
            target = str(jks).replace(".jks", ".p12")
            command = f"keytool -importkeystore -srckeystore {jks} -destkeystore {target} -deststoretype PKCS12"
            assert error.value.hints == (command,)


# --- SASL

ALICE = Access(security_protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="alice", password=Secret("sesame"))


class Broker:
    """Answers with what it was given, in order, and keeps what it was sent."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.sent: list[Any] = []

    def exchange(self, message: Any, version: int) -> Any:
        assert version == 1
        self.sent.append(message)
        return self.answers.pop(0)


YES = SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])


def said(message: bytes = b"", code: int = 0, text: str | None = None) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=text, auth_bytes=message, session_lifetime_ms=0)


def test_plain() -> None:
    broker = Broker(YES, said())
    authenticate(broker.exchange, ALICE, "b")
    assert broker.sent[0].mechanism == "PLAIN"
    assert broker.sent[1].auth_bytes == b"\0alice\0sesame"


def test_wrong_password() -> None:
    broker = Broker(YES, said(code=ErrorCode.SASL_AUTHENTICATION_FAILED, text="Invalid username or password"))
    with pytest.raises(KctlError) as error:
        authenticate(broker.exchange, ALICE._replace(context="prod"), "b")
    assert error.value.what == "user alice could not log in with PLAIN: Invalid username or password"
    assert (error.value.exit_code, error.value.code) == (Exit.UNAUTHORIZED, "SASL_AUTHENTICATION_FAILED")
    assert error.value.hints == ("check: kctl contexts show prod",)


def test_mechanism_that_the_broker_does_not_take() -> None:
    broker = Broker(SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-512", "GSSAPI"]))
    with pytest.raises(KctlError) as error:
        authenticate(broker.exchange, ALICE, "b")
    assert error.value.what == "the broker does not support PLAIN; it supports SCRAM-SHA-512, GSSAPI"
    assert error.value.exit_code is Exit.UNAUTHORIZED


def test_port_without_sasl() -> None:
    with pytest.raises(KctlError, match="takes no SASL on this port") as error:
        authenticate(
            Broker(SaslHandshakeResponse(error_code=34)).exchange, ALICE._replace(security_protocol="SASL_SSL"), "b"
        )
    assert error.value.hints == ("security.protocol is SSL there",)


def test_token() -> None:
    bearer = ALICE._replace(mechanism="OAUTHBEARER", username="", token=Secret("abc.def."))
    broker = Broker(YES, said())
    authenticate(broker.exchange, bearer, "b")
    assert broker.sent[1].auth_bytes == b"n,,\x01auth=Bearer abc.def.\x01\x01"
    reason = '{"status":"invalid_token"}'
    broker = Broker(YES, said(reason.encode()), said(code=58, text=reason))
    with pytest.raises(KctlError, match=r"the bearer of the token could not log in with OAUTHBEARER: .*invalid_token"):
        authenticate(broker.exchange, bearer, "b")
    assert broker.sent[2].auth_bytes == b"\x01"


def test_broker_that_does_not_know_the_password_gets_no_further() -> None:
    class Cheat(Broker):
        def exchange(self, message: Any, version: int) -> Any:
            if len(self.sent) == 1:
                nonce = message.auth_bytes.decode().rpartition("r=")[2]
                self.answers = [said(f"r={nonce}more,s=QSXCR+Q6sek8bf92,i=4096".encode()), said(b"v=AAAA")]
            return super().exchange(message, version)

    with pytest.raises(KctlError, match="does not know the password itself") as error:
        authenticate(Cheat(YES).exchange, ALICE._replace(mechanism="SCRAM-SHA-512"), "b")
    assert error.value.exit_code is Exit.UNAUTHORIZED


def test_a_broker_that_is_silent_about_a_login_may_hold_back_its_refusal() -> None:
    for cause, is_held_back in ((TimeoutError(), True), (ConnectionResetError(), False)):

        def silent(message: Any, version: int, cause: OSError = cause) -> Any:
            if isinstance(message, SaslAuthenticateRequest):
                raise KctlError("no answer", exit_code=Exit.UNREACHABLE, hints=("wait longer",)) from cause
            return YES

        with pytest.raises(KctlError, match="no answer") as error:
            authenticate(silent, ALICE, "b")
        assert error.value.hints[-1] == "wait longer"
        assert any("hold back" in hint for hint in error.value.hints) == is_held_back
