"""The current leader in answers of Produce and Fetch that refuse a client at another broker (KIP-951)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from kafkad.wire.primitives import put_compact_string, put_uvarint

_LEADER = Struct(">iix")
_I32 = Struct(">i")


class CurrentLeader(NamedTuple):
    """-1 each where it is not known."""

    broker: int
    epoch: int


class NodeEndpoint(NamedTuple):
    """The address at which a client reaches a leader."""

    broker: int
    host: str
    port: int
    rack: str | None


def pack_leader(tag: int, leader: CurrentLeader) -> bytes:
    """The tagged field of a partition."""
    return bytes((tag, _LEADER.size)) + _LEADER.pack(*leader)


def pack_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The tagged fields of a whole answer: the endpoints, if there are any."""
    if not endpoints:
        return b"\x00"
    body = bytearray()
    put_uvarint(body, len(endpoints) + 1)
    for broker, host, port, rack in endpoints:
        body += _I32.pack(broker)
        put_compact_string(body, host)
        body += _I32.pack(port)
        if rack is None:
            body.append(0)
        else:
            put_compact_string(body, rack)
        body.append(0)
    out = bytearray(b"\x01\x00")
    put_uvarint(out, len(body))
    return bytes(out + body)
