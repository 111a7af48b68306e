"""The login conversation of one connection, from its first byte, without any I/O.

Nothing but ApiVersions, SaslHandshake and SaslAuthenticate is decoded here; any other request ends the conversation.
The owner of the connection answers ApiVersions, delays refusals, and closes.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from kafkad.errors import ErrorCode, shortened
from kafkad.security.gssapi import FIRST_BYTE, GSSAPI
from kafkad.security.mechanism import Login, LoginFailed, Mechanism, Mechanisms
from kafkad.wire.apis import APIS, response_class
from kafkad.wire.frames import encode_response, read_request_header
from kafkad.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkad.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kafkad.wire.primitives import MalformedError
from kafkad.wire.schema import decode, span, within

API_VERSIONS: Final = 18
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
_HEADER_BYTES: Final = 8


class Versions(Enum):
    ASKED = auto()
    """ApiVersions is to be answered; if well, `versions_told` is to be called."""


class NotYet(Enum):
    READY = auto()
    """The mechanism is not ready. Nothing has happened: the same frame is to be given again once it may be."""


class LoggedIn(NamedTuple):
    """The login succeeded: the answer to send, and who the client is from now on."""

    answer: bytes | None
    login: Login
    mechanism: str
    lifetime_ms: int
    """0: for ever."""


class Refused(NamedTuple):
    """The conversation is over: the answer, if there is one, and the end of the connection wait for a while."""

    answer: bytes | None
    reason: str
    """For the log of this broker."""


Outcome = bytes | Versions | NotYet | LoggedIn | Refused
"""Bytes are an answer after which the conversation goes on."""


class _Next(Enum):
    VERSIONS_OR_HANDSHAKE = auto()
    HANDSHAKE = auto()
    MESSAGE = auto()
    """Of the mechanism, in a SaslAuthenticate."""
    BARE_MESSAGE = auto()
    """Of the mechanism, as it is: after a SaslHandshake of version 0, or after a ticket that came first."""
    NOTHING = auto()


class PreviousLogin(NamedTuple):
    """Who is logged in on a connection that authenticates again: it must be the same user, by the same mechanism."""

    user: str
    mechanism: str


class Conversation:
    """One login; `before` if there was another on the same connection. MalformedError ends the connection at once."""

    def __init__(
        self,
        mechanisms: Mechanisms,
        lifetime_ms: Callable[[str], int],
        now_ms: Callable[[], int],
        before: PreviousLogin | None = None,
    ) -> None:
        """`lifetime_ms` is the longest session by mechanism, 0 for any; `now_ms` the wall clock."""
        self.mechanism: str | None = None
        """The one that the client has chosen."""
        self._mechanisms = mechanisms
        self._lifetime_ms = lifetime_ms
        self._now_ms = now_ms
        self._before = before
        self._next = _Next.VERSIONS_OR_HANDSHAKE if before is None else _Next.HANDSHAKE
        self._exchange: Mechanism | None = None

    @property
    def user(self) -> str | None:
        """Whom the client says it is."""
        return self._exchange.user if self._exchange is not None else None

    def versions_told(self) -> None:
        self._next = _Next.HANDSHAKE

    def take(self, frame: memoryview) -> Outcome:
        if self._next is _Next.BARE_MESSAGE:
            return self._bare_message(bytes(frame))
        if self._next is _Next.MESSAGE:
            return self._message(frame)
        if self._next is _Next.NOTHING:
            return Refused(None, f"it was logged in by {self._before.mechanism}" if self._before else "it is over")
        if self._next is _Next.VERSIONS_OR_HANDSHAKE and GSSAPI in self._mechanisms and bytes(frame[:1]) == FIRST_BYTE:
            return self._first_ticket(bytes(frame))
        return self._request(frame)

    def _first_ticket(self, message: bytes) -> Outcome:
        """Without a SaslHandshake, which came with Kafka 0.10; franz-go left it out for longer, until 1.21."""
        if not self._begin(GSSAPI, _Next.BARE_MESSAGE):
            return NotYet.READY
        return self._bare_message(message)

    def _request(self, frame: memoryview) -> Outcome:
        if len(frame) < _HEADER_BYTES:
            return Refused(None, f"its first frame has {len(frame)} bytes, which is no request")
        key, version = int.from_bytes(frame[:2], signed=True), int.from_bytes(frame[2:4], signed=True)
        if key == API_VERSIONS:
            if self._next is _Next.HANDSHAKE:
                raise MalformedError("it asks for the API versions again before it logs in")
            return Versions.ASKED
        if key != SASL_HANDSHAKE:
            name = APIS[key].name if key in APIS else f"a request of API {key}, which is none,"
            return Refused(None, f"{name} came before a login")
        _check_version(SASL_HANDSHAKE, version)
        header, at = read_request_header(frame)
        wanted = decode(SaslHandshakeRequest, version, frame[at:]).mechanism
        offered = list(self._mechanisms)
        if wanted not in self._mechanisms:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            answer = SaslHandshakeResponse(error_code=code, mechanisms=offered)
            refusal = encode_response(SASL_HANDSHAKE, version, header.correlation_id, answer)
            return Refused(refusal, f"it asks for the mechanism {wanted[:40]!r}, not one of {', '.join(offered)}")
        if self._before is not None and wanted != self._before.mechanism:
            self.mechanism = wanted
            self._next = _Next.NOTHING
        elif not self._begin(wanted, _Next.MESSAGE if version else _Next.BARE_MESSAGE):
            return NotYet.READY
        return encode_response(
            SASL_HANDSHAKE, version, header.correlation_id, SaslHandshakeResponse(mechanisms=offered)
        )

    def _begin(self, mechanism: str, following: _Next) -> bool:
        """False if the mechanism is not ready."""
        exchange = self._mechanisms[mechanism]()
        if exchange is None:
            return False
        self.mechanism = mechanism
        self._exchange = exchange
        self._next = following
        return True

    def _message(self, frame: memoryview) -> Outcome:
        header, at = read_request_header(frame)
        key, version, correlation_id = header[:3]
        if key not in APIS:
            raise MalformedError(f"there is no API {key}")
        _check_version(key, version)
        if key != SASL_AUTHENTICATE:
            refusal = encode_response(key, version, correlation_id, _illegal(key, version))
            return Refused(refusal, f"{APIS[key].name} came in the midst of a login")
        try:
            done = self._respond(bytes(decode(SaslAuthenticateRequest, version, frame[at:]).auth_bytes))
        except LoginFailed as failure:
            text = shortened(str(failure) or self._invalid)
            answer = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text)
            return Refused(encode_response(key, version, correlation_id, answer), failure.reason or text)
        if isinstance(done, bytes):
            return encode_response(key, version, correlation_id, SaslAuthenticateResponse(auth_bytes=done))
        lifetime_ms = self._lifetime_of(done)
        response = SaslAuthenticateResponse(auth_bytes=done.last or b"", session_lifetime_ms=lifetime_ms)
        return self._logged_in(encode_response(key, version, correlation_id, response), done, lifetime_ms)

    def _bare_message(self, message: bytes) -> Outcome:
        try:
            done = self._respond(message)
        except LoginFailed as failure:
            return Refused(None, failure.reason or str(failure) or self._invalid)
        if isinstance(done, bytes):
            return _sized(done)
        answer = None if done.last is None else _sized(done.last)
        return self._logged_in(answer, done, self._lifetime_of(done))

    def _respond(self, message: bytes) -> bytes | Login:
        exchange = self._exchange
        assert exchange is not None
        try:
            done = exchange.respond(message)
        except LoginFailed:
            self._check_is_same(exchange.password_of)
            raise
        self._check_is_same(done.user if isinstance(done, Login) else exchange.password_of)
        return done

    def _check_is_same(self, user: str | None) -> None:
        """Raises LoginFailed where a session would become another user's: for a password of anybody else, right or
        wrong, so that who has a session learns nothing about it."""
        before = self._before
        if before is not None and user and user != before.user:
            raise LoginFailed(f"Cannot change principals during re-authentication from User.{before.user}: User.{user}")

    def _logged_in(self, answer: bytes | None, login: Login, lifetime_ms: int) -> LoggedIn:
        assert self.mechanism is not None
        return LoggedIn(answer, login, self.mechanism, lifetime_ms)

    def _lifetime_of(self, login: Login) -> int:
        assert self.mechanism is not None
        longest = self._lifetime_ms(self.mechanism)
        if login.ends_ms is None:
            return longest
        left = max(login.ends_ms - self._now_ms(), 1)
        return min(left, longest) if longest else left

    @property
    def _invalid(self) -> str:
        again = "" if self._before is None else "re-"
        return (
            f"Authentication failed during {again}authentication due to invalid credentials with SASL mechanism"
            f" {self.mechanism}"
        )


def _illegal(key: int, version: int) -> Any:
    """An answer of that API, with the error where it has a place for it."""
    answer = response_class(key)()
    for field in answer.__schema__.fields:
        if field.name == "error_code" and within(version, field.versions):
            answer.error_code = ErrorCode.ILLEGAL_SASL_STATE
    return answer


def _check_version(key: int, version: int) -> None:
    first, last = span(response_class(key).__schema__.versions)
    if not first <= version <= last:
        raise MalformedError(f"{APIS[key].name} in version {version} comes before a login")


def _sized(message: bytes) -> bytes:
    return len(message).to_bytes(4) + message
