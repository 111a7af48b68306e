"""Those who come to the door and never say who they are, beside those who log in; and what makes TLS work without
saying anything."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.test_strangers import SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.attacks.test_strangers import SETTINGS as LOGINS
from tests.broker import API_VERSIONS_V0, RawClient
from tests.certificates import Authority, client_context
from tests.net.tls_records import greeted
from tests.oracle.kafka import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

EACH = 500
SECONDS = 3
LONGEST_LOGIN_S = 3.0
"""A client that finds the door full waits until somebody has been silent for a second."""


def test_half_handshakes_and_half_logins(suffer: Callable[..., None], tmp_path: Path) -> None:
    """As many as there may be at the door: whoever means it comes through."""
    authority = Authority()
    tls, sasl = free_port(), free_port()
    trusting = client_context(authority)
    settings = LOGINS | {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,SSL:SSL",
        "ssl.keystore.location": str(authority.issue().write(tmp_path / "keys.pem")),
        "kafkad.max.unauthenticated.connections": str(EACH),
        "kafkad.max.unauthenticated.connections.per.ip": str(EACH),
    }

    def log_in() -> None:
        with RawClient(sasl, timeout=30) as client:
            assert client.exchange(SASL_HANDSHAKE)[4:6] == b"\0\0"
            assert client.exchange(SASL_AUTHENTICATE)[4:6] == b"\0\0"
        with RawClient(tls, timeout=30) as client:
            client.socket = trusting.wrap_socket(client.socket, server_hostname="localhost")

    def attack(port: int) -> None:
        with contextlib.ExitStack() as strangers:
            for number in range(EACH):
                stranger = strangers.enter_context(RawClient(tls, timeout=30))
                stranger.send(hello(trusting)[: 100 if number % 2 else None])
                stranger = strangers.enter_context(RawClient(sasl, timeout=30))
                stranger.exchange(SASL_HANDSHAKE)
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                began = time.monotonic()
                log_in()
                assert time.monotonic() - began < LONGEST_LOGIN_S

    suffer(
        f"{EACH} half handshakes and {EACH} half logins",
        attack,
        settings=settings,
        listeners={"SASL": sasl, "SSL": tls},
    )


def hello(context: ssl.SSLContext) -> bytes:
    """What a client sends first."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(received, sent, server_hostname="localhost").do_handshake()
    return sent.read()


def test_changes_of_keys(suffer: Callable[..., None], tmp_path: Path) -> None:
    """On every connection as many as it may have changed without data, again and again, each time at once."""
    connections, updates, rounds = 100, 300, 3
    authority = Authority()
    tls = free_port()
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL",
        "ssl.keystore.location": str(authority.issue().write(tmp_path / "keys.pem")),
    }
    question = len(API_VERSIONS_V0).to_bytes(4) + API_VERSIONS_V0

    def attack(port: int) -> None:
        with contextlib.ExitStack() as attackers:
            streams = []
            for _ in range(connections):
                attacker, records = asyncio.run(greeted(tls, authority))
                attackers.enter_context(attacker)
                changed = [
                    b"".join(records.key_update(asked=False) for _ in range(updates)) + records.data(question)
                    for _ in range(rounds)
                ]
                streams.append((attacker, changed))
            for number in range(rounds):
                for attacker, changed in streams:
                    attacker.sendall(changed[number])
                for attacker, _ in streams:
                    assert attacker.recv(1 << 16)

    suffer(
        f"{connections} connections with {updates} changes of keys at once",
        attack,
        settings=settings,
        listeners={"SSL": tls},
    )
