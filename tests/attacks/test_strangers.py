"""Thousands who announce half a megabyte each and never log in: what they cost, and whether somebody else gets in."""

from __future__ import annotations

import re
import socket
import struct
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.broker import KafkadProcess, RawClient
from tests.oracle.kafka import free_port

pytestmark = pytest.mark.slow

STRANGERS = 5_000
MOST_BYTES_OF_EACH = 16 * 1024
SASL_HANDSHAKE = b"\0\x11\0\x01\0\0\0\x07\xff\xff\0\x05PLAIN"
SASL_AUTHENTICATE = b"\0\x24\0\0\0\0\0\x08\xff\xff" + struct.pack(">i", 9) + b"\0alice\0pw"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="pw";'
    ),
    "kafkad.max.unauthenticated.connections": str(2 * STRANGERS),
    "kafkad.max.unauthenticated.connections.per.ip": str(2 * STRANGERS),
    "kafkad.connection.setup.timeout.ms": "120000",
}


def resident_bytes(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def test_strangers_who_announce_much_cost_little(tmp_path: Path) -> None:
    port = free_port()
    broker = KafkadProcess(tmp_path, SETTINGS)
    broker.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{broker.port},SASL://127.0.0.1:{port}"
    with broker, ExitStack() as strangers:
        before = resident_bytes(broker.pid)
        for number in range(STRANGERS):
            stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", port), 30))
            stranger.sendall(struct.pack(">i", 500 * 1024) + b"\0\x11\0\x01" * (number % 3))
        with RawClient(port, timeout=30) as alice:
            assert alice.exchange(SASL_HANDSHAKE)[4:6] == b"\0\0"
            assert alice.exchange(SASL_AUTHENTICATE)[4:6] == b"\0\0"
        grown = resident_bytes(broker.pid) - before
        assert grown < STRANGERS * MOST_BYTES_OF_EACH, f"{grown / STRANGERS:.0f} bytes each"
        print(f"{STRANGERS} strangers: {grown / STRANGERS:.0f} bytes each")
