"""The other end of a connection, as the APIs see it: who it is, what it said of itself, what it may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkad.security.authorizer import ANONYMOUS, Authorizer, Operation, Principal, ResourceType

if TYPE_CHECKING:
    from kafkad.api.fetch_repeat import RepeatedFetch
    from kafkad.api.offset_commit_repeat import RepeatedCommits


class Peer:
    """Made when a connection opens, and told when it closes."""

    __slots__ = (
        "authenticated",
        "authorizer",
        "host",
        "listener",
        "on_close",
        "principal",
        "produce_prefix",
        "repeated_commits",
        "repeated_fetch",
        "software",
    )

    def __init__(self, listener: str, host: str, authorizer: Authorizer, *, must_authenticate: bool = False) -> None:
        self.listener = listener
        self.host = host
        self.authorizer = authorizer
        self.principal: Principal = ANONYMOUS
        self.authenticated = not must_authenticate
        """Until then it is only told which APIs there are, and may log in."""
        self.software: tuple[str, str] | None = None
        """Name and version of the client, if it has said so (KIP-511)."""
        self.on_close: Callable[[], None] | None = None
        self.produce_prefix = 0
        """Length of the part of a Produce request that repeats."""
        self.repeated_fetch: RepeatedFetch | None = None
        self.repeated_commits: RepeatedCommits | None = None

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        return self.authorizer.allows(self.principal, self.host, operation, resource, name)

    def closed(self) -> None:
        """Called by the connection, once."""
        if self.on_close is not None:
            self.on_close()
