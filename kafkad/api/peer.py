"""The other end of a connection, as the APIs see it: its principal, its client software, its prepared answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkad.api.prepared import NOTHING_PREPARED, Grounds, PreparedAnswers, Resting
from kafkad.security.authorizer import ANONYMOUS, Authorizer, Identity, Principal

if TYPE_CHECKING:
    from kafkad.security.quotas.line import Turn


class Peer:
    """Made when a connection opens, and told when it closes."""

    __slots__ = (
        "_grounds",
        "_resting",
        "authenticated",
        "authorizer",
        "host",
        "identity",
        "listener",
        "mechanism",
        "on_close",
        "prepared",
        "principal",
        "software",
        "token",
        "turn",
    )

    def __init__(
        self, listener: str, host: str, authorizer: Authorizer, grounds: Grounds, *, must_authenticate: bool = False
    ) -> None:
        self.listener = listener
        self.host = host
        self.authorizer = authorizer
        self.principal: Principal = ANONYMOUS
        self.identity: Identity = authorizer.identity(ANONYMOUS, host)
        """What this principal may do from its address; shared with its other connections."""
        self.authenticated = not must_authenticate
        """Until then it is only told which APIs there are, and may log in."""
        self.token: str | None = None
        """The id of the delegation token by which it has logged in."""
        self.mechanism: str | None = None
        """The SASL mechanism by which it has logged in."""
        self.software: tuple[str, str] | None = None
        """Name and version of the client, if it has said so (KIP-511)."""
        self.on_close: Callable[[], None] | None = None
        self.turn: Turn | None = None
        """Its place in the line of those who wait for a quota of fetches."""
        self.prepared: Mapping[int, PreparedAnswers] = NOTHING_PREPARED
        """By API: this peer's own, never shared. Other peers may not do what this one may."""
        self._grounds = grounds
        self._resting: Resting | None = None

    def identify(self, principal: Principal, *, mechanism: str | None = None, token: str | None = None) -> None:
        """It has shown who it is: by its certificate, or by a login. What was prepared for somebody else is dropped."""
        self.principal = principal
        self.identity = self.authorizer.identity(principal, self.host)
        self.mechanism = mechanism
        self.token = token
        self.authenticated = True
        self.forget()

    def prepare(self, key: int, answers: PreparedAnswers, topic: str) -> None:
        """`answers` has another one, which depends on what has just been seen of the topic and of this peer's rights;
        nothing may have been waited for since."""
        resting = Resting(self.forget) if self._resting is None else self._resting
        if self._grounds.rest(resting, topic):
            self.prepared = {**self.prepared, key: answers}
            self._resting = resting

    def forget(self) -> None:
        """All prepared answers."""
        resting = self._resting
        if resting is not None:
            resting.prepared, self.prepared, self._resting = self.prepared, NOTHING_PREPARED, None
            self._grounds.dropped(resting)

    def closed(self) -> None:
        """Called by the connection, once."""
        self.forget()
        if self.turn is not None:
            self.turn.leave()
            self.turn = None
        on_close, self.on_close = self.on_close, None  # who is told of it knows this peer
        if on_close is not None:
            on_close()
