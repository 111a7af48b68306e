"""Login: turns an open socket into one that may be used, with TLS, then SASL."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kafkad.errors import ErrorCode
from kafkad.wire.schema import Request
from kctl.errors import Disconnected, Exit, KctlError, failure
from kctl.reach.access import Access
from kctl.texts.spelling import command

if TYPE_CHECKING:
    import socket
    import ssl

R = TypeVar("R")


class Exchange(Protocol):
    def __call__(self, request: Request[R], version: int, /) -> R:
        """Sends a request in this version, and returns the answer."""


Conversation = Generator[bytes, bytes, None]
"""Yields what to say, and is sent what is answered."""

_UNKNOWN_CA = {18, 19, 20, 21}
_NOT_YET_VALID, _EXPIRED, _OTHER_NAME, _OTHER_ADDRESS = 9, 10, 62, 64
"""OpenSSL's codes for what is wrong with a certificate (X509_V_ERR_...)."""
_IGNORE_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME


def secure(sock: socket.socket, host: str, access: Access, deadline: float) -> ssl.SSLSocket:
    """TLS on a connected socket. KctlError says what is wrong, with the address: Disconnected where a broker says
    nothing more, as one that is being stopped."""
    import ssl

    from kctl.reach.stores import tls_context

    context = tls_context(access)
    peer = sock.getpeername()
    sock.settimeout(_left(deadline))
    was_refused = True
    try:
        return context.wrap_socket(sock, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        what, hints = _certificate(error, host, peer, access, deadline)
    except OSError as error:
        what, hints = _handshake(error, access)
        was_refused = isinstance(error, ssl.SSLError) and not isinstance(
            error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)
        )
    address = f"[{host}]:{peer[1]}" if ":" in host else f"{host}:{peer[1]}"
    told = f"{address}  TLS handshake failed: {what}"
    raise KctlError(told, exit_code=Exit.UNREACHABLE, hints=hints) if was_refused else Disconnected(told, hints=hints)


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def _handshake(error: OSError, access: Access) -> tuple[str, tuple[str, ...]]:
    import ssl

    plaintext = ("a plaintext port? then security.protocol is PLAINTEXT or SASL_PLAINTEXT",)
    if isinstance(error, TimeoutError):
        return "no answer in time", plaintext
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError)):
        return "the broker closed the connection", plaintext
    if isinstance(error, ssl.SSLError) and error.reason:
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE"):
            return "the broker's answer is not TLS", plaintext
        certificate = "it may want a certificate of the client: ssl.keystore.location"
        return tls_reason(error), () if access.certificate else (certificate,)
    return str(error), ()


def tls_reason(error: ssl.SSLError) -> str:
    """An alert that the broker sent, or OpenSSL's own complaint, in words."""
    reason = (error.reason or str(error)).lower().replace("_", " ")
    _, alert, told = reason.partition(" alert ")
    return f"the broker refused: {told}" if alert else reason


def _certificate(
    error: ssl.SSLCertVerificationError, host: str, peer: tuple[Any, ...], access: Access, deadline: float
) -> tuple[str, tuple[str, ...]]:
    code = error.verify_code
    if code in _UNKNOWN_CA:
        trusted = f"the CAs of {_named(access.ca)}" if access.ca else "the CAs of this system"
        return (
            f"certificate is signed by an unknown CA ({error.verify_message})",
            (f"trusted are {trusted}; -X ssl.truststore.location=FILE, or ca in the context, names others",),
        )
    if code == _EXPIRED:
        return f"certificate has expired{_date(_presented(host, peer, access, deadline), 'notAfter')}", ()
    if code == _NOT_YET_VALID:
        return f"certificate is not valid yet{_date(_presented(host, peer, access, deadline), 'notBefore')}", ()
    if code in (_OTHER_NAME, _OTHER_ADDRESS):
        names = ", ".join(name for _, name in _presented(host, peer, access, deadline).get("subjectAltName", ()))
        return (
            f"certificate is for {names or 'no name'}, not for {host}",
            ("-X ssl.endpoint.identification.algorithm= trusts it under any name",),
        )
    return error.verify_message, ()


def _named(store: str) -> str:
    return "the PEM text given" if "-----BEGIN" in store else store


def _date(certificate: dict[str, Any], which: str) -> str:
    """` (2026-11-01)`, if it is this certificate: it may be one of a CA above it."""
    import ssl

    if which not in certificate:
        return ""
    seconds = ssl.cert_time_to_seconds(certificate[which])
    is_it = seconds < time.time() if which == "notAfter" else seconds > time.time()
    return time.strftime(" (%Y-%m-%d)", time.gmtime(seconds)) if is_it else ": one of the CA's"


