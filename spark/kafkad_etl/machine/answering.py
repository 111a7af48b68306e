"""Whether anybody accepts connections at an address, so that Spark is not started to find out."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

Address = tuple[str, int]
Connect = Callable[[Address, float], socket.socket]

SECONDS = 5.0


def silent(addresses: Iterable[Address], connect: Connect = socket.create_connection) -> str:
    """Why nobody answers at any of them; empty: somebody does."""
    reasons = []
    for host, port in addresses:
        try:
            connect((host, port), SECONDS).close()
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return ""
    return "; ".join(reasons)


def address_of(text: str, port: int) -> Address | None:
    """Of host:port, [::1]:port or host alone, whose port then is `port`; None: it is none of them."""
    host, colon, number = text.strip().rpartition(":")
    if not colon or number.endswith("]"):
        host, number = text.strip(), str(port)
    host = host.strip("[]")
    return (host, int(number)) if host and number.isdecimal() else None
