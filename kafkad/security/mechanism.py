"""What a SASL mechanism is to the login conversation: messages in, challenges out, until somebody is logged in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol


class Login(NamedTuple):
    """Who has logged in. `last` is the mechanism's last message to the client."""

    user: str
    last: bytes = b""
    ends_ms: int | None = None
    """When what was shown ends, by the wall clock."""
    by_token: bool = False
    """A delegation token was shown, and not the user's own password."""


class LoginFailed(Exception):
    """The text is for the client; without one it is told that its credentials are invalid."""


class Mechanism(Protocol):
    """The server's side of one exchange. Nothing of it is used again after a Login or an exception.

    LoginFailed is for what a client may have wrong, MalformedError for what none that follows the mechanism sends.
    """

    user: str | None
    """Whom the client says it is, as soon as it has said so."""

    def respond(self, message: bytes) -> bytes | Login:
        """The answer to the client's message; a Login when that was the last one."""


Mechanisms = Mapping[str, Callable[[], Mechanism]]
"""By name, those that a listener offers: each call begins an exchange."""
