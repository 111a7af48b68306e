"""Java's text forms, for values that Kafka's clients and tools print."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address


@lru_cache(1024)
def address_text(host: str) -> str:
    """An address without a name: /127.0.0.1, /0:0:0:0:0:0:0:1."""
    plain, percent, scope = host.partition("%")
    address = ip_address(plain)
    if not isinstance(address, IPv6Address):
        return f"/{plain}"
    if address.ipv4_mapped is not None:
        return f"/{address.ipv4_mapped}"
    groups = ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
    return f"/{groups}{percent}{scope}"
