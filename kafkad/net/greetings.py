"""What a peer speaks that does not speak Kafka's protocol, by the first four bytes that it sends."""

from __future__ import annotations

_HTTP = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI")


def other_protocol(size: int) -> str:
    """To be added to an error about a frame of that size; nothing if it looks like no other protocol."""
    start = size.to_bytes(4, "big", signed=True)
    if start.startswith(b"\x16\x03"):
        return ": it begins as TLS does, which this listener does not speak (security.protocol of the client?)"
    if start in _HTTP:
        return ": it begins as HTTP does"
    return ""
