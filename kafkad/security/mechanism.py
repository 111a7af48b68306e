"""The interface of SASL mechanisms: client messages in, challenges out, until there is a Login or a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol


class Login(NamedTuple):
    """A login that succeeded. `last` is the mechanism's last message to the client, None if it has none, not even an
    empty one."""

    user: str
    last: bytes | None = b""
    ends_ms: int | None = None
    """When the credential that was shown expires, by the wall clock; None: never."""
    token: str | None = None
    """The id of the delegation token that was shown; None: the user's own credential was."""


class LoginFailed(Exception):
    """The text is for the client; without one it is told that its credentials are invalid. `reason` is for the log."""

    def __init__(self, text: str = "", reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


class Mechanism(Protocol):
    """The server's side of one exchange. Nothing of it is used again after a Login or an exception.

    LoginFailed is for what a client may have wrong, MalformedError for what none that follows the mechanism sends.
    """

    user: str | None
    """The user that the client claims to be, once it has said so."""

    @property
    def password_of(self) -> str | None:
        """The user whose password the client shows, once it has said so. None where it shows what nobody guesses: a
        ticket or a token."""

    def respond(self, message: bytes) -> bytes | Login:
        """The answer to the client's message; a Login when that was the last one."""


Begin = Callable[[], Mechanism | None]
"""Begins an exchange; None while something that it needs is still being read."""
Mechanisms = Mapping[str, Begin]
"""By name, those that a listener offers."""
