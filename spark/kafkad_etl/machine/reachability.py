"""Checks whether anything accepts connections at an address, to avoid starting Spark just to find out."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

Address = tuple[str, int]
Connect = Callable[[Address, float], socket.socket]

SECONDS = 5.0


def unreachable(addresses: Iterable[Address], connect: Connect = socket.create_connection) -> str:
    """The reasons why none of the addresses accepts connections; empty if one does."""
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
    """Parses host:port, [::1]:port or a bare host, which gets `port`; returns None for anything else."""
    host, colon, number = text.strip().rpartition(":")
    if not colon or number.endswith("]"):
        host, number = text.strip(), str(port)
    host = host.strip("[]")
    return (host, int(number)) if host and number.isdecimal() else None
