"""PLAIN (RFC 4616): the password itself, which has to be that of the JAAS line."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Final

from kafkad.security.mechanism import Login, LoginFailed

_PARTS: Final = 3
_LONGEST: Final = 64 * 1024
_NOBODYS: Final = b"\0 is in no password"


class Plain:
    """The texts are Kafka's: clients show them."""

    def __init__(self, users: Callable[[], Mapping[str, str]]) -> None:
        """`users` has passwords by name."""
        self.user: str | None = None
        self._users = users

    @property
    def password_of(self) -> str | None:
        return self.user

    def respond(self, message: bytes) -> Login:
        if len(message) > _LONGEST:
            raise LoginFailed
        parts = message.decode(errors="replace").split("\0", _PARTS)
        if len(parts) != _PARTS:
            raise LoginFailed(f"Invalid SASL/PLAIN response: expected {_PARTS} tokens, got {len(parts)}")
        acts_as, self.user, password = parts
        if not self.user:
            raise LoginFailed("Authentication failed: username not specified")
        if not password:
            raise LoginFailed("Authentication failed: password not specified")
        known = self._users().get(self.user)
        expected = _NOBODYS if known is None else known.encode()
        if not hmac.compare_digest(password.encode(), expected) or known is None:
            raise LoginFailed("Authentication failed: Invalid username or password")
        if acts_as not in ("", self.user):
            raise LoginFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return Login(self.user)
