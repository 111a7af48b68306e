"""What a supervisor hands to each broker of a host: its connection to the store, and its private HTTP listener."""

from __future__ import annotations

import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervised:
    """`store` is a socket to the supervisor, which serves the metadata store over it; when it ends the supervisor is
    gone, and so the broker stops. On `http` the supervisor asks for metrics and health, if it tells them for all."""

    store: socket.socket
    http: socket.socket | None = None

    @classmethod
    def of_descriptors(cls, *descriptors: int) -> Supervised:
        """Takes inherited descriptors over, so that this broker's own worker processes do not keep them open."""
        sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        for each in sockets:
            each.set_inheritable(False)
        return cls(store=sockets[0], http=sockets[1] if len(sockets) > 1 else None)
