"""TLS at a start: who may come in is judged by the settings in force, whatever becomes of their stores."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.broker.identity import StartError
from kafkad.broker.settings import Settings
from kafkad.broker.starting import begin_keys_and_logins
from kafkad.broker.tls import BrokerTls
from kafkad.clock import SystemClock
from kafkad.config import load
from kafkad.timers import Timers
from tests.certificates import Authority

AUTHORITY = Authority()
OWN = "listener.name.ssl.ssl."


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def begun(loop: asyncio.AbstractEventLoop, directory: Path, stored: dict[str, str]) -> ssl.SSLContext:
    """The context of a listener whose file alone is good and asks no client for a certificate."""
    keys = AUTHORITY.issue().write(directory / "keys.pem")
    trusted = AUTHORITY.write(directory / "ca.pem")
    listeners = "listeners=PLAINTEXT://127.0.0.1:9092,SSL://localhost:9093"
    file = load(None, [listeners, f"ssl.keystore.location={keys}", f"ssl.truststore.location={trusted}"], {})
    settings, clock = Settings(file), SystemClock()
    settings.override(cluster_wide={}, per_broker={OWN + name: value for name, value in stored.items()})
    tls = BrokerTls(file, loop, clock, Timers())
    begin_keys_and_logins(settings, tls)
    server = tls.server("SSL")
    assert server is not None
    return server.context


def test_a_start_ends_where_the_truststore_of_the_settings_in_force_cannot_be_read(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    gone = tmp_path / "gone.pem"
    with pytest.raises(StartError, match=r"listener SSL, .*: ssl\.truststore\.location=.*gone\.pem: cannot be read"):
        begun(loop, tmp_path, {"client.auth": "required", "truststore.location": str(gone)})


def test_who_may_come_in_does_not_go_with_a_keystore_that_cannot_be_read(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    other = Authority("Another CA").write(tmp_path / "other.pem")
    stored = {
        "keystore.location": str(tmp_path / "gone.pem"),
        "client.auth": "required",
        "truststore.location": str(other),
    }
    context = begun(loop, tmp_path, stored)
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert [dict(*each["subject"]) for each in context.get_ca_certs()] == [{"commonName": "Another CA"}]
