"""What a supervisor hands to each broker of a host: connections for the store and for notices, and its private HTTP
listener.
"""

from __future__ import annotations

import socket
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

from kafkad.net.http import OPEN_METRICS_VARIABLE, TOKEN_VARIABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervised:
    """`store` is a socket to the supervisor, which serves the metadata store over it; when it ends the supervisor is
    gone, and so the broker stops. Over `notices` the broker says that it lives, and what it does. On `http` the
    supervisor asks for metrics and health, if it tells them for all; since anybody on this host can connect there, it
    shows `http_token`. It tells them to anybody where it `has_open_metrics`."""

    store: socket.socket
    notices: socket.socket
    http: socket.socket | None = None
    http_token: str | None = None
    has_open_metrics: bool = False

    @classmethod
    def inherited(cls, descriptors: Sequence[int], environment: MutableMapping[str, str]) -> Supervised:
        """Takes descriptors and token over, so that this broker's own worker processes do not keep them."""
        store, notices, *http = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        for each in (store, notices, *http):
            each.set_inheritable(False)
        return cls(
            store=store,
            notices=notices,
            http=http[0] if http else None,
            http_token=environment.pop(TOKEN_VARIABLE, None),
            has_open_metrics=environment.pop(OPEN_METRICS_VARIABLE, None) is not None,
        )