def _presented(host: str, peer: tuple[Any, ...], access: Access, deadline: float) -> dict[str, Any]:
    """The broker's certificate, read on a second connection that looks at neither dates nor names."""
    import socket

    from kctl.reach.stores import tls_context

    context = tls_context(access._replace(check_hostname=False))
    context.verify_flags |= _IGNORE_TIME
    try:
        with (
            socket.create_connection(peer[:2], _left(deadline)) as again,
            context.wrap_socket(again, server_hostname=host) as secured,
        ):
            return dict(secured.getpeercert() or {})
    except OSError:
        return {}


def authenticate(exchange: Exchange, access: Access, host: str) -> None:
    """SASL with the broker on this host, after it has told its versions and before anything else is asked."""
    from kafkad.wire.messages.sasl_handshake import SaslHandshakeRequest

    response = exchange(SaslHandshakeRequest(mechanism=access.mechanism), 1)
    if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        what = f"the broker does not support {access.mechanism}; it supports {', '.join(response.mechanisms) or 'none'}"
        raise KctlError(what, exit_code=Exit.UNAUTHORIZED, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM.name)
    if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise no_login(access)
    if response.error_code:
        raise _refused(access, response.error_code, None)
    _converse(exchange, access, host)


def no_login(access: Access) -> KctlError:
    protocol = access.security_protocol.removeprefix("SASL_")
    return KctlError(
        "the broker takes no SASL on this port",
        exit_code=Exit.UNAUTHORIZED,
        code=ErrorCode.ILLEGAL_SASL_STATE.name,
        hints=(f"security.protocol is {protocol if protocol == 'SSL' else 'PLAINTEXT'} there",),
    )


_HELD_BACK = (
    "a broker may hold back the answer to a failed login, the longer the more have failed: is the password right?"
)


def _converse(exchange: Exchange, access: Access, host: str) -> None:
    """Each message of ours goes out, and the broker's answer into the making of the next one."""
    from kafkad.wire.messages.sasl_authenticate import SaslAuthenticateRequest

    conversation = _messages(access, host)
    message = next(conversation)
    while True:
        try:
            response = exchange(SaslAuthenticateRequest(auth_bytes=message), 1)
        except KctlError as error:
            if isinstance(error.__cause__, TimeoutError):
                error.hints = (_HELD_BACK, *error.hints)
            raise
        if response.error_code:
            raise _refused(access, response.error_code, response.error_message)
        try:
            message = conversation.send(response.auth_bytes)
        except StopIteration:
            return


def _messages(access: Access, host: str) -> Conversation:
    if access.mechanism == "PLAIN":
        return _plain(access)
    if access.mechanism == "OAUTHBEARER":
        return _bearer(access)
    if access.mechanism == "GSSAPI":
        return _by_ticket(access, host)
    return _scram(access)


def _plain(access: Access) -> Conversation:
    yield f"\0{access.username}\0{access.password()}".encode()


def _bearer(access: Access) -> Conversation:
    refusal = yield f"n,,\x01auth=Bearer {access.token()}\x01\x01".encode()
    if refusal:  # RFC 7628: the reason comes first, and the failure itself once it was taken note of
        yield b"\x01"


def _by_ticket(access: Access, host: str) -> Conversation:
    """The ticket is got with `keytab`, or is among those that the system has: kinit's."""
    try:
        from kctl.reach.kerberos import NoTicket, by_ticket
    except ImportError as error:
        raise KctlError(
            "logins with GSSAPI need the Python package gssapi",
            exit_code=Exit.USAGE,
            hints=("pip install gssapi",),
        ) from error
    try:
        yield from by_ticket(access.kerberos_service, host, access.username, access.keytab)
    except NoTicket as error:
        source = f"is the keytab {access.keytab} that of {access.username}?" if access.keytab else "klist shows tickets"
        raise KctlError(str(error), exit_code=Exit.UNAUTHORIZED, hints=(source,)) from error


def _scram(access: Access) -> Conversation:
    import secrets

    from kctl.reach.scram import Scram, ScramError

    hash_name = access.mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    extensions = ",tokenauth=true" if access.tokenauth else ""
    scram = Scram(hash_name, access.username, access.password(), secrets.token_hex(16), extensions)
    try:
        server_first = yield scram.first
        server_final = yield scram.final(server_first)
        scram.verify(server_final)
    except ScramError as error:
        raise _refused(access, ErrorCode.SASL_AUTHENTICATION_FAILED, f"the broker's part is wrong: {error}") from error


def _refused(access: Access, code: int, message: str | None) -> KctlError:
    by_ticket = access.mechanism == "GSSAPI"
    nobody = "the holder of the ticket" if by_ticket else "the bearer of the token"
    who = f"user {access.username}" if access.username else nobody
    secret = "the ticket" if by_ticket else "username and password" if access.username else "the token"
    where = f"kctl {command('contexts show', access.context)}" if access.context else secret
    told = f"{who} could not log in with {access.mechanism}"
    return failure(code, told, message or "the broker gives no reason", (f"check: {where}",))
