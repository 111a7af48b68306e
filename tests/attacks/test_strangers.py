"""Strangers who announce half a megabyte each and never log in, thousands that send little of it and hundreds that send
nearly all: what they cost, and whether somebody else gets in."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.broker import KafkadProcess, RawClient
from tests.oracle.kafka import free_port

pytestmark = pytest.mark.slow

STRANGERS, TALKATIVE = 5_000, 400
MOST_BYTES_OF_EACH = 16 * 1024
MOST_MB_OF_ALL = 60
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


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkadProcess]:
    broker = KafkadProcess(tmp_path, SETTINGS)
    broker.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{broker.port},SASL://127.0.0.1:{free_port()}"
    with broker:
        yield broker


def sasl_port(broker: KafkadProcess) -> int:
    return int(broker.settings["listeners"].rpartition(":")[2])


def log_in(port: int) -> None:
    with RawClient(port, timeout=30) as alice:
        assert alice.exchange(SASL_HANDSHAKE)[4:6] == b"\0\0"
        assert alice.exchange(SASL_AUTHENTICATE)[4:6] == b"\0\0"


def test_strangers_who_announce_much_cost_little(broker: KafkadProcess) -> None:
    port = sasl_port(broker)
    with ExitStack() as strangers:
        before = resident_bytes(broker.pid)
        for number in range(STRANGERS):
            stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", port), 30))
            stranger.sendall(struct.pack(">i", 500 * 1024) + b"\0\x11\0\x01" * (number % 3))
        log_in(port)
        grown = resident_bytes(broker.pid) - before
        assert grown < STRANGERS * MOST_BYTES_OF_EACH, f"{grown / STRANGERS:.0f} bytes each"
        print(f"{STRANGERS} strangers: {grown / STRANGERS:.0f} bytes each")


def test_strangers_who_send_much_have_a_bound(broker: KafkadProcess) -> None:
    port = sasl_port(broker)
    half = struct.pack(">i", 500 * 1024) + bytes(499 * 1024)
    with ExitStack() as strangers:
        before = resident_bytes(broker.pid)
        for _ in range(TALKATIVE):
            stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", port), 30))
            with suppress(ConnectionError):
                stranger.sendall(half)
        log_in(port)
        grown_mb = (resident_bytes(broker.pid) - before) / (1 << 20)
        assert grown_mb < MOST_MB_OF_ALL, f"{grown_mb:.0f} MB"
        print(f"{TALKATIVE} strangers with half a megabyte each: {grown_mb:.0f} MB")
